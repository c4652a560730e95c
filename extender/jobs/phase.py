"""The phases of a workload's job, and the one table of legal moves between the phases."""

from collections.abc import Mapping
from enum import StrEnum


class Phase(StrEnum):
    UNASKED = "Unasked"
    """The extender has not asked Slurm for a job of the current attempt."""
    ASKED = "Asked"
    """The extender asks Slurm for the job. Until Slurm answers, the job may exist."""
    PENDING = "Pending"
    """Slurm has queued the job."""
    RUNNING = "Running"
    """Slurm has granted nodes to the job."""
    SUSPECT = "Suspect"
    """The job possibly does not run on the granted nodes any more. Slurm reported that the job waits or
    has failed, or Slurm may have started the job again. The extender reads the job to find out."""
    ENDING = "Ending"
    """The job is no longer wanted. The extender cancels the job, or waits for the job's end."""
    ENDED = "Ended"
    """The job has ended, or no job existed."""
    LOST = "Lost"
    """A healthy Slurm does not know the job of a Pod that may be bound."""


PHASE_MOVES: Mapping[Phase, Mapping[Phase, str]] = {
    Phase.UNASKED: {
        Phase.ASKED: "the Pod has a turn",
        Phase.RUNNING: "another replica has placed the Pod",
        Phase.ENDED: "there is no job to end",
        Phase.ENDING: "a deposed replica has submitted the job",
    },
    Phase.ASKED: {
        Phase.PENDING: "Slurm queues the job",
        Phase.RUNNING: "Slurm grants nodes at once",
        Phase.ENDING: "the job may exist, and is no longer wanted",
        Phase.ENDED: "Slurm ended the job before the extender read the job",
        Phase.SUSPECT: "Slurm accepts the job of a bound Pod again, or has restored the job",
        Phase.UNASKED: "Slurm rejects the job",
    },
    Phase.PENDING: {
        Phase.RUNNING: "Slurm grants nodes",
        Phase.ASKED: "slurmctld has lost the job, or the id is another job's",
        Phase.ENDING: "the job is no longer wanted",
        Phase.ENDED: "the job ended in the queue",
    },
    Phase.RUNNING: {
        Phase.SUSPECT: "the job may not run on the granted nodes",
        Phase.ENDING: "the job is no longer wanted",
        Phase.ENDED: "Slurm ended the job",
        Phase.LOST: "Slurm does not know the job of a Pod that is not bound yet",
        Phase.ASKED: "Slurm does not know the job of a bound Pod: the extender asks again",
    },
    Phase.SUSPECT: {
        Phase.RUNNING: "the job runs on the granted nodes",
        Phase.ENDING: "the job is no longer wanted",
        Phase.ENDED: "Slurm ended the job",
        Phase.LOST: "Slurm does not know the job of a Pod that is not bound yet",
        Phase.ASKED: "Slurm does not know the job of a bound Pod: the extender asks again",
    },
    Phase.ENDING: {
        Phase.ENDED: "Slurm ended the job",
        Phase.LOST: "Slurm does not know the job",
        Phase.RUNNING: "the Pod was bound before the job was cancelled",
    },
    Phase.ENDED: {
        Phase.UNASKED: "the next attempt begins",
        Phase.ENDING: "a restarted slurmctld has restored the job",
    },
    Phase.LOST: {
        Phase.UNASKED: "the next attempt begins",
        Phase.ASKED: "the Pod was bound: the extender asks again",
        Phase.ENDED: "the Pods are evicted, or gone",
    },
}
"""The legal moves from each phase, each with its cause. `make docs` draws the table."""

OVER = frozenset({Phase.ENDED, Phase.LOST})
"""Phases in which the extender does not have to end a job any more."""
