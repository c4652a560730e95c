"""kube-scheduler evicts nobody for a Pod of ours, however high its priority: Slurm alone preempts.

Where DefaultPreemption is on and nobody answers preemptVerb, all Pods of lower priority go one after the
other for one Pod that /filter refuses: each Node that becomes free is refused again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from deploy.local.programs.kubernetes_binaries import kubernetes_binaries, version_of
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually

pytestmark = pytest.mark.real

URGENT = {"priorityClassName": "urgent"}
POD_GROUPS_SINCE = (1, 37)
GIVEN_BACK_SOON = {"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "8"}
"""Whoever would be evicted goes within 3 s of the refusal; another node is asked for after this time."""


def make_class(cluster: Cluster) -> None:
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def fill(actors: Actors) -> set[str]:
    """Two Pods of no priority on each Node have all of its CPUs; returns their names."""
    names = [f"low-{number}" for number in range(2 * actors.cluster.spec.nodes)]
    for name in names:
        actors.create(name, cpu="4", scheduler="default-scheduler")
    for name in names:
        actors.bound(name)
    return {actors.full(name) for name in names}


def staying(actors: Actors) -> set[str]:
    """The Pods that nobody ends."""
    pods = actors.pods().items()
    return {name for name, manifest in pods if "deletionTimestamp" not in manifest["metadata"]}


def refused(actors: Actors, name: str) -> str:
    """Waits until all Nodes refuse a Pod for what others have of them, and returns the words."""

    def told() -> str:
        words = actors.events(name).get("FailedScheduling", "")
        return words if "Insufficient cpu" in words else ""

    return eventually(told, f"{name} refused")


def test_no_pod_is_evicted_for_a_managed_pod_that_every_node_rejects(quiet: Actors) -> None:
    """Slurm, which does not know of the Pods there, gives it a node whose CPUs they have."""
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


# kube-scheduler's configuration by itself: no extender refuses anything, and none answers preemptVerb


def has_pod_groups() -> bool:
    """Whether the Kubernetes of these tests does, which has to be known before it is started."""
    binaries = kubernetes_binaries(ClusterSpec().kubernetes_release, silent)
    return (version_of(Path(binaries["kube-apiserver"])) or (0, 0)) >= POD_GROUPS_SINCE


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    """Two nodes of 8 CPUs, and PodGroups where Kubernetes has them."""
    gates = ("GenericWorkload",) if has_pod_groups() else ()
    spec = ClusterSpec(nodes=2, extender=False, feature_gates=gates)
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
    """A Pod that has room only where those of a whole Node go."""
    actors.create(name, cpu="8", scheduler=scheduler, **URGENT, **given)


def group(actors: Actors, name: str) -> Manifest:
    """Creates a PodGroup of one; returns what its member's spec says."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": actors.full(name)},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, **URGENT},
    }
    actors.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    return {"schedulingGroup": {"podGroupName": actors.full(name)}}


def only_the_other_profile_preempts(actors: Actors, low: set[str]) -> None:
    """Of two Pods alike the second gets one of the two Nodes; the first, which came before, none."""
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
