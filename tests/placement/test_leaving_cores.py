"""A Pod gets the allocation only after another Pod has left the allocated cores. Then any replica may
bind the Pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.record.events import ClusterObserved, WriteAllocation
from extender.record.states import State
from tests.builders import changed
from tests.placement.ledger_world import VIEW, World, kinds
from tests.placement.test_lingering import LINGERS_S


@pytest.fixture
def world() -> World:
    return World(numbers=True)


def pod_after_another_on_its_cores(world: World) -> tuple[str, str]:
    """Ends the job of a bound Pod. Slurm gives the same cores to the next job while the Pod still
    leaves. Returns both Pods."""
    uid = world.bound_pod()
    world.lose_job(uid, "PREEMPTED")
    world.effects.clear()  # the ledger's eviction takes long
    world.given -= 1  # Slurm gives the next job the same core
    other = world.create_pod()
    assert WriteAllocation not in kinds(world.settle())
    assert world.state_of(other) is State.ALLOCATED
    return uid, other


def test_allocation_is_written_at_once_when_the_other_pod_is_gone(world: World) -> None:
    uid, other = pod_after_another_on_its_cores(world)
    world.wait(10.0)
    assert world.pods[other].scheduling.allocation is None
    cause = world.record(other).cause
    assert cause is not None
    assert world.record(other).members[0].shown == cause
    assert sentence(cause).endswith("that another Pod still uses; the extender waits for that Pod")
    world.remove_pod(uid)
    assert WriteAllocation in kinds(world.settle())
    assert world.record(other).cause is None
    world.bind_and_settle(other)
    assert world.state_of(other) is State.BOUND


def test_allocation_waits_for_the_containers_of_a_pod_deleted_by_force(world: World) -> None:
    uid, other = pod_after_another_on_its_cores(world)
    world.wait(5.0)
    world.force_delete(uid)
    assert WriteAllocation not in kinds(world.settle())
    world.wait(34.0)
    assert world.pods[other].scheduling.allocation is None
    world.wait(1.5)
    assert world.pods[other].scheduling.allocation is not None
    assert world.state_of(other) is State.ALLOCATED


def test_allocation_waits_for_containers_that_may_not_have_been_moved() -> None:
    """Slurm has restarted the job of a Pod on other cores. A user deletes the Pod by force before the
    node agent has moved the containers."""
    world = World(numbers=True, nodes=("n1",), jobs_per_node=2)
    uid = world.bound_pod()
    for core in ("7", "10"):
        job = world.job_of(uid)
        world.jobs[job.id] = replace(job, cores=(core,))
        world.read_jobs()
        world.outlast(int(world.rules.job_id_rewrite_pause) + 1)
    assert world.allocation_of(uid).cores == "10"
    world.force_delete(uid)
    world.given = 6  # Slurm gives the next job core 7
    other = world.create_pod()
    assert WriteAllocation not in kinds(world.settle())
    assert world.job_of(other).cores == ("7",)
    world.wait(LINGERS_S - 0.1)
    assert world.pods[other].scheduling.allocation is None
    world.wait(1.2)
    assert world.pods[other].scheduling.allocation is not None


def test_pod_leaves_no_slot_before_the_binding(world: World) -> None:
    uid = world.settled_pod()
    (member,) = world.record(uid).members
    slot = member.pod.scheduling.allocation
    assert slot is not None
    bound = changed(member.pod, node=slot.node, allocation=replace(slot, cores="9"))
    assert member.left_with(bound) == ()


def test_allocation_is_given_back_if_the_other_pod_stays(world: World) -> None:
    """For example, a kubelet without a connection to kube-apiserver does not end the other Pod."""
    _, other = pod_after_another_on_its_cores(world)
    kept = world.rules.leaves_within + 5.0
    world.wait(kept - 1.0)
    assert world.state_of(other) is State.ALLOCATED
    (job,) = world.live_jobs(other)
    world.outlast(3)
    assert world.jobs[job.id].state.base == "CANCELLED"


def test_allocation_is_given_back_soon_if_the_other_pod_has_lost_its_job(world: World) -> None:
    """A killed slurmctld has forgotten the job of a bound Pod, and gives the cores of the job to another
    job. The bound Pod stays, and its next job waits for the same Node."""
    uid = world.bound_pod()
    lost = world.job_of(uid)
    del world.jobs[lost.id]
    world.given -= 1  # Slurm gives the next job the same core
    other = world.create_pod()
    assert WriteAllocation not in kinds(world.settle())
    job = world.job_of(other)
    world.outlast(8)
    assert world.jobs[job.id].state.base == "CANCELLED"
    world.poll_until_lost()
    world.settle()
    world.catch_up_with_slurm()
    assert [each.nodes for each in (world.job_of(uid), world.job_of(other))] == [("n1",), ("n2",)]
    assert world.pods[uid].life.node == "n1"


def test_allocation_is_given_back_soon_if_the_other_pod_cannot_move() -> None:
    """Slurm has started the job of a bound Pod again on other cores, which a third Pod still uses."""
    world = World(numbers=True, nodes=("n1",), jobs_per_node=3)
    moves, blocks = world.bound_pod(), world.bound_pod()
    job, taken = world.job_of(moves), world.job_of(blocks).cores
    world.jobs[job.id] = replace(job, cores=taken)
    world.read_jobs()
    world.settle()
    world.given -= 2  # the next job gets the cores that the first Pod still uses
    other = world.create_pod()
    assert WriteAllocation not in kinds(world.settle())
    waiting = world.job_of(other)
    assert waiting.cores == (world.allocation_of(moves).cores,)
    world.outlast(8)
    assert world.jobs[waiting.id].state.base == "CANCELLED"
    assert world.state_of(moves) is State.BOUND


def test_next_attempt_avoids_the_node_of_a_pod_that_stays(world: World) -> None:
    _, other = pod_after_another_on_its_cores(world)
    world.wait(world.rules.leaves_within + 4.0)
    (job,) = world.live_jobs(other)
    world.outlast(3)
    (another,) = world.live_jobs(other)
    assert (job.nodes, another.nodes) == (("n1",), ("n2",))


def test_other_cores_of_the_node_are_allocated_at_once(world: World) -> None:
    uid = world.bound_pod()
    world.lose_job(uid, "PREEMPTED")
    world.effects.clear()
    world.given += 2
    other = world.create_pod()
    assert WriteAllocation in kinds(world.settle())
    assert world.pods[other].scheduling.allocation is not None


def test_shared_cores_are_allocated_at_once() -> None:
    partitions = {name: replace(each, oversubscribe="FORCE:4") for name, each in VIEW.partitions.items()}
    world = World(numbers=True)
    world.view = replace(world.view, partitions=partitions)
    world.tell(ClusterObserved(world.view))
    uid = world.bound_pod()
    world.lose_job(uid, "PREEMPTED")
    world.effects.clear()
    world.given -= 1
    world.create_pod()
    assert WriteAllocation in kinds(world.settle())
