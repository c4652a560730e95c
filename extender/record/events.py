"""What the ledger is told, and what it answers: events in, effects out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from extender.cluster.equipment import Equipment
from extender.cluster.view import ClusterView
from extender.record.condition_reason import ConditionReason
from extender.request.pod import Pod
from slurm_client.model import Job, JobSpec, JobState
from slurm_client.rights import UserRights
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey

# Effects: each is carried out once for each time that it is returned, and answered by one Outcome.
# `uid` is the ledger's own key.


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask Slurm for the job under this id: at once or not at all where `immediate`, else queued.

    Returns the Grant where there is one at once; None where that is not known."""

    uid: str
    job_id: int
    job: JobSpec
    immediate: bool


@dataclass(frozen=True, slots=True)
class ReadJob:
    uid: str
    job_id: int
    for_words: bool = field(default=False, compare=False)
    """Its Pod waits for nothing but to be told why it waits."""


@dataclass(frozen=True, slots=True)
class ExcludeNodes:
    """Tell Slurm anew which nodes a job that waits cannot use."""

    uid: str
    job_id: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Say in the job's comment for how long it is held for containers that outlive their Pod."""

    uid: str
    job_id: int
    comment: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    uid: str
    job_id: int
    name: str | None
    """What the job that is meant is called: one of another name is not cancelled. None: whatever it is
    called."""
    comment: str
    """What the job's comment is to say from then on."""
    says_first: bool = False
    """It is not cancelled before its comment says so: a later leader goes by that."""


@dataclass(frozen=True, slots=True)
class WriteAllocation:
    """Write the allocation to the Pod and lift our gate, if the Pod is still as it was seen. Returns the
    version that this made."""

    uid: str
    pod: Pod
    allocation: Allocation
    nominate: bool
    """Whether the Pod's status is written first: the Node that kube-scheduler is to look at before all
    others, and the conditions of a Pod that was told to wait, or was looked at in vain."""
    heard_at: float | None = field(default=None, compare=False)
    """Where the Pod's author was told that it waits, and is to be told by an Event what it got: when it
    became known that the job runs, on the ledger's clock."""


@dataclass(frozen=True, slots=True)
class CheckDepartures:
    """Find out whether a Node that kube-scheduler refuses is only being vacated. Returns in how many
    seconds the last Pod that is leaving it should be gone, 0.0 where none is leaving in time."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Take the allocation off the Pod and number its next attempt, if it is still as it was seen."""

    uid: str
    pod: Pod
    attempt: int
    cause: ConditionReason | None = field(default=None, compare=False)
    """Why the last one is over: its condition says so from then on."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Tell the Pod's author: by an Event, and, while the Pod waits or is to go, by a condition, with the
    job's id once there is one."""

    uid: str
    pod: Pod
    cause: ConditionReason
    job_id: int | None
    event_alone: bool = False


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Delete the Pod with `pod.eviction_grace`, after an Event and a condition that say why. One that
    is being deleted already has no longer from then on."""

    uid: str
    pod: Pod
    cause: ConditionReason
    in_any_version: bool = False
    """Whether it is deleted though it is not as it was seen any more; it has the same uid still."""
    in_this_attempt: bool = False
    """Whether it is deleted as it is when it is read, if that is still of the attempt that was seen."""
    cancelled: int | None = None
    """The job, where somebody has cancelled it: who, is told with the Event, where Slurm's books say."""


@dataclass(frozen=True, slots=True)
class RecordJobId:
    """Write onto a bound Pod which job of which attempt runs for it: Slurm lost the one that it names,
    and its id, or somebody else wrote the numbers. And what the job has there now, if it is another."""

    uid: str
    pod: Pod
    job_id: int
    attempt: int
    granted: Allocation | None = None
    """None: what stands on the Pod is what the job has."""


@dataclass(frozen=True, slots=True)
class RecordAdoption:
    """Write to a Pod that another scheduler bound which job runs for it; None: none does."""

    uid: str
    namespace: str
    name: str
    job_id: int | None


OnPod = WriteAllocation | WriteAttempt | EvictPod | RecordJobId
"""The effects that write onto a Pod or delete a Pod: one at a time for each Pod."""

Effect = (
    Submit
    | ReadJob
    | ExcludeNodes
    | HoldJob
    | CancelJob
    | WriteAllocation
    | CheckDepartures
    | WriteAttempt
    | ReportWaiting
    | EvictPod
    | RecordJobId
    | RecordAdoption
)

# Events


class Remedy(Enum):
    """What helps after a failure: each error of either system is sorted into one of these."""

    NO_ROOM = auto()  # submit under the next id
    ID_TAKEN = auto()  # read that id
    OTHER_JOB = auto()  # the job under that id has another name: read it
    CHANGE = auto()  # the Pod's author must ask for something else
    AGAIN = auto()  # send the same again: it may have been carried out
    UNEXPLAINED = auto()  # it answers, and says nothing: find out whether it was carried out
    LATER = auto()  # nothing was done; there is no room for it now
    OPERATOR = auto()  # a person must mend something; nothing was done
    FRESHER = auto()  # the Pod has changed: decide again when its new version is seen
    GONE = auto()  # the Pod does not exist any more


@dataclass(frozen=True, slots=True)
class Failure:
    """`message` and `codes` are for a Pod's author; `inner` is all that is known, for the log."""

    remedy: Remedy
    message: str
    system: str = "Slurm"
    inner: str = ""
    codes: str = ""
    """Slurm's error number and the HTTP status, in words, where they tell the author something."""
    number: int | None = None
    """Slurm's error number (slurm_errno.h), where it gave one."""
    trouble: str | None = None
    """The trouble of a whole system that it is part of, whatever was asked: what health calls it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an effect: what it returned (a Job, a version, None) or a Failure."""

    effect: Effect
    result: Any
    equipment: Mapping[str, Equipment] = field(default_factory=dict)
    """What Slurm's nodes have, by partition, where a Pod's author is to be told of it."""
    rights: UserRights | None = None
    """What the job's user may ask for, if Slurm refuses the account, the QOS or the reservation."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A workload's Pods found at the start, with the jobs that Slurm knows under ids that could be its
    own."""

    pods: tuple[Pod, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class OrphanFound:
    """A live job with our key whose Pod is proven gone, or has moved on to another; and the job itself
    where it was read a moment ago."""

    key: PlaceholderKey
    job_id: int
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class PodObserved:
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodVanished:
    """A Pod's deletion was seen, or else it is missing from a new list of all Pods."""

    uid: str
    seen: bool = True
    last: Pod | None = None
    """Its last version, where its deletion was seen."""


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """What a healthy Slurm said of the jobs it was asked about; one that is not in `states` is
    unknown to it. `asked_at` is the ledger's clock before the question."""

    asked: frozenset[int]
    states: Mapping[int, JobState]
    asked_at: float


@dataclass(frozen=True, slots=True)
class GraceStarted:
    """A job was read that Slurm preempts, and that runs on for its GraceTime."""

    uid: str
    job: Job


@dataclass(frozen=True, slots=True)
class ClusterObserved:
    view: ClusterView


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Outcome
    | Recovered
    | OrphanFound
    | PodObserved
    | PodVanished
    | JobsPolled
    | GraceStarted
    | ClusterObserved
    | Tick
)
