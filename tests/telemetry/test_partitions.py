"""Tests of the metrics by partition: the number of waiting Pods for which a suitable node is idle, and
the number of bound Pods."""

from dataclasses import replace
from typing import Any

import pytest

from extender.node_view.slurm_nodes import Reading
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import Telemetry
from extender.telemetry.capacity import CapacityNow
from extender.telemetry.leader_states import Sources
from slurm_client.model import Node, Partition
from tests.builders import cause_of, kube_node, placeholder_of, pod, view

MAIN = Partition("main", ("n1", "n2"), default=True)
OTHER = Partition("other", ("n3",))


def node(name: str, partition: str = "main", *states: str, **given: Any) -> Node:
    has: dict[str, Any] = {"cpus": 8, "memory_mb": 16_000, "gres": "gpu:h100:4", "features": ("a", "b")}
    return Node(name, frozenset(states or {"IDLE"}), partitions=(partition,), **(has | given))


def queued(reason: str = "Resources", *, excluded: tuple[str, ...] = (), **asked: Any) -> Placeholder:
    """Returns a Pod with a job in Slurm's queue. By default, the job requests a CPU and a GiB. `asked`
    changes the request."""
    cause = cause_of(reason) if reason else None
    record = placeholder_of(pod(), State.QUEUED, cause=cause).with_asked(excluded=excluded)
    return record._replace(request=replace(record.request, job=replace(record.request.job, **asked)))


async def startable(
    record: Placeholder, *nodes: Node, partitions: tuple[Partition, ...] = (MAIN, OTHER)
) -> dict[str, float]:
    """Returns the metric's values by partition, for a waiting Pod and the given Slurm nodes. Each Slurm
    node has a Kubernetes Node."""
    telemetry = Telemetry()
    known = view(*(kube_node(each.name) for each in nodes), partitions=partitions)
    newest = Reading(nodes, 0.0, 0.0)
    sources = Sources(
        lambda: iter((record,)), capacity=CapacityNow(lambda: newest, lambda: known), view=lambda: known
    )
    with telemetry.placement.leading(sources):
        await telemetry.placement.count_pods()
        return told(telemetry, "slurm_extender_startable_pods")


def told(telemetry: Telemetry, name: str) -> dict[str, float]:
    """Returns the values of a metric, by partition."""
    return {
        sample.labels["partition"]: sample.value
        for family in telemetry.registry.collect()
        for sample in family.samples
        if sample.name == name
    }


async def test_pod_counts_if_a_node_of_its_partition_is_idle() -> None:
    assert await startable(queued(), node("n1"), node("n3", "other")) == {"main": 1, "other": 0}
    assert await startable(queued(partition="other"), node("n1")) == {"main": 0, "other": 0}
    both = queued(partition="other,main,nowhere")
    assert await startable(both, node("n1"), node("n3", "other")) == {"main": 1, "other": 1}


@pytest.mark.parametrize(
    "asked",
    [
        *({"cpus": 9}, {"memory_mb": 16_001}, {"gres": (("gpu", 5),)}, {"gres": (("gpu:a100", 1),)}),
        *({"constraints": "a&c"}, {"constraints": "a|b"}, {"required_nodes": ("n1",)}),
        *({"reservation": "r"}, {"nodes": 2}, {"excluded": ("n[1-2]",)}),
    ],
    ids=str,
)
async def test_pod_that_does_not_fit_or_is_excluded_does_not_count(asked: dict[str, Any]) -> None:
    assert (await startable(queued(**asked), node("n1")))["main"] == 0


async def test_pod_that_fits_exactly_counts() -> None:
    most = queued(cpus=7, memory_mb=15_000, gres=(("gpu:h100", 4),), constraints="a&b")
    has = node("n1", cpus_reserved=1, memory_reserved_mb=1000)
    assert (await startable(most, has))["main"] == 1
    assert (await startable(queued(excluded=("n1",)), node("n1"), node("n2")))["main"] == 1


@pytest.mark.parametrize("states", [("IDLE", "DRAIN"), ("IDLE", "PLANNED"), ("IDLE", "RESERVED")])
async def test_closed_or_busy_node_does_not_count(states: tuple[str, ...]) -> None:
    assert (await startable(queued(), node("n1", "main", *states)))["main"] == 0


async def test_mixed_node_and_closed_partition_do_not_count() -> None:
    assert (await startable(queued(), node("n1", "main", "MIXED", cpus_allocated=1)))["main"] == 0
    assert await startable(queued(), node("n1"), partitions=(replace(MAIN, up=False),)) == {"main": 0}


@pytest.mark.parametrize(
    ("reason", "count"),
    [("", 1), ("Priority", 1), ("QOSMaxJobsPerUserLimit", 0), ("Licenses", 0), ("BeginTime", 0)],
)
async def test_pod_counts_only_if_it_waits_for_resources(reason: str, count: int) -> None:
    assert (await startable(queued(reason), node("n1")))["main"] == count


def test_bound_pods_are_counted_by_requested_partition() -> None:
    telemetry, known = Telemetry(), view(kube_node("n1"), partitions=(MAIN, OTHER))
    name = "slurm_extender_bound_pods_total"
    with telemetry.placement.leading(Sources(view=lambda: known)):
        assert told(telemetry, name) == {"main": 0, "other": 0}
        for partition in (None, "main", "other,main", "nowhere"):
            before = queued(partition=partition)._replace(state=State.ALLOCATED)
            telemetry.placement.observe(before, before._replace(state=State.BOUND))
        found = queued()._replace(state=State.BOUND)
        telemetry.placement.observe(None, found)  # bound before this leader started
        assert told(telemetry, name) == {"main": 3, "other": 1}
    assert told(telemetry, name) == {}


def test_bound_pod_is_counted_by_its_partition_at_the_time_of_binding() -> None:
    """If the default partition changes, Pods that are already counted must not move to the new default
    partition. If a count decreased, Prometheus would take this for a restart of the program."""
    telemetry, name = Telemetry(), "slurm_extender_bound_pods_total"
    views = [view(kube_node("n1"), partitions=(MAIN, OTHER))]
    with telemetry.placement.leading(Sources(view=lambda: views[-1])):
        before = queued(partition=None)._replace(state=State.ALLOCATED)
        telemetry.placement.observe(before, before._replace(state=State.BOUND))
        other = (replace(MAIN, default=False), replace(OTHER, default=True))
        views.append(view(kube_node("n1"), partitions=other))
        assert told(telemetry, name) == {"main": 1, "other": 0}
