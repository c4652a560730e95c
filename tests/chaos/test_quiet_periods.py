"""A quiet period within another is disturbed by both, and the outer one by its own alone."""

import time

from tests.chaos.quiet_periods import QuietPeriods


def test_a_calm_is_disturbed_by_what_disturbs_the_one_that_it_is_within() -> None:
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


def test_its_own_disturbances_are_nothing_to_the_one_around() -> None:
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
