"""What is known of the one job that stands for a workload's current try."""

from enum import Enum, auto
from typing import NamedTuple, Self

from extender.jobs.claim import JobIdentity
from extender.record.events import Failure

Owner = tuple[int | None, int | None]
"""A user and a group; None where nobody was named."""


class NodeCheck(Enum):
    """Whether it is certain that the job of an allocation runs where it was granted."""

    VERIFIED = auto()
    ROUTINE = auto()
    """Nothing says otherwise, and the job is to be read all the same."""
    SUSPECT = auto()
    """The job is said to wait, or to have failed, or may have been started anew: it is read."""


class JobTracking(NamedTuple):
    """The job of one try, as far as Slurm has told of it."""

    id: int | None = None
    """None before there was one."""
    attempt_try: int = 0
    excluded: tuple[str, ...] = ()
    """The nodes that the job was told not to use, or would have been (`cluster.Exclusion.nodes`)."""
    immediate: bool = False
    """This try goes by job/allocate. Where that granted it, it runs where it was granted or not at all:
    a slurmctld that is killed forgets the whole of it, and does not start it elsewhere."""
    must_read: bool = False
    """Slurm has a job under the id: it must be read before anything is sent again."""
    owned: bool = False
    """The job under the id is this workload's: Slurm took it from us, or it was read. The id alone
    proves nothing: it is computed, and may be another's."""
    identity: JobIdentity | None = None
    """The job under the id, as it was when it was read with its key: it is the workload's from then on,
    whatever becomes of the key."""
    unsigned: bool = False
    """The job was read, and its AdminComment is not what it was asked to be."""
    made_otherwise: int = 0
    """How many jobs in a row were not what Slurm was asked for, when they were first read."""
    not_started: int = 0
    """How many got nodes and were cancelled there at once. Until the Pod asks for something else."""
    name: str | None = None
    """What the job is called, if it was read; its owner may rename it."""
    misnamed: int = 0
    """How many times Slurm has not cancelled the job, since it is called something else."""
    owner: Owner = (None, None)
    """Whom Slurm was asked to give the queued job to."""
    denials: tuple[Failure, ...] = ()
    """What Slurm answered, the last few times, where it had no job afterwards and did not say why: at
    some point it means what it says. Until the Pod asks for something else."""
    node_check: NodeCheck = NodeCheck.VERIFIED
    suspect_since: float = 0.0
    """Since when it is not certain that the job of an allocation runs there, where it is SUSPECT."""
    lost: bool = False
    """A healthy Slurm does not know the job of a Pod that is bound, or may yet turn out to be: then it
    is asked for again, and the Pod runs on."""
    misses: int = 0
    """How many times in a row a healthy Slurm did not know the job."""
    over: bool = False
    """Slurm says that the job has ended."""
    over_since: float = 0.0
    """When that was learned, if not when the placeholder came into its state."""
    asked_why: float | None = None
    """Since when the job is being read only to tell why it waits: nothing else waits for that."""

    @property
    def known_id(self) -> int:
        """Returns the id of a job that there is, since the placeholder's state says so."""
        assert self.id is not None
        return self.id

    @property
    def unverified(self) -> bool:
        """Tells whether the job must be read before it is known to run where it was granted."""
        return self.node_check is not NodeCheck.VERIFIED

    def suspect(self, now: float) -> Self:
        """Returns it with its place in doubt from now on."""
        return self._replace(node_check=NodeCheck.SUSPECT, suspect_since=now)
