"""Pods that are not Slurm's while no extender is up, and the ways that docs/scope.md has for them.

The node is full of a native job, of which kube-scheduler does not know: what it binds by itself shows.
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
from deploy.local.kubernetes_config import scheduler_configuration
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec
from extender.unmanaged.capacity_watch import FULL
from tests.end_to_end.people import People, eventually, pod
from tests.end_to_end.test_no_preemption import URGENT, make_class
from tests.end_to_end.test_unmanaged_pods import all_native_run, reason, sbatch
from tests.local_cluster.test_kubernetes_config import entry, shown_for_others

pytestmark = pytest.mark.real

OTHERS = "default-scheduler"
UNGATED = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])


@contextmanager
def living_in(spec: ClusterSpec) -> Iterator[People]:
    with (
        tempfile.TemporaryDirectory(prefix="others-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        people = People(cluster)
        yield people
        people.close()


@contextmanager
def no_extender(people: People) -> Iterator[None]:
    people.cluster.kill("extender")
    try:
        yield
    finally:
        people.cluster.start("extender")


def fill_the_node(people: People) -> None:
    sbatch(people, "node-1", cpus=8, memory_mb=1000, gpus=0)
    all_native_run(people, 1)


def some_pod_of_others_finds_no_room(people: People) -> None:
    """What Slurm has given away a moment ago /filter may not know yet: then a Pod is bound."""

    def seen(name: str) -> bool:
        return people.node_of(name) is not None or FULL in reason(people, name)

    for name in (f"before-{number}" for number in range(50)):
        people.create(name, cpu="10m", scheduler=OTHERS)
        eventually(partial(seen, name), f"{name} seen")
        if people.node_of(name) is None:
            return
    pytest.fail("nobody is fitted into what Slurm leaves")


def gated(people: People, name: str) -> bool:
    return bool((people.see(name) or {})["spec"].get("schedulingGates"))


def runs_where_it_is(people: People, name: str) -> bool:
    job = people.job_of(name)
    return job is not None and (job.state, job.node) == ("RUNNING", people.node_of(name))


def test_pods_of_others_wait_for_an_extender_where_they_share_its_kube_scheduler(people: People) -> None:
    with no_extender(people):
        people.create("u", scheduler=OTHERS)
        people.event("u", "FailedScheduling")
        assert people.node_of("u") is None
    people.bound("u")


@pytest.fixture(
    scope="module",
    params=[
        ClusterSpec(nodes=1, own_scheduler=True),
        ClusterSpec(nodes=1, own_scheduler=True, ignorable=True),
    ],
    ids=["apart", "apart and fitted"],
)
def clusters_apart(request: pytest.FixtureRequest) -> Iterator[People]:
    with living_in(request.param) as people:
        cluster = people.cluster
        (others,) = cluster.spec.other_scheduler_names
        asks = entry(scheduler_configuration(others, Layout(cluster.directory)).read_text())
        assert asks == (shown_for_others() if cluster.spec.ignorable else None)
        make_class(cluster)
        yield people


@pytest.fixture
def apart(clusters_apart: People) -> Iterator[People]:
    clusters_apart.begin()
    yield clusters_apart
    clusters_apart.clean_up()


def test_slurms_pods_may_have_a_kube_scheduler_of_their_own(apart: People) -> None:
    """They alone wait for an extender then, also one that somebody let out of its gate."""
    people = apart
    fill_the_node(people)
    people.create("p")
    people.queued("p")
    if people.cluster.spec.ignorable:
        some_pod_of_others_finds_no_room(people)
    else:
        people.create("before", scheduler=OTHERS)
        people.bound("before")
    with no_extender(people):
        people.create("u", scheduler=OTHERS)
        people.bound("u")
        assert people.apply(pod("refused")).returncode != 0
        people.cluster.kubectl("patch", "pod", people.full("p"), "--type=json", "-p", UNGATED)
        people.event("p", "FailedScheduling")
        assert people.node_of("p") is None
    people.cluster.run_slurm("scancel", "-u", "alice")
    people.bound("p")
    assert runs_where_it_is(people, "p")


def test_where_the_clusters_kube_scheduler_asks_it_evicts_no_pod_of_slurms(apart: People) -> None:
    people = apart
    people.create("p", cpu="8")
    people.bound("p")
    people.create("u", cpu="8", scheduler=OTHERS, **URGENT)
    if people.cluster.spec.ignorable:
        assert "preemption: " in people.event("u", "FailedScheduling")
        assert "deletionTimestamp" not in (people.see("p") or {})["metadata"]
    else:
        people.gone("p")
        people.bound("u")


@pytest.fixture(scope="module")
def careless() -> Iterator[People]:
    """One kube-scheduler for all, which goes on where the extender fails."""
    with living_in(ClusterSpec(nodes=1, ignorable=True)) as people:
        yield people


@pytest.fixture
def ignoring(careless: People) -> Iterator[People]:
    careless.begin()
    yield careless
    careless.clean_up()


def test_a_kube_scheduler_that_ignores_errors_binds_pods_of_slurms_without_a_job(
    ignoring: People,
) -> None:
    """Those that are at no gate; those at the gate wait. What it has bound stays, without a job."""
    people = ignoring
    fill_the_node(people)
    for name in ("gated", "ungated"):
        people.create(name)
        people.queued(name)
    with no_extender(people):
        people.create("u", scheduler=OTHERS)
        people.bound("u")
        people.cluster.kubectl("patch", "pod", people.full("ungated"), "--type=json", "-p", UNGATED)
        people.bound("ungated")
        assert people.node_of("gated") is None
    eventually(lambda: people.job_of("ungated") is None, "no job waits for who is bound")
    assert people.node_of("ungated") == "node-1"
    people.cluster.run_slurm("scancel", "-u", "alice")
    people.bound("gated")
    assert runs_where_it_is(people, "gated")


def test_a_kube_scheduler_that_ignores_errors_passes_over_what_bind_refuses(ignoring: People) -> None:
    """The extender cannot ask Slurm, and so refuses; the job is over by then."""
    people = ignoring
    people.cluster.stop("kube-scheduler")
    people.create("p")
    eventually(lambda: people.job_of("p") is not None and not gated(people, "p"), "Slurm granted a node")
    people.cluster.kill("slurmrestd")
    people.scancel("p")
    people.cluster.start("kube-scheduler")
    people.bound("p")
    assert people.job_of("p") is None
    people.cluster.start("slurmrestd")
    people.gone("p")  # evicted, since its job had ended
