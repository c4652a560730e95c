"""The users inside a cluster, by number: the daemons' users, and the users who run jobs."""

from typing import Final

SLURM_UID: Final = 64030
# slurmrestd refuses to run as root or as SlurmUser.
SLURMRESTD_UID: Final = 64031
# Users who can own a job. Each has a home of the same name under /home.
JOB_USERS: Final = {"root": 0, "alice": 2001, "bob": 2002}
