"""Test of the Job of examples/23-mpi. The Job's Pods run in namespaces of this machine.

The Pods have Debian's sshd and Open MPI, and the script and configuration of the manifest.
tests/examples runs the same Job on a cluster that has no real containers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.mpi.pods import Pods, container, pods
from tests.mpi.tree import BARRIER, tree

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

COUNT, RANKS_EACH = 3, 2


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """The Pods of the Job. All Pods except the first Pod are running."""
    with pods(tree(), tmp_path_factory.mktemp("mpi"), COUNT, RANKS_EACH) as running:
        yield running


def start_first(job: Pods, *program: str) -> subprocess.Popen[str]:
    return job.start(0, *container()["command"], *program)


def test_the_first_pod_starts_ranks_of_one_program_on_all_pods(job: Pods) -> None:
    first = start_first(job, "sh", "-c", f"hostname; exec {BARRIER}")
    printed, _ = first.communicate(timeout=120)
    assert first.returncode == 0
    places = [f"mpi-{index}" for index in range(COUNT) for _ in range(RANKS_EACH)]
    assert sorted(printed.splitlines()) == [f"{COUNT * RANKS_EACH} ranks", *places]
