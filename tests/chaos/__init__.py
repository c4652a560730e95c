"""Chaos: real components fail at random, while an observer checks the invariants from outside.

`python -m tests.chaos --duration 900 --seed 1` starts a run. The modules of a run:

- `plan` computes all attacks, Pods and jobs, with their times, from the seed.
- `nemesis` and `workload` carry out the plan.
- `observer` reads both systems without the extender, and `checker` finds violations.
- `audit` compares both systems at the end.
"""
