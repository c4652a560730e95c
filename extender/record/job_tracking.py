"""What is known of the one job that stands for a workload's current try."""

from enum import Enum, auto
from typing import NamedTuple, Self

from extender.jobs.claim import JobIdentity
from extender.jobs.verdict import NOT_READ, Part, Verdict
from extender.record.events import Failure

Owner = tuple[int | None, int | None]
"""A user and a group; None where nobody was named."""


class Doubt(Enum):
    """Why the job must be read."""

    NONE = auto()
    """The job need not be read."""
    ROUTINE = auto()
    """The job is read as a matter of routine."""
    SUSPECT = auto()
    """Slurm reported that the job waits or has failed, or may have started the job anew: the job may not
    run where it was granted."""
    UNREAD = auto()
    """Nothing else may be sent before the job is read."""


class Mistrust(NamedTuple):
    """How often Slurm, or a person, has done something else than was asked."""

    denials: tuple[Failure, ...] = ()
    """Slurm's last answers after which Slurm had no job and gave no cause: after several, the answer is
    believed. Until the Pod asks for something else."""
    altered: int = 0
    """Number of jobs in a row that were altered when they were first read."""
    not_started: int = 0
    """Number of jobs that got nodes and were cancelled there at once. Until the Pod asks for something
    else."""
    renamed: int = 0
    """Number of cancellations that Slurm has rejected because the job has another name."""
    misses: int = 0
    """Number of polls in a row in which a healthy Slurm did not know the job."""


class Asked(NamedTuple):
    """What Slurm was asked for, beside the request of the workload."""

    owner: Owner = (None, None)
    """Owner of the queued job."""
    excluded: tuple[str, ...] = ()
    """The nodes that the job was told not to use, or would have been (`cluster.Exclusion.nodes`)."""
    immediate: bool = False
    """True for job/allocate. A granted job runs where it was granted or not at all: a slurmctld that is
    killed forgets the whole job, and does not start the job elsewhere."""


class JobTracking(NamedTuple):
    """The job of one try, as far as Slurm has told of it."""

    id: int | None = None
    """None before there was one."""
    attempt_try: int = 0
    asked: Asked = Asked()
    verdict: Verdict = NOT_READ
    """The last verdict on the job under the id. The id alone proves nothing: two workloads may have the
    same id."""
    identity: JobIdentity | None = None
    """The job when it was read with its key: the job is the workload's from then on, whatever becomes of
    the key."""
    doubt: Doubt = Doubt.NONE
    suspect_since: float = 0.0
    """Time since which the job is SUSPECT."""
    lost: bool = False
    """A healthy Slurm does not know the job of a Pod that is bound, or may yet turn out to be: then it
    is asked for again, and the Pod runs on."""
    mistrust: Mistrust = Mistrust()
    over_since: float | None = None
    """Time at which the end of the job became known; 0 if the placeholder came into its state then. None
    while the job has not ended."""
    asked_why: float | None = None
    """Since when the job is being read only to tell why it waits: nothing else waits for that."""

    @property
    def known_id(self) -> int:
        """Returns the id of a job that there is, since the placeholder's state says so."""
        assert self.id is not None
        return self.id

    @property
    def over(self) -> bool:
        """Returns True if Slurm says that the job has ended."""
        return self.over_since is not None

    @property
    def is_ours(self) -> bool:
        """Returns True if the job is the workload's: Slurm took it from the extender, or it was read."""
        return self.verdict.is_ours

    @property
    def has_lost_key(self) -> bool:
        """Returns True if the job was read, and its AdminComment is not the workload's key."""
        return self.verdict.has_altered(Part.ADMIN_COMMENT)

    @property
    def is_missing(self) -> bool:
        """Returns True if a healthy Slurm did not know the job in the last poll."""
        return self.lost or self.mistrust.misses > 0

    @property
    def unverified(self) -> bool:
        """Returns True if the job must be read before it is known to run where it was granted."""
        return self.doubt in (Doubt.ROUTINE, Doubt.SUSPECT)

    @property
    def must_read(self) -> bool:
        """Returns True if nothing else may be sent before the job is read."""
        return self.doubt is Doubt.UNREAD

    def suspect(self, now: float) -> Self:
        """Returns it with its place in doubt from now on."""
        return self._replace(doubt=Doubt.SUSPECT, suspect_since=now)
