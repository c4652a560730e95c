"""Tests of the report of a run: the conditions of a failure, and the counts."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.anomalies import DUPLICATES, KINDS, LOST, Anomaly
from tests.chaos.plan import Mischief, Odd
from tests.chaos.report import Report, count, story, usual

MAPPINGS = ("mischief", "odd_pods", "attacks", "kills_of", "ended_by_themselves", "repairs", "longest_s")
NONE: dict[str, Any] = {
    **dict.fromkeys((*KINDS, "overlap_seconds_max", "audit_waiting"), 0),
    **{name: {} for name in MAPPINGS},
}
GOOD = Report(
    **NONE,
    kills=9,
    pods=100,
    failover_s_max=7.0,
    seed=1,
    duration_s=60.0,
    deletions={"delete by force": 2},
    denials_max=24,
    denials_p50=11.0,
    unbindable_held_s=98.0,
    unbindable_held_s_p50=34.0,
    evict_ms_p99=700.0,
    slowness=1.0,
    overlap_after_state_loss_s=3.0,
    overlap_of_forgotten_jobs_s=2.0,
    evict_ms_p50=100.0,
    evict_ms_max=1100.0,
    evictions={"cancelled": 50, "preempted": 2, "its GraceTime begins": 1},
    native_starts=10,
    crowd_bound=[200],
    guests_adopted=3,
    state_losses=1,
    outages={"cordoned": 2},
    failovers_s=[7.0],
    blind_s=200.0,
    pods_bound=80,
    gangs=5,
    partial_gangs=[],
    partial_s_max=0.9,
    native_jobs=10,
    audit_settled_s=0.1,
    audit_bound=3,
    looks=100,
)


@pytest.mark.parametrize(
    ("other", "fails"),
    [
        ({}, False),
        ({"violations": ["lost: p"]}, True),
        ({"failover_s_max": 10.1}, True),
        ({"failover_s_max": None}, True),
        ({"pods_bound": 40}, True),
        ({"pods_bound": 45, "odd_pods": {"greedy": 20}}, False),  # odd Pods can never be bound
        ({"native_starts": 0}, True),
        ({"partial_gangs": ["g1: 1.2 s"]}, True),
        ({"guests_adopted": 0}, True),
        ({"evictions": {"cancelled": 50, "preempted": 2}}, True),
        ({"overlap_seconds_max": 0.1}, True),
        ({"evict_ms_p99": 1000.1}, True),
        ({"evict_ms_p99": 1500.0, "slowness": 1.5}, False),
        ({"evict_ms_p99": 1500.1, "slowness": 1.5}, True),
        ({"evict_ms_p99": None}, True),
        ({"denials_max": 100}, True),
        ({"unbindable_held_s": 150.0}, True),
    ],
)
def test_run_fails_after_a_violation_a_missed_limit_or_too_few_pods(
    other: dict[str, Any], fails: bool
) -> None:
    assert replace(GOOD, **other).failed is fails


def test_run_fails_after_endless_requests_or_nodes_held_for_long() -> None:
    every_five_s = [16, 18, 20, 20, 21, 25, 30]  # rejections in 50 s, for different numbers of leaders
    assert replace(GOOD, denials_max=max(every_five_s), denials_p50=usual(every_five_s)).failed
    until_told_no = [6, 7, 7, 11, 12, 15, 24]
    assert not replace(GOOD, denials_max=max(until_told_no), denials_p50=usual(until_told_no)).failed
    one_after_the_other = [30.0, 88.0, 105.0, 119.0]
    held = usual(one_after_the_other)
    assert replace(GOOD, unbindable_held_s=119.0, unbindable_held_s_p50=held).failed
    in_vain_once = [15.0, 31.0, 62.0, 98.0]
    assert not replace(GOOD, unbindable_held_s_p50=usual(in_vain_once)).failed


def test_median_of_too_few_values_fails_no_run() -> None:
    assert usual([]) is usual([24, 30]) is None
    assert not replace(GOOD, denials_p50=None, unbindable_held_s_p50=None).failed


def test_long_run_fails_without_each_kind_of_mischief() -> None:
    long = replace(GOOD, duration_s=900.0)
    assert long.failed
    mischief, odd = {str(how): 1 for how in Mischief}, {str(why): 1 for why in Odd}
    assert not replace(long, mischief=mischief, odd_pods=odd).failed
    assert replace(long, mischief=mischief, odd_pods={"greedy": 80}).failed
    assert replace(long, mischief=mischief, odd_pods=odd, gangs=0).failed
    never = {"delete by force": 0, "delete slowly": 8}
    assert replace(long, mischief=mischief, odd_pods=odd, deletions=never).failed


def test_repeated_anomaly_of_a_pod_counts_once() -> None:
    seen = [Anomaly(LOST, "u", "first"), Anomaly(LOST, "u", "again"), Anomaly(DUPLICATES, "v", "two")]
    counted = count(seen)
    assert (counted[LOST], counted[DUPLICATES]) == (1, 1)
    assert sum(counted.values()) == 2


def test_violation_is_reported_with_the_history_of_its_pod() -> None:
    lines = story(Anomaly(LOST, "u", "p waits"), lambda uid: [(12.0, f"Pod of {uid}")], begin=10.0)
    assert list(lines) == ["VIOLATION lost: p waits (u)", "      2.00 s  Pod of u"]
