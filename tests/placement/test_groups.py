"""Tests of a workload with several Pods: a single job, with a node for each Pod. All Pods are bound, or
no Pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.placement.transitions.moves import granted
from extender.pod_request.job_request import Request
from extender.pod_request.workload import Workload
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
from extender.record.member import Member
from extender.record.members import with_slots
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Grant
from tests.builders import pod
from tests.placement.ledger_world import (
    LOST,
    NODES,
    REQUEST,
    Replica,
    World,
    calm_down,
    ends_well,
    kinds,
    of_kind,
    of_user,
)
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import Reason

GROUP = "uid-g1"


def record_of(world: World) -> Placeholder:
    record = world.ledger.record_of(GROUP)
    assert record is not None
    return record


def state_of(world: World) -> State:
    return record_of(world).state


def bind_all(world: World) -> None:
    for uid in sorted(world.pods):
        world.bind(uid)
    world.settle()


def group_of_three(request: Request = REQUEST, rules: PlacementConfig | None = None) -> World:
    """Returns a world of four Nodes with an allocated, unbound group of three Pods."""
    world = World(rules or PlacementConfig(), nodes=("n1", "n2", "n3", "n4"))
    world.create_group(3, request)
    world.catch_up_with_slurm()
    assert state_of(world) is State.ALLOCATED
    return world


def members_of(world: World) -> list[str]:
    return [each.pod.uid for each in record_of(world).members]


def new_group(*, packed: bool = False) -> World:
    world = World()
    world.create_group(3 if packed else 2, packed=packed)
    return world


def allocated_group(*, packed: bool = False) -> World:
    world = new_group(packed=packed)
    world.settle()
    assert state_of(world) is State.ALLOCATED
    return world


def rejected_group(*, packed: bool = False) -> World:
    """Returns a world where kube-scheduler has just rejected both Nodes."""
    world = allocated_group(packed=packed)
    for uid in world.pods:
        world.refuse(uid, offers=False)
    world.settle()
    world.pass_time(0.3)
    return world


def running_group() -> World:
    world = allocated_group()
    bind_all(world)
    assert state_of(world) is State.BOUND
    return world


def ends_well_by_one_job(world: World) -> None:
    calm_down(world, 10)
    ends_well(world)
    pods = list(world.pods.values())
    (job,) = (job for job in world.jobs.values() if job.state.running)
    assert {pod.life.node for pod in pods} == set(job.nodes)
    assert {pod.scheduling.job_id for pod in pods} == {job.id}


def hear_of(world: World, uids: Iterable[str]) -> list[Effect]:
    """Lists these Pods for another replica with a broken watch. Returns the effects."""
    world.acting = Replica(Ledger(world.rules))
    world.tell(ClusterObserved(world.view))
    done = list[Effect]()
    for uid in uids:
        done += world.tell_and_settle(PodObserved(world.pods[uid]))
    return done


def test_group_requests_no_job_before_its_last_pod_exists(world: World) -> None:
    _, second = world.create_group(2)
    late = world.pods.pop(second)
    world.news.pop()
    assert not world.settle()
    done = world.wait(1.1)
    assert not world.jobs
    (told,) = of_kind(done, ReportWaiting)
    cause = told.cause
    assert sentence(cause) == "1 of 2 Pods of the gang g1 exist"
    (submit,) = of_kind(world.write_and_settle(late), Submit)
    assert (submit.job.nodes, submit.job.name) == (2, "g1@default")


def test_group_runs_by_one_job_that_ends_with_its_last_pod() -> None:
    world = running_group()
    first, second = world.pods
    (job,) = world.jobs.values()
    assert job.state.running
    assert {pod.life.node for pod in world.pods.values()} == set(NODES) == set(job.nodes)
    assert {pod.scheduling.job_id for pod in world.pods.values()} == {job.id}
    world.remove_and_settle(first)
    assert state_of(world) is State.BOUND
    assert world.running()
    world.remove_and_settle(second)
    assert not world.running()


def test_all_pods_are_evicted_when_the_job_ends() -> None:
    world = running_group()
    (job,) = world.jobs.values()
    world.disturb(job.id, "PREEMPTED")
    assert len(of_kind(world.poll(), EvictPod)) == 2
    assert not world.pods


def test_a_group_that_loses_a_pod_before_it_runs_gives_its_job_back() -> None:
    world = allocated_group()
    assert of_kind(world.remove_and_settle("u1"), CancelJob)
    calm_down(world, 10)
    ends_well(world)


def test_partly_bound_group_is_evicted_as_a_whole() -> None:
    """A bound Pod cannot be bound again, so the controller creates another Pod."""
    world = allocated_group()
    first, second = world.pods
    world.bind(first)
    done = world.settle_refused(second)
    assert {effect.pod.uid for effect in done if isinstance(effect, EvictPod)} == {first, second}
    assert not world.pods


def test_rejected_group_numbers_all_its_pods_for_the_next_attempt() -> None:
    world = rejected_group()
    assert [effect.attempt for effect in of_kind(world.settle(), WriteAttempt)] == [2, 2]
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}


BEGINNINGS: Mapping[str, Callable[[], World]] = {
    "a new group": new_group,
    "a rejected group": rejected_group,
    "a new packed group": partial(new_group, packed=True),
    "a rejected packed group": partial(rejected_group, packed=True),
}
"""Beginnings of the test. Within six effects, the Pods are bound, or wait again."""


@pytest.mark.parametrize("fate", ["done", "reply lost", "lost"])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_crash_leaves_one_job_and_all_pods_bound(beginning: str, number: int, fate: str) -> None:
    world = BEGINNINGS[beginning]()
    world.hear_all()
    for _ in range(number):
        if world.effects:
            world.carry_out(world.effects.pop(0))
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


def test_next_leader_numbers_the_pods_that_the_last_leader_left() -> None:
    world = rejected_group()
    while not of_kind(world.effects, WriteAttempt):
        world.carry_out(world.effects.pop(0))
    world.do(world.effects[0])
    assert sorted(pod.scheduling.attempt for pod in world.pods.values()) == [1, 2]
    world.restart()
    assert [effect.attempt for effect in of_kind(world.settle(), WriteAttempt)] == [2]
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}
    assert not world.running()


def test_a_pod_keeps_the_node_that_is_written_onto_it() -> None:
    one, other = (Member(pod(name=name, uid=name)) for name in ("p1", "p2"))
    slots = [Allocation(7, "n1", "gpu:1"), Allocation(7, "n2", "gpu:2")]
    written = one._replace(slot=Allocation(7, "n2"))
    assert [each.slot for each in with_slots((one, other), slots)] == slots
    assert [each.slot for each in with_slots((written, other), slots)] == slots[::-1]


def test_pod_keeps_its_slot_on_a_node_with_several_slots() -> None:
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
    world = World(nodes=("n1", "n2"))
    world.create_group(3, packed=True)
    world.catch_up_with_slurm()
    slots = [each.slot for each in record_of(world).members if each.slot is not None]
    assert [each.node for each in slots] == ["n1", "n1", "n2"]
    cores = [number_list.expand(each.cores) for each in slots]
    assert [len(each) for each in cores] == [1, 1, 1]
    assert len(set(cores)) == 3


def test_packed_grant_without_its_gpus_is_given_back() -> None:
    """Slurm 26.05 runs a job of packed tasks without GPUs if the nodes only count their GPUs."""
    world = group_of_three()
    record = record_of(world)
    job = replace(record.request.job, nodes=1, tasks=3, gres=(("gpu", 1),))
    packed = record._replace(request=replace(record.request, job=job))
    grant = Grant(("n1", "n2"), cores=("0-1", "0"), cpus=(2, 1))
    replaced = granted(packed, 7, grant, Context(0.0, world.rules, world.view))
    assert replaced.state is State.REPLACING
    assert replaced.cause is not None
    assert "n1, n2, and granted no gpu: if Slurm counts the devices" in sentence(replaced.cause)


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
    record = record_of(world)
    replaced = granted(record, 7, Grant(nodes), Context(0.0, world.rules, world.view))
    assert replaced.cause is not None
    assert (replaced.state, replaced.cause.reason) == (State.REPLACING, Reason.NODE_UNKNOWN)
    assert sentence(replaced.cause) == f"Slurm chose {words}"


# The controller replaces each deleted Pod


def told_of(done: list[Effect], uid: str) -> str:
    (told,) = (each for each in of_kind(done, ReportWaiting) if each.pod.uid == uid)
    return sentence(told.cause)


def test_replacement_pod_joins_the_next_attempt_of_its_group() -> None:
    world = group_of_three()
    world.remove_pod("u1")
    world.replace_member(GROUP)
    ends_well_by_one_job(world)
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}


def test_replacement_pod_waits_until_the_replaced_pod_is_gone() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    done = world.settle()
    assert told_of(done, late) == "the gang already has all 3 Pods"
    world.remove_pod("u1")
    ends_well_by_one_job(world)


def test_surplus_pod_of_a_group_leaves_no_trace_after_its_deletion() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    world.settle()
    world.remove_and_settle(late)
    world.remove_pod("u1")
    calm_down(world, 10)
    ends_well(world)
    assert members_of(world) == ["u2", "u3"]


def test_next_leader_also_excludes_a_surplus_pod_from_its_group() -> None:
    world = group_of_three()
    late = world.replace_member(GROUP)
    world.settle()
    world.restart_and_settle()
    assert late not in members_of(world)
    calm_down(world, 10)
    for uid in ("u1", "u2", "u3"):
        world.remove_pod(uid)
    for _ in range(2):
        world.replace_member(GROUP)
    ends_well_by_one_job(world)


def test_reports_on_a_group_wait_until_no_more_pods_come() -> None:
    """A report for each Pod is two writes for each Pod, and a report for each new Pod would be a
    quadratic number."""
    world, group = World(), Workload(GROUP, "default", "g1", "", 60)
    reports = list[Any]()
    for _ in range(58):
        world.create_pod(group=group)
        reports += of_kind(world.settle() + world.wait(0.2), ReportWaiting)
    assert not reports
    assert len(of_kind(world.wait(0.5, times=3), ReportWaiting)) == 58
    world.create_pod(group=group)
    assert not of_kind(world.settle() + world.wait(0.2), ReportWaiting)
    told = of_kind(world.wait(0.5, times=3), ReportWaiting)
    assert [sentence(each.cause) for each in told] == ["59 of 60 Pods of the gang g1 exist"]


def test_reports_on_a_group_that_comes_very_slowly_do_not_wait_for_ever() -> None:
    world, group = World(), Workload(GROUP, "default", "g1", "", 90)
    reports = list[Any]()
    for _ in range(60):
        world.create_pod(group=group)
        reports += of_kind(world.settle() + world.wait(0.9), ReportWaiting)
    assert reports
    assert sentence(reports[0].cause).startswith("34 of 90 Pods")


def restarted_group() -> World:
    """Returns a world with a group that runs in its second attempt, after a preemption."""
    world = group_of_three()
    bind_all(world)
    (job,) = world.jobs.values()
    world.disturb(job.id, "PREEMPTED")
    for _ in range(3):
        world.replace_member(GROUP)
    ends_well_by_one_job(world)
    return world


def test_evicted_group_restarts_with_replacement_pods() -> None:
    world = restarted_group()
    assert {pod.scheduling.attempt for pod in world.pods.values()} == {2}


def test_group_is_valid_again_without_its_differing_pod() -> None:
    world = new_group()
    world.edit("u2", 7)
    world.catch_up_with_slurm()
    assert state_of(world) is State.INVALID
    world.remove_pod("u2")
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN
    world.replace_member(GROUP)
    ends_well_by_one_job(world)


def test_queued_group_gives_its_job_back_after_a_pod_is_gone(world: World) -> None:
    world.create_group(3)  # a world of two Nodes
    world.settle()
    assert state_of(world) is State.QUEUED
    assert of_kind(world.remove_and_settle("u2"), CancelJob)
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN


@pytest.mark.parametrize("request_", [REQUEST, of_user(7)], ids=["at once", "queued"])
def test_a_late_pod_is_given_its_groups_attempt(request_: Request) -> None:
    """/bind compares the attempt in the job's key with the Pod's attempt."""
    world = group_of_three(request_)
    world.remove_pod("u1")
    world.catch_up_with_slurm()
    assert state_of(world) is State.SEEN
    late = world.replace_member(GROUP, request_)
    world.settle()
    assert world.pods[late].scheduling.attempt == 2
    ends_well_by_one_job(world)


@pytest.mark.parametrize("edited", [0, 1])
def test_group_with_unlike_requests_is_rejected_whichever_pod_comes_last(edited: int) -> None:
    """The last Pod may have the first or the last name in the group."""
    world = World(PlacementConfig())
    uids = world.create_group(2)
    pod = world.pods[uids[edited]]
    other = replace(pod.request, job=replace(pod.request.job, comment="by its author"))
    world.write(pod._replace(request=other))
    last = PodObserved(world.pods[uids[edited]])
    world.acting.news = [PodObserved(world.pods[uids[1 - edited]]), last]
    world.settle()
    assert state_of(world) is State.INVALID


# A replica with partial knowledge of a group


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_pods_that_are_first_seen_with_their_allocation_are_one_group(bound: int) -> None:
    """Another replica has placed the Pods. The acting replica lists all Pods after the watch broke
    off."""
    world = group_of_three()
    (job,) = world.running()
    for uid in ("u1", "u2", "u3")[:bound]:
        world.bind(uid)
    assert not {CancelJob, EvictPod} & {*kinds(hear_of(world, ("u1", "u2", "u3")))}
    assert members_of(world) == ["u1", "u2", "u3"]
    bind_all(world)
    calm_down(world, 40)
    assert state_of(world) is State.BOUND
    assert world.running() == [job]
    world.remove_and_settle("u1")
    assert world.running() == [job]


def test_group_that_stays_incomplete_gives_its_job_back() -> None:
    world = group_of_three()
    world.pods.pop("u3")
    hear_of(world, ("u1", "u2"))
    world.unbindable.add("u2")
    world.disturbed.add(GROUP)
    calm_down(world, 40)
    ends_well(world)
    assert not world.running()
    assert not world.pods


def test_remaining_pods_of_a_running_group_run_on() -> None:
    """A Pod of the group has ended before this replica knows any Pod."""
    world = group_of_three()
    bind_all(world)
    world.remove_pod("u3")
    hear_of(world, ("u1", "u2"))
    calm_down(world, 40)
    assert set(world.pods) == {"u1", "u2"}
    assert state_of(world) is State.BOUND


@pytest.mark.parametrize("lacking", [("u1",), ("u1", "u3"), ("u1", "u2", "u3")])
@pytest.mark.parametrize("bound", [False, True])
def test_pods_missing_from_one_list_stay_one_group_with_one_job(
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
    world.wait(61.0)
    assert len(world.pods) == 1
    world.remove_and_settle(next(iter(world.pods)))
    assert not world.pods


def test_ledger_finds_no_record_of_a_pod_that_left_its_group() -> None:
    world = group_of_three()
    bind_all(world)
    world.remove_and_settle("u1")
    assert world.ledger.record_of("u1") is None
    assert world.ledger.record_of("u2") is world.ledger.record_of(GROUP) is not None


def test_next_leader_holds_the_job_while_containers_of_the_group_run() -> None:
    world = running_group()
    (job,) = world.running()
    first, second = world.pods
    world.force_delete(first)
    world.settle()
    world.change_and_settle(second, finished=True)
    assert "Pod gone" in world.jobs[job].comment
    world.restart_and_settle()
    assert world.running() == [job]
    calm_down(world, 40)
    assert not world.running()


@pytest.mark.parametrize("another_leader", [False, True])
def test_forged_attempt_on_a_bound_pod_does_not_split_its_group(another_leader: bool) -> None:
    world = group_of_three()
    world.bind_and_settle("u1")
    world.change_pod("u1", attempt=5)
    if another_leader:
        world.restart()
    world.settle()
    world.unbindable.update(("u2", "u3"))
    calm_down(world, 40)
    ends_well(world)
    assert not world.running()


# An earlier gang with the same name. The uid of an annotated gang comes from its name, so both gangs
# have the same possible job ids.


@pytest.mark.parametrize("another_leader", [False, True])
@pytest.mark.parametrize("deleted", [True, False])
def test_gang_is_placed_after_an_ended_gang_with_its_name(another_leader: bool, deleted: bool) -> None:
    """Slurm still knows the ended job of the earlier gang."""
    world = running_group()
    (first,) = world.running()
    for uid in list(world.pods):
        world.remove_pod(uid) if deleted else world.change_pod(uid, finished=True)
    calm_down(world, 10)
    assert not world.running()
    for uid in list(world.pods):
        world.remove_pod(uid)
    if another_leader:
        world.restart_and_settle()
    for _ in range(2):
        world.replace_member(GROUP)
    ends_well_by_one_job(world)
    assert not of_kind(world.effects, EvictPod)
    assert world.running() != [first]


def test_job_of_an_earlier_gang_with_the_name_ends_and_the_gang_gets_its_own_job() -> None:
    """No leader saw the end of the earlier gang, so its job still runs."""
    world = running_group()
    (first,) = world.running()
    for uid in list(world.pods):
        world.pods.pop(uid)
    world.acting.news.clear()
    world.groups[GROUP] = world.groups[GROUP]._replace(members_per_node=1)
    for _ in range(2):
        world.replace_member(GROUP)
    assert {*world.pods} == {"u3", "u4"}
    world.restart()
    calm_down(world, 60)
    ends_well_by_one_job(world)
    assert world.running() != [first]
