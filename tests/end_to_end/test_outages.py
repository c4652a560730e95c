"""Tests of outages of each system and of the links: running Pods stay, queues continue, and the extender
reports a problem."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.processes.proxy import EMPTY, ERROR, GARBAGE, HEALTHY, REFUSE, SLOW, STALL
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually

pytestmark = pytest.mark.real

EXTENDER = "extender"
LASTS_S = 4.0
"""Seconds for which an outage continues after /readyz has named the problem. Every poll and watch tries
again in this time."""
FAILED = {"effect failed", "Event not made", "not audited", "not bound", "feasible Nodes not written"}
ANSWERED = {"id_taken", "fresher", "gone"}
"""Outcomes that need an answer of the system. Such an outcome may occur before the problem ends in the
log: the outage is over, but other calls have not tried again."""
SAVED_S = 6.0
"""Time after which Slurm has saved a new job. Slurm needs up to 5 s."""


@pytest.fixture(scope="module")
def shaky() -> Iterator[Cluster]:
    """Starts a cluster of two nodes, with links that can fail. A Pod fills a node."""
    with (
        tempfile.TemporaryDirectory(prefix="outages-") as directory,
        Cluster.up(ClusterSpec(nodes=2, links=True), Path(directory)) as cluster,
    ):
        cluster.stop(EXTENDER)
        cluster.start(EXTENDER, env={"SLURM_EXTENDER_SLURM_TIMEOUT_S": "3"})
        yield cluster


@pytest.fixture
def actors(shaky: Cluster) -> Iterator[Actors]:
    actors = Actors(shaky)
    yield actors
    actors.clean_up()
    actors.close()


@contextmanager
def outage(cluster: Cluster, of: str, how: str) -> Iterator[None]:
    """Causes an outage of a component during the block. `how` is a fault of the extender's link, or
    "kill"."""
    if how == "kill":
        cluster.kill(of)
    else:
        cluster.disturb(EXTENDER, of, how)
    try:
        yield
    finally:
        if how == "kill":
            cluster.start(of)
        else:
            cluster.disturb(EXTENDER, of, HEALTHY)


def problems(actors: Actors) -> list[str]:
    return list(actors.ready()[1]["problems"])


def problems_by_metrics(actors: Actors) -> set[str]:
    url = f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics"
    named = 'slurm_extender_component_degraded{component="'
    lines = fetch(url).text.splitlines()
    return {
        line.removeprefix(named).split('"')[0]
        for line in lines
        if line.startswith(named) and line.endswith(" 1.0")
    }


@pytest.mark.parametrize(
    ("of", "part", "faults"),
    [
        ("slurmrestd", "Slurm", ("kill", STALL, GARBAGE, ERROR, EMPTY)),
        ("kube-apiserver", "Kubernetes", ("kill", REFUSE, STALL, GARBAGE)),
    ],
)
def test_outages_are_reported_once_and_end_no_pod(
    actors: Actors, of: str, part: str, faults: tuple[str, ...]
) -> None:
    """The log has one line at the start and one line at the end of a problem, although all callers of
    the system fail. The Pod that waits during one outage leaves during the next outage."""
    for name in ("runs", "pod-0"):
        actors.create(name, cpu="8")
        actors.bound(name)
    for number, how in enumerate(faults):
        fails_once(actors, (of, how), part, (f"pod-{number}", f"pod-{number + 1}"))


def fails_once(actors: Actors, outage_is: tuple[str, str], part: str, pods: tuple[str, str]) -> None:
    """Checks one outage. A Pod runs, the first of `pods` leaves, and the second waits for the Node of
    the first."""
    leaves, waits = pods
    before = len(log(actors))
    actors.create(waits, cpu="8")
    actors.queued(waits)
    jobs, node = actors.squeue(), actors.node_of("runs")
    stay = jobs.keys() - {actors.job_name(leaves)}
    with outage(actors.cluster, *outage_is):
        eventually(lambda: part in problems(actors), f"/readyz tells of {outage_is}", 60)
        assert problems_by_metrics(actors) == {part}
        if outage_is != ("kube-apiserver", "kill"):
            actors.delete(leaves)
        until = time.monotonic() + LASTS_S
        while time.monotonic() < until:
            assert problems(actors) == [part]
            time.sleep(0.1)
        assert actors.squeue().keys() >= stay
    if actors.see(leaves) is not None:
        actors.delete(leaves)
    actors.bound(waits, within=60)
    eventually(lambda: not problems(actors), f"{outage_is} over", 60)
    assert not problems_by_metrics(actors)
    actors.gone(leaves)
    after = actors.squeue()
    assert actors.node_of("runs") == node
    assert after.keys() == stay
    assert {after[job].id for job in after} == {jobs[job].id for job in after}
    assert_is_told_once(log(actors)[before:], part)


def log(actors: Actors) -> list[dict[str, Any]]:
    """Returns the lines of the extender's log."""
    lines = (actors.cluster.logs / "extender.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def assert_is_told_once(lines: list[dict[str, Any]], part: str) -> None:
    """Asserts that the log has one problem with a start and an end, and no failures in between."""
    told = [number for number, line in enumerate(lines) if line["event"].startswith("problem")]
    assert len(told) == 2, [lines[number] for number in told]
    begins, over = (lines[number] for number in told)
    assert (begins["event"], begins["level"], begins["part"]) == ("problem", "warning", part)
    assert begins["error"]
    assert (over["event"], over["level"], over["part"]) == ("problem ended", "info", part)
    assert over["lasted_s"] >= LASTS_S
    meanwhile = lines[told[0] : told[1]]
    failed = [line for line in meanwhile if line["event"] in FAILED]
    assert not [line for line in failed if line.get("outcome") not in ANSWERED]


@pytest.mark.parametrize("of", ["slurmrestd", "kube-apiserver"])
def test_slow_system_is_no_problem(actors: Actors, of: str) -> None:
    """Every part of an answer is 0.3 s late."""
    with outage(actors.cluster, of, SLOW):
        actors.create("p")
        actors.bound("p", within=60)
        actors.scancel("p")
        actors.gone("p", within=60)
    assert not problems(actors)


def set_clock(clock: Path, seconds: int) -> None:
    """Sets the error of the extender's clock. The extender reads the file at any moment, so the file is
    never empty."""
    new = clock.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(clock)


def test_clock_change_affects_no_pod(actors: Actors, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    argv = [sys.executable, "-m", "tests.end_to_end.stepping_extender"]
    actors.cluster.stop(EXTENDER)
    actors.cluster.start(EXTENDER, argv=argv, env={"SLURM_EXTENDER_CLOCK": str(clock)})
    try:
        actors.create("stays")
        node = actors.bound("stays")
        for number, hours in enumerate((3, -3, 0)):
            set_clock(clock, hours * 3600)
            leaves, waits = f"leaves-{number}", f"waits-{number}"
            actors.create(leaves, cpu="7")
            actors.bound(leaves)
            actors.scancel(leaves)
            actors.gone(leaves)
            actors.create(waits)
            actors.bound(waits)
            actors.delete(waits)
            eventually(lambda job=waits: actors.job_of(job) is None, "its job is gone")  # type: ignore[misc]
        assert not problems(actors)
        assert actors.node_of("stays") == node
    finally:
        actors.cluster.stop(EXTENDER)
        actors.cluster.start(EXTENDER)
    assert actors.node_of("stays") == node


# A full disk


@pytest.fixture(params=list(DEBIAN_SUITES))
def people_of_a_small_disk(request: pytest.FixtureRequest) -> Iterator[Actors]:
    """Starts a cluster with Slurm's state on a file system of 1 MB. The file system ends with the
    cluster's namespace."""
    with (
        tempfile.TemporaryDirectory(prefix="disk-") as directory,
        Cluster.up(ClusterSpec(nodes=2, release=request.param), Path(directory)) as cluster,
    ):
        owner = inside(cluster, "stat", "--format=uid=%u,gid=%g", str(state_folder(cluster)))
        options = f"size=1m,{owner.strip()}"
        inside(cluster, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(state_folder(cluster)))
        cluster.stop("slurmctld")
        cluster.start("slurmctld")
        actors = Actors(cluster)
        yield actors
        actors.close()


def state_folder(cluster: Cluster) -> Path:
    """Returns the path of Slurm's state in the supervisor's namespace."""
    return cluster.directory / "root/var/lib/slurm/state"


def inside(cluster: Cluster, *argv: str) -> str:
    """Runs a program in the cluster's mount namespace."""
    enter = ("nsenter", "--target", str(cluster.pid("slurmctld")), "--mount")
    return subprocess.run([*enter, *argv], check=True, capture_output=True, text=True).stdout


def test_full_disk_of_slurmctld_ends_no_pod(people_of_a_small_disk: Actors) -> None:
    """slurmctld continues with a full disk, and reports the error only in the log. A killed slurmctld
    has lost the unsaved state."""
    actors = people_of_a_small_disk
    cluster = actors.cluster
    actors.create("before")
    node = actors.bound("before")
    job = actors.job_of("before")
    time.sleep(SAVED_S)
    filler = str(state_folder(cluster) / "filler")
    inside(cluster, "sh", "-c", f"dd if=/dev/zero of={filler} bs=4k || true")
    actors.create("during")
    beside = actors.bound("during")
    log = cluster.logs / "slurmctld.log"
    eventually(lambda: "No space left on device" in log.read_text(), "slurmctld noticed")
    cluster.kill("slurmctld")
    cluster.start("slurmctld")
    actors.create("after", annotations={"user-id": "2001"})  # a job with its own user is queued first
    if actors.cluster.spec.release == "24.11":  # 24.11 writes a file for each queued job
        eventually(lambda: "writing" in actors.condition("after").get("message", ""), "it is told")
    time.sleep(LASTS_S)
    inside(cluster, "rm", filler)
    cluster.stop("slurmctld")  # 24.11 removes incomplete files of jobs only at the start
    cluster.start("slurmctld")
    actors.bound("after", within=60)
    eventually(lambda: runs_on(actors, "during") == beside, "it has a placeholder again", 60)
    assert actors.node_of("during") == beside
    assert actors.node_of("before") == node
    assert actors.job_of("before") == job


def runs_on(actors: Actors, name: str) -> str | None:
    job = actors.job_of(name)
    return job.node if job and job.state == "RUNNING" else None
