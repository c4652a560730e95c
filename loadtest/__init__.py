"""Measures the speed and the cost of the extender, in complete clusters on this machine.

The package `scenarios` has the measurements, and `harness` has their common parts. `budgets.toml` has
the limits of the measured figures, and `report` writes pages from the figures. If several variants
(programs that place Pods) are compared, all variants run in the same measurement. So a disturbance of
the machine affects all variants. `slurmrestd_stub` replaces Slurm in measurements that must not depend
on Slurm's speed.
"""
