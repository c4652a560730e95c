"""A stub of slurmrestd (26.05's v0.0.45) for load tests.

The stub has no real Slurm. The stub offers slurmrestd's HTTP calls in front of `slurm_client.in_memory`,
and passes the contract tests of `slurm_client`.

Differences from slurmrestd:

* The stub accepts any token, but only the requests that `slurm_client` sends.
* The stub has no outages. The stub does not call the extender's hooks about changes of jobs. When the
  stub ends, its state is lost.
* In a job's resources, all cores of a node are in one socket.
* job/allocate is always immediate.
"""
