"""A workload of several Pods: one job, one node for each, all of them or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.placement.transitions.moves import granted
from extender.pod_request.job_request import Request
from extender.record.config import Context, PlacementConfig
from extender.record.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    EvictPod,
    PodObserved,
    ReportWaiting,
    Submit,
    WriteAttempt,
)
from extender.record.member import Member, with_slots
from extender.record.states import State
from slurm_client.model import Grant
from tests.builders import changed, pod
from tests.placement.ledger_world import (
    LOST,
    NODES,
    REQUEST,
    Replica,
    World,
    calm_down,
    ends_well,
    of_user,
)
from wellknown.allocation import Allocation
from wellknown.names import Reason

GROUP = "uid-g1"


def state_of(world: World) -> State | None:
    record = world.ledger.record_of(GROUP)
    return record and record.state


def bind_all(world: World) -> None:
    for uid in sorted(world.pods):
        world.bind(uid)
    world.settle()


def group_of_three(request: Request = REQUEST, rules: PlacementConfig | None = None) -> World:
    """A group that has what it needs of four Nodes, and is not bound yet."""
    world = World(rules or PlacementConfig(), nodes=("n1", "n2", "n3", "n4"))
    world.create_group(3, request)
    world.catch_up_with_slurm()
    assert state_of(world) is State.ALLOCATED
    return world


def members_of(world: World) -> list[str]:
    record = world.ledger.record_of(GROUP)
    return [] if record is None else [each.pod.uid for each in record.members]


def all_run_by_one_job(world: World) -> bool:
    pods = list(world.pods.values())
    (job,) = (job for job in world.jobs.values() if job.state.running)
    return {pod.life.node for pod in pods} == set(job.nodes) and {
        pod.scheduling.job_id for pod in pods
    } == {job.id}


def running_group() -> World:
    world = World()
    world.create_group(2)
    world.settle()
    bind_all(world)
    assert state_of(world) is State.BOUND
    return world


def test_no_job_is_asked_for_before_the_last_pod_is_there(world: World) -> None:
    first, second = world.create_group(2)
    late = world.pods.pop(second)
    world.news.pop()
    world.settle()
    assert not world.jobs
    record = world.ledger.record_of(first)
    assert record is not None
    assert record.cause is not None
    assert sentence(record.cause) == "waits for 1 more Pods of its group"
    world.write(late)
    done = world.settle()
    (submit,) = (effect for effect in done if isinstance(effect, Submit))
    assert (submit.job.nodes, submit.job.name) == (2, "g1@default")


def test_each_pod_is_bound_to_a_node_of_its_own_by_one_job() -> None:
    world = running_group()
    (job,) = world.jobs.values()
    assert job.state.running
    assert {pod.life.node for pod in world.pods.values()} == set(NODES) == set(job.nodes)
    assert {pod.scheduling.job_id for pod in world.pods.values()} == {job.id}


def test_the_job_ends_with_the_last_pod() -> None:
    world = running_group()
    first, second = world.pods
    world.remove_pod(first)
    world.settle()
    assert state_of(world) is State.BOUND
    assert world.running()
    world.remove_pod(second)
    world.settle()
    assert not world.running()


def test_all_pods_are_evicted_when_the_job_ends() -> None:
    world = running_group()
    (job,) = world.jobs.values()
    world.disturb(job.id, "PREEMPTED")
    done = world.poll()
    assert [type(effect) for effect in done if isinstance(effect, EvictPod)] == [EvictPod, EvictPod]
    assert not world.pods


def test_a_group_that_loses_a_pod_before_it_runs_gives_its_job_back(world: World) -> None:
    first, _ = world.create_group(2)
    world.settle()
    assert state_of(world) is State.ALLOCATED
    world.remove_pod(first)
    done = world.settle()
    assert any(isinstance(effect, CancelJob) for effect in done)
    calm_down(world, 10)
    ends_well(world)


def test_a_group_that_is_bound_in_part_goes_whole(world: World) -> None:
    """A Pod that is bound cannot be bound again: its controller makes another one."""
    first, second = world.create_group(2)
    world.settle()
    world.bind(first)
    world.refuse(second, offers=False)
    world.settle()
    world.pass_time(0.3)
    done = world.settle()
    assert {effect.pod.uid for effect in done if isinstance(effect, EvictPod)} == {first, second}
    assert not world.pods


def test_a_group_that_no_node_of_takes_gets_another_job_and_all_pods_its_number(world: World) -> None:
    uids = world.create_group(2)
    world.settle()
    for uid in uids:
        world.refuse(uid, offers=False)
    world.settle()
    world.pass_time(0.3)
    done = world.settle()
    assert [effect.attempt for effect in done if isinstance(effect, WriteAttempt)] == [2, 2]
    assert {world.pods[uid].scheduling.attempt for uid in uids} == {2}


def new_group() -> World:
    world = World()
    world.create_group(2)
    return world


def rejected_group() -> World:
    """kube-scheduler has just said that it takes neither Node."""
    world = World()
    uids = world.create_group(2)
    world.settle()
    for uid in uids:
        world.refuse(uid, offers=False)
    world.settle()
    world.pass_time(0.3)
    return world


BEGINNINGS = {"a new group": new_group, "a rejected group": rejected_group}
"""Where a story begins; within six effects the Pods are bound, or wait again."""


@pytest.mark.parametrize("fate", ["done", "reply lost", "lost"])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_crash_at_any_effect_leaves_one_job_and_all_pods_bound(
    beginning: str, number: int, fate: str
) -> None:
    world = BEGINNINGS[beginning]()
    world.hear_all()
    for _ in range(number):
        if world.effects:
            finish(world, "done")
        world.hear_all()
    if world.effects:
        effect = world.effects[0]
        if fate != "lost":
            world.do(effect)
        if fate == "done":
            world.finish(effect, LOST)
    world.restart()
    calm_down(world, 90)
    ends_well(world)
    assert len({(pod.scheduling.job_id, pod.scheduling.attempt) for pod in world.pods.values()}) == 1
    assert all(pod.life.node for pod in world.pods.values())
    assert len(world.running()) == 1


def finish(world: World, fate: str) -> None:
    effect: Effect = world.effects.pop(0)
    world.finish(effect, world.do(effect) if fate == "done" else LOST)


def test_the_next_leader_numbers_the_pods_that_the_last_one_did_not_come_to() -> None:
    world = rejected_group()
    while not any(isinstance(effect, WriteAttempt) for effect in world.effects):
        finish(world, "done")
    world.do(world.effects[0])
    assert sorted(pod.scheduling.attempt for pod in world.pods.values()) == [1, 2]
    world.restart()
    done = world.settle()
    assert [effect.attempt for effect in done if isinstance(effect, WriteAttempt)] == [2]
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}
    assert not world.running()


def test_a_pod_keeps_the_node_that_is_written_onto_it() -> None:
    one, other = (Member(pod(name=name, uid=name)) for name in ("p1", "p2"))
    slots = [Allocation(7, "n1", "gpu:1"), Allocation(7, "n2", "gpu:2")]
    written = one._replace(slot=Allocation(7, "n2"))
    assert [each.slot for each in with_slots((one, other), slots)] == slots
    assert [each.slot for each in with_slots((written, other), slots)] == slots[::-1]


def test_a_pod_keeps_its_slot_of_a_node_with_several() -> None:
    members = [Member(pod(name=name, uid=name)) for name in ("p1", "p2", "p3")]
    slots = [Allocation(7, "n1", cores=cores) for cores in ("0", "1", "2")]
    placed = (members[0]._replace(slot=slots[2]), members[1]._replace(slot=slots[0]), members[2])
    assert [each.slot for each in with_slots(placed, slots)] == [slots[2], slots[0], slots[1]]


def test_bound_pods_get_slots_of_their_own_nodes_only() -> None:
    stood = Allocation(7, "n2", cores="5")
    first = Member(pod(name="p1", uid="p1", node="n1"), slot=Allocation(7, "n1", cores="0"))
    second = Member(pod(name="p2", uid="p2", node="n2"), slot=stood)
    moved = [Allocation(7, "n1", cores="1"), Allocation(7, "n1", cores="2")]
    assert [each.slot for each in with_slots((first, second), moved, bound=True)] == [moved[0], stood]


def test_a_group_gets_several_slots_of_a_node() -> None:
    world = group_of_three()
    record = world.ledger.record_of(GROUP)
    assert record is not None
    anew = record._replace(members=tuple(each._replace(slot=None) for each in record.members))
    grant = Grant(("n1", "n2"), ("gpu:2(IDX:0-1)", "gpu:1(IDX:0)"), ("0-3", "0-1"), (200, 100))
    placed = granted(anew, 7, grant, Context(0.0, world.rules, world.view))
    assert {(slot.node, slot.gres, slot.cores) for each in placed.members if (slot := each.slot)} == {
        ("n1", "gpu:1(IDX:0)", "0-1"),
        ("n1", "gpu:1(IDX:1)", "2-3"),
        ("n2", "gpu:1(IDX:0)", "0-1"),
    }


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (("n1", "n2", "n2"), "n1, n2, n2, and one Node stands for several of these nodes"),
        (("n1", "n2"), "n1, n2, and the cores and devices there cannot be divided among 3 Pods"),
        (("n1", "n2", "gone"), "gone, for which no Node stands"),
    ],
    ids=["a Node twice", "too few nodes", "a node without a Node"],
)
def test_a_grant_with_too_few_slots_is_given_back(nodes: tuple[str, ...], words: str) -> None:
    world = group_of_three()
    record = world.ledger.record_of(GROUP)
    assert record is not None
    replaced = granted(record, 7, Grant(nodes), Context(0.0, world.rules, world.view))
    assert replaced.cause is not None
    assert (replaced.state, replaced.cause.reason) == (State.REPLACING, Reason.NODE_UNKNOWN)
    assert sentence(replaced.cause) == f"Slurm chose {words}"


# Its controller makes a Pod for each that goes


def test_a_pod_that_comes_while_its_group_gives_its_job_back_is_one_of_the_next_attempt() -> None:
    world = group_of_three()
    world.remove_pod("u1")
    world.replace_member(GROUP)
    calm_down(world, 10)
    ends_well(world)
    assert all_run_by_one_job(world)
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}


def test_a_pod_that_comes_before_the_one_that_it_replaces_goes_is_told_and_waits() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    done = world.settle()
    (told,) = (each for each in done if isinstance(each, ReportWaiting) and each.pod.uid == late)
    assert sentence(told.cause) == "its group has its 3 Pods already"
    world.remove_pod("u1")
    calm_down(world, 10)
    ends_well(world)
    assert all_run_by_one_job(world)


def test_a_pod_beyond_its_groups_size_that_goes_leaves_nothing() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    world.settle()
    world.remove_pod(late)
    world.settle()
    world.remove_pod("u1")
    calm_down(world, 10)
    ends_well(world)
    assert members_of(world) == ["u2", "u3"]


def test_a_pod_beyond_its_groups_size_is_kept_out_by_the_next_leader_too() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    world.settle()
    world.restart()
    world.settle()
    assert late not in members_of(world)
    calm_down(world, 10)
    world.remove_pod("u1")
    world.remove_pod("u2")
    world.remove_pod("u3")
    for _ in range(2):
        world.replace_member(GROUP)
    calm_down(world, 10)
    ends_well(world)
    assert all_run_by_one_job(world)


def test_a_pod_that_comes_while_its_group_runs_waits_for_its_end() -> None:
    world = group_of_three()
    bind_all(world)
    world.remove_pod("u1")
    late = world.replace_member(GROUP)
    done = world.settle()
    (told,) = (each for each in done if isinstance(each, ReportWaiting) and each.pod.uid == late)
    assert sentence(told.cause) == "its group began without it: it waits until that is over"
    assert state_of(world) is State.BOUND
    assert not [each for each in done if isinstance(each, EvictPod)]


def test_a_group_whose_pods_were_all_evicted_begins_again_with_new_ones() -> None:
    world = group_of_three()
    bind_all(world)
    (job,) = world.jobs.values()
    world.disturb(job.id, "PREEMPTED")
    for _ in range(3):
        world.replace_member(GROUP)
    calm_down(world, 10)
    ends_well(world)
    assert all_run_by_one_job(world)
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}


def test_a_group_is_valid_again_without_the_pod_that_asked_for_something_else(world: World) -> None:
    world.create_group(2)
    world.edit("u2", 7)
    world.catch_up_with_slurm()
    assert state_of(world) is State.INVALID
    world.remove_pod("u2")
    world.replace_member(GROUP)
    calm_down(world, 10)
    ends_well(world)
    assert all(pod.life.node for pod in world.pods.values())


def test_invalid_group_waits_again_after_a_pod_is_gone(world: World) -> None:
    world.create_group(2)
    world.edit("u2", 7)
    world.catch_up_with_slurm()
    assert state_of(world) is State.INVALID
    world.remove_pod("u2")
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN


def test_queued_group_gives_its_job_back_after_a_pod_is_gone(world: World) -> None:
    world.create_group(3)  # there are two nodes
    world.settle()
    assert state_of(world) is State.QUEUED
    world.remove_pod("u2")
    assert any(isinstance(effect, CancelJob) for effect in world.settle())
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN


@pytest.mark.parametrize("request_", [REQUEST, of_user(7)], ids=["at once", "queued"])
def test_a_late_pod_is_given_its_groups_attempt(request_: Request) -> None:
    """/bind compares the number in the job's key with the Pod's."""
    world = group_of_three(request_)
    world.remove_pod("u1")
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN
    late = world.replace_member(GROUP, request_)
    world.settle()
    assert world.pods[late].scheduling.attempt == 2
    calm_down(world, 10)
    ends_well(world)
    assert all_run_by_one_job(world)


@pytest.mark.parametrize("edited", [0, 1])
def test_group_with_unlike_requests_is_rejected_whichever_pod_comes_last(edited: int) -> None:
    """The name of the last Pod may be the first or the last of the group's names."""
    world = World(PlacementConfig())
    uids = world.create_group(2)
    pod = world.pods[uids[edited]]
    other = replace(pod.request, job=replace(pod.request.job, comment="by its author"))
    world.write(pod._replace(request=other))
    last = PodObserved(world.pods[uids[edited]])
    world.acting.news = [PodObserved(world.pods[uids[1 - edited]]), last]
    world.settle()
    assert state_of(world) is State.INVALID


# What a replica knows of it in part


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_pods_that_are_first_seen_with_their_allocation_are_one_group(bound: int) -> None:
    """Another replica has placed them, and this one lists all Pods after its watch broke off."""
    world = group_of_three()
    (job,) = world.running()
    for uid in ("u1", "u2", "u3")[:bound]:
        world.bind(uid)
    world.acting = Replica(Ledger(world.rules))
    world.tell(ClusterObserved(world.view))
    done = []
    for uid in ("u1", "u2", "u3"):
        world.tell(PodObserved(world.pods[uid]))
        done += world.settle()
    assert not [each for each in done if isinstance(each, CancelJob | EvictPod)]
    assert members_of(world) == ["u1", "u2", "u3"]
    bind_all(world)
    calm_down(world, 40)
    assert state_of(world) is State.BOUND
    assert world.running() == [job]
    world.remove_pod("u1")
    world.settle()
    assert world.running() == [job]


def test_a_part_of_a_group_that_stays_one_gives_its_job_back() -> None:
    world = group_of_three()
    world.pods.pop("u3")
    world.acting = Replica(Ledger(world.rules))
    world.tell(ClusterObserved(world.view))
    for uid in ("u1", "u2"):
        world.tell(PodObserved(world.pods[uid]))
    world.unbindable.add("u2")
    world.disturbed.add(GROUP)
    calm_down(world, 40)
    ends_well(world)
    assert not world.running()
    assert not world.pods


def test_what_is_left_of_a_group_that_ran_runs_on() -> None:
    """One of its Pods has ended before this replica heard of any."""
    world = group_of_three()
    bind_all(world)
    world.remove_pod("u3")
    world.acting = Replica(Ledger(world.rules))
    world.tell(ClusterObserved(world.view))
    for uid in ("u1", "u2"):
        world.tell(PodObserved(world.pods[uid]))
    calm_down(world, 40)
    assert set(world.pods) == {"u1", "u2"}
    assert state_of(world) is State.BOUND


@pytest.mark.parametrize("lacking", [("u1",), ("u1", "u3"), ("u1", "u2", "u3")])
@pytest.mark.parametrize("bound", [False, True])
def test_pods_that_a_list_lacked_are_one_group_with_their_job_when_they_are_back(
    lacking: tuple[str, ...], bound: bool
) -> None:
    world = group_of_three()
    if bound:
        bind_all(world)
    world.list_lacks(lacking)
    calm_down(world, 40)
    ends_well(world)
    assert members_of(world) == ["u1", "u2", "u3"]
    (job,) = world.running()
    world.remove_pod("u1")
    calm_down(world, 10)
    assert world.running() == [job]
    assert {pod.life.node for pod in world.pods.values()} <= set(world.jobs[job].nodes)


def test_the_eviction_limiter_counts_the_pods_of_a_group() -> None:
    world = group_of_three(rules=PlacementConfig(evictions_per_minute=1))
    bind_all(world)
    (job,) = world.jobs.values()
    world.disturb(job.id, "CANCELLED")
    world.poll()
    assert len(world.pods) == 2
    world.pass_time(61.0)
    world.settle()
    assert len(world.pods) == 1
    world.remove_pod(next(iter(world.pods)))
    world.settle()
    assert not world.pods


def test_a_pod_that_left_a_group_is_not_looked_up_as_one_of_it() -> None:
    world = group_of_three()
    bind_all(world)
    world.remove_pod("u1")
    world.settle()
    assert world.ledger.record_of("u1") is None
    assert world.ledger.record_of("u2") is world.ledger.record_of(GROUP) is not None


def test_another_leader_holds_the_job_of_a_group_whose_containers_outlive_it() -> None:
    world = running_group()
    (job,) = world.running()
    first, second = world.pods
    world.force_delete(first)
    world.settle()
    world.write(changed(world.pods[second], finished=True))
    world.settle()
    assert "Pod gone" in world.jobs[job].comment
    world.restart()
    world.settle()
    assert world.running() == [job]
    calm_down(world, 40)
    assert not world.running()


@pytest.mark.parametrize("another_leader", [False, True])
def test_a_forged_number_on_a_bound_pod_does_not_split_its_group(another_leader: bool) -> None:
    world = group_of_three()
    world.bind("u1")
    world.settle()
    world.write(changed(world.pods["u1"], attempt=5))
    if another_leader:
        world.restart()
    world.settle()
    world.unbindable.update(("u2", "u3"))
    calm_down(world, 40)
    ends_well(world)
    assert not world.running()
