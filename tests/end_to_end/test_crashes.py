"""Tests of the extender with kill -9 at each effect: every Pod is bound, and has a single
placeholder."""

from __future__ import annotations

import signal
import sys

import httpx
import pytest

from tests.end_to_end.actors import Actors
from tests.end_to_end.crashing_extender import CRASHED
from tests.eventually import eventually

pytestmark = pytest.mark.real

SIDES = ("before", "after")
TO_SLURM = ("SlurmRest.allocate", "SlurmRest.submit", "SlurmRest.cancel", "SlurmRest.job")
TO_KUBERNETES = (
    "KubernetesRest.patch_pod",
    "KubernetesRest.bind_pod",
    "KubernetesRest.patch_pod_status",
    "KubernetesRest.create_event",
    "KubernetesRest.delete_pod",
)


class Doomed:
    """Starts extenders that die one after the other at the given points, and then a healthy extender."""

    def __init__(self, actors: Actors, *points: str, **env: str) -> None:
        self.points = points
        self._cluster = actors.cluster
        self._log = actors.cluster.logs / "extender.log"
        self._before = len(self._crashes())
        self._healthy = False
        argv = [sys.executable, "-m", "tests.end_to_end.crashing_extender"]
        self._cluster.start(
            "extender", argv=argv, env={"SLURM_EXTENDER_CRASH_AT": " ".join(points), **env}
        )

    def are_dead(self) -> bool:
        """Returns True after the crashes at all points. Starts the healthy extender at the first call
        after the last crash."""
        if not self._healthy and not self._cluster.is_running("extender"):
            assert self._cluster.wait_exit("extender") == -signal.SIGKILL
            self._cluster.start("extender")
            self._healthy = True
        return self._healthy and self.died() == self.points

    def died(self) -> tuple[str, ...]:
        """Returns the points of all crashes so far."""
        return self._crashes()[self._before :]

    def _crashes(self) -> tuple[str, ...]:
        lines = self._log.read_text().splitlines()
        return tuple(line.removeprefix(CRASHED) for line in lines if line.startswith(CRASHED))


def on_both_sides(*calls: str) -> list[str]:
    return [f"{call}:{side}" for call in calls for side in SIDES]


def test_a_crash_while_an_allocation_is_given_back_leaves_one_placeholder(quiet: Actors) -> None:
    """kube-scheduler pauses until the deadline for the Pod's Binding has passed. The extender then
    writes the Pod's next attempt, and then ends the job."""
    actors, cluster = quiet, quiet.cluster
    points = on_both_sides("Dispatcher._write_attempt")
    doomed = Doomed(actors, *points, SLURM_EXTENDER_UNBOUND_DEADLINE_S="1")
    cluster.pause("kube-scheduler")
    try:
        actors.create("p")
        eventually(doomed.are_dead, "both die")
    finally:
        cluster.resume("kube-scheduler")
    node = actors.bound("p", within=60)
    job = actors.job_of("p")
    assert job is not None
    assert (job.state, job.node) == ("RUNNING", node)
    eventually(lambda: len(actors.squeue()) == 1, "one job")


@pytest.mark.one_release("The update of a waiting job is tested on each release in tests/slurm_client")
def test_crash_during_the_update_of_excluded_nodes_loses_nothing(quiet: Actors) -> None:
    actors, cluster = quiet, quiet.cluster
    doomed = Doomed(actors, *on_both_sides("Dispatcher._exclude_nodes"))
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        actors.create(name, cpu="8")
    for name in names:
        actors.bound(name)
    actors.create("next", cpu="8")
    actors.queued("next")
    cordoned = str(actors.node_of(names[0]))
    cluster.kubectl("cordon", cordoned)
    try:
        eventually(doomed.are_dead, "both die")
        eventually(lambda: actors.scontrol("next")["ExcNodeList"] == cordoned, "Slurm is told")
        actors.delete(names[1])
        assert actors.bound("next") != cordoned
    finally:
        cluster.kubectl("uncordon", cordoned)


def created(actors: Actors, name: str) -> bool:
    """Creates a Pod. Returns False if admission refuses the Pod because the extender is dead."""
    try:
        actors.create(name, cpu="8")
    except httpx.HTTPStatusError as error:
        if "slurm-extender.io" not in error.response.text:
            raise
        return False
    return True


def jobs_ever_granted(actors: Actors) -> dict[str, int]:
    """Returns how many jobs of each Pod ever got a node, with the ended jobs that Slurm still
    remembers."""
    shown = actors.cluster.run_slurm("squeue", "-h", "-t", "all", "-o", "%j|%N").stdout
    granted = [job for job, nodes in (line.split("|") for line in shown.splitlines()) if nodes]
    return {name: granted.count(name) for name in granted}


def test_crash_during_a_slurm_request_keeps_every_pod_and_one_placeholder(quiet: Actors) -> None:
    nothing_is_lost(quiet, *TO_SLURM)


@pytest.mark.one_release(
    "The crash interrupts a request to Kubernetes; each request to Slurm is interrupted on each release"
)
def test_crash_during_a_kubernetes_request_keeps_every_pod_and_one_placeholder(quiet: Actors) -> None:
    nothing_is_lost(quiet, *TO_KUBERNETES)


def nothing_is_lost(actors: Actors, *calls: str) -> None:
    """Kills the extender on both sides of each call while Pods come, wait, go and are evicted. After a
    crash before a call, the next extender makes the call."""
    doomed = Doomed(actors, *on_both_sides(*calls))
    names = [f"p-{number}" for number in range(6)]

    def settled(*bound: str) -> bool:
        doomed.are_dead()
        actors.squeue()  # fails if two live jobs have the same name
        return all(actors.node_of(name) for name in bound)

    def create(name: str) -> None:
        eventually(lambda: settled() and created(actors, name), f"{name} created", 60)

    def next_is(point: str) -> None:
        """Waits for all crashes ahead of this point. The test causes the call of this point only once,
        so the call must not come earlier."""
        if point in doomed.points:
            ahead = doomed.points.index(point)
            eventually(lambda: settled() and len(doomed.died()) >= ahead, f"crashes before {point}", 60)

    def told(name: str) -> None:
        eventually(lambda: settled() and actors.condition(name), f"{name} is told why it waits", 60)

    for name in names[:4]:  # fill all nodes; the others have to wait in Slurm's queue
        create(name)
        eventually(lambda: settled(name), f"{name} bound", 60)  # noqa: B023 -- called at once
    create(names[4])
    told(names[4])
    next_is("KubernetesRest.create_event:after")  # a crash may lose an Event
    create(names[5])
    told(names[5])
    next_is("SlurmRest.cancel:before")
    actors.delete(names[0])  # the fifth Pod gets the node of the first Pod
    eventually(lambda: settled(names[4]), "the fifth bound", 60)
    next_is("KubernetesRest.delete_pod:before")
    actors.scancel(names[1])  # the second Pod is evicted
    eventually(lambda: settled() and actors.see(names[1]) is None, "the second gone", 60)
    eventually(lambda: settled(names[5]), "the sixth bound", 60)

    eventually(lambda: settled() and doomed.are_dead(), f"each crash of {doomed.points}", 20)
    left = {actors.job_name(name): name for name in names[2:]}
    eventually(lambda: set(actors.squeue()) == set(left), "no job left over")
    for job, name in left.items():
        seen = actors.squeue()[job]
        assert (seen.state, seen.node) == ("RUNNING", actors.node_of(name))
    assert {job: jobs_ever_granted(actors).get(job) for job in left} == dict.fromkeys(left, 1)
