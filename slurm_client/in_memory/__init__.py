"""A small Slurm in memory: `protocol.Slurm` without a network, for tests and load tests.

This Slurm passes the same contract tests as real Slurm (tests/slurm_client/test_contract.py). It has
these features, with the behaviour that the tests measured in real Slurm:

* FIFO by priority in each partition
* GRES with indices, and job ids of the caller's choice
* rejections with Slurm's error numbers
* accounts and limits, and reservations
* removal of ended jobs after MinJobAge

Some features are left out, because no test needs them: limits on anything except jobs and their CPUs,
backfill, preemption by Slurm's own decision, and sockets. (A test calls `preempt` to preempt a job.) A
job gets the first free cores of a node.
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
