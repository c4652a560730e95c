"""A slurmrestd without a Slurm: the HTTP face of `slurm_client.in_memory`, for load tests.

What it says is slurmrestd's, 26.05's v0.0.45: `documents` writes replies, `bodies` reads requests,
`face` knows the calls, `server` sends errors twice and closes the connection, as the real one does. How
long it takes, and when it fails, is `manners`. It passes the contract tests of the real one.

What it leaves out: it takes any token that is there; it pushes nothing to the extender's hooks; it keeps
nothing when it ends; of a job's resources it knows nodes and devices, no cores. Its job/allocate is
always immediate. What `slurm_client.in_memory` leaves out is left out here too.
"""
