"""A slurmrestd (26.05's v0.0.45) without a Slurm: HTTP before `slurm_client.in_memory`, for load tests.
It passes the contract tests of the real one.

What it leaves out: it takes any token that is there, and of requests what `slurm_client` sends; it
has no outages; it pushes nothing to the extender's hooks; it keeps nothing when it ends; of a job's
resources it knows nodes and devices, no cores. Its job/allocate is always immediate.
"""
