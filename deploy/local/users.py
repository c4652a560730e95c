"""The users inside a cluster, by their numbers: the daemons' own, and those who run jobs."""

from typing import Final

SLURM_UID: Final = 64030
# slurmrestd refuses to run as root or as SlurmUser.
SLURMRESTD_UID: Final = 64031
# Everyone who can own a job, with a home of the same name under /home.
JOB_USERS: Final = {"root": 0, "alice": 2001, "bob": 2002}
