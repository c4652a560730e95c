"""What shows how fast the extender is, and what it costs: on whole clusters of this machine.

`scenarios` is what is measured, made of what `harness` has; `budgets.toml` is what it is held to, and
`report` what is made of the figures. All that is compared takes part in one run, so that what the
machine does meanwhile falls on all of it. `slurmrestd_stub` stands for Slurm where Slurm's speed is not
what is measured.
"""
