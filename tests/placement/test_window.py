"""Whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.placement.placeholder import Placeholder, State
from extender.placement.window import Window, Windows
from tests.builders import pod


class Line:
    """A window, and the placeholders that it follows."""

    def __init__(self, size: int = 10) -> None:
        self.window = Window(size, rest=1.0)

    def put(self, uid: str, state: State, *, immediate: bool = False, **fields: Any) -> None:
        seen = replace(pod(uid=uid), **fields)
        self.window.follow(Placeholder(seen, state, immediate=immediate))

    def take(self, then: State = State.QUEUED, *, immediate: bool = False) -> list[str]:
        """Lets everybody whose turn it is go on to a state."""
        taken = []
        for uid in self.window.turns():
            taken.append(uid)
            self.put(uid, then, immediate=immediate)
        return taken


def test_turns_go_by_priority_then_by_age_then_by_uid() -> None:
    line = Line()
    line.put("late", State.SEEN, created="2026-01-02T00:00:00Z")
    line.put("b", State.SEEN, created="2026-01-01T00:00:00Z")
    line.put("a", State.SEEN, created="2026-01-01T00:00:00Z")
    line.put("high", State.SEEN, created="2026-01-03T00:00:00Z", priority=5)
    line.put("low", State.SEEN, created="2026-01-01T00:00:00Z", priority=-5)
    assert line.take() == ["high", "a", "b", "late", "low"]


def test_no_more_wait_in_slurm_than_the_window_holds() -> None:
    line = Line(size=2)
    for uid in "abcd":
        line.put(uid, State.SEEN)
    assert line.take() == ["a", "b"]
    assert line.take() == []


def test_a_submission_under_way_has_its_place() -> None:
    line = Line(size=1)
    line.put("a", State.SUBMITTING)
    line.put("b", State.SEEN)
    assert line.take() == []
    line.put("a", State.QUEUED)
    assert line.take() == []


def test_a_question_on_the_fast_path_has_its_place() -> None:
    line = Line(size=1)
    line.put("a", State.SUBMITTING, immediate=True)
    line.put("b", State.SEEN)
    assert line.take() == []


def test_a_job_that_starts_or_ends_makes_room() -> None:
    for state in (State.ALLOCATED, State.RELEASING, State.REFUSED, State.EVICTING, State.DONE):
        line = Line(size=1)
        line.put("a", State.QUEUED)
        line.put("b", State.SEEN)
        line.put("a", state)
        assert line.take() == ["b"], state


def test_who_leaves_the_line_is_passed_over() -> None:
    line = Line()
    line.put("a", State.SEEN)
    line.put("b", State.SEEN)
    line.put("a", State.DONE)
    assert line.take() == ["b"]


def test_who_comes_back_gets_one_turn() -> None:
    line = Line()
    line.put("a", State.SEEN)
    line.put("a", State.REFUSED)
    line.put("a", State.SEEN)
    line.put("a", State.SEEN)
    assert line.take() == ["a"]
    assert line.take() == []


def test_a_next_attempt_gets_a_turn_of_its_own() -> None:
    line = Line()
    line.put("a", State.SEEN)
    assert line.take(State.ALLOCATED) == ["a"]
    line.put("a", State.SEEN)
    assert line.take() == ["a"]


def test_the_fast_path_is_open_while_nothing_of_ours_waits() -> None:
    line = Line()
    assert line.window.fast(0.0)
    line.put("a", State.SUBMITTING, immediate=True)
    assert line.window.fast(0.0)
    line.put("b", State.QUEUED)
    assert not line.window.fast(0.0)
    line.put("b", State.ALLOCATED)
    assert line.window.fast(0.0)


def test_a_queued_submission_closes_the_fast_path_before_slurm_has_taken_it() -> None:
    line = Line()
    line.put("a", State.SUBMITTING)
    assert not line.window.fast(0.0)


def test_a_refusal_on_the_fast_path_rests_it_for_a_while() -> None:
    line = Line()
    line.window.had_no_room(10.0)
    assert not line.window.fast(10.9)
    assert line.window.fast(11.0)


def test_every_partition_has_a_window_of_its_own() -> None:
    windows = Windows(1, 1.0)
    windows.follow("a", Placeholder(pod(uid="u"), State.QUEUED))
    assert not windows["a"].fast(0.0)
    assert windows["b"].fast(0.0)
    assert [name for name, _ in windows] == ["a", "b"]


def test_who_changes_its_partition_leaves_the_line_and_the_place_it_had() -> None:
    windows = Windows(1, 1.0)
    windows.follow("a", Placeholder(pod(uid="u"), State.SEEN))
    windows.follow("b", Placeholder(pod(uid="u"), State.SEEN))
    assert list(windows["a"].turns()) == []
    assert list(windows["b"].turns()) == ["u"]
    windows.follow("b", Placeholder(pod(uid="u"), State.QUEUED))
    windows.follow("a", Placeholder(pod(uid="u"), State.QUEUED))
    assert windows["b"].fast(0.0)
    assert not windows["a"].fast(0.0)


def test_who_is_over_is_forgotten() -> None:
    windows = Windows(1, 1.0)
    windows.follow("a", Placeholder(pod(uid="u"), State.QUEUED))
    windows.forget("u")
    assert windows["a"].fast(0.0)
    windows.forget("never-heard-of")
