"""Tests of the ledger for Pods that wait for a turn, and for requests that Slurm refuses for now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.pod_request.constraints.node_constraints import Node
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    ExcludeNodes,
    Failure,
    ReadJob,
    Remedy,
    ReportWaiting,
    Submit,
    WriteAllocation,
)
from extender.record.states import State
from extender.turns.window import IN_LINE, NO_PLACE
from slurm_client.job_state import JobState
from tests.clock import CpuClock
from tests.placement.ledger_world import (
    CORDONED,
    LOST,
    NODES,
    REQUEST,
    VIEW,
    World,
    calm_down,
    ends_well,
    of_kind,
    of_user,
)

FULL = Failure(Remedy.LATER, "MaxJobCount limit reached")
CLOSED = replace(VIEW, nodes={n: Node(n, n, {}, unschedulable=True) for n in NODES})


def of_window(size: int) -> World:
    return World(PlacementConfig(window=size, fast_path=False))


def pending(world: World) -> set[int]:
    return {job.id for job in world.jobs.values() if job.state.pending}


def told(world: World) -> dict[str, str]:
    return {e.uid: e.cause.reason for e in world.settle() if isinstance(e, ReportWaiting)}


def test_pod_reports_waiting_in_line_once_after_a_delay() -> None:
    world = of_window(1)
    world.create_pod()
    waits = world.create_pod()
    assert not told(world)
    world.pass_time(world.rules.report_after + 0.1)
    assert told(world)[waits] == IN_LINE.reason
    assert waits not in {each.uid for each in of_kind(world.wait(10.0, times=100), ReportWaiting)}


def test_many_pods_in_line_report_one_after_the_other() -> None:
    world = of_window(1)
    world.create_pods(200)
    world.settle()
    words = []
    for _ in range(300):
        world.pass_time(world.rules.in_line_report_pause)
        words.append(sum(reason == IN_LINE.reason for reason in told(world).values()))
    assert max(words) == 1
    assert sum(words) == 199


def test_pod_with_an_early_turn_does_not_report_waiting_in_line() -> None:
    world = of_window(1)
    first, second = world.create_pod(), world.settled_pod()
    world.remove_and_settle(first)
    world.pass_time(world.rules.report_after + 0.1)
    assert told(world).get(second) != IN_LINE.reason


def test_job_limit_of_slurm_is_reported_and_the_pod_placed_later() -> None:
    world = of_window(10)
    bound = world.bind_a_pod_to_each_node()
    world.max_jobs = 2
    uid = world.create_pod()
    (word,) = of_kind(world.settle(), ReportWaiting)
    assert word.cause.reason == "SlurmBusy"
    assert "MaxJobCount" in sentence(word.cause)
    later = world.settled_pod()
    world.pass_time(world.rules.report_after + 0.1)
    assert told(world)[later] == "SlurmBusy"
    world.remove_pod(bound[0])
    calm_down(world)
    ends_well(world)
    assert world.pods[uid].life.node is not None


def test_few_jobs_are_requested_while_slurm_accepts_none() -> None:
    world = of_window(100)
    world.max_jobs = 0
    world.create_pods(500)
    world.settle()
    assert 0 < len(of_kind(world.wait(1.0, times=60), Submit)) < 30


def submitted_unheard_to_a_full_slurm() -> tuple[World, str]:
    """Submits the job of a Pod, and loses Slurm's reply. Afterwards, Slurm has reached its limit of
    jobs, and accepts no other job."""
    world = of_window(10)
    uid, submit = world.pod_and_submission()
    world.do(submit)
    world.finish(submit, LOST)
    world.max_jobs = 1
    return world, uid


def test_a_pod_that_is_deleted_while_slurm_refuses_it_leaves_no_job() -> None:
    world, uid = submitted_unheard_to_a_full_slurm()
    world.settle()
    world.wait(5.0)
    assert of_kind(world.remove_and_settle(uid), CancelJob)
    assert not pending(world)


def test_existing_job_is_found_if_slurm_refuses_its_duplicate() -> None:
    world, uid = submitted_unheard_to_a_full_slurm()
    world.pass_time(5.0)
    assert [type(e) for e in world.settle() if not isinstance(e, ReportWaiting)] == [Submit, ReadJob]
    assert world.state_of(uid) is State.QUEUED


def test_a_submission_that_is_refused_for_a_limit_is_repeated_under_its_id() -> None:
    world = of_window(10)
    _, first = world.pod_and_submission()
    world.finish(first, FULL)
    world.pass_time(2.0)
    assert [each.job_id for each in of_kind(world.effects, Submit)] == [first.job_id]


def test_pods_without_an_open_node_let_other_pods_pass() -> None:
    world = of_window(2)
    world.tell(ClusterObserved(CLOSED))
    world.create_pods(5, priority=1)
    world.settle()
    world.wait(60.0)
    assert not world.jobs
    required = replace(REQUEST, job=replace(REQUEST.job, partition="other"))
    other = world.settled_pod(request=required)
    assert world.state_of(other) is State.QUEUED
    world.tell_and_settle(ClusterObserved(VIEW))
    assert len(world.jobs) == 3  # two in the window, and the job in the other partition


def test_restarted_leader_submits_nothing_before_it_knows_the_queued_jobs() -> None:
    world = of_window(5)
    world.create_pod()
    world.settle()
    world.rules = PlacementConfig(window=2, fast_path=False)
    names = [world.create_pod() for _ in range(4)]
    world.settle()
    assert len(pending(world)) == 5
    high = world.create_pod(priority=9)
    world.pods = {uid: world.pods[uid] for uid in (high, *names, "u1")}
    world.news.clear()
    world.restart()
    assert not [e for e in world.settle() if isinstance(e, Submit)]
    for uid in ("u1", *names[:3]):
        assert high not in world.uids()
        world.remove_and_settle(uid)
    assert high in world.uids()
    assert len(pending(world)) == 2


def test_partition_lists_in_another_order_share_one_window() -> None:
    world = of_window(1)
    for partition in ("a,b", "b,a", "a"):
        world.settled_pod(request=replace(REQUEST, job=replace(REQUEST.job, partition=partition)))
    assert [world.state_of(uid) for uid in ("u1", "u2", "u3")] == [
        State.QUEUED,
        State.SEEN,
        State.QUEUED,
    ]


# Reads of the pending reason that take long


def asked_why(world: World) -> tuple[str, ReadJob]:
    """Returns a Pod with a waiting job, and the ledger's read of the job. The test carries out this read
    later."""
    uids = [world.create_pod() for _ in range(3)]
    world.settle()
    world.bind_and_settle(uids[0])
    world.pass_time(world.rules.report_after + 0.1)
    (read,) = (e for e in world.effects if isinstance(e, ReadJob))
    world.effects.remove(read)
    assert read.for_words
    assert world.state_of(read.uid) is State.QUEUED
    return read.uid, read


def told_by_a_poll(world: World) -> list[Effect]:
    world.poll_alone()
    return [e for e in world.effects if not isinstance(e, ReportWaiting)]


@pytest.mark.parametrize("late", ["waits", "runs", "unknown", "lost"])
def test_a_job_that_starts_while_its_reason_is_read_is_read_at_once(world: World, late: str) -> None:
    uid, read = asked_why(world)
    waits = world.do(read)
    world.remove_and_settle("u1")
    world.schedule()
    (real,) = told_by_a_poll(world)
    assert (type(real), real.uid) == (ReadJob, uid)
    world.effects.remove(real)
    result = {"waits": waits, "runs": world.do(read), "unknown": None, "lost": LOST}[late]
    world.finish(read, result)
    assert world.effects == [], "the real one is still under way"
    world.carry_out(real)
    assert [type(e) for e in world.settle()] == [WriteAllocation]
    assert world.pods[uid].scheduling.allocation is not None


def test_a_job_whose_pod_is_gone_is_cancelled_while_its_reason_is_read(world: World) -> None:
    uid, read = asked_why(world)
    waits = world.do(read)
    world.remove_pod(uid)
    assert [type(e) for e in world.settle()] == [CancelJob]
    world.finish(read, waits)
    assert world.settle() == []
    told_by_a_poll(world)
    assert world.state_of(uid) is State.DONE


def test_reason_of_a_job_before_its_resubmission_is_not_reported(world: World) -> None:
    """Slurm lost the job, and the ledger requests the job again under the same id. The new job has
    another pending reason."""
    uid, read = asked_why(world)
    ended = replace(world.jobs[read.job_id], state=JobState("CANCELLED"))
    del world.jobs[read.job_id]
    for _ in range(world.rules.confirmations):
        told_by_a_poll(world)
    world.wait(0.1)
    assert world.state_of(uid) is State.QUEUED
    assert world.jobs[read.job_id].state.pending
    world.finish(read, ended)
    assert world.state_of(uid) is State.QUEUED
    world.pass_time(world.rules.report_after + 0.1)
    assert [type(e) for e in world.settle()] == [ReadJob, ReportWaiting], "it is asked again"


def test_excluded_nodes_change_while_the_pending_reason_is_read(world: World) -> None:
    uid, read = asked_why(world)
    world.tell(ClusterObserved(CORDONED))
    (exclude,) = (e for e in world.effects if e.uid == uid)
    assert isinstance(exclude, ExcludeNodes)
    world.acting.effects = []
    world.tell(ClusterObserved(VIEW))  # before the exclusion has taken effect
    world.carry_out(read)
    assert [type(e) for e in world.effects] == [ReportWaiting]
    world.acting.effects = []
    world.carry_out(exclude)
    (anew,) = world.effects
    assert anew == ExcludeNodes(uid, read.job_id, ()), "at once, and not when it is asked again"


def test_failed_read_of_the_pending_reason_is_repeated_later(world: World) -> None:
    _, read = asked_why(world)
    world.finish(read, LOST)
    assert world.effects == []
    world.pass_time(world.rules.delay(LOST.remedy, 1))
    assert [type(e) for e in world.settle()] == [ReadJob, ReportWaiting]


# Owners in the same window


def greedy(world: World, user: int = 1, pods: int = 1000) -> None:
    """Creates very many Pods of a user. Slurm starts none of the user's jobs."""
    world.may_run[user] = 0
    world.create_pods(pods, request=of_user(user))
    world.catch_up()


def in_slurm(world: World, user: int) -> int:
    return sum(job.user_id == user and job.state.pending for job in world.jobs.values())


def passes(world: World, seconds: float) -> None:
    world.pass_time(seconds)
    world.catch_up()


@pytest.mark.parametrize("after", [0.0, 30.0], ids=["reason not known", "reason known"])
def test_the_pod_of_another_owner_is_in_slurm_within_a_second(after: float) -> None:
    world = of_window(20)
    greedy(world)
    if after:
        passes(world, after)
    other = world.settled_pod(request=of_user(2))
    world.wait(1.0)
    assert world.state_of(other) is State.QUEUED
    assert in_slurm(world, 1) == 20


def test_each_new_owner_gets_a_place_at_once_beside_greedy_owners() -> None:
    world = of_window(20)
    for user in range(1, 11):
        greedy(world, user, 50)
    for user in range(11, 21):
        uid = world.settled_pod(request=of_user(user))
        assert world.state_of(uid) is State.QUEUED


def test_jobs_held_by_their_owners_limit_leave_the_window_to_other_owners() -> None:
    world = of_window(20)
    greedy(world)
    passes(world, 2.0)
    world.create_pods(100, request=of_user(2))
    world.settle()
    assert in_slurm(world, 2) == 20


def test_owner_at_its_limit_sends_no_more_jobs() -> None:
    world = of_window(20)
    greedy(world)
    for _ in range(5):
        passes(world, 12.0)
        assert in_slurm(world, 1) == 20


def test_pod_reports_that_other_pods_of_its_owner_wait() -> None:
    world = of_window(1)
    greedy(world, pods=2)
    world.pass_time(world.rules.report_after + 0.1)
    told = of_kind(world.settle(), ReportWaiting)
    (word,) = (each for each in told if each.cause.reason == "WaitingForSubmitSlot")
    words = "Pods with the same Slurm user (or namespace, if the Pod has no user), account, QOS and"
    assert words in sentence(word.cause)


def test_at_most_half_of_max_job_count_is_queued_and_waiting_reported() -> None:
    world = of_window(20)
    world.tell(ClusterObserved(replace(VIEW, max_job_count=16)))
    for user in range(1, 31):
        greedy(world, user, 3)
    assert len(pending(world)) == 8
    told = of_kind(world.wait(0.1, times=200), ReportWaiting)
    assert sum(each.cause == NO_PLACE for each in told) == 82
    world.tell_and_settle(ClusterObserved(replace(VIEW, max_job_count=18)))
    assert len(pending(world)) == 9, "an administrator has raised it"


def test_all_pods_of_owners_that_share_a_window_are_placed() -> None:
    world = of_window(3)
    uids = [world.create_pod(request=of_user(number % 5)) for number in range(40)]
    for _ in range(400):
        passes(world, 1.0)
        for uid in [uid for uid, pod in world.pods.items() if pod.life.node]:
            world.remove_pod(uid)
    assert not world.pods, f"of {len(uids)} Pods some were left in line"


def sizes(world: World, number: int) -> None:
    """Creates Pods of the same owner, each with another size."""
    for memory in range(1, number + 1):
        request = of_user(1)
        world.create_pod(request=replace(request, job=replace(request.job, memory_mb=memory)))


def test_owner_of_many_job_sizes_makes_few_requests_while_slurm_is_full() -> None:
    world = of_window(1000)
    world.max_jobs = 0
    sizes(world, 1000)
    world.settle()
    tries = 0
    for _ in range(600):
        world.pass_time(0.1)
        tries += sum(isinstance(e, Submit) for e in world.settle())
    assert tries < 700


@pytest.mark.alone
def test_node_change_costs_little_while_many_pods_have_no_open_node() -> None:
    world = of_window(1000)
    world.no_two_live_jobs = lambda: None  # type: ignore[method-assign]  # its own time counts
    world.tell(ClusterObserved(CLOSED))
    sizes(world, 5000)
    world.settle()
    clock = CpuClock()
    world.tell(ClusterObserved(CLOSED))
    assert clock.read() < 0.03, "it took 160 ms"


def test_new_leader_submits_many_jobs_in_batches() -> None:
    world = of_window(1000)
    world.create_pod()
    world.settle()
    world.create_pods(600)
    world.news.clear()
    world.restart()
    asked = sum(isinstance(e, Submit) for e in world.effects)
    assert 0 < asked <= 400, "200 each time that the nodes are told"
    while world.ledger.next_wake() <= world.now:
        world.pass_time(0.0)
    assert sum(isinstance(e, Submit) for e in world.effects) == 600
