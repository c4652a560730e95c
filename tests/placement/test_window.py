"""Whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.placement.annotations import DEFAULT_PREFIX as PREFIX
from extender.placement.placeholder import Cause, Placeholder, State
from extender.placement.window import Window, Windows, _kind, _turn
from tests.builders import pod


class Line:
    """A window, and the placeholders that it follows."""

    def __init__(self, size: int = 10) -> None:
        self.window = Window(size, rest=1.0)
        self.now = 0.0

    def put(
        self, uid: str, state: State, *, immediate: bool = False, account: str = "", **fields: Any
    ) -> None:
        seen = replace(pod(uid=uid, annotations={PREFIX + "account": account or "a"}), **fields)
        self.window.follow(Placeholder(seen, state, immediate=immediate), self.now)

    def refuse(self, uid: str, account: str = "") -> None:
        """Slurm refuses a submission for now."""
        seen = pod(uid=uid, annotations={PREFIX + "account": account or "a"})
        busy = Cause("SlurmBusy", "MaxJobCount")
        self.window.follow(Placeholder(seen, State.SUBMITTING, cause=busy, not_before=inf), self.now)

    def take(self, then: State = State.QUEUED, *, immediate: bool = False) -> list[str]:
        """Lets everybody whose turn it is go on to a state."""
        taken = []
        for uid in self.window.turns(self.now):
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


def submitting(line: Line) -> list[str]:
    return line.take(State.SUBMITTING)


def test_who_is_refused_for_now_gives_its_place_to_those_of_another_account() -> None:
    line = Line(size=2)
    for uid in ("a1", "a2", "a3"):
        line.put(uid, State.SEEN, priority=5)
    line.put("b", State.SEEN, account="b")
    assert submitting(line) == ["a1", "a2"]
    line.refuse("a1")
    line.refuse("a2")
    assert submitting(line) == ["b"]
    assert line.window.refusal("a3") == Cause("SlurmBusy", "MaxJobCount")
    assert line.window.refusal("b") is None


def test_one_of_those_that_were_refused_tries_again_after_a_rest_and_the_others_follow() -> None:
    line = Line()
    for uid in "abcdef":
        line.put(uid, State.SEEN)
    for uid in submitting(line):
        line.refuse(uid)
    assert submitting(line) == []
    line.now = line.window.opens
    assert submitting(line) == ["a"]
    assert submitting(line) == []
    line.put("a", State.QUEUED)
    assert submitting(line) == ["b", "c"]
    line.put("b", State.QUEUED)
    line.put("c", State.QUEUED)
    assert submitting(line) == ["d", "e", "f"]


def test_a_refusal_while_others_of_its_kind_are_let_through_again_closes_their_line() -> None:
    line = Line()
    for uid in "abcd":
        line.put(uid, State.SEEN)
    for uid in submitting(line):
        line.refuse(uid)
    line.now = line.window.opens
    (first,) = submitting(line)
    line.put(first, State.QUEUED)
    for uid in submitting(line):
        line.refuse(uid)
    assert submitting(line) == []


def test_a_line_that_is_refused_again_and_again_is_asked_less_and_less_often() -> None:
    line = Line()
    line.put("a", State.SEEN)
    tries = 0
    while line.now < 600:
        tries += len(submitting(line))
        line.refuse("a")
        line.now = line.window.opens
    assert 600 / 15 < tries < 60


def test_a_try_that_is_never_answered_does_not_close_its_line_for_ever() -> None:
    line = Line()
    line.put("a", State.SEEN)
    line.put("b", State.SEEN)
    for uid in submitting(line):
        line.refuse(uid)
    line.now = line.window.opens
    assert submitting(line) == ["a"]
    line.now = line.window.opens
    assert submitting(line) == ["b"]


def test_a_pod_of_higher_priority_that_comes_later_is_the_first_to_try_again() -> None:
    line = Line()
    line.put("a", State.SEEN)
    for uid in submitting(line):
        line.refuse(uid)
    line.put("high", State.SEEN, priority=5)
    line.now = line.window.opens
    assert submitting(line) == ["high"]


def test_news_of_the_nodes_ends_a_rest() -> None:
    line = Line()
    line.put("a", State.SEEN)
    for uid in submitting(line):
        line.refuse(uid)
    line.window.wake(line.now)
    assert submitting(line) == ["a"]


def test_who_leaves_again_and_again_leaves_nothing_behind() -> None:
    line = Line(size=1)
    line.put("queued", State.QUEUED)
    for number in range(1000):
        line.put(f"low-{number}", State.SEEN)
        line.put("stays", State.SEEN)
        line.window.forget(f"low-{number}")
    (only,) = line.window._lines.values()
    assert len(only.turns) < 100


def put(windows: Windows, partition: str, state: State, uid: str = "u") -> None:
    windows.follow(partition, Placeholder(pod(uid=uid), state), 0.0)


def test_every_partition_has_a_window_of_its_own() -> None:
    windows = Windows(1, 1.0)
    put(windows, "a", State.QUEUED)
    assert not windows["a"].fast(0.0)
    assert windows["b"].fast(0.0)
    put(windows, "a", State.SEEN, "a")
    put(windows, "b", State.SEEN, "b")
    assert list(windows.turns(0.0)) == [("b", "b")]


def test_who_changes_its_partition_leaves_the_line_and_the_place_it_had() -> None:
    windows = Windows(1, 1.0)
    put(windows, "a", State.SEEN)
    put(windows, "b", State.SEEN)
    assert list(windows.turns(0.0)) == [("b", "u")]
    put(windows, "b", State.QUEUED)
    put(windows, "a", State.QUEUED)
    assert windows["b"].fast(0.0)
    assert not windows["a"].fast(0.0)


def test_who_is_over_is_forgotten() -> None:
    windows = Windows(1, 1.0)
    put(windows, "a", State.QUEUED)
    put(windows, "a", State.SEEN, "next")
    assert list(windows.turns(0.0)) == []
    windows.forget("u")
    assert list(windows.turns(0.0)) == [("a", "next")]
    windows.forget("never-heard-of")


def test_a_partition_that_nobody_is_in_costs_nothing() -> None:
    windows = Windows(1, 1.0)
    for number in range(100):
        put(windows, f"p{number}", State.SEEN)
        for _ in windows.turns(0.0):
            windows.forget("u")
    assert not windows._by_partition
    assert windows.opens == inf


class Refills(RuleBasedStateMachine):
    """Pods come, go, start, and are refused and taken by Slurm, in any order."""

    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.windows = Windows(self.size, rest=1.0)
        self.now = 0.0
        self.states: dict[str, Placeholder] = {}

    def put(self, uid: str, state: State, **fields: Any) -> None:
        self.states[uid] = self.states[uid]._replace(state=state, **({"not_before": 0.0} | fields))
        self.windows.follow("main", self.states[uid], self.now)
        self.refill()

    def those(self, *states: State) -> list[str]:
        return [u for u, p in self.states.items() if p.state in states and not p.in_line]

    def refill(self) -> None:
        for _, uid in self.windows.turns(self.now):
            chosen = self.states[uid]
            better = [
                other
                for other, p in self.states.items()
                if p.in_line and _kind(p) == _kind(chosen) and _turn(p.pod) < _turn(chosen.pod)
            ]
            assert not better, f"{better} wait while {uid} goes"
            self.states[uid] = chosen._replace(state=State.SUBMITTING, not_before=0.0)
            self.windows.follow("main", self.states[uid], self.now)

    @rule(priority=st.integers(0, 2), account=st.sampled_from("ab"))
    def comes(self, priority: int, account: str) -> None:
        uid = f"{len(self.states):03}"
        seen = pod(uid=uid, annotations={PREFIX + "account": account})
        self.states[uid] = Placeholder(replace(seen, priority=priority))
        self.put(uid, State.SEEN)

    @rule(data=st.data(), fate=st.sampled_from(["taken", "taken", "refused", "gone"]))
    def is_answered(self, data: st.DataObject, fate: str) -> None:
        if asked := self.those(State.SUBMITTING):
            uid = data.draw(st.sampled_from(asked))
            if fate == "refused":
                self.put(uid, State.SUBMITTING, not_before=inf, cause=Cause("SlurmBusy", "full"))
            else:
                self.put(uid, State.QUEUED if fate == "taken" else State.RELEASING)

    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        if queued := self.those(State.QUEUED):
            self.put(data.draw(st.sampled_from(queued)), State.ALLOCATED)

    @rule(seconds=st.sampled_from([0.5, 2.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.refill()

    @invariant()
    def no_more_than_the_window_holds_are_in_slurm(self) -> None:
        assert len(self.those(State.SUBMITTING, State.QUEUED)) <= self.size

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        waits = any(p.in_line for p in self.states.values())
        room = len(self.those(State.SUBMITTING, State.QUEUED)) < self.size
        assert not (waits and room) or self.now < self.windows.opens < inf

    def teardown(self) -> None:
        """Slurm takes everything from now on: nobody is left behind."""
        for _ in range(200):
            self.now += 20.0
            self.refill()
            for uid in self.those(State.SUBMITTING):
                self.put(uid, State.QUEUED)
            for uid in self.those(State.QUEUED):
                self.put(uid, State.ALLOCATED)
        assert not any(p.in_line for p in self.states.values())


TestRefills = Refills.TestCase
TestRefills.settings = settings(max_examples=100)
