"""Chaos: everything that may fail fails, on real components, while invariants are watched from outside.

`python -m tests.chaos --duration 900 --seed 1` is one run. What happens when is a `plan` that follows
from the seed; `nemesis` and `workload` carry it out; `observer` sees both systems without the
extender's help, and `checker` says what of it may not be; `audit` compares both systems in the end.
"""
