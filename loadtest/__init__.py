"""What shows how fast the extender is, and what it costs: on whole clusters of this machine.

`scenarios` is what is measured, made of what `harness` has; `budgets.toml` what it is held to, and
`report` what is made of the figures. Each figure is one of a run in which all that is compared takes
part, so that what the machine does meanwhile falls on all of it. `locustfile` is kube-scheduler's part
of a load; `slurmrestd_stub` stands for Slurm where Slurm's speed is not what is measured.
"""
