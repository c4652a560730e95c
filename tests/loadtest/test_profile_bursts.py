"""What is read of py-spy's stacks."""

from loadtest.profile_bursts import shares, stacks_of_perf


def test_a_function_has_what_it_and_all_below_it_used_whatever_the_line() -> None:
    stacks = ["run (app.py:1);feed (d.py:3);feed (d.py:9) 6", "run (app.py:2) 4", "idle (x.py:1) 0"]
    assert list(shares(stacks)) == ["100.0%  run (app.py)", " 60.0%  feed (d.py)"]


def test_perfs_samples_are_stacks_too() -> None:
    told = ["", "\t  5f2 runtime.mallocgc", "\t  4a1 main.main", "", "\t  5f3 runtime.mallocgc", ""]
    stacks = list(stacks_of_perf(told))
    assert stacks == ["main.main;runtime.mallocgc 1", "runtime.mallocgc 1"]
    assert list(shares(stacks)) == ["100.0%  runtime.mallocgc", " 50.0%  main.main"]
