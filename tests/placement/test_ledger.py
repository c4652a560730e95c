"""What the ledger does in the situations that matter, one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.placement.config import Context, PlacementConfig
from extender.placement.events import (
    CancelJob,
    CheckDepartures,
    ClusterObserved,
    Effect,
    EvictPod,
    ExcludeNodes,
    Failure,
    GraceStarted,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    ReadJob,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
    WriteAttempt,
)
from extender.placement.on_pod import after_pod
from extender.placement.placeholder import IllegalMove, Placeholder, State
from extender.request.feasible_nodes import FeasibleNodes
from extender.request.job_request import Request
from extender.request.node_constraints import Node
from slurm_client.model import Job, JobState
from tests.builders import placeholder_job, pod
from tests.placement import ledger_world
from tests.placement.ledger_world import NODES, REFUSAL, REQUEST, VIEW, World, calm_down
from wellknown.job_key import PlaceholderKey
from wellknown.names import GATE


def settle(world: World) -> list[Effect]:
    """Everybody does what there is to do, except for Slurm's scheduler; returns what was done."""
    return world.settle()


def settle_news(world: World) -> None:
    while world.news:
        world.hear()


def poll(world: World) -> list[Effect]:
    world.ask()
    world.answer()
    return settle(world)


def settle_refused(world: World, uid: str) -> list[Effect]:
    """kube-scheduler refuses the Node and offers none, as every replica has had the time to say."""
    world.refuse(uid, offers=False)
    done = settle(world)
    world.pass_time(0.3)
    return done + settle(world)


def state_of(world: World, uid: str) -> State | None:
    return next((p.state for p in world.ledger.placeholders if p.pod.uid == uid), None)


def bound_pod(world: World) -> str:
    uid = world.create_pod()
    settle(world)
    world.bind(uid)
    settle(world)
    assert state_of(world, uid) is State.BOUND
    return uid


def pod_that_finds_no_room(world: World) -> str:
    for _ in range(2):
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    return uid


def job_id_of(world: World, uid: str) -> int:
    (job,) = world.live_jobs(uid)
    return job.id


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


@pytest.mark.parametrize("tells_grants", [True, False])
def test_an_idle_cluster_is_asked_at_once_and_the_grant_written(tells_grants: bool) -> None:
    world = World(tells_grants=tells_grants)
    uid = world.create_pod()
    done = settle(world)
    # The first of a partition is read in any case: is its key there?
    assert kinds(done) == [Submit, ReadJob, WriteAllocation]
    assert isinstance(done[0], Submit)
    assert done[0].immediate
    assert world.pods[uid].allocation is not None
    assert not world.pods[uid].gated
    world.create_pod()
    assert kinds(settle(world)) == [Submit, *([] if tells_grants else [ReadJob]), WriteAllocation]


def test_what_was_written_is_known_before_the_watch_shows_it() -> None:
    """kube-scheduler may be as fast as the watch."""
    world = World()
    uid = world.create_pod()
    world.hear()
    while world.effects:
        effect = world.effects.pop(0)
        world.finish(effect, world.do(effect))
    assert world.news
    known = world.ledger.allocated(uid)
    assert known is not None
    assert known.pod.resource_version == world.pods[uid].resource_version
    assert not known.pod.gated
    settle(world)
    heard = world.ledger.allocated(uid)
    assert heard is not None
    assert heard.pod == known.pod


def test_a_pod_that_was_told_to_wait_is_told_that_it_need_not() -> None:
    world = World()
    bound_pod(world)
    first = bound_pod(world)
    uid = world.create_pod()
    settle(world)
    world.pass_time(world.rules.settle + 0.1)
    assert kinds(settle(world)) == [ReadJob, ReportWaiting]
    world.remove_pod(first)
    settle(world)
    world.schedule()
    (written,) = (e for e in poll(world) if isinstance(e, WriteAllocation))
    assert written.heard_at == world.now, "and what it got, by an Event"
    assert (written.uid, written.nominate) == (uid, True)


def test_kube_scheduler_is_led_to_the_node_only_where_there_are_many() -> None:
    many_enough = PlacementConfig().nominate_from
    for known, nominate in ((many_enough - 1, False), (many_enough, True)):
        world = World()
        many = {f"x{n}": Node(f"x{n}", f"x{n}", {}) for n in range(known - len(VIEW.nodes))}
        world.tell(ClusterObserved(replace(VIEW, nodes=dict(VIEW.nodes) | many)))
        world.create_pod()
        (written,) = (e for e in settle(world) if isinstance(e, WriteAllocation))
        assert written.nominate is nominate
        assert written.heard_at is None, "it was told nothing"


def test_what_finds_no_room_is_queued_under_the_next_id() -> None:
    world = World()
    bound_pod(world)
    bound_pod(world)
    uid = world.create_pod()
    first, second = (e for e in settle(world) if isinstance(e, Submit))
    assert (first.immediate, second.immediate) == (True, False)
    assert first.job_id != second.job_id
    assert state_of(world, uid) is State.QUEUED


def test_nobody_overtakes_a_pod_that_waits_in_slurm() -> None:
    world = World()
    bound_pod(world)
    bound_pod(world)
    world.create_pod()
    settle(world)
    world.create_pod()
    submitted = [e for e in settle(world) if isinstance(e, Submit)]
    assert [e.immediate for e in submitted] == [False]


def test_a_partition_that_had_no_room_is_left_in_peace_for_a_while() -> None:
    world = World()
    uid = pod_that_finds_no_room(world)
    world.remove_pod(uid)
    settle(world)
    world.create_pod()
    assert [e.immediate for e in settle(world) if isinstance(e, Submit)] == [False]


def test_what_an_immediate_allocation_queued_all_the_same_is_queued() -> None:
    """Slurm does that to a job beyond a limit of its partition (EnforcePartLimits=NO)."""
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects.pop(0)
    assert isinstance(effect, Submit)
    world.do(replace(effect, immediate=False))
    world.finish(effect, None)
    settle(world)
    assert state_of(world, uid) is State.QUEUED


def test_turns_go_by_priority_and_then_by_age() -> None:
    world = World(PlacementConfig(window=1, fast_path=False))
    turn = world.create_pod()
    settle(world)
    low, high, late_high = world.create_pod(0), world.create_pod(9), world.create_pod(9)
    assert settle(world) == []
    order = []
    for _ in range(3):
        world.remove_pod(turn)
        turn = next(effect.uid for effect in settle(world) if isinstance(effect, Submit))
        order.append(turn)
    assert order == [high, late_high, low]


def test_a_repeated_submission_finds_its_own_job() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects.pop(0)
    world.do(effect)
    world.finish(effect, Failure(Remedy.AGAIN, "timeout"))
    world.pass_time(1.0)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def stranger_of(effect: Submit) -> Job:
    """Another's job, under the id of ours."""
    return replace(world_job(effect), name="theirs", admin_comment="somebody else's")


def test_another_jobs_id_is_left_to_it() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects[0]
    assert isinstance(effect, Submit)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    settle(world)
    assert world.jobs[effect.job_id] == stranger
    assert job_id_of(world, uid) != effect.job_id


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
def test_another_jobs_id_sends_nobody_into_the_queue(state: str) -> None:
    """One Pod that queues is enough for all after it to queue behind it. Whatever became of that job."""
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects[0]
    assert isinstance(effect, Submit)
    job = replace(stranger_of(effect), state=JobState(state), nodes=())
    world.jobs[effect.job_id] = job
    submitted = [e for e in settle(world) if isinstance(e, Submit)]
    assert [e.immediate for e in submitted] == [True, True]
    assert state_of(world, uid) is State.ALLOCATED


@pytest.mark.parametrize("trouble", [Remedy.ID_TAKEN, Remedy.AGAIN])
def test_who_asks_again_overtakes_nobody_who_waits_by_then(trouble: Remedy) -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    first = world.effects.pop(0)
    assert isinstance(first, Submit)
    other = pod_that_finds_no_room(world)
    assert state_of(world, other) is State.QUEUED
    if trouble is Remedy.ID_TAKEN:
        stranger = stranger_of(first)
        world.jobs[first.job_id] = stranger
    world.finish(first, Failure(trouble, "for whatever reason"))
    world.pass_time(10.0)
    submitted = [e for e in settle(world) if isinstance(e, Submit) and e.uid == uid]
    assert [e.immediate for e in submitted] == [False]


def submit_and_lose_the_answer(world: World, uid: str) -> Submit:
    """Whether Slurm has taken the job under the id is not known."""
    settle_news(world)
    effect = world.effects.pop(0)
    assert isinstance(effect, Submit)
    assert effect.uid == uid
    world.finish(effect, Failure(Remedy.AGAIN, "timeout"))
    return effect


def test_a_job_that_slurmctld_ended_since_nobody_took_its_answer_is_asked_for_again() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    submit = world.effects.pop(0)
    assert isinstance(submit, Submit)
    world.do(submit)
    world.fail_unanswered(submit)
    world.finish(submit, Failure(Remedy.AGAIN, "timeout"))
    world.pass_time(10.0)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def outlast(world: World, seconds: int) -> list[Effect]:
    done: list[Effect] = []
    for _ in range(seconds):
        world.pass_time(1.0)
        done += poll(world)
    return done


def test_another_jobs_id_is_left_to_it_when_the_pod_is_deleted() -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    world.remove_pod(uid)
    outlast(world, 20)
    assert world.jobs[effect.job_id] == stranger
    assert state_of(world, uid) is State.DONE
    outlast(world, 60)
    assert list(world.ledger.placeholders) == []
    assert world.jobs[effect.job_id] == stranger


def test_another_jobs_id_is_left_to_it_when_the_pod_is_edited() -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    stranger = stranger_of(effect)
    world.jobs[effect.job_id] = stranger
    world.edit(uid)
    outlast(world, 10)
    assert world.jobs[effect.job_id] == stranger
    assert job_id_of(world, uid) != effect.job_id
    assert len(world.live_jobs(uid)) == 1


@pytest.mark.parametrize("arrives", ["at once", "late"])
def test_a_job_that_was_made_for_a_pod_that_is_deleted_is_cancelled(arrives: str) -> None:
    world = World()
    uid = world.create_pod()
    effect = submit_and_lose_the_answer(world, uid)
    world.remove_pod(uid)
    if arrives == "late":
        outlast(world, 2)
    world.do(effect)
    outlast(world, 20)
    assert world.jobs[effect.job_id].state.base == "CANCELLED"


def test_a_job_that_is_known_to_be_the_pods_own_is_not_read_before_it_is_cancelled() -> None:
    """Thousands may be, at once."""
    world = World()
    uid = bound_pod(world)
    world.remove_pod(uid)
    assert kinds(settle(world)) == [CancelJob]
    uid = bound_pod(world)
    world.restart()  # then only the Pod says which it is, until the job is read
    world.pass_time(world.rules.verified)
    assert ReadJob in kinds(settle(world))
    world.remove_pod(uid)
    assert kinds(settle(world)) == [CancelJob]


def test_what_an_orphans_author_wrote_stays_in_its_comment() -> None:
    world = World()
    asked = replace(REQUEST, job=replace(REQUEST.job, comment="run 7"))
    uid = world.create_pod(request=asked)
    settle(world)
    (job,) = world.live_jobs(uid)
    del world.pods[uid]
    world.restart()
    settle(world)
    assert world.jobs[job.id].comment == "run 7; Pod does not need it any more"


def world_job(effect: Submit) -> Job:
    """The job that a submission would make."""
    other = World()
    other.do(effect)
    return other.jobs[effect.job_id]


def test_a_pod_that_slurm_can_never_run_is_refused_and_told() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    effect = world.effects.pop(0)
    world.finish(effect, Failure(Remedy.CHANGE, "Invalid partition name"))
    (told,) = settle(world)
    assert isinstance(told, ReportWaiting)
    assert "Invalid partition name" in told.cause.message
    assert state_of(world, uid) is State.REFUSED


def test_a_refused_pod_that_is_changed_is_tried_again() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    world.finish(world.effects.pop(0), Failure(Remedy.CHANGE, "Invalid partition name"))
    settle(world)
    world.write(world.pods[uid]._replace(request=Request(REQUEST.job, REQUEST.constraints, ("bad",))))
    settle(world)
    assert state_of(world, uid) is State.REFUSED
    world.write(world.pods[uid]._replace(request=REQUEST))
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_whose_node_kube_scheduler_refuses_tries_another_at_once_if_that_is_offered() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    first = world.pods[uid].allocation
    assert first is not None
    world.refuse(uid, offers=True)
    assert kinds(settle(world))[:3] == [CheckDepartures, WriteAttempt, CancelJob]
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == (first.node,)
    assert world.pods[uid].attempt == 2


def test_only_the_nodes_that_kube_scheduler_offered_are_asked_for_after_a_refusal() -> None:
    names = ("n1", "n2", "n3", "n4")
    world = World()
    nodes = {name: Node(name, name, {}) for name in names}
    partitions = {"main": replace(VIEW.partitions["main"], nodes=names)}
    world.tell(ClusterObserved(replace(VIEW, nodes=nodes, partitions=partitions)))
    uid = world.create_pod()
    settle(world)
    granted = world.pods[uid].allocation
    assert granted is not None
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(granted.job_id, ("n3",))))
    settle(world)
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n[1-2,4]",)


def test_an_offer_without_a_node_of_the_partition_is_none() -> None:
    world = World()
    elsewhere = {name: Node(name, name, {}) for name in ("n1", "n2", "other")}
    world.tell(ClusterObserved(replace(VIEW, nodes=elsewhere)))
    uid = world.create_pod()
    settle(world)
    first = world.pods[uid].allocation
    assert first is not None
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(first.job_id, ("other",))))
    settle(world)
    assert not any(isinstance(effect, Submit) for effect in poll(world))
    world.pass_time(world.rules.unbindable[0])
    assert not any(isinstance(effect, Submit) for effect in poll(world))
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(0, ("n2",))))
    (submitted,) = (e for e in settle(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n1",)


def test_an_offer_instead_of_an_earlier_jobs_node_says_nothing_of_this_ones() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(4711, ("n2",))))
    assert settle(world) == []


def test_a_node_that_pods_are_leaving_is_waited_for() -> None:
    world = World(vacated_in={"n1": 20.0})
    uid = world.create_pod()
    settle(world)
    assert kinds(settle_refused(world, uid)) == [CheckDepartures]
    world.pass_time(19.0)
    assert settle(world) == []
    world.bind(uid)
    settle(world)
    assert state_of(world, uid) is State.BOUND


def test_a_node_that_another_pod_leaves_within_a_day_is_given_back() -> None:
    world = World(vacated_in={"n1": 86_405.0})
    uid = world.create_pod()
    settle(world)
    (job,) = world.live_jobs(uid)
    assert job.nodes == ("n1",)
    settle_refused(world, uid)
    assert world.jobs[job.id].state.ended
    assert not world.ledger.holding("n1")


def test_a_node_that_is_refused_when_it_is_clear_too_is_given_back() -> None:
    world = World(vacated_in={"n1": 40.0})
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    world.vacated_in.clear()
    world.pass_time(41.0)
    assert kinds(settle(world)) == [CheckDepartures, WriteAllocation]
    assert kinds(settle_refused(world, uid))[:2] == [CheckDepartures, WriteAttempt]


def test_a_refusal_for_want_of_room_may_be_of_a_pod_that_has_just_left_and_counts_once() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    allocated = world.pods[uid].allocation
    assert allocated is not None

    def lacks(words: str) -> list[type[Effect]]:
        world.say(uid, f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu.{words}")
        done = settle(world)
        world.pass_time(0.3)
        return kinds(done + settle(world))

    assert lacks("") == [CheckDepartures]
    world.pass_time(world.rules.settle)
    assert kinds(settle(world)) == [CheckDepartures, WriteAllocation]
    assert world.pods[uid].allocation == allocated
    world.pass_time(world.rules.hears_within)
    assert lacks(" Still.")[:2] == [CheckDepartures, WriteAttempt]


def test_a_refusal_after_an_unknown_outcome_has_the_job_looked_for_first() -> None:
    for remedy in (Remedy.CHANGE, Remedy.LATER, Remedy.OPERATOR, Remedy.NO_ROOM):
        world = World()
        uid = world.create_pod()
        world.hear()
        (submit,) = world.effects
        world.acting.effects = []
        world.do(submit)  # it arrived, but the reply was lost
        world.finish(submit, Failure(Remedy.AGAIN, "lost"))
        world.pass_time(1.0)
        (again,) = (effect for effect in world.effects if isinstance(effect, Submit))
        world.acting.effects = []
        world.finish(again, Failure(remedy, "refused"))
        settle(world)
        assert state_of(world, uid) is State.ALLOCATED, remedy


def test_a_pod_bound_by_another_replica_to_the_job_just_started_keeps_it() -> None:
    """This replica has seen the job start, and has not yet read where."""
    world = World()
    uid = world.create_pod()
    settle(world)
    world.bind(uid)
    bound = world.pods[uid]
    started = Placeholder(bound._replace(node=None), State.ALLOCATED, job_id=job_id_of(world, uid))
    after = after_pod(started, bound, Context(world.now, world.rules, VIEW))
    assert (after.state, after.allocation) == (State.BOUND, bound.allocation)
    assert after.unverified_since is not None  # and so Slurm is asked


def test_an_attempt_that_another_replica_has_numbered_is_not_numbered_again() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.refuse(uid, offers=True)
    settle_news(world)
    look = world.effects.pop(0)
    world.finish(look, 0.0)
    (write,) = world.effects
    assert isinstance(write, WriteAttempt)
    world.acting.effects = []
    world.write(world.pods[uid]._replace(attempt=2, offered=None))
    world.finish(write, Failure(Remedy.FRESHER, "the object has been modified"))
    assert WriteAttempt not in kinds(settle(world))


def test_an_offer_that_names_another_job_is_not_gone_by() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.write(world.pods[uid]._replace(refusal=REFUSAL, offered=FeasibleNodes(4711, ("n9",))))
    settle(world)
    world.pass_time(0.3)
    settle(world)
    poll(world)
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(0)))
    settle(world)
    world.pass_time(world.rules.unbindable[0])
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n1",)


def test_a_pods_news_do_not_shorten_the_pause_before_another_attempt() -> None:
    world = World()
    uid = world.create_pod()
    world.write(world.pods[uid]._replace(attempt=8))
    world.acting.news = world.news[-1:]
    assert settle(world) == []
    world.write(world.pods[uid]._replace(looked_at=True))
    assert settle(world) == []
    world.pass_time(31.0)
    assert Submit in kinds(settle(world))


def test_a_pod_that_is_edited_while_its_job_waits_gets_another_job() -> None:
    world = World()
    for _ in NODES:
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    (first,) = world.live_jobs(uid)
    world.edit(uid)
    assert kinds(settle(world))[:2] == [WriteAttempt, CancelJob]
    submitted = next(e for e in poll(world) if isinstance(e, Submit))
    assert "edited" in (submitted.job.comment or "")
    (second,) = world.live_jobs(uid)
    assert second.id != first.id


def test_a_pod_that_is_edited_after_its_allocation_keeps_it() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.edit(uid)
    assert settle(world) == []
    assert state_of(world, uid) is State.ALLOCATED


def test_a_node_is_avoided_for_a_while_and_not_for_ever() -> None:
    world = World()
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    world.write(world.pods[uid]._replace(offered=FeasibleNodes(0)))
    settle(world)
    world.pass_time(world.rules.unbindable[0])
    settle(world)
    assert state_of(world, uid) is State.SUBMITTING
    assert not world.live_jobs(uid)
    world.pass_time(world.rules.avoid + 1)
    world.pass_time(60.0)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_that_is_bound_does_not_wait_for_others_to_leave_nodes() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.refuse(uid, offers=True)
    settle(world)
    poll(world)
    poll(world)
    assert world.ledger._avoiding == {uid}
    world.bind(uid)
    settle(world)
    assert (state_of(world, uid), world.ledger._avoiding) == (State.BOUND, set())


def test_a_node_that_was_avoided_long_ago_is_not_waited_for() -> None:
    world = World()
    other, uid = bound_pod(world), world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    world.pass_time(world.rules.avoid + 1)
    settle(world)
    world.remove_pod(other)
    settle(world)
    assert (state_of(world, uid), world.ledger._avoiding) == (State.SEEN, set())


def test_a_node_that_another_pod_has_left_is_not_avoided_any_more() -> None:
    world = World()
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": VIEW.nodes["n1"]})))
    blocking = bound_pod(world)
    world.pods[blocking] = world.pods[blocking]._replace(node="n1")
    (job,) = world.live_jobs(blocking)
    world.jobs[job.id] = replace(job, nodes=("n2",))  # room for both in Slurm, not in Kubernetes
    uid = world.create_pod()
    settle(world)
    settle_refused(world, uid)
    poll(world)
    assert state_of(world, uid) is State.SEEN
    world.remove_pod(blocking)
    settle(world)
    assert state_of(world, uid) is State.SEEN
    world.look(uid)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_that_others_hold_back_gets_no_job_until_they_let_go() -> None:
    world = World()
    uid = world.create_pod()
    world.write(world.pods[uid]._replace(gates=(*world.pods[uid].gates, "kueue.x-k8s.io/admission")))
    world.acting.news = world.news[-1:]
    (told,) = settle(world)
    assert isinstance(told, ReportWaiting)
    assert "kueue.x-k8s.io/admission" in told.cause.message
    world.write(world.pods[uid]._replace(gates=(GATE,)))
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_cancellation_that_is_confirmed_late_does_not_hold_up_the_next_attempt() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.pass_time(world.rules.unbound_deadline + 1)
    attempt = world.effects.pop(0)
    world.finish(attempt, world.do(attempt))
    settle_news(world)
    (cancel,) = world.effects
    world.acting.effects = []
    world.do(cancel)
    world.ask()
    world.answer()
    world.finish(cancel, None)
    settle(world)
    world.look(uid)
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_what_could_not_be_told_is_told_later() -> None:
    world = World()
    uid = world.create_pod()
    world.hear()
    world.finish(world.effects.pop(0), Failure(Remedy.CHANGE, "Invalid partition name"))
    (told,) = world.effects
    world.acting.effects = []
    world.finish(told, Failure(Remedy.AGAIN, "kube-apiserver does not answer", "Kubernetes"))
    assert world.effects == []
    world.pass_time(world.rules.reason_interval + 1)
    (again,) = world.effects
    assert again == told
    assert state_of(world, uid) is State.REFUSED


@pytest.mark.parametrize("base", ["CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "SUSPENDED"])
def test_a_bound_pod_whose_job_no_longer_runs_is_evicted_with_the_reason(base: str) -> None:
    world = World()
    uid = bound_pod(world)
    job_id = job_id_of(world, uid)
    world.disturb(job_id, base)
    evictions = [e for e in poll(world) if isinstance(e, EvictPod)]
    assert [e.uid for e in evictions] == [uid]
    assert base in evictions[0].cause.message
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
    assert f"Slurm job {job_id}" in eviction.cause.message
    assert CancelJob in kinds(settle(world))
    assert not world.live_jobs(uid)


def test_a_pod_that_leaves_already_is_not_told_of_a_grace_time() -> None:
    world = World()
    uid = bound_pod(world)
    world.write(world.pods[uid]._replace(deleting=True))
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
    world.write(world.pods[leaving]._replace(deleting=True))
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
    world.write(world.pods[uid]._replace(finished=bool(end), end=end))
    if not end:
        world.remove_pod(uid)
    (cancelled,) = (e for e in settle(world) if isinstance(e, CancelJob))
    assert cancelled.comment == words


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


def forget_the_start(world: World, uid: str, **changes: Any) -> int:
    """slurmctld was killed before it had saved that this Pod's job runs."""
    job_id = job_id_of(world, uid)
    waiting = replace(world.jobs[job_id], state=JobState("PENDING"), nodes=())
    world.jobs[job_id] = replace(waiting, **changes)
    world.disturbed.add(uid)
    return job_id


def test_a_bound_pod_outlives_a_slurmctld_that_forgot_to_have_started_its_job() -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_start(world, uid)
    poll(world)
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    assert state_of(world, uid) is State.BOUND
    assert job_id_of(world, uid)
    world.pass_time(100.0)
    assert poll(world) == []


def test_a_bound_pod_whose_job_is_started_again_elsewhere_is_evicted() -> None:
    world = World()
    uid = bound_pod(world)
    node = world.pods[uid].node
    job_id = forget_the_start(world, uid)
    poll(world)
    elsewhere = next(name for name in VIEW.nodes if name != node)
    world.jobs[job_id] = replace(world.jobs[job_id], state=JobState("RUNNING"), nodes=(elsewhere,))
    world.pass_time(1.1)
    poll(world)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


@pytest.mark.parametrize("requeued", [True, False])
def test_a_bound_pod_whose_job_was_requeued_or_is_not_started_again_is_evicted(requeued: bool) -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_start(world, uid, restart_count=int(requeued))
    poll(world)
    assert (uid not in world.pods) is requeued
    for _ in range(2):
        world.pass_time(world.rules.doubt + 1)
        poll(world)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


def test_a_node_that_kube_scheduler_never_looked_at_is_not_blamed() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.pass_time(world.rules.unbound_deadline + 1)
    settle(world)
    poll(world)
    world.look(uid)
    submitted = next(e for e in settle(world) if isinstance(e, Submit))
    assert (submitted.uid, submitted.job.excluded_nodes) == (uid, ())


def test_a_pod_that_needs_a_closed_node_waits_for_it() -> None:
    world = World()
    cordoned = dict(VIEW.nodes) | {"n1": replace(VIEW.nodes["n1"], unschedulable=True)}
    world.tell(ClusterObserved(replace(VIEW, nodes=cordoned)))
    uid = world.create_pod()
    needs = replace(REQUEST, job=replace(REQUEST.job, required_nodes=("n1",)))
    world.write(world.pods[uid]._replace(request=needs))
    world.acting.news = world.news[-1:]
    (told,) = settle(world)
    assert isinstance(told, ReportWaiting)
    assert told.cause.reason == "NoEligibleNode"
    world.tell(ClusterObserved(VIEW))
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_pod_that_needs_one_of_several_nodes_gets_one_that_is_open() -> None:
    world = World()
    cordoned = dict(VIEW.nodes) | {"n1": replace(VIEW.nodes["n1"], unschedulable=True)}
    world.tell(ClusterObserved(replace(VIEW, nodes=cordoned)))
    uid = world.create_pod()
    needs = replace(REQUEST, job=replace(REQUEST.job, required_nodes=("n1", "n2")))
    world.write(world.pods[uid]._replace(request=needs))
    world.acting.news = world.news[-1:]
    settle(world)
    assert state_of(world, uid) is State.ALLOCATED
    allocation = world.pods[uid].allocation
    assert allocation is not None
    assert allocation.node == "n2"


def test_a_pod_that_was_told_to_wait_before_a_restart_is_told_that_it_need_not() -> None:
    world = World()
    world.create_pod()
    world.acting.news = [PodObserved(pod.pod._replace(told_to_wait=True)) for pod in world.news]  # type: ignore[union-attr]
    (written,) = (e for e in settle(world) if isinstance(e, WriteAllocation))
    assert written.nominate


def forget_the_job(world: World, uid: str) -> int:
    """slurmctld was killed before it had saved the submission."""
    job_id = job_id_of(world, uid)
    del world.jobs[job_id]
    return job_id


def test_the_job_of_a_bound_pod_that_slurm_forgot_is_asked_for_again_on_the_pods_node() -> None:
    """Invariant I5: absence ends no Pod; invariant I2: nor does one run on without a job."""
    world = World()
    bound_pod(world)
    uid = bound_pod(world)
    key, node = world.live_jobs(uid)[0].admin_comment, world.pods[uid].node
    job_id = forget_the_job(world, uid)
    for _ in range(world.rules.confirmations - 1):
        assert poll(world) == []
    (again,) = poll(world)
    assert isinstance(again, Submit)
    assert again.job.priority == max(1 << 31, again.job.priority or 0)  # before all that wait
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    (job,) = world.live_jobs(uid)
    assert (job.id, job.admin_comment, job.nodes) == (job_id, key, (node,))
    assert state_of(world, uid) is State.BOUND
    world.pass_time(100.0)
    assert poll(world) == []


def test_a_bound_pod_that_only_an_earlier_leader_knew_as_allowed_gets_its_job_once_it_is_again() -> None:
    world = World()
    uid = bound_pod(world)
    node = world.pods[uid].node
    forget_the_job(world, uid)
    world.edit(uid, forbidden=True)
    world.restart()
    for _ in range(world.rules.confirmations):
        assert Submit not in kinds(poll(world))
    world.edit(uid)
    assert Submit in kinds(settle(world))
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (node,)


def test_a_pod_that_was_being_bound_when_slurm_forgot_its_job_gets_it_back() -> None:
    """Invariant I5, in the moment between the leader's look and the Binding's arrival."""
    world = World()
    uid = world.create_pod()
    settle(world)
    world.begin_binding(uid)
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    assert state_of(world, uid) is State.REPLACING
    world.finish_binding(uid)
    settle(world)
    world.pass_time(1.0)
    assert Submit in kinds(settle(world))
    assert state_of(world, uid) is State.BOUND
    (job,) = world.live_jobs(uid)
    assert job.required_nodes == (world.pods[uid].node,)


@pytest.mark.parametrize("what", ["nothing", "the Pod is allowed", "the leader restarts"])
def test_a_refused_pod_outlives_the_job_that_a_deposed_leader_asked_for(what: str) -> None:
    world = World()
    uid = world.create_pod()
    while world.news:
        world.hear()
    (late,) = world.effects  # the request of a leader that is deposed
    assert isinstance(late, Submit)
    world.effects.clear()
    world.edit(uid, forbidden=True)
    world.restart()
    settle(world)
    assert state_of(world, uid) is State.REFUSED
    world.do(late)
    world.sweep()
    settle(world)
    if what == "the Pod is allowed":
        world.edit(uid)
    elif what == "the leader restarts":
        world.restart()
    for _ in range(3):
        poll(world)
    assert uid in world.pods
    live = [job.id for job in world.live_jobs(uid)]
    assert len(live) == (what == "the Pod is allowed")
    assert late.job_id not in live


def test_what_a_pod_asks_for_anyway_is_no_orphan() -> None:
    """It was allowed between the audit's last look and the order to end its job."""
    world = World()
    uid = world.create_pod()
    settle(world)
    (job,) = world.live_jobs(uid)
    key = PlaceholderKey.parse(job.admin_comment)
    assert key is not None
    world.tell(OrphanFound(key, job.id))
    assert settle(world) == []
    assert world.live_jobs(uid) == [job]


def test_a_pod_whose_allocation_was_being_taken_back_when_slurm_forgot_its_job_gets_it_back() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.begin_binding(uid)
    world.pass_time(world.rules.unbound_deadline + 1)
    assert state_of(world, uid) is State.REPLACING
    forget_the_job(world, uid)
    world.finish_binding(uid)
    while world.effects:  # what was to be written finds another version of the Pod
        effect = world.effects.pop(0)
        world.finish(effect, world.do(effect))
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    world.pass_time(1.0)
    settle(world)
    world.pass_time(1.0)
    settle(world)
    assert state_of(world, uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert again.required_nodes == (world.pods[uid].node,)


def test_a_bound_pod_whose_forgotten_job_finds_its_node_taken_runs_on_until_it_is_free() -> None:
    world = World()
    uid = bound_pod(world)
    taken = replace(world.live_jobs(uid)[0], id=7, admin_comment="")
    forget_the_job(world, uid)
    world.jobs[7] = taken
    for _ in range(world.rules.confirmations):
        poll(world)
    for _ in range(4):
        world.schedule()
        world.pass_time(world.rules.doubt + 1)
        poll(world)
    (job,) = world.live_jobs(uid)
    assert job.state.pending
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.restart()
    poll(world)
    assert [p.cause and p.cause.reason for p in world.ledger.placeholders] == ["SlurmJobLost"]
    world.end_job(7, "COMPLETED")
    world.schedule()
    world.pass_time(world.rules.reason_interval)
    poll(world)
    assert world.live_jobs(uid)[0].state.running
    assert [p.cause for p in world.ledger.placeholders] == [None]


def refused_by_slurm(world: World, kind: type[Effect], times: int) -> list[ReportWaiting]:
    """Slurm refuses such requests, so many times; returns what was told meanwhile."""
    told: list[ReportWaiting] = []
    while times:
        while world.effects:
            effect = world.effects.pop(0)
            refused = isinstance(effect, kind)
            no = Failure(Remedy.CHANGE, "Invalid account")
            world.finish(effect, no if refused else world.do(effect))
            told += [effect] if isinstance(effect, ReportWaiting) else []
            times -= refused
        world.pass_time(5.0)
    return told


def test_the_author_of_a_pod_whose_lost_job_slurm_does_not_take_again_is_told_once() -> None:
    """By an Event: the Pod runs."""
    world = World()
    uid = bound_pod(world)
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    (told,) = refused_by_slurm(world, Submit, 20)
    assert "Invalid account" in told.cause.message
    assert told.event_alone
    assert state_of(world, uid) is State.BOUND
    settle(world)
    assert world.live_jobs(uid)


def test_the_author_of_a_pod_whose_job_slurm_lets_nobody_change_is_told_once() -> None:
    world = World()
    for _ in NODES:
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    cordoned = dict(VIEW.nodes) | {"n1": replace(VIEW.nodes["n1"], unschedulable=True)}
    world.tell(ClusterObserved(replace(VIEW, nodes=cordoned)))
    world.pass_time(1.0)
    assert refused_by_slurm(world, ExcludeNodes, 3) == []  # it may have crossed with something
    (told,) = refused_by_slurm(world, ExcludeNodes, 20)
    assert "Invalid account" in told.cause.message
    assert (told.event_alone, told.job_id) == (False, job_id_of(world, uid))


def test_a_forgotten_job_that_comes_back_is_not_asked_for_again() -> None:
    world = World()
    uid = bound_pod(world)
    job = world.live_jobs(uid)[0]
    forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    world.jobs[job.id] = job  # between the poll and the submission
    assert kinds(settle(world)) == [Submit]
    world.pass_time(1.1)
    poll(world)
    assert world.live_jobs(uid) == [job]
    world.pass_time(100.0)
    assert poll(world) == []


def test_the_job_of_a_pod_whose_node_is_gone_is_not_asked_for() -> None:
    world = World()
    uid = bound_pod(world)
    forget_the_job(world, uid)
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    for _ in range(10):
        assert poll(world) == []
        world.pass_time(5.0)
    assert state_of(world, uid) is State.BOUND


def test_a_queued_job_that_slurm_forgot_is_submitted_again_under_its_id() -> None:
    world = World()
    uid = pod_that_finds_no_room(world)
    forgotten = world.jobs.pop(job_id_of(world, uid))
    for _ in range(world.rules.confirmations):
        assert not world.live_jobs(uid)
        poll(world)
    assert job_id_of(world, uid) == forgotten.id


def test_a_cancelled_job_that_comes_back_is_cancelled_again() -> None:
    world = World()
    uid = bound_pod(world)
    world.save()
    world.remove_pod(uid)
    settle(world)
    poll(world)
    assert not world.live_jobs(uid)
    world.kill_slurmctld()
    assert world.live_jobs(uid)
    world.pass_time(1.0)
    poll(world)
    assert not world.live_jobs(uid)


def test_a_tombstone_is_dropped_after_its_time() -> None:
    world = World()
    uid = bound_pod(world)
    world.remove_pod(uid)
    settle(world)
    poll(world)
    assert state_of(world, uid) is State.DONE
    world.pass_time(world.rules.tombstone + 1)
    assert list(world.ledger.placeholders) == []


def test_a_pod_that_somebody_else_bound_gives_its_job_back_and_stays() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    elsewhere = next(n for n in VIEW.nodes if n != world.pods[uid].allocation.node)  # type: ignore[union-attr]
    world.write(world.pods[uid]._replace(node=elsewhere))
    settle(world)
    poll(world)
    assert uid in world.pods
    assert not world.live_jobs(uid)


def test_a_pod_that_finished_gives_its_job_back_and_stays() -> None:
    world = World()
    uid = bound_pod(world)
    world.write(world.pods[uid]._replace(finished=True))
    settle(world)
    assert not world.live_jobs(uid)
    assert uid in world.pods


def test_a_terminating_pod_keeps_its_node_until_it_is_gone() -> None:
    """Invariant I4."""
    world = World()
    uid = bound_pod(world)
    world.write(world.pods[uid]._replace(deleting=True))
    settle(world)
    poll(world)
    assert len(world.live_jobs(uid)) == 1


def test_a_pod_without_an_open_node_waits_until_there_is_one() -> None:
    world = World()
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    uid = world.create_pod()
    (told,) = settle(world)
    assert isinstance(told, ReportWaiting)
    assert told.cause.reason == "NoEligibleNode"
    world.tell(ClusterObserved(replace(VIEW, nodes={"n1": Node("n1", "n1", {})})))
    submitted = next(e for e in settle(world) if isinstance(e, Submit))
    assert submitted.job.excluded_nodes == ("n2",)
    assert state_of(world, uid) is State.ALLOCATED


def test_a_job_that_waits_hears_of_nodes_that_close_and_open() -> None:
    world = World()
    uid = pod_that_finds_no_room(world)
    cordoned = dict(VIEW.nodes) | {"n1": replace(VIEW.nodes["n1"], unschedulable=True)}
    for nodes, excluded in ((cordoned, ("n1",)), (VIEW.nodes, ())):
        world.tell(ClusterObserved(replace(VIEW, nodes=nodes)))
        told = [e for e in settle(world) if isinstance(e, ExcludeNodes)]
        assert [(e.uid, e.nodes) for e in told] == [(uid, excluded)]
    world.tell(ClusterObserved(replace(VIEW, nodes=dict(VIEW.nodes))))
    assert settle(world) == []


def test_a_job_that_waits_is_never_told_to_avoid_every_node() -> None:
    world = World()
    bound_pod(world)
    bound_pod(world)
    world.create_pod()
    settle(world)
    world.tell(ClusterObserved(replace(VIEW, nodes={})))
    assert settle(world) == []


def test_trouble_is_told_once_and_not_with_every_repetition() -> None:
    world = World()
    world.create_pod()
    world.hear()
    told = []
    for _ in range(5):
        effects, world.acting.effects = world.effects, []
        for effect in effects:
            if isinstance(effect, Submit):
                world.finish(effect, Failure(Remedy.AGAIN, "no connection"))
            else:
                told.append(effect)
                world.finish(effect, None)
        world.pass_time(10.0)
    assert len(told) == 1


def test_a_poll_that_was_asked_before_the_grant_does_not_undo_it() -> None:
    world = World()
    bound_pod(world)
    other = bound_pod(world)
    uid = world.create_pod()
    settle(world)
    world.ask()
    late = world.acting.poll
    assert isinstance(late, JobsPolled)
    world.remove_pod(other)
    settle(world)
    world.pass_time(0.1)
    world.schedule()
    poll(world)
    assert state_of(world, uid) is State.ALLOCATED
    world.acting.poll = late
    world.answer()
    assert state_of(world, uid) is State.ALLOCATED


def test_nothing_follows_from_answers_that_cannot_be_read() -> None:
    """Neither for a Pod that runs, nor for one that waits, nor at a restart."""
    world = World()
    waiting = pod_that_finds_no_room(world)
    running = next(uid for uid, each in world.pods.items() if each.node)
    world.garbled = {job_id_of(world, running), job_id_of(world, waiting)}
    for restarts in (False, True):
        if restarts:
            world.restart()
        for _ in range(2 * world.rules.confirmations):
            done = poll(world)
            world.pass_time(5.0)
            assert not {EvictPod, CancelJob, WriteAttempt} & {*kinds(done)}
    assert world.pods[running].node
    world.garbled.clear()
    world.disturb(job_id_of(world, running), "CANCELLED")
    calm_down(world, 40)
    assert running not in world.pods
    assert world.pods[waiting].node


def test_an_edited_partition_moves_a_waiting_pod_to_the_other_line() -> None:
    world = World(PlacementConfig(window=1, fast_path=False))
    first, second = world.create_pod(), world.create_pod()
    settle(world)
    assert state_of(world, second) is State.SEEN
    other = replace(REQUEST, job=replace(REQUEST.job, partition="other"))
    world.write(world.pods[second]._replace(request=other))
    settle(world)
    assert state_of(world, second) is State.QUEUED
    world.remove_pod(second)
    world.remove_pod(first)
    settle(world)
    calm_down(world, 3)


def test_an_illegal_move_raises() -> None:
    with pytest.raises(IllegalMove, match="Done -> Bound"):
        Placeholder(pod(), State.DONE).move(State.BOUND, 0.0)


def test_an_outcome_of_a_pod_that_is_long_gone_is_no_news() -> None:
    world = World()
    world.tell(Outcome(CancelJob("nobody", 1, "p@default", ""), None))
    assert world.effects == []


def test_a_pod_that_is_over_before_it_was_seen_is_no_news() -> None:
    world = World()
    world.tell(PodObserved(pod(uid="u", phase="Succeeded")))
    assert list(world.ledger.placeholders) == []


# Who holds a Node against the jobs that Slurm starts there


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
    assert (world.pods[uid].attempt, world.pods[uid].node) == (2, None)


def test_a_pod_that_was_bound_in_the_last_moment_holds_its_node() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    world.disturb(job_id_of(world, uid), "PREEMPTED")
    world.write(world.pods[uid]._replace(node="n1"))  # /bind had looked before
    world.ask()
    world.answer()
    assert holders(world) == [State.REPLACING]
    while world.news:
        world.hear()
    assert holders(world) == [State.EVICTING]


def test_a_pod_that_has_ended_holds_nothing() -> None:
    world = World()
    uid = bound_pod(world)
    world.write(world.pods[uid]._replace(finished=True))
    settle(world)
    assert holders(world) == []


# Two that believe to lead


def a_rival_of(world: World) -> None:
    """Another replica leads from now on; the deposed one acts."""
    world.fail_over()
    world.swap()


def test_an_id_that_another_replica_burnt_is_no_end_of_the_workload() -> None:
    """slurmctld forgot the queued job, and a deposed leader asked for it at once, in vain."""
    world = World()
    uid = pod_that_finds_no_room(world)
    job = world.live_jobs(uid)[0]
    world.jobs[job.id] = replace(job, state=JobState("FAILED"))
    done = [*poll(world), *settle(world)]
    assert EvictPod not in kinds(done)
    (again,) = world.live_jobs(uid)
    assert again.id != job.id
    assert state_of(world, uid) is State.QUEUED


def test_the_burnt_id_of_a_bound_pod_is_asked_for_again_as_the_next_try() -> None:
    world = World()
    uid = bound_pod(world)
    job, node = world.live_jobs(uid)[0], world.pods[uid].node
    world.jobs[job.id] = replace(job, state=JobState("FAILED"), nodes=())
    poll(world)
    world.schedule()
    world.pass_time(1.1)
    poll(world)
    (again,) = world.live_jobs(uid)
    assert (again.id != job.id, again.nodes) == (True, (node,))
    assert state_of(world, uid) is State.BOUND
    assert world.pods[uid].job_id == again.id  # for people, who cancel what a Pod names
    assert poll(world) == settle(world) == []
    world.write(world.pods[uid]._replace(job_id=job.id))  # as if nobody had come to it
    world.restart()
    world.pass_time(world.rules.verified)
    settle(world)
    assert world.live_jobs(uid) == [again]
    assert (state_of(world, uid), world.pods[uid].job_id) == (State.BOUND, again.id)


@pytest.mark.parametrize("base", ["RUNNING", "PENDING", "CANCELLED"])
@pytest.mark.parametrize("nodes", [("n1",), ("n2",)])
def test_a_bound_pod_whose_id_is_anothers_by_now_gets_another_job_and_runs_on(
    base: str, nodes: tuple[str, ...]
) -> None:
    """Slurm forgot its own. Ids are computed, and two Pods' may be the same."""
    world = World()
    uid = bound_pod(world)
    job_id = forget_the_job(world, uid)
    for _ in range(world.rules.confirmations):
        world.ask()
        world.answer()
    elses = replace(placeholder_job(pod(uid="else")), id=job_id, state=JobState(base), nodes=nodes)
    world.jobs[job_id] = elses
    poll(world)
    world.pass_time(1.1)
    settle(world)
    poll(world)
    assert uid in world.pods
    assert state_of(world, uid) is State.BOUND
    (again,) = world.live_jobs(uid)
    assert (again.id != job_id, again.required_nodes) == (True, ("n1",))
    assert world.jobs[job_id] == elses


def test_a_pod_that_a_deposed_leader_placed_is_watched_though_it_is_forbidden_by_now() -> None:
    world = World()
    a_rival_of(world)
    uid = world.create_pod()
    settle(world)
    world.edit(uid, forbidden=True)
    world.bind(uid)
    world.swap()
    world.other = None
    settle(world)
    assert state_of(world, uid) is State.BOUND
    assert len(world.live_jobs(uid)) == 1


def test_a_later_attempt_that_a_deposed_leader_has_bound_is_watched() -> None:
    world = World()
    uid = world.create_pod()
    settle(world)
    a_rival_of(world)
    world.refuse(uid, offers=True)
    settle(world)
    poll(world)
    world.bind(uid)
    world.swap()
    world.other = None
    settle(world)
    poll(world)
    (job,) = world.live_jobs(uid)
    assert (state_of(world, uid), job_id_of(world, uid)) == (State.BOUND, job.id)


def test_a_job_that_was_queued_is_read_once_more_after_its_pod_is_bound() -> None:
    """A killed slurmctld had it start elsewhere, before anybody asked."""
    world = World(replace(PlacementConfig(), fast_path=False))
    uid = world.create_pod()
    settle(world)
    world.schedule()
    poll(world)
    world.bind(uid)
    settle(world)
    job = world.live_jobs(uid)[0]
    other = next(name for name in NODES if name not in job.nodes)
    world.jobs[job.id] = replace(job, nodes=(other,))
    world.disturbed.add(uid)
    poll(world)
    assert uid in world.pods
    world.pass_time(world.rules.saved)
    settle(world)
    assert uid not in world.pods


def test_the_job_of_a_pod_that_is_resized_before_it_is_bound_is_read_at_bind() -> None:
    world = World()
    uid = world.create_pod()
    world.settle()
    allocated = world.ledger.allocated(uid)
    assert allocated is not None
    assert allocated.immediate
    pod = world.pods[uid]
    world.write(pod._replace(request=replace(pod.request, job=replace(pod.request.job, cpus=64))))
    world.settle()
    resized = world.ledger.allocated(uid)
    assert resized is not None
    assert not resized.immediate


def test_a_pod_runs_on_where_its_node_has_lost_the_label_that_names_slurms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    uid = world.bind_at_once()
    node = world.pods[uid].node
    nodes = {name: Node(name, f"other-{name}" if name == node else name, {}) for name in NODES}
    monkeypatch.setattr(ledger_world, "VIEW", replace(VIEW, nodes=nodes))
    world.restart()
    outlast(world, 100)
    assert world.pods[uid].node == node
    assert state_of(world, uid) is State.BOUND
