"""What the ledger does where a Pod or its job ends, and which Pods hold a Node until they are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.sentences import sentence
from extender.record.events import CancelJob, ClusterObserved, EvictPod, GraceStarted
from extender.record.states import State
from slurm_client.model import JobState
from tests.builders import changed
from tests.placement.ledger_steps import (
    bound_pod,
    job_id_of,
    kinds,
    pod_that_finds_no_room,
    poll,
    settle,
    settle_refused,
    state_of,
)
from tests.placement.ledger_world import REQUEST, VIEW, World


@pytest.mark.parametrize("base", ["CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "SUSPENDED"])
def test_a_bound_pod_whose_job_no_longer_runs_is_evicted_with_the_reason(base: str) -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    world.disturb(job_id, base)
    evictions = [e for e in poll(world) if isinstance(e, EvictPod)]
    assert [e.uid for e in evictions] == [uid]
    assert base in sentence(evictions[0].cause)
    assert uid not in world.pods
    poll(world)
    assert not world.live_jobs(uid)


def test_a_pod_leaves_at_the_start_of_its_jobs_grace_time_and_its_job_ends_with_it() -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    world.begin_grace(job_id)
    assert poll(world) == []  # its state says nothing of it
    world.read_graces()
    (eviction,) = world.effects
    assert isinstance(eviction, EvictPod)
    assert eviction.cause.reason == "SlurmJobPreempted"
    assert f"Slurm job {job_id}" in sentence(eviction.cause)
    assert CancelJob in kinds(settle(world))
    assert not world.live_jobs(uid)


def test_a_pod_that_leaves_already_is_not_told_of_a_grace_time() -> None:
    world = World()
    uid = bound_pod(world)
    world.write(changed(world.pods[uid], deleting=True))
    settle(world)
    world.begin_grace(job_id_of(world, uid))
    world.read_graces()
    assert world.effects == []


def test_a_grace_time_of_another_job_or_that_is_over_already_says_nothing() -> None:
    world = World()
    uid = bound_pod(world)
    job = replace(world.live_jobs(uid)[0], preempt_time=1)
    for not_now in (replace(job, id=job.id + 1), replace(job, state=JobState("PREEMPTED"))):
        world.tell(GraceStarted(uid, not_now))
    world.tell(GraceStarted("nobody", job))
    assert world.effects == []
    assert state_of(world, uid) is State.BOUND


def graceful(**partition: Any) -> ClusterObserved:
    main = replace(VIEW.partitions["main"], **partition)
    return ClusterObserved(replace(VIEW, partitions={"main": main}, preemption=True))


def test_only_jobs_of_bound_pods_that_have_a_grace_time_are_read_for_it() -> None:
    world = World()
    uid, leaving = bound_pod(world), bound_pod(world)
    world.create_pod()  # waits
    world.write(changed(world.pods[leaving], deleting=True))
    settle(world)
    assert world.ledger.jobs_with_grace() == {}
    world.tell(graceful())
    assert world.ledger.jobs_with_grace() == {}
    world.tell(graceful(grace_time_s=30))
    assert world.ledger.jobs_with_grace() == {uid: job_id_of(world, uid)}


@pytest.mark.parametrize(
    ("end", "words"),
    [("Pod failed: c exited with 3", "Pod failed: c exited with 3"), ("", "Pod deleted")],
)
def test_a_cancelled_jobs_comment_tells_how_its_pod_ended(end: str, words: str) -> None:
    world = World()
    uid = bound_pod(world)
    world.write(changed(world.pods[uid], finished=bool(end), end=end))
    if not end:
        world.remove_pod(uid)
    (cancelled,) = (e for e in settle(world) if isinstance(e, CancelJob))
    assert cancelled.comment == words


def test_a_cancelled_jobs_comment_tells_how_its_pod_ended_while_nobody_led() -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    world.write(changed(world.pods[uid], finished=True, end="Pod failed: c exited with 3"))
    world.news.clear()
    world.restart()
    settle(world)
    assert world.jobs[job_id].state.ended
    assert world.jobs[job_id].comment == "Pod failed: c exited with 3"


def test_the_comment_of_a_job_that_is_given_back_tells_why() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    done = settle_refused(world, uid)
    (cancelled,) = (e for e in done if isinstance(e, CancelJob))
    assert "kube-scheduler does not let it onto n" in cancelled.comment


@pytest.mark.parametrize(
    ("base", "evicted"), [("CANCELLED", True), ("PREEMPTED", False), ("FAILED", False)]
)
def test_a_pod_that_has_not_started_is_placed_again_unless_a_person_ended_its_job(
    base: str, evicted: bool
) -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.disturb(job_id_of(world, uid), base)
    poll(world)
    assert (uid not in world.pods) is evicted
    if not evicted:
        assert len(world.live_jobs(uid)) == 1


def test_a_pod_that_somebody_else_bound_gives_its_job_back_and_stays() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    elsewhere = next(n for n in VIEW.nodes if n != world.pods[uid].scheduling.allocation.node)  # type: ignore[union-attr]
    world.write(changed(world.pods[uid], node=elsewhere))
    settle(world)
    poll(world)
    assert uid in world.pods
    assert not world.live_jobs(uid)


def test_a_pod_that_finished_gives_its_job_back_and_stays() -> None:
    world = World()
    uid = bound_pod(world)
    world.write(changed(world.pods[uid], finished=True))
    settle(world)
    assert not world.live_jobs(uid)
    assert uid in world.pods
    assert holders(world) == []


def test_a_terminating_pod_keeps_its_node_until_it_is_gone() -> None:
    """Invariant I4."""
    world = World()
    uid = bound_pod(world)
    world.write(changed(world.pods[uid], deleting=True))
    settle(world)
    poll(world)
    assert len(world.live_jobs(uid)) == 1


def holders(world: World, node: str = "n1") -> list[State]:
    return [each.state for each in world.ledger.holding(node)]


def test_a_pod_whose_job_has_ended_holds_its_node_until_it_is_gone() -> None:
    world = World()
    uid = bound_pod(world)
    assert holders(world) == [State.BOUND]
    world.disturb(job_id_of(world, uid), "PREEMPTED")
    world.ask()
    world.answer()
    assert holders(world) == [State.EVICTING]
    settle(world)
    assert uid not in world.pods
    assert holders(world) == []


def test_a_pod_that_may_yet_be_bound_holds_its_node_until_its_next_attempt_is_written() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.begin_binding(uid)
    world.disturb(job_id_of(world, uid), "PREEMPTED")
    world.ask()
    world.answer()
    assert holders(world) == [State.REPLACING]
    settle(world)
    assert holders(world) == [State.ALLOCATED]  # the next attempt's
    world.finish_binding(uid)
    assert (world.pods[uid].scheduling.attempt, world.pods[uid].life.node) == (2, None)


def test_a_pod_that_was_bound_in_the_last_moment_holds_its_node() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.disturb(job_id_of(world, uid), "PREEMPTED")
    world.write(changed(world.pods[uid], node="n1"))  # /bind had looked before
    world.ask()
    world.answer()
    assert holders(world) == [State.REPLACING]
    while world.news:
        world.hear()
    assert holders(world) == [State.EVICTING]


@pytest.mark.parametrize("external", [False, True])
def test_a_job_that_its_slurmd_did_not_start_is_asked_for_again(external: bool) -> None:
    """slurmd cancels what may not be requeued; of an EXTERNAL_JOB it knows nothing, so a person did."""
    world = World(external=external)
    uid = pod_that_finds_no_room(world)
    began = world.jobs[job_id_of(world, uid)]
    world.jobs[began.id] = replace(began, nodes=("n1",))
    was_cancelled(world, uid)


def test_a_job_that_completes_had_nodes_though_none_is_named_any_more() -> None:
    world = World(external=False)
    uid = world.create_pod()
    settle(world)
    job = job_id_of(world, uid)
    state = JobState("CANCELLED", frozenset({"COMPLETING"}))
    world.jobs[job] = replace(world.jobs[job], state=state, nodes=())
    world.disturbed.add(uid)
    poll(world)
    assert uid in world.pods
    assert job_id_of(world, uid) != job


def test_a_person_cancelled_a_job_that_waited() -> None:
    world = World(external=False)
    uid = pod_that_finds_no_room(world)
    world.disturb(job_id_of(world, uid), "CANCELLED")
    poll(world)
    assert uid not in world.pods


@pytest.mark.parametrize("external", [False, True])
def test_a_job_that_its_slurmd_did_not_start_at_once_is_asked_for_again(external: bool) -> None:
    """It got its nodes with the answer, and its Prolog fails there."""
    world = World(external=external)
    uid = world.create_pod()
    settle(world)
    was_cancelled(world, uid)


def was_cancelled(world: World, uid: str) -> None:
    """Another job is asked for where its slurmd may have done it, and its Pod is evicted where not."""
    began = world.jobs[job_id_of(world, uid)]
    world.disturb(began.id, "CANCELLED")
    poll(world)
    assert (uid in world.pods) is not began.external
    if not began.external:
        assert job_id_of(world, uid) != began.id


def test_a_person_cancelled_a_job_that_had_its_nodes_for_a_while() -> None:
    world = World(external=False)
    uid = world.create_pod()
    settle(world)
    job = job_id_of(world, uid)
    world.disturb(job, "CANCELLED")
    world.jobs[job] = replace(world.jobs[job], start_time=1, end_time=12)
    poll(world)
    assert uid not in world.pods


def test_a_pod_whose_jobs_do_not_start_rests_after_a_few() -> None:
    """Each of them may have drained a node, and the Pod may be what its Prolog does not like."""
    world = World(external=False)
    uid = world.create_pod()
    rest = int(world.rules.mend)
    assert cancelled_within(world, rest) == 3
    (record,) = (each for each in world.ledger.placeholders if each.uid == uid)
    assert record.cause is not None
    assert (record.state, "before it began" in sentence(record.cause)) == (State.INVALID, True)
    assert cancelled_within(world, rest) == 1
    world.write(world.pods[uid]._replace(request=replace(REQUEST, job=replace(REQUEST.job, cpus=2))))
    assert cancelled_within(world, rest) == 3


def cancelled_within(world: World, seconds: int) -> int:
    """How many jobs got nodes, and were cancelled there before they began."""
    cancelled = 0
    for _ in range(seconds):
        poll(world)
        for job in [job for job in world.jobs.values() if job.state.base == "RUNNING"]:
            world.disturb(job.id, "CANCELLED")
            cancelled += 1
        world.pass_time(1.0)
    return cancelled
