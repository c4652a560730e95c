"""Tests of the first commands of each runbook: a real cluster runs the commands as an operator types
them.

The extender and the node agents are processes in this cluster, so kubectl finds no Pods of theirs. If a
command searches a log (`| grep`), the search may find nothing.
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
"""Programs with which a first command may begin, because every operator has them."""
RUNBOOKS = sorted((CHECKOUT / "docs/troubleshooting/runbooks").glob("Slurm*.md"))
OURS = "run by tests/monitoring/test_runbooks.py"
IN_THE_POD = "kubectl -n NAMESPACE exec deployment/slurm-extender -c extender -- "
PLACES = {IN_THE_POD: "", "NAMESPACE": NAMESPACE, "PARTITION": "main"}
"""Texts that a reader of the pages must replace, with the values in this cluster."""


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
    """Creates a Pod, so that kube-apiserver calls a webhook."""
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
