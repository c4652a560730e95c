"""A slurmrestd (26.05's v0.0.45) without a Slurm, for load tests: HTTP in front of
`slurm_client.in_memory`. The stub passes the contract tests of slurmrestd.

Differences from slurmrestd:

* The stub accepts any token, and only requests that `slurm_client` sends.
* The stub has no outages, sends no pushes to the extender's hooks, and loses its state when it
  ends.
* A job's resources contain nodes and devices, but no cores.
* job/allocate is always immediate.
"""
