"""Tests of Slurm's pushes: a push saves the wait for a poll, and everything also works without
pushes."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.slurm.config import HOOK
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

SELDOM = {"SLURM_EXTENDER_POLL_INTERVAL_S": "60"}
# Slurm takes up to a second for a push, and the next poll would come after a minute. So a change within
# this time comes from a push.
WITHOUT_A_POLL_S = 10.0


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Starts a cluster of a single node for each release of Slurm. Slurm pushes the starts and ends of
    jobs."""
    spec = ClusterSpec(nodes=1, hooks=("PrologSlurmctld", "EpilogSlurmctld"), release=request.param)
    with (
        tempfile.TemporaryDirectory(prefix="e2e-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def push_to(cluster: Cluster, port: int, *more: str) -> None:
    """Makes Slurm push jobs to the port. `more` are lines of the hook's configuration, for example to
    push native jobs, too."""
    config = cluster.directory / "slurm" / "etc" / f"{HOOK.name}.conf"
    settings = (f"SLURM_EXTENDER_HOOKS_URLS=http://127.0.0.1:{port}", *more)
    kept = [line for line in config.read_text().splitlines() if "TOKEN_FILE" in line]
    config.write_text("\n".join([*settings, *kept, ""]))


@pytest.fixture
def nobody(cluster: Cluster) -> Iterator[socket.socket]:
    """Server that accepts connections and never answers. Slurm pushes all jobs to the server, even
    native jobs."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as silent:
        silent.settimeout(5)
        push_to(cluster, silent.getsockname()[1], "SLURM_EXTENDER_JOB_ID_FIRST=1")
        yield silent
    push_to(cluster, cluster.ports["extender-hooks"])


@pytest.fixture
def all_pushed(cluster: Cluster) -> Iterator[None]:
    """Makes Slurm push native jobs to the extender, too."""
    push_to(cluster, cluster.ports["extender-hooks"], "SLURM_EXTENDER_JOB_ID_FIRST=1")
    yield
    push_to(cluster, cluster.ports["extender-hooks"])


def restart_extender(actors: Actors, settings: dict[str, str]) -> None:
    if actors.cluster.is_running("extender"):
        actors.cluster.stop("extender")
    actors.cluster.start("extender", env=settings)


def wait_for_start(actors: Actors, name: str) -> float:
    """Waits until the job runs. Returns the seconds for which the job was CONFIGURING, because
    PrologSlurmctld ran."""
    configuring = None
    while (job := actors.squeue().get(name)) is None or job.state != "RUNNING":
        if job is not None and job.state == "CONFIGURING":
            configuring = configuring or time.monotonic()
    return time.monotonic() - configuring if configuring else 0.0


def test_a_queued_pod_is_bound_when_its_job_starts_without_a_poll(quiet: Actors) -> None:
    actors = quiet
    restart_extender(actors, SELDOM)
    actors.create("first", cpu="8")
    actors.bound("first", WITHOUT_A_POLL_S)
    actors.create("next", cpu="8")
    actors.queued("next")
    actors.delete("first")
    actors.gone("first")
    assert actors.bound("next", WITHOUT_A_POLL_S) == "node-1"


def test_a_cancelled_job_evicts_its_pod_without_a_poll(quiet: Actors) -> None:
    actors = quiet
    restart_extender(actors, SELDOM)
    actors.create("p")
    actors.bound("p", WITHOUT_A_POLL_S)
    actors.scancel("p")
    eventually(lambda: actors.events("p").get("SlurmJobCancelled"), "told", WITHOUT_A_POLL_S)
    actors.gone("p", WITHOUT_A_POLL_S)


def test_unanswered_pushes_delay_no_job_and_polls_replace_the_pushes(
    quiet: Actors, nobody: socket.socket
) -> None:
    actors = quiet
    restart_extender(actors, {})
    sbatch = ("sbatch", "-n", "1", "--mem=100", "-J", "native", "--wrap", "sleep 600")
    actors.cluster.run_slurm(*sbatch, user="alice")
    assert wait_for_start(actors, "native") < 1
    nobody.accept()[0].close()  # Slurm has pushed the job
    actors.create("p")
    actors.bound("p")
    actors.scancel("p")
    actors.gone("p")
    actors.cluster.run_slurm("scancel", "--name", "native")


@pytest.mark.usefixtures("all_pushed")
def test_native_jobs_start_while_the_extender_is_down(quiet: Actors) -> None:
    actors = quiet
    sbatch = ("sbatch", "-n", "1", "--mem=100", "-J", "native", "--wrap", "sleep 600")
    actors.cluster.run_slurm(*sbatch, user="alice")
    assert wait_for_start(actors, "native") < 1
    actors.cluster.run_slurm("scancel", "--name", "native")
