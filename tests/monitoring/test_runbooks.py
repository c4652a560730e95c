"""Tests of the first commands of each runbook on a real cluster, as an operator types the
commands.

The extender and the node agents are no Pods in this cluster, so kubectl finds no such Pods. If a command
searches a log (`| grep`), the log need not contain a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.chart import NAMESPACE
from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from tests.documentation.commands import commands
from tests.documentation.pages import blocks
from tests.documentation.test_commands import Shell
from tests.end_to_end.actors import Actors

FIRST = ("kubectl", "scontrol", "sinfo", "squeue")
"""Programs that a first command may use. Every operator has these programs."""
RUNBOOKS = sorted((CHECKOUT / "docs/troubleshooting/runbooks").glob("Slurm*.md"))
OURS = "run by tests/monitoring/test_runbooks.py"
IN_THE_POD = "kubectl -n NAMESPACE exec deployment/slurm-extender -c extender -- "
PLACES = {IN_THE_POD: "", "NAMESPACE": NAMESPACE, "PARTITION": "main"}
"""Placeholders on the pages, and their values in this cluster."""


def first_commands(page: Path) -> Iterator[str]:
    for block in blocks(page):
        if block.mark is not None and f"{block.mark.kind} {block.mark.what}" == OURS:
            yield from (command.text for command in commands(block))


ALL = sorted({command for page in RUNBOOKS for command in first_commands(page)})


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_where_to_look_begins_with_a_command(page: Path) -> None:
    _, where = page.read_text().split("## Where to look\n\n")
    assert where.startswith(f"<!-- {OURS} -->\n\n    $ ")
    assert all(command.startswith(FIRST) for command in first_commands(page))


@pytest.fixture(scope="module")
def called(actors: Actors) -> None:
    """Has kube-apiserver call a webhook."""
    actors.create("first")


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path, called: None) -> Shell:
    return Shell(cluster, tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("command", ALL)
def test_a_first_command_runs(shell: Shell, command: str) -> None:
    for place, meant in PLACES.items():
        command = command.replace(place, meant)
    shell.run(command.partition("|")[0] if " logs " in command else command)
