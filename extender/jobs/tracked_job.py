"""The job of a workload's current attempt, as far as the extender knows the job.

The job is frozen. Each method returns the next version of the job. `phase.PHASE_MOVES` has the legal
moves.
"""

from typing import Final, NamedTuple, Self

from extender.jobs.claim import JobIdentity
from extender.jobs.phase import OVER, PHASE_MOVES, Phase
from extender.jobs.verdict import NOT_READ, Part, Verdict

Owner = tuple[int | None, int | None]
"""A user and a group. None stands for the user of the extender's token."""
NOBODY_ASKED: Final[Owner] = (None, None)


class IllegalPhase(RuntimeError):
    """The table has no such move between two phases: a defect of the extender."""


class Mistrust(NamedTuple):
    """Numbers of events that went against a request of the extender."""

    denials: int = 0
    """Number of answers in a row after which Slurm had no job and gave no cause. Reset when the Pod's
    request changes."""
    altered: int = 0
    """Number of jobs in a row that were altered when the extender first read the job."""
    not_started: int = 0
    """Number of jobs that Slurm cancelled right after granting nodes. Reset when the Pod's request
    changes."""
    renamed: int = 0
    """Number of cancellations that Slurm has rejected because the job has another name."""
    misses: int = 0
    """Number of polls in a row in which a healthy Slurm did not know the job."""


class Asked(NamedTuple):
    """Parts of the submission that the workload's request does not determine."""

    attempt: int = 1
    """Number of the attempt to place the Pods."""
    attempt_try: int = 0
    """Number of the submission within the attempt. Each submission has an id of its own."""
    owner: Owner = NOBODY_ASKED
    """Owner of the queued job."""
    excluded: tuple[str, ...] = ()
    """Slurm nodes that the job must not use (`view.Exclusion.nodes`)."""
    immediate: bool = False
    """True for job/allocate. A granted job runs on the granted nodes or not at all: a slurmctld that is
    killed forgets the whole job, and does not start the job elsewhere."""


class TrackedJob(NamedTuple):
    """The job under one id. Times are the ledger's clock, in seconds."""

    id: int | None = None
    """None before the first submission of an attempt."""
    phase: Phase = Phase.UNASKED
    since: float = 0.0
    """Time at which the job came into its phase."""
    asked: Asked = Asked()
    verdict: Verdict = NOT_READ
    """The last verdict on the job under the id. The id alone proves nothing: two workloads may have the
    same id."""
    identity: JobIdentity | None = None
    """The job when the job was first read with its key. Afterwards the job belongs to the workload,
    with or without the key."""
    unread: bool = False
    """True if the extender must read the job before the next request about the job."""
    mistrust: Mistrust = Mistrust()

    @property
    def known_id(self) -> int:
        """Returns the id of a job after the first submission."""
        assert self.id is not None
        return self.id

    @property
    def over(self) -> bool:
        """Returns True if no job is left to be ended."""
        return self.phase in OVER

    @property
    def is_ours(self) -> bool:
        """Returns True if the job is the workload's: Slurm accepted the submission, or the extender has
        read the job."""
        return self.verdict.is_ours

    @property
    def has_lost_key(self) -> bool:
        """Returns True if the AdminComment of the job that was read is not the workload's key."""
        return self.verdict.has_altered(Part.ADMIN_COMMENT)

    @property
    def unverified(self) -> bool:
        """Returns True if the extender must read the job to know whether the job runs on its Pods'
        Nodes."""
        return self.unread or self.phase is Phase.SUSPECT

    def to(self, phase: Phase, now: float) -> Self:
        """Returns the job in another phase, or the same job if the phase is the same.

        Raises IllegalPhase if the table has no such move.
        """
        if phase is self.phase:
            return self
        if phase not in PHASE_MOVES[self.phase]:
            raise IllegalPhase(f"job {self.id}: {self.phase} -> {phase}")
        return self._replace(phase=phase, since=now, unread=False)

    def unclaimed(self) -> Self:
        """Returns the job under an id of which nothing is known."""
        return self._replace(verdict=NOT_READ, identity=None, mistrust=self.mistrust._replace(renamed=0))
