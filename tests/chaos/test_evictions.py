"""Tests of measured evictions: the time runs from Slurm's first signal to the Pod's deletion. Only
evictions in a quiet period count."""

import time
from datetime import datetime
from math import inf

import pytest

from tests.chaos.checker import Eviction
from tests.chaos.evictions import CALM_AFTER_S, CALM_FOR_S, NEVER_S, measured, percentile
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.signals import Kind, Signal, read_signals

LOG = """\
[2026-11-22T07:37:29.884] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=59941180 uid 0
[2026-11-22T07:37:30.001] sched: Allocate JobId=1 NodeList=node-1 #CPUs=8 Partition=high
[2026-11-22T07:37:32.003] preempted JobId=66694548 has been killed to reclaim resources for JobId=1
[2026-11-22T07:37:33.000] debug:  setting 6 sec preemption grace time for JobId=5 to reclaim resources
"""


def test_log_of_slurmctld_is_read() -> None:
    signals = list(read_signals(LOG.splitlines()))
    assert [(each.kind, each.job_id) for each in signals] == [
        (Kind.CANCELLED, 59941180),
        (Kind.PREEMPTED, 66694548),
        (Kind.GRACE, 5),
    ]
    assert signals[0].at == datetime(2026, 11, 22, 7, 37, 29, 884000).timestamp()  # noqa: DTZ001 - local


def took(
    *at: float,
    gone: float | None,
    bound: float = 0.0,
    deleted: float = inf,
    ended: float = inf,
    quiet: QuietPeriods | None = None,
) -> list[float]:
    """Returns the measured times for a job with signals at the times `at`. All times count from the
    start of a quiet period."""
    quiet = quiet or QuietPeriods()
    begin = quiet.since() or time.monotonic()
    end = None if gone is None else begin + gone
    eviction = Eviction("p", begin + bound, begin + deleted, begin + ended, end)
    signals = [Signal(begin + each, Kind.PREEMPTED, 7) for each in at]
    known = {7: eviction}
    return [round(each.took_s, 6) for each in measured(signals, known.get, quiet)]


LATER = CALM_FOR_S + 1.0


def test_first_signal_of_a_job_counts() -> None:
    assert took(LATER, LATER + 0.2, gone=LATER + 0.5) == [0.5]


def test_pod_without_a_deletion_counts_as_never_evicted() -> None:
    assert took(LATER, gone=None) == [NEVER_S]


def test_deletions_other_than_evictions_are_not_measured() -> None:
    assert took(LATER, bound=LATER + 1, gone=LATER + 2) == []
    assert took(LATER, gone=LATER - 1) == []
    assert took(LATER, deleted=LATER - 1, gone=LATER + 1) == []
    assert took(LATER, deleted=LATER + 1, gone=LATER + 0.5) == [0.5]


def test_pod_that_ends_at_the_time_of_the_signal_is_not_measured() -> None:
    assert took(LATER, ended=LATER + 0.1, gone=LATER + 9) == []
    assert took(LATER, ended=LATER + 0.6, gone=LATER + 0.5) == [0.5]
    assert took(LATER, ended=LATER + 1.1, gone=LATER + 9) == [9.0]


def test_eviction_in_a_disturbed_time_is_not_measured() -> None:
    assert took(LATER - 2, gone=LATER) == []
    quiet = QuietPeriods()
    with quiet.disturbed("something"):
        assert took(LATER, gone=LATER + 0.5, quiet=quiet) == []
    assert took(LATER, gone=LATER + 0.5, quiet=quiet) == [0.5]


def test_slow_eviction_is_measured_after_the_end_of_the_quiet_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = begin = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now)
    quiet = QuietPeriods()
    now = begin + LATER + CALM_AFTER_S
    with quiet.disturbed("something"):
        now = begin + 100.0
    assert len(list(measured([Signal(begin + LATER, Kind.CANCELLED, 7)], never, quiet))) == 1


def never(_job_id: int) -> Eviction:
    return Eviction("p", 0.0, inf, inf, None)


def test_percentile_of_a_list() -> None:
    assert percentile([], 0.99) is None
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
