"""What is read of py-spy's stacks."""

from loadtest.profile_bursts import shares


def test_a_function_has_what_it_and_all_below_it_used_whatever_the_line() -> None:
    stacks = ["run (app.py:1);feed (d.py:3);feed (d.py:9) 6", "run (app.py:2) 4", "idle (x.py:1) 0"]
    assert list(shares(stacks)) == ["100.0%  run (app.py)", " 60.0%  feed (d.py)"]
