"""Tests of the order in which Pods get turns to request their jobs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from extender.explain.cause import Cause
from extender.jobs.tracked_job import Asked, TrackedJob
from extender.pod_request.pod import Pod
from extender.record.placeholder import Placeholder
from extender.record.retry import Retry, Waits
from extender.record.states import State
from extender.turns.equivalence import Owner, kind_of, turn_of
from extender.turns.window import IN_LINE, NO_PLACE, InLine, Windows
from tests.builders import cause_of, changed, placeholder_of, pod
from tests.clock import CpuClock
from wellknown.names import DEFAULT_PREFIX as PREFIX


class Line:
    """The window of a partition, and the placeholders in the window."""

    def __init__(self, size: int = 10) -> None:
        self.window = Windows(size, 1.0, 100_000)
        self.now = 0.0
        self.pods: dict[str, Pod] = {}

    def put(self, uid: str, state: State, *, why: str | None = None, **fields: Any) -> None:
        """Changes the state of a placeholder. `why` is Slurm's pending reason. The other keywords are
        fields of the Pod, with the account and the CPUs."""
        if fields or uid not in self.pods:
            self.pods[uid] = self._pod(uid, **fields)
        self._follow(placeholder_of(self.pods[uid], state, cause=cause_of(why) if why else None))

    def come(self, *uids: str, **fields: Any) -> None:
        """Adds Pods that wait for their turns."""
        for uid in uids:
            self.put(uid, State.SEEN, **fields)

    def ask(self, uid: str) -> None:
        """Requests the job of a Pod on the fast path."""
        self._follow(
            placeholder_of(self._pod(uid), State.SUBMITTING, job=TrackedJob(asked=Asked(immediate=True)))
        )

    def refuse(self, uid: str) -> None:
        """Lets Slurm refuse a submission for now."""
        busy = cause_of("SlurmBusy")
        self._follow(
            placeholder_of(
                self.pods[uid], State.SUBMITTING, cause=busy, retry=Retry(waits=Waits.FOR_TURN)
            )
        )

    def take(self, then: State = State.QUEUED) -> list[str]:
        """Moves all Pods with a turn to a state, and returns the uids."""
        taken = []
        for _, uid in self.window.turns(self.now):
            taken.append(uid)
            self.put(uid, then)
        return taken

    def _pod(self, uid: str, account: str = "a", cpu: str = "1", **fields: Any) -> Pod:
        return changed(pod(uid=uid, cpu=cpu, annotations={PREFIX + "account": account}), **fields)

    def _follow(self, placeholder: Placeholder) -> None:
        self.window.follow("main", placeholder, self.now)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def windows() -> Windows:
    """Returns windows with a single place each. Slurm's MaxJobCount allows very many jobs."""
    return Windows(1, 1.0, 10_000)


def test_turns_go_by_priority_then_by_age_then_by_uid(line: Line) -> None:
    line.come("late", created="2026-01-02T00:00:00Z")
    line.come("b", "a", created="2026-01-01T00:00:00Z")
    line.come("high", created="2026-01-03T00:00:00Z", priority=5)
    line.come("low", created="2026-01-01T00:00:00Z", priority=-5)
    assert line.take() == ["high", "a", "b", "late", "low"]


def test_place_in_line_counts_the_pods_ahead() -> None:
    line = Line(size=2)
    for uid in ("a1", "a2", "a3"):
        line.put(uid, State.SEEN)
    line.put("b1", State.SEEN, account="b")
    line.put("high", State.SEEN, cpu="2", priority=5)
    assert line.window.place_in_line("a2") == InLine(ahead=3, of_its_owner=2, waiting=5)
    assert line.window.place_in_line("b1") == InLine(ahead=1, of_its_owner=0, waiting=5)
    assert line.take() == ["high", "b1"]
    assert line.window.place_in_line("a2") == InLine(ahead=1, of_its_owner=1, waiting=3)
    for gone in ("high", "nobody"):
        assert line.window.place_in_line(gone) is None


@pytest.mark.parametrize("seed", range(20))
def test_places_in_line_are_the_order_of_turns(seed: int) -> None:
    chance, line = random.Random(seed), Line(size=1000)
    for number in range(chance.randint(0, 12)):
        line.put(f"q{number}", State.QUEUED, account=chance.choice("abc"))
    for number in range(30):
        line.put(
            f"w{number}",
            State.SEEN,
            account=chance.choice("abcd"),
            cpu=chance.choice("12"),
            priority=chance.randint(0, 2),
        )
    places = {uid: place.ahead for uid in line.pods if (place := line.window.place_in_line(uid))}
    assert [places[uid] for uid in line.take()] == [*range(30)]


def test_no_more_jobs_wait_in_slurm_than_the_window_holds() -> None:
    line = Line(size=2)
    line.come(*"abcd")
    assert line.take() == ["a", "b"]
    assert line.take() == []


@pytest.mark.parametrize("fast", [False, True])
def test_a_submission_under_way_has_its_place(fast: bool) -> None:
    line = Line(size=1)
    if fast:
        line.ask("a")
    else:
        line.put("a", State.SUBMITTING)
    line.come("b")
    assert line.take() == []
    line.put("a", State.QUEUED)
    assert line.take() == []


def test_a_job_that_starts_or_ends_makes_room() -> None:
    for state in (State.ALLOCATED, State.RELEASING, State.INVALID, State.EVICTING, State.DONE):
        line = Line(size=1)
        line.put("a", State.QUEUED)
        line.come("b")
        line.put("a", state)
        assert line.take() == ["b"], state


def test_pod_that_leaves_the_line_gets_no_turn(line: Line) -> None:
    line.come("a", "b")
    line.put("a", State.DONE)
    assert line.take() == ["b"]


def test_pod_that_returns_to_the_line_gets_one_turn(line: Line) -> None:
    line.come("a")
    line.put("a", State.INVALID)
    line.come("a")
    line.come("a")
    assert line.take() == ["a"]
    assert line.take() == []


def test_a_waiting_pod_with_another_request_leaves_its_class(line: Line) -> None:
    line.come("a")
    line.come("a", cpu="2")
    assert line.take() == ["a"]
    line.put("a", State.DONE)
    assert len(line.window) == 0


def test_a_next_attempt_gets_a_turn_of_its_own(line: Line) -> None:
    line.come("a")
    assert line.take(State.ALLOCATED) == ["a"]
    line.come("a")
    assert line.take() == ["a"]


def test_fast_path_is_open_while_no_placeholder_waits(line: Line) -> None:
    assert line.window.fast("main", 0.0)
    line.ask("a")
    assert line.window.fast("main", 0.0)
    line.put("b", State.QUEUED)
    assert not line.window.fast("main", 0.0)
    line.put("b", State.ALLOCATED)
    assert line.window.fast("main", 0.0)
    line.put("c", State.SUBMITTING)  # Slurm has not accepted the job yet
    assert not line.window.fast("main", 0.0)


def test_refusal_closes_the_fast_path_for_a_while(line: Line) -> None:
    line.window.had_no_room("main", 10.0)
    assert not line.window.fast("main", 10.9)
    assert line.window.fast("main", 11.0)


def submitting(line: Line) -> list[str]:
    return line.take(State.SUBMITTING)


def refuse_all(line: Line) -> int:
    """Lets Slurm refuse all Pods with a turn, and returns their number."""
    refused = submitting(line)
    for uid in refused:
        line.refuse(uid)
    return len(refused)


def test_refused_pods_give_their_places_to_pods_of_another_size() -> None:
    line = Line(size=2)
    line.come("a1", "a2", "a3", priority=5)
    line.come("b", cpu="2")
    assert submitting(line) == ["a1", "a2"]
    line.refuse("a1")
    line.refuse("a2")
    assert submitting(line) == ["b"]
    assert line.window.why("a3") == cause_of("SlurmBusy")
    assert line.window.why("b") is IN_LINE


def test_one_refused_pod_retries_first_and_the_other_pods_follow() -> None:
    line = Line()
    line.come(*"abcdef")
    refuse_all(line)
    assert submitting(line) == []
    line.now = line.window.opens
    assert submitting(line) == ["a"]
    assert submitting(line) == []
    line.put("a", State.QUEUED)
    assert submitting(line) == ["b", "c"]
    line.put("b", State.QUEUED)
    line.put("c", State.QUEUED)
    assert submitting(line) == ["d", "e", "f"]


def test_refusal_during_the_retries_of_a_line_closes_the_line_again(line: Line) -> None:
    line.come(*"abcd")
    refuse_all(line)
    line.now = line.window.opens
    (first,) = submitting(line)
    line.put(first, State.QUEUED)
    refuse_all(line)
    assert submitting(line) == []


def test_retries_of_a_refused_line_become_less_frequent(line: Line) -> None:
    line.come("a")
    tries = 0
    while line.now < 600:
        tries += len(submitting(line))
        line.refuse("a")
        line.now = line.window.opens
    assert 600 / 15 < tries < 60


def test_unanswered_retry_does_not_close_its_line_for_ever(line: Line) -> None:
    line.come("a", "b")
    refuse_all(line)
    line.now = line.window.opens
    assert submitting(line) == ["a"]
    line.now = line.window.opens
    assert submitting(line) == ["b"]


def test_later_pod_of_higher_priority_retries_first(line: Line) -> None:
    line.come("a")
    refuse_all(line)
    line.come("high", priority=5)
    line.now = line.window.opens
    assert submitting(line) == ["high"]


def test_node_change_ends_the_backoff(line: Line) -> None:
    line.come("a")
    refuse_all(line)
    line.window.wake(100_000)
    assert submitting(line) == ["a"]


@pytest.fixture
def refused() -> Line:
    """Pods of a single owner, with 500 different sizes. Slurm refuses all of them."""
    line = Line(size=1000)
    for size in range(1, 501):
        line.come(f"{size:03}", cpu=str(size))
    while refuse_all(line):
        pass
    return line


def test_many_refused_sizes_are_retried_a_few_at_a_time(refused: Line) -> None:
    tried = 0
    while refused.now < 60:
        refused.now = max(refused.now, refused.window.opens)
        tried += refuse_all(refused)
    assert 500 <= tried <= 620, "ten a second: each size within a minute"


def test_more_sizes_follow_after_slurm_accepts_one_size_again(refused: Line) -> None:
    taken = 0
    while refused.now < 3:
        refused.now = max(refused.now, refused.window.opens)
        taken += len(refused.take())
    assert taken > 400


def test_node_change_lets_a_few_of_many_sizes_retry_at_once(refused: Line) -> None:
    refused.window.wake(100_000)
    assert len(submitting(refused)) == 10


def put(windows: Windows, partition: str, state: State, uid: str = "u") -> None:
    windows.follow(partition, placeholder_of(pod(uid=uid), state), 0.0)


def test_every_partition_has_a_window_of_its_own(windows: Windows) -> None:
    put(windows, "a", State.QUEUED)
    assert not windows.fast("a", 0.0)
    assert windows.fast("b", 0.0)
    put(windows, "a", State.SEEN, "a")
    put(windows, "b", State.SEEN, "b")
    assert list(windows.turns(0.0)) == [("b", "b")]


def test_pod_that_changes_its_partition_leaves_its_line_and_place(windows: Windows) -> None:
    put(windows, "a", State.SEEN)
    put(windows, "b", State.SEEN)
    assert list(windows.turns(0.0)) == [("b", "u")]
    put(windows, "b", State.QUEUED)
    put(windows, "a", State.QUEUED)
    assert windows.fast("b", 0.0)
    assert not windows.fast("a", 0.0)


def test_forgotten_pod_frees_its_place(windows: Windows) -> None:
    put(windows, "a", State.QUEUED)
    put(windows, "a", State.SEEN, "next")
    assert list(windows.turns(0.0)) == []
    windows.forget("u")
    assert list(windows.turns(0.0)) == [("a", "next")]
    windows.forget("never-heard-of")


def test_empty_partition_is_not_kept(windows: Windows) -> None:
    for number in range(100):
        put(windows, f"p{number}", State.SEEN)
        for _ in windows.turns(0.0):
            windows.forget("u")
    assert len(windows) == 0
    assert windows.opens == inf


# Owners


def many(line: Line, account: str, number: int, **fields: Any) -> None:
    line.come(*(f"{account}{each:04}" for each in range(number)), account=account, **fields)


def shares(uids: list[str]) -> dict[str, int]:
    return Counter(uid[0] for uid in uids)


def test_owners_take_turns_whatever_their_pods_priorities() -> None:
    line = Line(size=6)
    many(line, "a", 10, priority=1000)
    many(line, "b", 10)
    many(line, "c", 1)
    assert shares(line.take()) == {"a": 3, "b": 2, "c": 1}


def test_new_owner_gets_a_share_at_once_beyond_a_full_window() -> None:
    line = Line(size=20)
    many(line, "a", 100)
    line.take()
    for position, account in enumerate("bcdefgh", 2):
        many(line, account, 100)
        assert shares(line.take()) == {account: 20 // position}


def test_window_above_its_size_shrinks_before_the_first_owner_continues() -> None:
    line = Line(size=4)
    many(line, "a", 100)
    line.take()
    many(line, "b", 2)
    assert shares(line.take()) == {"b": 2}
    for number in range(2):
        line.put(f"a{number:04}", State.ALLOCATED, account="a")
        assert line.take() == []
    line.put("a0002", State.ALLOCATED, account="a")
    assert line.take() == ["a0004"]


def test_owner_of_fewer_jobs_gets_a_free_place_first() -> None:
    line = Line(size=4)
    many(line, "a", 100)
    many(line, "b", 100)
    assert shares(line.take()) == {"a": 2, "b": 2}
    line.put("b0000", State.ALLOCATED, account="b")
    assert line.take() == ["b0002"]


def test_owners_of_equally_many_jobs_take_turns() -> None:
    line = Line(size=4)
    for account in "abc":
        many(line, account, 5)
    last = line.take()[-1]
    gone = [last]
    for _ in range(6):
        line.put(last, State.ALLOCATED)
        (last,) = line.take()
        gone.append(last)
    assert [uid[0] for uid in gone] == list("abcabca")


@pytest.mark.parametrize(("why", "left"), [("QOSMaxJobsPerUserLimit", 4), ("Resources", 2)])
def test_jobs_held_by_their_owners_limit_count_only_for_that_owner(why: str, left: int) -> None:
    line = Line(size=4)
    many(line, "a", 100)
    for uid in line.take():
        line.put(uid, State.QUEUED, account="a", why=why)
    assert line.take() == []
    many(line, "b", 100)
    assert shares(line.take()) == {"b": left}


def test_immediate_jobs_in_submission_count_against_all_owners() -> None:
    line = Line(size=4)
    for uid in "1234":
        line.ask(uid)
    many(line, "b", 100)
    assert shares(line.take()) == {"b": 2}


def test_job_that_its_owner_holds_leaves_the_fast_path_open() -> None:
    line = Line()
    line.put("a", State.QUEUED, why="JobHeldUser")
    assert line.window.fast("main", 0.0)
    line.put("a", State.QUEUED, why="Priority")
    assert not line.window.fast("main", 0.0)


@pytest.mark.parametrize(
    "other", [{"user-id": "7"}, {"account": "b"}, {"qos": "high"}, {"reservation": "r"}], ids=str
)
def test_an_owner_is_a_user_an_account_a_qos_and_a_reservation(other: dict[str, str]) -> None:
    assert owner({}) == owner({"group-id": "5", "partition": "p"})
    assert owner(other) != owner({})


def test_list_order_and_name_case_do_not_change_the_owner() -> None:
    assert owner({"qos": "a,B", "account": "Lab"}) == owner({"qos": "b,A", "account": "lab"})


def test_namespace_takes_the_place_of_a_missing_user() -> None:
    assert owner({}, "red") != owner({}, "blue")
    assert owner({"user-id": "7"}, "red") == owner({"user-id": "7"}, "blue")


@pytest.mark.parametrize(("why", "places"), [("JobHeldAdmin", 10), ("ReqNodeNotAvail", 5)])
def test_unstartable_jobs_of_a_namespace_do_not_block_another_namespace(why: str, places: int) -> None:
    """The Pods request no user. If the jobs of red are held, blue gets the whole window. If the jobs of
    red cannot start for another reason, blue gets a share."""
    line = Line(size=10)
    line.come(*(f"red-{number:02}" for number in range(20)), namespace="red")
    for uid in line.take():
        line.put(uid, State.QUEUED, why=why)
    line.come(*(f"blue-{number:02}" for number in range(20)), namespace="blue")
    assert line.take() == [f"blue-{number:02}" for number in range(places)]


def owner(annotations: dict[str, str], namespace: str = "default") -> Owner:
    named = {PREFIX + name: value for name, value in annotations.items()}
    return Owner.of(namespace, pod(annotations=named).request.job)


def test_the_order_within_an_owner_is_kept_across_sizes() -> None:
    line = Line(size=100)
    for number in range(50):
        line.come(f"{number:02}", cpu=str(1 + number % 7), priority=number % 3)
    gone = line.take()
    assert gone == sorted(gone, key=lambda uid: (-(int(uid) % 3), uid))


# Slurm's MaxJobCount


def fill(
    windows: Windows, partition: str, account: str, number: int, user: int | None = None
) -> list[str]:
    """Adds Pods of an owner. Returns the uids of all Pods that get a turn, also of other owners."""
    for each in range(number):
        uid = f"{partition}{account}{each}"
        windows.follow(partition, waiting(uid, account, user), 0.0)
    return go(windows, account, user)


def go(windows: Windows, account: str = "a", user: int | None = None) -> list[str]:
    """Gives turns while a Pod may have a turn, and returns the uids. Each placeholder that gets a place
    counts for the given owner."""
    gone = []
    while True:
        for name, uid in windows.turns(0.0):
            gone.append(uid)
            windows.follow(name, waiting(uid, account, user)._replace(state=State.QUEUED), 0.0)
        if windows.opens > 0.0:
            return gone


def waiting(uid: str, account: str, user: int | None) -> Placeholder:
    return placeholder_of(_pod_of(account, user)._replace(uid=uid))


@cache
def _pod_of(account: str, user: int | None) -> Pod:
    seen = pod(annotations={PREFIX + "account": account})
    job = replace(seen.request.job, user_id=user)
    return seen._replace(request=replace(seen.request, job=job))


def waits(windows: Windows, uid: str) -> bool:
    return windows.why(uid) is NO_PLACE


def test_user_has_at_most_a_quarter_of_places_over_many_partitions() -> None:
    windows = Windows(1000, 1.0, 2000)
    gone = [uid for n in range(63) for uid in fill(windows, f"p{n},", "a", 100, user=7)]
    assert len(gone) == 250
    assert waits(windows, "p62,a99")
    assert len(fill(windows, "main", "a", 300, user=8)) == 150, "a fifth of the others"


def test_user_has_at_most_a_quarter_of_places_over_many_accounts() -> None:
    windows = Windows(1000, 1.0, 2000)
    for n in range(500):
        windows.follow("main", waiting(f"{n}", f"account-{n}", 7), 0.0)
    known = {f"{n}": waiting(f"{n}", f"account-{n}", 7) for n in range(500)}
    gone = 0
    for _ in range(10):
        for name, uid in windows.turns(0.0):
            windows.follow(name, known[uid]._replace(state=State.QUEUED), 0.0)
            gone += 1
    assert gone == 250
    assert fill(windows, "main", "b", 1, user=8) == ["mainb0"]


def test_the_last_tenth_is_kept_for_users_that_have_no_place() -> None:
    windows = Windows(1000, 1.0, 2000)
    taken = [len(fill(windows, "main", f"u{user}-", 300, user=user)) for user in range(1, 100)]
    assert sum(taken[:20]) > 900
    assert taken[20:] == [1] * 79


def test_token_user_gives_way_to_other_users() -> None:
    windows = Windows(1000, 1.0, 2000)
    for n in range(60):
        fill(windows, f"p{n}", "a", 1000)
    assert windows.places.left == 100
    assert fill(windows, "main", "b", 5, user=8) == ["mainb0"]
    windows.forget("p0a0")
    assert go(windows, "b", 8) == [], "it has far more than a quarter, and there are others now"


def test_places_go_to_all_partitions_of_a_user() -> None:
    windows = Windows(1000, 1.0, 80)
    held = [uid for partition in "pqr" for uid in fill(windows, partition, "a", 20, user=7)]
    assert len(held) == 10
    gone, last = [], held
    for _ in range(6):
        windows.forget(last.pop(0))
        (uid,) = go(windows, "a", 7)
        gone.append(uid[0])
    assert set(gone) == set("pqr")


def test_all_partitions_share_what_max_job_count_leaves() -> None:
    windows = Windows(1000, 1.0, 200)
    assert len(fill(windows, "p", "a", 500)) == 20, "a fifth: a quarter of what it leaves"
    assert len(fill(windows, "q", "a", 500)) == 16
    assert len(fill(windows, "q", "b", 500)) == 13
    for number in range(11, 61):
        fill(windows, f"p{number}", "a", 500)
    assert windows.places.left == 10, "a tenth is kept for other users"


def test_partitions_that_wait_for_the_last_places_are_served_in_turn() -> None:
    windows = Windows(1000, 1.0, 2)
    assert fill(windows, "p", "a", 1) == ["pa0"]
    for account in "bcd":
        for partition in ("q", "r"):
            assert fill(windows, partition, account, 1) == []
    assert windows.why("qb0") is NO_PLACE
    gone, last = [], "pa0"
    for _ in range(6):
        windows.forget(last)
        for partition, last in windows.turns(0.0):
            gone.append(last)
            seen = pod(uid=last, annotations={PREFIX + "account": last[1]})
            windows.follow(partition, placeholder_of(seen, State.QUEUED), 0.0)
    assert gone == ["qb0", "rb0", "qc0", "rc0", "qd0", "rd0"]


@pytest.mark.alone
def test_a_turn_among_20_000_sizes_costs_next_to_nothing() -> None:
    windows, known = Windows(1000, 1.0, 10_000), {}
    alike = pod(uid="alike")
    for number in range(20_000):
        job = replace(alike.request.job, memory_mb=number + 1)
        request = replace(alike.request, job=job)
        placeholder = placeholder_of(alike._replace(uid=f"{number:05}", request=request))
        known[placeholder.uid] = placeholder
        windows.follow("main", placeholder, 0.0)

    def go() -> list[str]:
        gone = []
        for _, uid in windows.turns(0.0):
            gone.append(uid)
            windows.follow("main", known[uid]._replace(state=State.QUEUED), 0.0)
        return gone

    queued = go()
    while windows.opens <= 0.0:
        more = go()
        assert len(more) <= 200, "others have their say in between"
        queued += more
    assert len(queued) == 1000
    clock = CpuClock()
    for uid in queued[:100]:
        windows.follow("main", known[uid]._replace(state=State.ALLOCATED), 0.0)
        assert len(go()) == 1
    assert clock.read() / 100 < 0.002, "it took 12 ms when all lines were looked at"


USERS = {"c": 7, "d": 7, "g": 8}
"""Pods of other accounts name no user."""


class Refills(RuleBasedStateMachine):
    """Pods of several owners come to two partitions. In any order, Slurm refuses, accepts, starts and
    ends their jobs. The jobs of the account g never start."""

    size, most = 3, 10

    def __init__(self) -> None:
        super().__init__()
        self.windows = Windows(self.size, 1.0, 2 * self.most)
        self.now = 0.0
        self.states: dict[str, Placeholder] = {}

    def put(
        self,
        uid: str,
        state: State,
        *,
        waits: Waits = Waits.FOR_TIME,
        cause: Cause | None = None,
    ) -> None:
        put = self.states[uid]._replace(state=state, cause=cause)
        self.states[uid] = put.with_retry(waits=waits)
        self.follow(uid)
        self.refill()

    def follow(self, uid: str) -> None:
        placeholder = self.states[uid]
        self.windows.follow(partition_of(placeholder), placeholder, self.now)

    def those(self, *states: State) -> list[str]:
        return [u for u, p in self.states.items() if p.state in states and not p.in_line]

    def in_slurm(self) -> Counter[tuple[str, Owner]]:
        return Counter(share_of(self.states[u]) for u in self.those(State.SUBMITTING, State.QUEUED))

    def may_have_one_more(self, user: int | None) -> bool:
        users = self.users()
        own, left = users[user], self.most - sum(users.values())
        alone = user is None and own == sum(users.values())
        return not own or (left > 1 and (alone or own < (left + own) // 4))

    def users(self) -> Counter[int | None]:
        return Counter(user_of(self.states[u]) for u in self.those(State.SUBMITTING, State.QUEUED))

    def refill(self) -> None:
        for _, uid in self.windows.turns(self.now):
            chosen = self.states[uid]
            better = [
                other
                for other, p in self.states.items()
                if p.in_line and alike(p, chosen) and turn_of(p.lead) < turn_of(chosen.lead)
            ]
            assert not better, f"{better} wait while {uid} goes"
            assert self.may_have_one_more(user_of(chosen))
            self.states[uid] = chosen._replace(state=State.SUBMITTING).with_retry(not_before=0.0)
            self.follow(uid)

    @rule(
        priority=st.integers(0, 2),
        account=st.sampled_from("abcdg"),
        partition=st.sampled_from("pq"),
        cpu=st.sampled_from("12"),
        namespace=st.sampled_from(["red", "blue"]),
    )
    def comes(self, priority: int, account: str, partition: str, cpu: str, namespace: str) -> None:
        uid = f"{len(self.states):03}"
        named = {PREFIX + "account": account, PREFIX + "partition": partition}
        seen = pod(uid=uid, cpu=cpu, annotations=named, namespace=namespace)
        job = replace(seen.request.job, user_id=USERS.get(account))
        request = replace(seen.request, job=job)
        self.states[uid] = placeholder_of(seen._replace(priority=priority, request=request))
        self.put(uid, State.SEEN)

    @rule(data=st.data(), fate=st.sampled_from(["taken", "taken", "refused", "gone"]))
    def is_answered(self, data: st.DataObject, fate: str) -> None:
        if asked := self.those(State.SUBMITTING):
            uid = data.draw(st.sampled_from(asked))
            if fate == "refused":
                self.put(
                    uid,
                    State.SUBMITTING,
                    waits=Waits.FOR_TURN,
                    cause=cause_of("SlurmBusy"),
                )
            else:
                self.put(uid, State.QUEUED if fate == "taken" else State.RELEASING)

    @rule(data=st.data(), reason=st.sampled_from(["QOSMaxJobsPerUserLimit", "Resources"]))
    def is_told_why(self, data: st.DataObject, reason: str) -> None:
        if queued := self.those(State.QUEUED):
            uid = data.draw(st.sampled_from(queued))
            self.put(uid, State.QUEUED, cause=cause_of(reason))

    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        if queued := [uid for uid in self.those(State.QUEUED) if not is_greedy(self.states[uid])]:
            self.put(data.draw(st.sampled_from(queued)), State.ALLOCATED)

    @rule(seconds=st.sampled_from([0.5, 2.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.refill()

    @invariant()
    def no_more_are_in_slurm_than_may(self) -> None:
        node_status = self.in_slurm()
        assert sum(node_status.values()) <= self.most
        assert all(number <= self.size for number in node_status.values())

    @invariant()
    def an_owner_without_any_in_slurm_waits_for_nothing_but_a_refusal_or_its_users_places(self) -> None:
        node_status = self.in_slurm()
        waits = (p for p in self.states.values() if p.in_line and not node_status[share_of(p)])
        if any(self.may_have_one_more(user_of(p)) for p in waits) and self.users().total() < self.most:
            assert self.now < self.windows.opens < inf

    def teardown(self) -> None:
        """Slurm accepts all jobs, and starts all jobs except the jobs of the account g. No Pod of
        another account stays in line."""
        for _ in range(200):
            self.now += 20.0
            self.refill()
            for uid in self.those(State.SUBMITTING):
                self.put(uid, State.QUEUED)
            for uid in self.those(State.QUEUED):
                if not is_greedy(self.states[uid]):
                    self.put(uid, State.ALLOCATED)
        assert not any(p.in_line and not is_greedy(p) for p in self.states.values())


def partition_of(placeholder: Placeholder) -> str:
    return placeholder.lead.request.job.partition or ""


def share_of(placeholder: Placeholder) -> tuple[str, Owner]:
    return partition_of(placeholder), Owner.of(placeholder.workload.namespace, placeholder.request.job)


def user_of(placeholder: Placeholder) -> int | None:
    return placeholder.lead.request.job.user_id


def alike(one: Placeholder, other: Placeholder) -> bool:
    return share_of(one) == share_of(other) and kind_of(one) == kind_of(other)


def is_greedy(placeholder: Placeholder) -> bool:
    return placeholder.lead.request.job.account == "g"


TestRefills = Refills.TestCase
TestRefills.settings = settings(max_examples=100)
