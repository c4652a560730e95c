"""Measures the speed and the cost of the extender, on whole clusters on this machine.

`scenarios` are the measurements, and `harness` has their parts. `budgets.toml` has the limits of
the figures, and `report` writes pages from the figures. Compared variants take part in the same
run, so that disturbances of the machine affect all of them. `slurmrestd_stub` replaces Slurm in
measurements that must not depend on Slurm's speed.
"""
