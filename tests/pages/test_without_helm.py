"""Tests that docs/tasks/without-helm.md names the commands that the wheel has."""

from __future__ import annotations

import tomllib

import pytest
import typer

from deploy.local.layout import CHECKOUT
from extender.commands.command_line import app as extender_app
from node_agent.command_line import app as agent_app


@pytest.mark.parametrize(
    ("program", "app"), [("slurm-extender", extender_app), ("node-agent", agent_app)]
)
def test_table_lists_the_commands_of_the_program(program: str, app: typer.Typer) -> None:
    page = (CHECKOUT / "docs" / "tasks" / "without-helm.md").read_text()
    commands = ", ".join(f"`{name}`" for name in typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert f"| `{program}` | {commands} |" in page


def test_page_has_each_command_of_the_wheel() -> None:
    page = (CHECKOUT / "docs" / "tasks" / "without-helm.md").read_text()
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    assert [name for name in scripts if f"`{name}`" not in page] == []


def test_rendered_file_has_no_helm_hooks() -> None:
    """If the file contained the Job of the uninstallation, `kubectl apply` would run this Job, and the
    Job would end Slurm's jobs."""
    page = (CHECKOUT / "docs" / "tasks" / "without-helm.md").read_text()
    assert " --no-hooks " in page
