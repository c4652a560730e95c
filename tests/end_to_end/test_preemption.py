"""Tests of preemption by kube-scheduler: unmanaged Pods preempt only unmanaged Pods, and managed Pods
preempt no Pod.

DefaultPreemption is on in every profile. Only the answer to preemptVerb prevents evictions for managed
Pods. The cluster has two nodes of 8 CPUs. Each node is so full that another Pod fits only after
evictions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.end_to_end.test_unmanaged_pods import all_native_run, reason, sbatch, unmanaged
from tests.eventually import eventually

pytestmark = pytest.mark.real

HIGH = "preemption-high"
CRITICAL = "system-cluster-critical"
NOBODY = "no candidate node for preemption"
"""kube-scheduler's message if the extender allows none of the evictions."""
HIGH_CLASS = f"""
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {HIGH}}}
value: 1000
"""


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=2, release=slurm_release, kill_wait=30, default_preemption=True)
    with (
        tempfile.TemporaryDirectory(prefix="preemption-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        running.kubectl("apply", "-f", "-", stdin=HIGH_CLASS)
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def unmanaged_on_both(actors: Actors, cpu: str) -> list[str]:
    """Places an unmanaged Pod of no priority on each node. Returns the names."""
    names = ["low-1", "low-2"]
    for name in names:
        unmanaged(actors, name, cpu=cpu)
    assert {actors.bound(name) for name in names} == {"node-1", "node-2"}
    return names


def stay(actors: Actors, names: list[str]) -> bool:
    """Returns True if no Pod is deleted or being deleted."""
    seen = [actors.see(name) for name in names]
    return all(pod is not None and "deletionTimestamp" not in pod["metadata"] for pod in seen)


@pytest.mark.parametrize("priority_class", [HIGH, CRITICAL])
def test_unmanaged_pod_of_higher_priority_preempts_an_unmanaged_pod(
    actors: Actors, priority_class: str
) -> None:
    low = unmanaged_on_both(actors, cpu="7")
    unmanaged(actors, "high", cpu="7", priorityClassName=priority_class)
    node = actors.bound("high")
    # kube-scheduler stops counting an ended Pod a moment before the Pod is gone.
    (victim,) = eventually(lambda: [name for name in low if actors.see(name) is None], "one gone")
    assert actors.node_of(next(name for name in low if name != victim)) != node
    assert node in actors.event(victim, "Preempted")


def test_no_pod_is_evicted_if_native_jobs_still_block_the_node(actors: Actors) -> None:
    """On each node, a native job has 4 CPUs and an unmanaged Pod has 3 CPUs. kube-scheduler knows only
    of the Pod, and expects room for 6 CPUs after the eviction."""
    for node in actors.cluster.spec.node_names:
        sbatch(actors, node, cpus=4, memory_mb=1000, gpus=0)
    all_native_run(actors, 2)
    low = unmanaged_on_both(actors, cpu="3")
    unmanaged(actors, "high", cpu="6", priorityClassName=HIGH)
    eventually(lambda: NOBODY in reason(actors, "high"), "refused")
    assert stay(actors, low)


@pytest.mark.parametrize("priority_class", [HIGH, CRITICAL])
def test_managed_pod_is_not_evicted_for_an_unmanaged_pod(actors: Actors, priority_class: str) -> None:
    ours = ["ours-1", "ours-2"]
    for name in ours:
        actors.create(name, cpu="7")
    assert {actors.bound(name) for name in ours} == {"node-1", "node-2"}
    unmanaged(actors, "high", cpu="7", priorityClassName=priority_class)
    eventually(lambda: NOBODY in reason(actors, "high"), "refused")
    assert stay(actors, ours)


def test_kube_scheduler_evicts_no_pod_for_a_managed_pod(actors: Actors) -> None:
    """Slurm does not know of the running Pods, and grants both nodes. kube-scheduler refuses the nodes,
    and would evict one Pod after the other."""
    low = [f"low-{number}" for number in range(14)]
    for name in low:
        unmanaged(actors, name, cpu="1", memory="10Mi")
    for name in low:
        actors.bound(name)
    ours = ["ours-1", "ours-2"]
    for name in ours:
        actors.create(name, cpu="7", priorityClassName=HIGH)
    for name in ours:
        eventually(lambda name=name: NOBODY in reason(actors, name), f"{name} refused")  # type: ignore[misc]
    assert stay(actors, low)
    assert not any(actors.node_of(name) for name in ours)
