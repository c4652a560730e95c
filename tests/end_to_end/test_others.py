"""Tests of unmanaged Pods while no extender runs, and of the options in docs/concepts/scope.md.

A native job fills the node, and kube-scheduler does not know of the job. So any Pod that is bound to the
node was bound without the extender.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import scheduler_configuration
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec
from extender.unmanaged.free_capacity import FULL
from tests.end_to_end.actors import Actors, pod
from tests.end_to_end.test_no_preemption import URGENT, make_class
from tests.end_to_end.test_unmanaged_pods import all_native_run, reason, sbatch
from tests.eventually import eventually
from tests.kube_scheduler.entries import entry, shown_for_others

pytestmark = pytest.mark.real

OTHERS = "default-scheduler"
UNGATED = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])


@contextmanager
def living_in(spec: ClusterSpec) -> Iterator[Actors]:
    with (
        tempfile.TemporaryDirectory(prefix="others-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        actors = Actors(cluster)
        yield actors
        actors.close()


@contextmanager
def no_extender(actors: Actors) -> Iterator[None]:
    actors.cluster.kill("extender")
    try:
        yield
    finally:
        actors.cluster.start("extender")


def fill_the_node(actors: Actors) -> None:
    sbatch(actors, "node-1", cpus=8, memory_mb=1000, gpus=0)
    all_native_run(actors, 1)


def some_pod_of_others_finds_no_room(actors: Actors) -> None:
    """Creates unmanaged Pods until a Pod finds no room. /filter may not know of a new job yet, so the
    first Pods may be bound."""

    def seen(name: str) -> bool:
        return actors.node_of(name) is not None or FULL in reason(actors, name)

    for name in (f"before-{number}" for number in range(50)):
        actors.create(name, cpu="10m", scheduler=OTHERS)
        eventually(partial(seen, name), f"{name} seen")
        if actors.node_of(name) is None:
            return
    pytest.fail("nobody is fitted into what Slurm leaves")


def gated(actors: Actors, name: str) -> bool:
    return bool((actors.see(name) or {})["spec"].get("schedulingGates"))


def runs_where_it_is(actors: Actors, name: str) -> bool:
    job = actors.job_of(name)
    return job is not None and (job.state, job.node) == ("RUNNING", actors.node_of(name))


def test_unmanaged_pods_of_a_shared_kube_scheduler_wait_for_an_extender(actors: Actors) -> None:
    with no_extender(actors):
        actors.create("u", scheduler=OTHERS)
        actors.event("u", "FailedScheduling")
        assert actors.node_of("u") is None
    actors.bound("u")


@pytest.fixture(
    scope="module",
    params=[
        ClusterSpec(nodes=1, own_scheduler=True),
        ClusterSpec(nodes=1, own_scheduler=True, ignorable=True),
    ],
    ids=["apart", "apart and fitted"],
)
def clusters_apart(request: pytest.FixtureRequest) -> Iterator[Actors]:
    with living_in(request.param) as actors:
        cluster = actors.cluster
        (others,) = cluster.spec.other_scheduler_names
        asks = entry(scheduler_configuration(others, Layout(cluster.directory)).read_text())
        assert asks == (shown_for_others() if cluster.spec.ignorable else None)
        make_class(cluster)
        yield actors


@pytest.fixture
def apart(clusters_apart: Actors) -> Iterator[Actors]:
    clusters_apart.begin()
    yield clusters_apart
    clusters_apart.clean_up()


def test_managed_pods_can_have_a_separate_kube_scheduler(apart: Actors) -> None:
    """With a separate kube-scheduler, only managed Pods wait for a missing extender. A managed Pod waits
    even after a user has removed the gate of the Pod."""
    actors = apart
    fill_the_node(actors)
    actors.create("p")
    actors.queued("p")
    if actors.cluster.spec.ignorable:
        some_pod_of_others_finds_no_room(actors)
    else:
        actors.create("before", scheduler=OTHERS)
        actors.bound("before")
    with no_extender(actors):
        actors.create("u", scheduler=OTHERS)
        actors.bound("u")
        assert actors.apply(pod("refused")).returncode != 0
        actors.cluster.kubectl("patch", "pod", actors.full("p"), "--type=json", "-p", UNGATED)
        actors.event("p", "FailedScheduling")
        assert actors.node_of("p") is None
    actors.cluster.run_slurm("scancel", "-u", "alice")
    actors.bound("p")
    assert runs_where_it_is(actors, "p")


def test_kube_scheduler_that_asks_the_extender_evicts_no_managed_pod(apart: Actors) -> None:
    actors = apart
    actors.create("p", cpu="8")
    actors.bound("p")
    actors.create("u", cpu="8", scheduler=OTHERS, **URGENT)
    if actors.cluster.spec.ignorable:
        assert "preemption: " in actors.event("u", "FailedScheduling")
        assert "deletionTimestamp" not in (actors.see("p") or {})["metadata"]
    else:
        actors.gone("p")
        actors.bound("u")


@pytest.fixture(scope="module")
def careless() -> Iterator[Actors]:
    """Starts a cluster with a single kube-scheduler for all Pods. The kube-scheduler ignores errors of
    the extender."""
    with living_in(ClusterSpec(nodes=1, ignorable=True)) as actors:
        yield actors


@pytest.fixture
def ignoring(careless: Actors) -> Iterator[Actors]:
    careless.begin()
    yield careless
    careless.clean_up()


def test_kube_scheduler_that_ignores_errors_binds_ungated_pods_without_a_job(
    ignoring: Actors,
) -> None:
    """The Pod with the gate waits for an extender. kube-scheduler binds the Pod without the gate, and
    the Pod stays, without a job."""
    actors = ignoring
    fill_the_node(actors)
    for name in ("gated", "ungated"):
        actors.create(name)
        actors.queued(name)
    with no_extender(actors):
        actors.create("u", scheduler=OTHERS)
        actors.bound("u")
        actors.cluster.kubectl("patch", "pod", actors.full("ungated"), "--type=json", "-p", UNGATED)
        actors.bound("ungated")
        assert actors.node_of("gated") is None
    eventually(lambda: actors.job_of("ungated") is None, "no job waits for who is bound")
    assert actors.node_of("ungated") == "node-1"
    actors.cluster.run_slurm("scancel", "-u", "alice")
    actors.bound("gated")
    assert runs_where_it_is(actors, "gated")


def test_kube_scheduler_that_ignores_errors_binds_pods_rejected_by_bind(ignoring: Actors) -> None:
    """slurmrestd does not run, so /bind fails, and kube-scheduler binds the Pod itself. The Pod's job
    has ended before the Binding."""
    actors = ignoring
    actors.cluster.stop("kube-scheduler")
    actors.create("p")
    eventually(lambda: actors.job_of("p") is not None and not gated(actors, "p"), "Slurm granted a node")
    actors.cluster.kill("slurmrestd")
    actors.scancel("p")
    actors.cluster.start("kube-scheduler")
    actors.bound("p")
    assert actors.job_of("p") is None
    actors.cluster.start("slurmrestd")
    actors.gone("p")  # evicted, because the job has ended
