"""Tests of the ledger at the end of a Pod or of a job, and of Pods that hold a Node until they are
gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.cause import Cause, Kind
from extender.explain.sentences import sentence
from extender.pod_request.constraints.node_constraints import Taint
from extender.record.events import CancelJob, ClusterObserved, EvictPod, JobRead, ReadJob
from extender.record.states import State
from slurm_client.job_state import JobState
from tests.placement.ledger_world import REQUEST, VIEW, World, calm_down, ends_well, kinds, of_kind, only


@pytest.mark.parametrize("base", ["CANCELLED", "TIMEOUT", "PREEMPTED", "SUSPENDED"])
def test_a_bound_pod_whose_job_no_longer_runs_is_evicted_with_a_reason(world: World, base: str) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.disturb(job_id, base)
    evictions = [e for e in world.poll() if isinstance(e, EvictPod)]
    assert [e.uid for e in evictions] == [uid]
    assert base in sentence(evictions[0].cause)
    assert uid not in world.pods
    world.poll()
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("base", ["NODE_FAIL", "BOOT_FAIL"])
def test_a_node_that_fails_in_slurm_alone_ends_no_pod(world: World, base: str) -> None:
    """The ledger requests a job again, and the job can start only on the Pod's Node."""
    uid, job_id = world.bound_pod_and_job()
    world.end_job(job_id, base)
    assert not of_kind(world.poll(), EvictPod)
    assert world.record(uid).cause == Cause.of(Kind.NODE_FAILED_AND_REPEATED, job=job_id)
    job = world.job_of(uid)
    assert job.required_nodes == (world.pods[uid].life.node,)
    world.start_and_poll()
    world.outlast(12)
    assert world.pods[uid].scheduling.job_id == world.job_id_of(uid) == job.id != job_id
    assert world.record(uid).cause is None


@pytest.mark.parametrize("key", ["not-ready", "unreachable"])
@pytest.mark.parametrize("base", ["NODE_FAIL", "BOOT_FAIL"])
def test_a_node_that_fails_in_both_systems_ends_its_pods(world: World, base: str, key: str) -> None:
    uid, job_id = world.bound_pod_and_job()
    taint = Taint(f"node.kubernetes.io/{key}", "", "NoSchedule")
    node = world.pods[uid].life.node or ""
    world.tell(ClusterObserved(VIEW.with_node(node, replace(VIEW.nodes[node], taints=(taint,)))))
    world.disturb(job_id, base)
    assert [each.uid for each in of_kind(world.poll(), EvictPod)] == [uid]
    assert not world.live_jobs(uid)


def test_pod_is_evicted_when_its_node_fails_in_kubernetes_after_slurm(
    world: World,
) -> None:
    """When a machine shuts down, slurmd ends before the kubelet."""
    uid, job_id = world.bound_pod_and_job()
    world.end_job(job_id, "NODE_FAIL")
    world.poll()
    node = world.pods[uid].life.node or ""
    world.outlast(30)
    assert world.record(uid).cause == Cause.of(Kind.NODE_FAILED_AND_REPEATED, job=job_id)
    assert uid in world.pods
    away = replace(VIEW.nodes[node], taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),))
    world.disturb(world.job_id_of(uid), "PENDING")
    world.jobs[world.job_id_of(uid)] = replace(world.job_of(uid), nodes=())
    world.tell(ClusterObserved(VIEW.with_node(node, away)))
    world.outlast(12)
    assert uid not in world.pods
    assert world.live_jobs(uid) == []


def test_new_leader_requests_a_job_again_for_a_pod_whose_node_failed(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.end_job(job_id, "NODE_FAIL")
    assert not of_kind(world.restart_and_settle(), EvictPod)
    world.start_and_poll()
    assert world.job_of(uid).state.running
    assert world.job_id_of(uid) != job_id


@pytest.mark.parametrize("failures", [5, 9])
def test_pod_outlives_many_failures_of_its_node(world: World, failures: int) -> None:
    """Each failure uses another id of the same attempt, and a new leader knows all of the ids."""
    uid = world.bound_pod()
    for _ in range(failures):
        world.end_job(world.job_id_of(uid), "NODE_FAIL")
        world.poll()
        world.start_and_poll()
        world.outlast(12)
    job_id = world.forget_the_job(uid)
    assert world.pods[uid].scheduling.job_id == job_id
    world.restart_and_settle()
    world.outlast(world.rules.confirmations + 1)
    assert uid in world.pods
    world.start_and_poll()
    assert world.job_of(uid).state.running


def test_terminating_pod_gets_no_new_job_after_its_node_fails(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.delete_pod(uid, 20)
    world.settle()
    world.disturb(job_id, "NODE_FAIL")
    world.outlast(3)
    assert not world.live_jobs(uid)


def test_pod_is_evicted_when_its_jobs_grace_time_starts(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.begin_grace(job_id)
    assert world.poll() == []  # the state does not show the preemption
    world.read_jobs()
    eviction = only(world.effects, EvictPod)
    assert eviction.cause.reason == "SlurmJobPreempted"
    assert f"Slurm job {job_id}" in sentence(eviction.cause)
    assert CancelJob in kinds(world.settle())
    assert not world.live_jobs(uid)


def test_terminating_pod_is_not_evicted_at_a_grace_time(world: World) -> None:
    uid = world.bound_pod()
    world.change_and_settle(uid, deleting=True)
    world.begin_grace(world.job_id_of(uid))
    world.read_jobs()
    assert world.effects == []


def test_grace_time_of_another_job_or_an_ended_job_is_ignored(world: World) -> None:
    uid = world.bound_pod()
    job = replace(world.live_jobs(uid)[0], preempt_time=1)
    for not_now in (replace(job, id=job.id + 1), replace(job, state=JobState("PREEMPTED"))):
        world.tell(JobRead(uid, not_now))
    world.tell(JobRead("nobody", job))
    assert world.effects == []
    assert world.state_of(uid) is State.BOUND


def test_a_job_that_was_suspended_between_two_polls_evicts_its_pod(world: World) -> None:
    """During the suspension, Slurm may have given the cores to another job. Both jobs run now."""
    uid = world.bound_pod()
    job_id = world.job_id_of(uid)
    world.suspend(job_id)
    world.resume(job_id)
    world.poll_alone()
    assert world.effects == []
    world.read_jobs()
    assert only(world.effects, ReadJob).job_id == job_id  # the first reply may have been old
    evicted = of_kind(world.settle(), EvictPod)
    assert [(each.uid, each.cause.kind) for each in evicted] == [(uid, Kind.JOB_RESUMED)]
    assert world.live_jobs(uid) == []


def test_a_job_that_was_suspended_binds_no_pod(world: World) -> None:
    uid = world.queued_pod()
    job_id = world.job_id_of(uid)
    world.disturb(world.running()[0], "COMPLETED")
    world.schedule()
    world.suspend(job_id)
    world.resume(job_id)
    world.poll()
    assert world.live_jobs(uid) == []
    assert world.record(uid).state is State.REPLACING


def test_a_job_that_was_suspended_before_its_start_was_seen_is_replaced(world: World) -> None:
    uid = world.queued_pod()
    job_id = world.job_id_of(uid)
    world.disturb(world.running()[0], "COMPLETED")
    world.schedule()
    world.suspend(job_id)
    calm_down(world, 30)
    ends_well(world)
    assert world.jobs[job_id].state.ended


def test_an_allocated_pods_job_that_was_suspended_is_replaced(world: World) -> None:
    uid = world.settled_pod()
    job_id = world.job_id_of(uid)
    world.suspend(job_id)
    world.resume(job_id)
    world.tell_and_settle(JobRead(uid, world.jobs[job_id]))
    assert world.jobs[job_id].state.ended
    assert world.pods[uid].life.node is None


def test_record_has_the_cores_of_another_start_before_the_pod_is_bound() -> None:
    """Slurm has restarted the job. /bind then reads the Pod and the job."""
    world = World(numbers=True)
    uid = world.settled_pod()
    job_id = world.job_id_of(uid)
    world.jobs[job_id] = replace(world.jobs[job_id], cores=("200",), gres=("gpu:1(IDX:200)",))
    world.tell_and_settle(JobRead(uid, world.jobs[job_id]))
    assert world.state_of(uid) is State.ALLOCATED
    assert [each.slot.cores for each in world.record(uid).members if each.slot] == ["200"]
    assert world.ledger.allocated(uid) is None


def test_unchanged_jobs_leave_their_records_unchanged(world: World) -> None:
    for uid in world.bind_a_pod_to_each_node():
        before = world.record(uid)
        world.read_jobs()
        assert world.record(uid) is before


def graceful(**partition: Any) -> ClusterObserved:
    main = replace(VIEW.partitions["main"], **partition)
    return ClusterObserved(replace(VIEW, partitions={"main": main}, preemption=True))


def test_only_jobs_with_a_grace_time_are_read_for_preemption(world: World) -> None:
    uid, leaving = world.bound_pod(), world.bound_pod()
    world.create_pod()  # the Pod waits
    world.change_and_settle(leaving, deleting=True)
    assert world.ledger.jobs_with_grace() == {}
    world.tell(graceful())
    assert world.ledger.jobs_with_grace() == {}
    world.tell(graceful(grace_time_s=30))
    assert world.ledger.jobs_with_grace() == {uid: world.job_id_of(uid)}


@pytest.mark.parametrize(
    ("end", "words"),
    [("Pod failed: c exited with 3", "Pod failed: c exited with 3"), ("", "Pod deleted")],
)
def test_comment_of_a_cancelled_job_states_how_its_pod_ended(world: World, end: str, words: str) -> None:
    uid = world.bound_pod()
    world.change_pod(uid, finished=bool(end), end=end)
    if not end:
        world.remove_pod(uid)
    (cancelled,) = (e for e in world.settle() if isinstance(e, CancelJob))
    assert cancelled.comment == words


def test_comment_states_how_the_pod_ended_without_a_leader(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.change_pod(uid, finished=True, end="Pod failed: c exited with 3")
    world.news.clear()
    world.restart_and_settle()
    assert world.jobs[job_id].state.ended
    assert world.jobs[job_id].comment == "Pod failed: c exited with 3"


def test_comment_of_a_job_given_back_states_the_reason(world: World) -> None:
    uid = world.settled_pod()
    done = world.settle_refused(uid)
    (cancelled,) = (e for e in done if isinstance(e, CancelJob))
    assert "kube-scheduler does not let the Pod onto n" in cancelled.comment


@pytest.mark.parametrize(
    ("base", "evicted"), [("CANCELLED", True), ("PREEMPTED", False), ("FAILED", False)]
)
def test_unstarted_pod_outlives_its_job_unless_cancelled(world: World, base: str, evicted: bool) -> None:
    uid = world.settled_pod()
    world.disturb(world.job_id_of(uid), base)
    world.poll()
    assert (uid not in world.pods) is evicted
    if not evicted:
        assert len(world.live_jobs(uid)) == 1


def test_pod_bound_elsewhere_gives_its_job_back_and_stays(world: World) -> None:
    uid = world.settled_pod()
    elsewhere = next(n for n in VIEW.nodes if n != world.pods[uid].scheduling.allocation.node)  # type: ignore[union-attr]
    world.change_and_settle(uid, node=elsewhere)
    world.poll()
    assert uid in world.pods
    assert not world.live_jobs(uid)


def test_a_pod_that_finished_gives_its_job_back_and_stays(world: World) -> None:
    uid = world.bound_pod()
    world.change_and_settle(uid, finished=True)
    assert not world.live_jobs(uid)
    assert uid in world.pods
    assert holders(world) == []


def test_a_terminating_pod_keeps_its_node_until_it_is_gone(world: World) -> None:
    """Tests invariant I4: the job stays until the Pod is gone."""
    uid = world.bound_pod()
    world.change_and_settle(uid, deleting=True)
    world.poll()
    assert len(world.live_jobs(uid)) == 1


def holders(world: World, node: str = "n1") -> list[State]:
    return [each.state for each in world.ledger.holding(node)]


def test_a_pod_whose_job_has_ended_holds_its_node_until_it_is_gone(world: World) -> None:
    uid = world.bound_pod()
    assert holders(world) == [State.BOUND]
    world.lose_job(uid, "PREEMPTED")
    assert holders(world) == [State.EVICTING]
    world.settle()
    assert uid not in world.pods
    assert holders(world) == []


def test_a_pod_that_may_yet_be_bound_holds_its_node_until_its_next_attempt(world: World) -> None:
    uid = world.settled_pod()
    world.begin_binding(uid)
    world.lose_job(uid, "PREEMPTED")
    assert holders(world) == [State.REPLACING]
    world.settle()
    assert holders(world) == [State.ALLOCATED]  # the allocation of the next attempt
    world.finish_binding(uid)
    assert (world.pods[uid].scheduling.attempt, world.pods[uid].life.node) == (2, None)


def test_a_pod_that_was_bound_in_the_last_moment_holds_its_node(world: World) -> None:
    uid = world.settled_pod()
    world.disturb(world.job_id_of(uid), "PREEMPTED")
    world.change_pod(uid, node="n1")  # /bind checked the job before the end of the job
    world.poll_alone()
    assert holders(world) == [State.REPLACING]
    world.hear_all()
    assert holders(world) == [State.EVICTING]


COMPLETING = JobState("CANCELLED", frozenset({"COMPLETING"}))


@pytest.mark.parametrize(
    ("queued", "external", "became", "by_a_person"),
    [
        (True, False, {"nodes": ("n1",)}, False),
        (True, True, {"nodes": ("n1",)}, True),  # slurmd cannot have cancelled an EXTERNAL_JOB
        (True, False, {}, True),
        (False, False, {}, False),
        (False, True, {}, True),
        (False, False, {"nodes": (), "state": COMPLETING}, False),  # a COMPLETING job had nodes
        (False, False, {"start_time": 1, "end_time": 12}, True),
    ],
)
def test_job_is_requested_again_if_slurmd_may_have_cancelled_it(
    queued: bool, external: bool, became: dict[str, Any], by_a_person: bool
) -> None:
    """If a Prolog fails, slurmd cancels the job. In Slurm, this looks like a cancellation by a
    person."""
    world = World(external=external)
    uid = world.queued_pod() if queued else world.settled_pod()
    job_id = world.job_id_of(uid)
    world.disturb(job_id, "CANCELLED")
    world.jobs[job_id] = replace(world.jobs[job_id], **became)
    world.poll()
    assert (uid not in world.pods) is by_a_person
    assert by_a_person or world.job_id_of(uid) != job_id


def test_pod_is_paused_after_three_jobs_that_do_not_start() -> None:
    """Each of the jobs may have drained a node: a failed Prolog drains the node, and the Pod may be the
    cause of the failure."""
    world = World(external=False)
    uid = world.create_pod()
    rest = int(world.rules.altered_job_pause)
    assert cancelled_within(world, rest) == 3
    record = world.record(uid)
    assert record.cause is not None
    assert (record.state, "before the start" in sentence(record.cause)) == (State.INVALID, True)
    assert cancelled_within(world, rest) == 1
    world.write(world.pods[uid]._replace(request=replace(REQUEST, job=replace(REQUEST.job, cpus=2))))
    assert cancelled_within(world, rest) == 3


def cancelled_within(world: World, seconds: int) -> int:
    """Returns the number of jobs that got nodes and were cancelled before the start."""
    cancelled = 0
    for _ in range(seconds):
        world.poll()
        for job in [job for job in world.jobs.values() if job.state.base == "RUNNING"]:
            world.disturb(job.id, "CANCELLED")
            cancelled += 1
        world.pass_time(1.0)
    return cancelled
