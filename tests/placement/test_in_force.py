"""Tests of bound Pods whose jobs have changed to other cores and devices of the same Node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.explain.sentences import sentence
from extender.record.events import ClusterObserved, EvictPod, ReadJob, RecordJobId, Submit
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
from tests.builders import RULES, changed
from tests.placement.ledger_world import NODES, VIEW, World, calm_down, ends_well, kinds, of_kind
from wellknown.allocation import Allocation
from wellknown.names import Reason

SAVES_WITHIN_S = 5.0


@pytest.fixture
def world() -> World:
    return World(numbers=True)


def with_the_same_devices(world: World, uid: str) -> Job:
    """Gives the job the devices of the Pod's allocation, so that only the cores change."""
    job_id = world.job_id_of(uid)
    stands = world.allocation_of(uid)
    world.jobs[job_id] = replace(world.jobs[job_id], gres=(stands.gres,))
    return world.jobs[job_id]


def start_again(world: World, uid: str, how: str) -> None:
    if how == "forgot the start":
        world.forget_the_start(uid)
        world.poll()
    else:
        world.forget_the_job(uid)
        world.outlast(world.rules.confirmations)
    world.schedule()


def two_pods(world: World, *cores: str) -> tuple[str, str]:
    """Binds two Pods to n1, on these cores."""
    uids = world.bound_pod(), world.bound_pod()
    start_on(world, uids, *cores)
    world.outlast(int(RULES.job_id_rewrite_pause) + 1)
    assert cores_of(world, uids) == cores
    return uids


def start_on(world: World, uids: tuple[str, str], *cores: str) -> None:
    """Changes the cores of both jobs, and keeps the devices, as after a restart of the jobs."""
    for uid, each in zip(uids, cores, strict=True):
        job = with_the_same_devices(world, uid)
        world.jobs[job.id] = replace(job, cores=(each,))
    world.read_jobs()
    world.outlast(3)


def cores_of(world: World, uids: tuple[str, str]) -> tuple[str, ...]:
    return tuple(world.allocation_of(uid).cores for uid in uids)


@pytest.fixture
def one_node() -> World:
    return World(numbers=True, nodes=("n1",), jobs_per_node=2)


def test_pods_keep_their_cores_if_their_jobs_swap_cores(one_node: World) -> None:
    uids = two_pods(one_node, "10", "11")
    start_on(one_node, uids, "11", "10")
    assert cores_of(one_node, uids) == ("10", "11")
    one_node.remove_pod(uids[1])
    one_node.outlast(2)
    assert one_node.allocation_of(uids[0]).cores == "11"


def test_pods_move_to_the_free_cores_of_their_slots_first(one_node: World) -> None:
    """Neither Pod can move at once, because each Pod is on a core of the other Pod's job."""
    uids = two_pods(one_node, "14-17", "10-11")
    start_on(one_node, uids, "10-13", "14-15")
    for _ in range(int(RULES.job_id_rewrite_pause) + 2):
        now = cores_of(one_node, uids)
        assert now in {("14-17", "10-11"), ("12-13", "10-11"), ("12-13", "14-15"), ("10-13", "14-15")}
        one_node.outlast(1)
    assert cores_of(one_node, uids) == ("10-13", "14-15")


def test_pod_moves_to_cores_of_another_pod_if_slurm_shares_cores(one_node: World) -> None:
    uids = two_pods(one_node, "10", "11")
    main = replace(VIEW.partitions["main"], oversubscribe="FORCE:2")
    one_node.tell(ClusterObserved(replace(one_node.view, partitions={"main": main})))
    start_on(one_node, uids, "11", "11")
    assert cores_of(one_node, uids) == ("11", "11")


def test_a_pod_gets_its_jobs_id_before_it_moves(one_node: World) -> None:
    uids = two_pods(one_node, "10", "11")
    job_id = one_node.job_id_of(uids[0])
    one_node.write(changed(one_node.pods[uids[0]], job_id=job_id + 1))
    start_on(one_node, uids, "11", "10")
    assert one_node.pods[uids[0]].scheduling.job_id == job_id
    assert cores_of(one_node, uids) == ("10", "11")


def test_pod_of_a_resumed_job_is_evicted_if_another_job_has_its_cores() -> None:
    """The Pod's job was suspended and resumed. The state in Slurm no longer shows the suspension."""
    world = World(numbers=True, nodes=("n1",), jobs_per_node=2)
    uid = world.bound_pod()
    world.suspend(world.job_id_of(uid))
    world.resume(world.job_id_of(uid))
    world.given -= 1  # Slurm gives the next job the same core
    other = world.create_pod()
    done = world.settle()
    assert uid in {each.uid for each in of_kind(done, EvictPod)}
    assert uid not in world.pods
    assert world.live_jobs(other)


@pytest.mark.parametrize("how", ["forgot the start", "lost its state"])
def test_pod_is_evicted_if_its_restarted_job_has_other_devices(world: World, how: str) -> None:
    uid = world.bound_pod()
    start_again(world, uid, how)
    job_id = world.job_id_of(uid)
    done = world.wait_and_poll(1.1)
    (evicted,) = of_kind(done, EvictPod)
    assert evicted.cause.reason == Reason.SLURM_DEVICES_CHANGED
    words = f"Slurm job {job_id} has gpu 1 now, and the Pod runs on gpu 0"
    assert sentence(evicted.cause) == words
    world.settle()
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("how", ["forgot the start", "lost its state"])
def test_pod_runs_on_and_records_the_other_cores_of_its_job(world: World, how: str) -> None:
    uid = world.bound_pod()
    start_again(world, uid, how)
    job = with_the_same_devices(world, uid)
    done = world.wait_and_poll(1.1)
    (recorded,) = of_kind(done, RecordJobId)
    (gres,), (cores,) = job.gres, job.cores
    now = Allocation(job.id, str(world.pods[uid].life.node), gres, cores)
    assert (recorded.granted, world.pods[uid].scheduling.allocation) == (now, now)
    assert world.state_of(uid) is State.BOUND
    assert world.outlast(100) == []


def test_pod_of_an_older_extender_keeps_its_restarted_job(world: World) -> None:
    uid = world.bound_pod()
    stands = world.allocation_of(uid)
    world.change_and_settle(uid, allocation=Allocation(stands.job_id, stands.node))
    start_again(world, uid, "lost its state")
    world.pass_time(1.1)
    assert kinds(world.outlast(20)) == [ReadJob]
    assert world.state_of(uid) is State.BOUND


@pytest.mark.parametrize("same_devices", [True, False])
def test_next_leader_reads_the_jobs_of_bound_pods_once(world: World, same_devices: bool) -> None:
    """slurmctld forgot the start and restarted the job while no extender ran. Only a read of the job
    shows the restart."""
    uid = world.bound_pod()
    world.forget_the_start(uid)
    world.schedule()
    if same_devices:
        with_the_same_devices(world, uid)
    world.restart()
    done = world.outlast(int(RULES.recovery_read_spread) + 1)
    assert sum(isinstance(each, ReadJob) for each in done) == 1
    assert Submit not in kinds(done)
    assert (uid in world.pods) is same_devices
    assert (RecordJobId in kinds(done)) is same_devices


def test_next_leader_checks_devices_of_a_job_that_it_reads_at_its_start(world: World) -> None:
    """The job waits in Slurm when the next leader starts, so the leader reads the job at once."""
    uid = world.bound_pod()
    world.forget_the_start(uid)
    world.restart()
    world.schedule()  # the job starts before the first read
    world.wait_and_poll(1.0)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


# Random steps in any order


def lose_state(world: World) -> None:
    world.saved, world.next_saved = {}, 1
    world.kill_slurmctld()


def save_late(world: World) -> None:
    """Saves a state of slurmctld in which the jobs of the last seconds have not started yet."""
    world.save()
    assert world.saved is not None
    late = [job_id for job_id, at in world.started_at.items() if world.now - at < SAVES_WITHIN_S]
    for job_id in late:
        if job_id in world.saved:
            job = replace(world.saved[job_id], state=JobState("PENDING"), nodes=(), gres=(), cores=())
            world.saved[job_id] = job


def be_killed(world: World) -> None:
    if world.may_be_killed():
        world.kill_slurmctld()


def have_a_second(world: World) -> None:
    world.wait(1.0)


def replace_the_pods(world: World) -> None:
    for uid in tuple(world.pods):
        world.remove_pod(uid)
        world.create_pod()


STEPS: tuple[Callable[[World], object], ...] = (
    lose_state,
    save_late,
    be_killed,
    be_killed,
    have_a_second,
    have_a_second,
    replace_the_pods,
    World.ask,
    World.answer,
    World.schedule,
    World.settle,
    World.catch_up,
    World.restart,
    World.sweep,
)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(STEPS), max_size=25))
def test_pod_has_the_slot_of_its_job_if_slurm_forgets(steps: list[Callable[[World], object]]) -> None:
    world = World(replace(RULES, fast_path=False), numbers=True)  # Slurm saves an immediate grant whole
    for _ in NODES:
        world.create_pod()
    world.catch_up()
    for step in steps:
        step(world)
    calm_down(world)
    ends_well(world)
