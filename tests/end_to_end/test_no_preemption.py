"""Tests that kube-scheduler evicts no Pod for a managed Pod of any priority: only Slurm preempts.

With DefaultPreemption and without preemptVerb, kube-scheduler would evict all Pods of lower priority for
a single refused Pod. /filter refuses each freed Node again, so the evictions would continue.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end import pod_groups
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually

pytestmark = pytest.mark.real

URGENT = {"priorityClassName": "urgent"}
GIVEN_BACK_SOON = {"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "8"}
"""Setting with which the extender soon ends an attempt. The test still sees evictions: kube-scheduler
would evict Pods within 3 s of the refusal."""


def make_class(cluster: Cluster) -> None:
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def fill(actors: Actors) -> set[str]:
    """Fills the CPUs of each Node with two Pods of no priority. Returns the names."""
    names = [f"low-{number}" for number in range(2 * actors.cluster.spec.nodes)]
    for name in names:
        actors.create(name, cpu="4", scheduler="default-scheduler")
    for name in names:
        actors.bound(name)
    return {actors.full(name) for name in names}


def staying(actors: Actors) -> set[str]:
    """Returns the Pods that are not being deleted."""
    pods = actors.pods().items()
    return {name for name, manifest in pods if "deletionTimestamp" not in manifest["metadata"]}


def refused(actors: Actors, name: str) -> str:
    """Waits until all Nodes refuse a Pod for lack of CPUs, and returns the message."""

    def told() -> str:
        words = actors.events(name).get("FailedScheduling", "")
        return words if "Insufficient cpu" in words else ""

    return eventually(told, f"{name} refused")


def test_no_pod_is_evicted_for_a_managed_pod_that_every_node_rejects(quiet: Actors) -> None:
    """Slurm does not know of the unmanaged Pods, so Slurm grants a node without free CPUs in
    Kubernetes."""
    actors = quiet
    actors.cluster.start("extender", env=GIVEN_BACK_SOON)
    try:
        make_class(actors.cluster)
        low = fill(actors)
        actors.create("ours", cpu="4", annotations={"partition": "main"}, **URGENT)
        assert "preemption" not in refused(actors, "ours")
        eventually(lambda: actors.attempt("ours") > 1, "another node asked for")
        assert staying(actors) == low | {actors.full("ours")}
        assert actors.node_of("ours") is None
    finally:
        actors.cluster.stop("extender")


# Without an extender, so that only kube-scheduler's configuration prevents evictions


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """Starts a cluster of two nodes with 8 CPUs. PodGroups are on if Kubernetes supports PodGroups."""
    spec = ClusterSpec(nodes=2, extender=False, feature_gates=pod_groups.gates())
    with (
        tempfile.TemporaryDirectory(prefix="preempt-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        make_class(cluster)
        yield cluster


@pytest.fixture
def alone(bare: Cluster) -> Iterator[Actors]:
    actors = Actors(bare)
    try:
        yield actors
        actors.clean_up()
    finally:
        actors.close()


def urgent(actors: Actors, name: str, scheduler: str, **given: Any) -> None:
    """Creates a Pod for a whole Node. The Pod fits only after the Pods of a Node leave."""
    actors.create(name, cpu="8", scheduler=scheduler, **URGENT, **given)


def group(actors: Actors, name: str) -> Manifest:
    """Creates a PodGroup of one Pod. Returns the fields of the Pod's spec for the group."""
    return pod_groups.make_group(actors, name, {"gang": {"minCount": 1}}, **URGENT)


def only_the_other_profile_preempts(actors: Actors, low: set[str]) -> None:
    """Asserts that kube-scheduler evicts Pods for "others", the Pod of the other profile, and binds
    "others". The Pod "ours" is older and has the same priority, and gets no Node."""
    actors.bound("others")
    left = staying(actors) - {actors.full("ours"), actors.full("others")}
    assert len(left) == len(low) / 2
    assert actors.node_of("ours") is None


def test_slurm_profile_preempts_for_no_single_pod(alone: Actors) -> None:
    low = fill(alone)
    urgent(alone, "ours", "slurm-scheduler")
    assert "preemption" not in refused(alone, "ours")
    assert low <= staying(alone)
    urgent(alone, "others", "default-scheduler")
    only_the_other_profile_preempts(alone, low)


def test_slurm_profile_preempts_for_no_pod_group(alone: Actors) -> None:
    if not alone.cluster.spec.feature_gates:
        pytest.skip("this Kubernetes has no PodGroups")
    low = fill(alone)
    urgent(alone, "ours", "slurm-scheduler", **group(alone, "ours"))
    assert "preemption" not in refused(alone, "ours")
    assert low <= staying(alone)
    urgent(alone, "others", "default-scheduler", **group(alone, "others"))
    only_the_other_profile_preempts(alone, low)
