"""Tests of README, the changelog, the pages about models and limits, the issue form, and the output of
`make`. Each of these texts contains the facts for a reader's decision."""

from __future__ import annotations

import re
import subprocess
from itertools import dropwhile, takewhile

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from tests.documentation.pages import PAGES

README = (CHECKOUT / "README.md").read_text()
MODELS = (CHECKOUT / "docs/concepts/models.md").read_text()
LIMITS = (CHECKOUT / "docs/reference/limits.md").read_text()


def table(text: str) -> list[list[str]]:
    """Returns the cells of the first table, row by row."""
    lines = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    rows = takewhile(lambda line: line.startswith("|"), lines)
    cells = (row.strip("|").split("|") for row in rows if row.startswith("| "))
    return [[cell.strip() for cell in row] for row in cells]


def test_table_ends_before_the_next_table() -> None:
    first, second = "| a | b |\n|---|---|\n| c | d |\n", "| e | f |\n|---|---|\n| g | h |\n"
    assert table(f"text\n\n{first}\n{second}") == [["a", "b"], ["c", "d"]]


def test_models_are_defined_from_the_side_of_slurm() -> None:
    head, definition = table(MODELS)[:2]
    defined = dict(zip(head, definition, strict=True))
    assert list(defined) == ["", "over", "distant", "adjacent", "under"]
    assert "inside jobs" in defined["over"]
    assert "a tool moves nodes" in defined["distant"]
    assert "Slurm schedules both" in defined["adjacent"]
    assert "Slurm runs inside Kubernetes" in defined["under"]
    assert "## slurm-extender is adjacent" in MODELS


@pytest.mark.parametrize(
    "limit",
    [
        "One release of slurm-extender in a cluster",
        "The vendor's device plugin has to be off",
        "The node agent is no DRA driver",
        "arm64 is untested",
    ],
)
def test_limits_are_named(limit: str) -> None:
    assert limit in LIMITS


def test_readme_compares_two_schedulers_slurm_bridge_and_sunk() -> None:
    head = table(README.split("## Comparison", 1)[1])[0]
    named = [re.sub(r"\[([^]]*)\].*", r"\1", cell) for cell in head]
    assert named == ["", "two schedulers on the same nodes", "slurm-bridge", "SUNK", "slurm-extender"]


def test_readme_lists_tested_and_untested_systems() -> None:
    status = README.split("## Status", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^- \*\*(.*?)\*\*", status, re.MULTILINE) == ["Tested on", "Never tested on"]


def test_page_how_it_works_has_a_picture_of_the_parts() -> None:
    picture = (
        (CHECKOUT / "docs/concepts/how-it-works.md")
        .read_text()
        .split("```mermaid", 1)[1]
        .split("```", 1)[0]
    )
    parts = ("kube-apiserver", "kube-scheduler", "extender", "kubelet", "node agent", "slurmd")
    assert [part for part in (*parts, "slurmrestd", "slurmctld") if f"[{part}]" not in picture] == []


def test_readme_gives_the_reason_for_the_prefix() -> None:
    assert "\nAll annotations begin with `sunk.coreweave.com/`, so that" in README


def test_readme_is_short() -> None:
    before = README.split("## Documentation", 1)[0]
    assert len(before.splitlines()) < 110


def test_changelog_is_short() -> None:
    assert len((CHECKOUT / "CHANGELOG.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("command", ["preflight", "audit"])
def test_issue_form_requests_the_output_of(command: str) -> None:
    form = yaml.safe_load((CHECKOUT / ".github/ISSUE_TEMPLATE/fault.yml").read_text())
    fields = {field["id"]: field["attributes"] for field in form["body"]}
    assert fields[command]["label"] == f"Output of {command}"
    assert f"-- slurm-extender {command} -o json" in fields[command]["description"]


def test_make_without_a_target_lists_every_documented_target() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory", "MAKEFLAGS="],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    listed = set(re.findall(r"^  make ([\w-]+) +\S", printed, re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    assert set(re.findall(r"(?:`|^    )make ([\w-]+)", text, re.MULTILINE)) <= listed
