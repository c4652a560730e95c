"""The job of a workload's current attempt, as far as the extender knows the job.

The object never changes: each method returns a new version. `phase.PHASE_MOVES` has the legal moves
between the phases.
"""

from typing import Final, NamedTuple, Self

from extender.jobs.claim import JobIdentity
from extender.jobs.phase import OVER, PHASE_MOVES, Phase
from extender.jobs.verdict import NOT_READ, Part, Verdict

Owner = tuple[int | None, int | None]
"""A user and a group. None stands for the user of the extender's token."""
NOBODY_ASKED: Final[Owner] = (None, None)


class IllegalPhase(RuntimeError):
    """Raised for a move that the table of phases does not contain. This is a defect of the extender."""


class Mistrust(NamedTuple):
    """Counts of unexpected reactions of Slurm to requests of the extender."""

    denials: int = 0
    """Number of submissions in a row that failed without a cause from Slurm, and left no job in Slurm.
    Reset when the Pod's request changes."""
    altered: int = 0
    """Number of jobs in a row that differed from the request when the extender first read the job."""
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
    """Number of the submission within the attempt. Each submission has its own job id."""
    generation: str = ""
    """Generation of the gang's Pods at the submission (`job_key.generation_of`); "" for a single Pod."""
    owner: Owner = NOBODY_ASKED
    """Requested owner of the queued job."""
    excluded: tuple[str, ...] = ()
    """Slurm nodes that the job must not use (`view.Exclusion.nodes`)."""
    immediate: bool = False
    """True if the job is requested by job/allocate. Such a job runs on the granted nodes or not at all.
    A killed slurmctld forgets the whole job, and does not start the job elsewhere."""


class TrackedJob(NamedTuple):
    """The job under one id. Times are the ledger's clock, in seconds."""

    id: int | None = None
    """None before the first submission of an attempt."""
    phase: Phase = Phase.UNASKED
    since: float = 0.0
    """Time at which the job came into its phase."""
    asked: Asked = Asked()
    verdict: Verdict = NOT_READ
    """The last verdict on the job under the id. The id alone does not prove that the job is the
    workload's, because two workloads may have the same id."""
    identity: JobIdentity | None = None
    """Identity of the job, from the first read that showed its key. After this read, the job belongs to
    the workload even if the key is lost."""
    unread: bool = False
    """True if the extender must read the job before the next request about the job."""
    mistrust: Mistrust = Mistrust()

    @property
    def known_id(self) -> int:
        """Returns the id of a job that has been submitted."""
        assert self.id is not None
        return self.id

    @property
    def over(self) -> bool:
        """Returns True if the extender does not have to end the job any more."""
        return self.phase in OVER

    @property
    def is_ours(self) -> bool:
        """Returns True if the job is the workload's: Slurm accepted the submission, or the extender has
        read the job."""
        return self.verdict.is_ours

    @property
    def has_lost_key(self) -> bool:
        """Returns True if the last read showed that the job's AdminComment is not the workload's key."""
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
        """Returns the job with the same id, but without any knowledge of the job under this id."""
        return self._replace(verdict=NOT_READ, identity=None, mistrust=self.mistrust._replace(renamed=0))
