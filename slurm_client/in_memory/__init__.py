"""A small Slurm in memory: `protocol.Slurm` without a network, for tests and load tests.

It passes the same contract tests as the real one (tests/slurm_client/test_contract.py) and answers
what those measured: FIFO by priority in each partition, GRES with indices, ids of the caller's
choosing, refusals with Slurm's numbers, accounts and limits, reservations, forgetting after MinJobAge.
It leaves out what no test has needed: limits on more than jobs and their CPUs, backfill, preemption by
its own decision (`preempt` does it), sockets: a job has the first cores of a node that are free.
"""

from slurm_client.in_memory.accounting import Accounting, Association, Limits, Qos
from slurm_client.in_memory.builders import node, partition
from slurm_client.in_memory.slurm import DEFAULTS, InMemorySlurm

__all__ = [
    "DEFAULTS",
    "Accounting",
    "Association",
    "InMemorySlurm",
    "Limits",
    "Qos",
    "node",
    "partition",
]
