"""Tests of the reports about waiting Pods: the first report, and the repetitions."""

from __future__ import annotations

from extender.explain.message import text
from extender.record.config import PlacementConfig
from extender.record.events import ReportWaiting
from extender.record.states import State
from tests.placement.ledger_world import LOST, World, of_kind

HALF_AN_HOUR = PlacementConfig().report_interval
SOON = 3600
"""Expected start of a job, in UNIX seconds. The world begins at 0."""


def told(world: World, seconds: float = 0.0, step: float = 10.0) -> list[ReportWaiting]:
    """Lets time pass, and returns the reports."""
    return of_kind(world.settle() + world.wait(step, times=round(seconds / step)), ReportWaiting)


def one_that_waits() -> tuple[World, str, int]:
    """Returns a world with a waiting job, after the first report to the Pod's author."""
    world = World()
    world.bind_a_pod_to_each_node()
    uid = world.create_pod()
    (word,) = told(world, 20.0)
    assert (word.uid, word.event_alone) == (uid, False)
    assert word.cause.kind.normal
    assert word.job_id is not None
    return world, uid, word.job_id


def test_waiting_pod_gets_a_repeated_event_every_half_hour() -> None:
    world, uid, _ = one_that_waits()
    for _ in range(4):
        assert told(world, HALF_AN_HOUR - 20.0) == []
        (again,) = told(world, 20.0)
        assert (again.uid, again.event_alone) == (uid, True)


def test_new_expected_start_is_reported_with_the_next_repetition() -> None:
    world, _, job_id = one_that_waits()
    world.change_job(job_id, start_time=SOON)
    (first,) = told(world, 20.0)
    assert "Slurm expects the job to start" in text(first.cause)
    assert not first.event_alone, "that there is a plan is news"
    for minute in range(1, 20):
        world.change_job(job_id, start_time=SOON + 60 * minute)
        assert told(world, 60.0) == []
    world.change_job(job_id, start_time=None)
    assert told(world, 60.0) == []
    world.change_job(job_id, start_time=SOON + 3600)
    (again,) = told(world, HALF_AN_HOUR - 20 * 60.0)
    assert not again.event_alone, "the condition has the new time too"
    assert text(again.cause) != text(first.cause)


def test_new_pending_reason_is_reported_at_once_and_after_half_an_hour() -> None:
    world, _, job_id = one_that_waits()
    assert told(world, HALF_AN_HOUR / 2) == []
    world.change_job(job_id, reason="Priority")
    (other,) = told(world, 20.0)
    assert (other.cause.reason, other.event_alone) == ("Priority", False)
    assert told(world, HALF_AN_HOUR - 20.0) == []
    assert [word.cause.reason for word in told(world, 20.0)] == ["Priority"]


def test_pod_that_no_longer_waits_gets_no_repeated_report() -> None:
    world, uid, _ = one_that_waits()
    world.remove_and_settle("u1")
    world.start_and_poll()
    world.bind_and_settle(uid)
    assert world.state_of(uid) is State.BOUND
    assert told(world, 2 * HALF_AN_HOUR) == []


def test_failed_repetition_is_followed_by_the_next_repetition() -> None:
    world, _, _ = one_that_waits()
    told(world, HALF_AN_HOUR - 20.0)
    world.pass_time(20.0)
    (again,) = (e for e in world.effects if isinstance(e, ReportWaiting))
    world.effects.remove(again)
    world.finish(again, LOST)
    assert told(world, HALF_AN_HOUR - 20.0) == []
    assert len(told(world, 20.0)) == 1


def test_repeated_reports_of_many_pods_come_one_after_the_other() -> None:
    world = World(PlacementConfig(window=1, fast_path=False))
    world.create_pods(200)
    interval = world.rules.in_line_report_pause
    assert len(told(world, 300 * interval, interval)) == 200
    world.pass_time(HALF_AN_HOUR - 300 * interval)
    counts = []
    for _ in range(300):
        words = told(world)
        assert all(word.event_alone for word in words)
        counts.append(len(words))
        world.pass_time(interval)
    assert max(counts) == 1
    assert sum(counts) == 200
