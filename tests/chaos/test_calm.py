"""A calm within another one is disturbed by both, and the other one by its own disturbances alone."""

import time

from tests.chaos.calm import Calm


def test_a_calm_is_disturbed_by_what_disturbs_the_one_that_it_is_within() -> None:
    around = Calm()
    calm, begin = Calm(within=around), time.monotonic()
    assert calm.covers(begin, begin)
    with around.disturbed("a kill"):
        assert (calm.since(), str(calm)) == (None, "a kill")
        assert not calm.wait(0.0, within_s=0.01)
        end = time.monotonic()
    assert not calm.covers(begin, end)
    assert calm.since() == around.since()
    assert str(calm) == "calm"


def test_its_own_disturbances_are_nothing_to_the_one_around() -> None:
    around = Calm()
    calm, begin = Calm(within=around), time.monotonic()
    with calm.disturbed("blindness"):
        assert (calm.since(), str(calm)) == (None, "blindness")
        assert around.since() is not None
        assert str(around) == "calm"
        end = time.monotonic()
    assert (around.covers(begin, end), calm.covers(begin, end)) == (True, False)
    own, before = calm.since(), around.since()
    assert own is not None
    assert before is not None
    assert before < own
