"""Bound Pods whose jobs have other cores and devices of the same Node now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.record.events import EvictPod, ReadJob, RecordJobId, Submit
from extender.record.in_force import devices_taken, granted_now
from extender.record.states import State
from extender.request.pod import Pod
from slurm_client.model import Job, JobState
from tests.builders import RULES, kube_node, moment, placeholder_job, pod
from tests.placement.ledger_steps import (
    bound_pod,
    forget_the_job,
    forget_the_start,
    job_id_of,
    kinds,
    outlast,
    poll,
    settle,
    state_of,
)
from tests.placement.ledger_world import NODES, World, calm_down, ends_well
from wellknown.allocation import Allocation
from wellknown.names import GRANTED, JOB_ID, NODE, Reason

AT = moment(*(replace(kube_node(name), has_agent=True) for name in ("n1", "n2")))
SAVES_WITHIN_S = 5.0
GPUS = "gpu:h100:2(IDX:0-1)"


def pod_with(gres: str = "", cores: str = "", memory_mb: int = 0, *, says: str = "n1") -> Pod:
    """A Pod on n1 whose annotations say that it is on a Node."""
    allocation = Allocation(7, says, gres, cores, memory_mb)
    return pod(uid="u1", gates=(), node="n1", annotations=allocation.annotations())


# What a Pod has, beside what its job has


@pytest.mark.parametrize(
    ("on_pod", "of_job", "words"),
    [
        (GPUS, GPUS, None),
        (GPUS, "gpu:2(IDX:0,1)", None),
        ("gpu:1(IDX:1)", "gpu:2(IDX:0-1)", None),
        ("", "gpu:2(IDX:0-1)", None),
        ("craynetwork:1(CNT:1)", "craynetwork:1(CNT:1)", None),
        (GPUS, "gpu:h100:2(CNT:2)", None),  # it does not say which
        ("devices?", GPUS, None),
        (GPUS, "shard:2((null))", None),
        (GPUS, "shard:2(0/4,2/4)", "no gpu now, and the Pod runs on gpu 0-1"),
        ("shard:2(IDX:1)", "shard:2(0/4,2/4)", None),  # as 26.05 tells it at first, and later
        (
            "shard:2(0/4,2/4)",
            "shard:2(2/4,0/4)",
            "shard of gpu 0 now, and the Pod runs on shard of gpu 1",
        ),
        (GPUS, "gpu:h100:2(IDX:2-3)", "gpu 2-3 now, and the Pod runs on gpu 0-1"),
        (GPUS, "gpu:h100:2(IDX:1-2)", "gpu 1-2 now, and the Pod runs on gpu 0-1"),
        (GPUS, "nic:1(IDX:0)", "no gpu now, and the Pod runs on gpu 0-1"),
        (
            "gpu:1(IDX:0),nic:1(IDX:1)",
            "gpu:1(IDX:3),nic:1(IDX:2)",
            "gpu 3 and nic 2 now, and the Pod runs on gpu 0 and nic 1",
        ),
        (
            "gpu:1(IDX:0),nic:1(IDX:1)",
            "gpu:1(IDX:3),nic:1(IDX:1)",
            "gpu 3 now, and the Pod runs on gpu 0",
        ),
    ],
)
def test_the_devices_that_a_pod_runs_on_and_its_job_does_not_have(
    on_pod: str, of_job: str, words: str | None
) -> None:
    of = pod_with(on_pod, "0")
    job = placeholder_job(of, node="n1", gres=(of_job,))
    told = devices_taken(of, job, AT.view)
    assert told == (words and f"Slurm job {job.id} has {words}")


def test_without_a_node_agent_it_has_what_the_kubelet_chose() -> None:
    of, job = pod_with(GPUS, "0"), placeholder_job(pod_with(GPUS), node="n1", gres=("gpu:1(IDX:7)",))
    assert devices_taken(of, job, moment(kube_node("n1")).view) is None
    assert devices_taken(of, job, moment().view) is None
    assert granted_now(of, Allocation(7, "n1", "gpu:1(IDX:7)", "0")) is None


def test_that_slurm_does_not_tell_of_devices_that_a_job_asks_for_is_not_believed() -> None:
    of = pod_with(GPUS)
    untold = placeholder_job(of, node="n1", tres_per_node="gres/gpu:h100:2")
    assert devices_taken(of, untold, AT.view) is None
    asks_for_none = replace(untold, tres_per_node="")
    assert "no gpu now" in (devices_taken(of, asks_for_none, AT.view) or "")


@pytest.mark.parametrize(
    "annotations", [{JOB_ID: "7", NODE: "n1"}, {JOB_ID: "7", NODE: "n1", GRANTED: "{}"}]
)
def test_a_pod_that_says_nothing_that_can_be_read_is_left_alone(annotations: dict[str, str]) -> None:
    of = pod(uid="u1", gates=(), node="n1", annotations=annotations)
    job = placeholder_job(of, node="n1", gres=(GPUS,), cores=("0-3",))
    assert devices_taken(of, job, AT.view) is None
    assert granted_now(of, Allocation(7, "n1", GPUS, "0-3")) is None


def test_what_stands_on_a_pod_of_another_node_is_in_force_nowhere() -> None:
    of = pod_with(GPUS, says="n2")
    job = placeholder_job(of, node="n1", gres=("gpu:h100:2(IDX:2-3)",))
    assert devices_taken(of, job, AT.view) is None
    assert granted_now(of, Allocation(7, "n1", "gpu:h100:2(IDX:2-3)", "4-7")) is None


@pytest.mark.parametrize(
    ("has", "now"),
    [
        (Allocation(7, "n1", GPUS, "0-3", 100), None),
        (Allocation(7, "n1", "gpu:2(IDX:0-1)", "0-3", 100), None),
        (Allocation(7, "n1"), None),  # Slurm does not tell
        (Allocation(7, "n1", "shard:2((null))", "0-3", 100), None),
        (Allocation(7, "n1", "shard:2(2/4)", "0-3", 100), None),
        (Allocation(7, "n1", GPUS, "4-7", 100), Allocation(7, "n1", GPUS, "4-7", 100)),
        (Allocation(7, "n1", GPUS, "0-3", 50), Allocation(7, "n1", GPUS, "0-3", 50)),
        (Allocation(7, "n1", "", "4-7"), Allocation(7, "n1", GPUS, "4-7", 100)),
        (Allocation(8, "n1", "gpu:3(IDX:0-2)"), Allocation(8, "n1", "gpu:3(IDX:0-2)", "0-3", 100)),
    ],
)
def test_what_is_to_stand_on_a_pod(has: Allocation, now: Allocation | None) -> None:
    assert granted_now(pod_with(GPUS, "0-3", 100), has) == now


# What follows


def numbered_world() -> World:
    return World(numbers=True)


def with_the_same_devices(world: World, uid: str) -> Job:
    """Slurm has started the job again, on other cores alone."""
    job_id = job_id_of(world, uid)
    stands = world.pods[uid].allocation
    assert stands is not None
    world.jobs[job_id] = replace(world.jobs[job_id], gres=(stands.gres,))
    return world.jobs[job_id]


def start_again(world: World, uid: str, how: str) -> None:
    if how == "forgot the start":
        forget_the_start(world, uid)
        poll(world)
    else:
        forget_the_job(world, uid)
        outlast(world, world.rules.confirmations)
    world.schedule()


@pytest.mark.parametrize("how", ["forgot the start", "lost its state"])
def test_a_pod_whose_job_has_other_devices_now_is_evicted_and_told_which(how: str) -> None:
    world = numbered_world()
    uid = bound_pod(world)
    start_again(world, uid, how)
    job_id = job_id_of(world, uid)
    world.pass_time(1.1)
    done = poll(world)
    (evicted,) = [each for each in done if isinstance(each, EvictPod)]
    assert evicted.cause.reason == Reason.SLURM_DEVICES_CHANGED
    words = f"Slurm job {job_id} has gpu 1 now, and the Pod runs on gpu 0"
    assert evicted.cause.message == words
    settle(world)
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("how", ["forgot the start", "lost its state"])
def test_a_pod_whose_job_has_other_cores_now_runs_on_and_says_so(how: str) -> None:
    world = numbered_world()
    uid = bound_pod(world)
    start_again(world, uid, how)
    job = with_the_same_devices(world, uid)
    world.pass_time(1.1)
    done = poll(world)
    (recorded,) = [each for each in done if isinstance(each, RecordJobId)]
    (gres,), (cores,) = job.gres, job.cores
    now = Allocation(job.id, str(world.pods[uid].node), gres, cores)
    assert (recorded.granted, world.pods[uid].allocation) == (now, now)
    assert state_of(world, uid) is State.BOUND
    assert outlast(world, 100) == []


def test_a_pod_of_an_older_version_keeps_its_job_whatever_that_has() -> None:
    world = numbered_world()
    uid = bound_pod(world)
    stands = world.pods[uid].allocation
    assert stands is not None
    world.write(world.pods[uid]._replace(allocation=Allocation(stands.job_id, stands.node)))
    settle(world)
    start_again(world, uid, "lost its state")
    world.pass_time(1.1)
    assert kinds(outlast(world, 20)) == [ReadJob]
    assert state_of(world, uid) is State.BOUND


@pytest.mark.parametrize("same_devices", [True, False])
def test_the_next_leader_looks_once_at_what_the_jobs_of_bound_pods_have(same_devices: bool) -> None:
    """The start was forgotten and the job started again while no extender ran: nothing else tells."""
    world = numbered_world()
    uid = bound_pod(world)
    forget_the_start(world, uid)
    world.schedule()
    if same_devices:
        with_the_same_devices(world, uid)
    world.restart()
    done = outlast(world, int(RULES.verified) + 1)
    assert sum(isinstance(each, ReadJob) for each in done) == 1
    assert Submit not in kinds(done)
    assert (uid in world.pods) is same_devices
    assert (RecordJobId in kinds(done)) is same_devices


def test_a_job_that_the_next_leader_reads_at_its_start_is_looked_at_there() -> None:
    """As it does where another of the Pod's jobs lives."""
    world = numbered_world()
    uid = bound_pod(world)
    forget_the_start(world, uid)
    world.restart()
    world.schedule()  # before anybody has asked about it
    world.pass_time(1.0)
    poll(world)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


# Whatever comes in whatever order


def lose_state(world: World) -> None:
    world.saved, world.next_saved = {}, 1
    world.kill_slurmctld()


def save_late(world: World) -> None:
    """slurmctld saved what it knew before it started the jobs of the last seconds."""
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
    world.pass_time(1.0)
    settle(world)


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
def test_a_pod_has_what_its_job_has_whatever_slurm_forgets(
    steps: list[Callable[[World], object]],
) -> None:
    world = World(replace(RULES, fast_path=False), numbers=True)  # a job granted at once is saved whole
    for _ in NODES:
        world.create_pod()
    world.catch_up()
    for step in steps:
        step(world)
    calm_down(world)
    ends_well(world)
