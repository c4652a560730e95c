"""Tests of quiet periods: a disturbance of the outer period also disturbs the inner period. A
disturbance of the inner period leaves the outer period quiet."""

import time

from tests.chaos.quiet_periods import QuietPeriods


def test_disturbance_of_the_outer_period_disturbs_the_inner_period() -> None:
    around = QuietPeriods()
    quiet, begin = QuietPeriods(within=around), time.monotonic()
    assert quiet.covers(begin, begin)
    with around.disturbed("a kill"):
        assert (quiet.since(), str(quiet)) == (None, "a kill")
        assert not quiet.wait(0.0, within_s=0.01)
        end = time.monotonic()
    assert not quiet.covers(begin, end)
    assert quiet.since() == around.since()
    assert str(quiet) == "quiet"


def test_disturbance_of_the_inner_period_leaves_the_outer_period_quiet() -> None:
    around = QuietPeriods()
    quiet, begin = QuietPeriods(within=around), time.monotonic()
    with quiet.disturbed("blindness"):
        assert (quiet.since(), str(quiet)) == (None, "blindness")
        assert around.since() is not None
        assert str(around) == "quiet"
        end = time.monotonic()
    assert (around.covers(begin, end), quiet.covers(begin, end)) == (True, False)
    own, before = quiet.since(), around.since()
    assert own is not None
    assert before is not None
    assert before < own
