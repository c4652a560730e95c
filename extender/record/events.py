"""Events that the ledger receives, and effects that the ledger returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from extender.explain.cause import Cause
from extender.node_view.node_hardware import NodeHardware
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from slurm_client.model import Job, JobSpec, JobState
from slurm_client.rights import UserRights
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey

# Effects: the caller carries out each returned effect once, and answers with one Outcome. `uid` is the
# ledger's own key.


@dataclass(frozen=True, slots=True)
class Submit:
    """Asks Slurm for the job under this id: with `immediate`, at once or not at all, otherwise queued.

    Returns the Grant of an immediate job; None if the grant is not known.
    """

    uid: str
    job_id: int
    job: JobSpec
    immediate: bool


@dataclass(frozen=True, slots=True)
class ReadJob:
    uid: str
    job_id: int
    for_words: bool = field(default=False, compare=False)
    """True if the extender reads the job only to report why the Pod waits."""


@dataclass(frozen=True, slots=True)
class ExcludeNodes:
    """Updates the Slurm nodes that a waiting job cannot use."""

    uid: str
    job_id: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Writes into the job's comment how long the job is held for containers that outlive their Pod."""

    uid: str
    job_id: int
    comment: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    uid: str
    job_id: int
    name: str | None
    """Name of the job: Slurm cancels no job with another name. None: cancel the job under any name."""
    comment: str
    """New comment of the job."""
    says_first: bool = False
    """True if the comment must be written before the cancellation: a later leader reads the comment."""


@dataclass(frozen=True, slots=True)
class WriteAllocation:
    """Writes the allocation to the Pod and lifts the gate, if the Pod's version has not changed. Returns
    the new version."""

    uid: str
    pod: Pod
    allocation: Allocation
    nominate: bool
    """True if the Pod's status is written first: the nominated Node, and the conditions of a Pod with an
    earlier report or a failed look by kube-scheduler."""
    heard_at: float | None = field(default=None, compare=False)
    """Time (the ledger's clock) at which the job was known to run, if an Event is to report the grant to
    a user with an earlier report of waiting."""


@dataclass(frozen=True, slots=True)
class CheckDepartures:
    """Finds out whether a Node rejected by kube-scheduler is only being vacated. Returns the seconds
    until the last terminating Pod should be gone; 0.0 if no Pod leaves in time."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Removes the allocation from the Pod and numbers the Pod's next attempt, if the Pod's version has
    not changed."""

    uid: str
    pod: Pod
    attempt: int
    cause: Cause | None = field(default=None, compare=False)
    """Why the last attempt is over, for the condition."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Reports a cause on the Pod by an Event and, while the Pod waits or is to be evicted, by a
    condition. The job's id is included if known."""

    uid: str
    pod: Pod
    cause: Cause
    job_id: int | None
    event_alone: bool = False


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Deletes the Pod with `pod.eviction_grace`, after an Event and a condition with the cause. A Pod
    with an earlier deletion gets no longer grace period."""

    uid: str
    pod: Pod
    cause: Cause
    in_any_version: bool = False
    """True if any version of the Pod with the same uid is deleted."""
    in_this_attempt: bool = False
    """True if any version of the Pod in the same attempt is deleted."""
    cancelled: int | None = None
    """The job, if cancelled in Slurm: the Event names the user if Slurm's accounting knows the user."""


@dataclass(frozen=True, slots=True)
class RecordJobId:
    """Writes the running job and its attempt onto a bound Pod: Slurm lost the earlier job and its id, or
    another client wrote the numbers. Also writes a changed slot."""

    uid: str
    pod: Pod
    job_id: int
    attempt: int
    granted: Allocation | None = None
    """None if the slot on the Pod is current."""


@dataclass(frozen=True, slots=True)
class RecordAdoption:
    """Writes the job that runs for a Pod bound by another scheduler; None if no job runs for the Pod."""

    uid: str
    namespace: str
    name: str
    job_id: int | None


OnPod = WriteAllocation | WriteAttempt | EvictPod | RecordJobId
"""Effects on a Pod: the extender carries out one at a time for each Pod."""

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
    """Remedy for a failure: each error of either system maps to one of these."""

    NO_ROOM = auto()  # submit under the next id
    ID_TAKEN = auto()  # read the job under the id
    OTHER_JOB = auto()  # the job under the id has another name: read the job
    CHANGE = auto()  # the user must change the Pod's request
    AGAIN = auto()  # repeat the request: the first may have been carried out
    UNEXPLAINED = auto()  # the answer has no cause: find out whether the request was carried out
    LATER = auto()  # nothing was done; there is no room now
    OPERATOR = auto()  # an administrator must fix something; nothing was done
    FRESHER = auto()  # the Pod has changed: decide again with its new version
    GONE = auto()  # the Pod does not exist any more


@dataclass(frozen=True, slots=True)
class Failure:
    """`message` and `codes` are for users; `inner` is the full text for the log."""

    remedy: Remedy
    message: str
    system: str = "Slurm"
    inner: str = ""
    codes: str = ""
    """Slurm's error number and the HTTP status as a text, if helpful to users."""
    number: int | None = None
    """Slurm's error number (slurm_errno.h), if known."""
    trouble: str | None = None
    """Problem of the whole system behind the failure, by its name in the health report."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an effect: a return value (a Job, a version, None) or a Failure."""

    effect: Effect
    result: Any
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)
    """Hardware of Slurm's nodes by partition, if a report needs the hardware."""
    rights: UserRights | None = None
    """Rights of the job's user, if Slurm rejects the account, the QOS or the reservation."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A workload's Pods at the start, and the jobs that Slurm has under the workload's possible ids."""

    pods: tuple[Pod, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class OrphanFound:
    """A live job with the extender's key whose Pod is proven gone, or has moved on to another job. `job`
    is the job itself if read a moment ago."""

    key: PlaceholderKey
    job_id: int
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class PodObserved:
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodVanished:
    """A Pod's deletion was seen, or a new list of all Pods lacks the Pod."""

    uid: str
    seen: bool = True
    last: Pod | None = None
    """Last version of the Pod, if the deletion was seen."""


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """Answer of a healthy Slurm about some jobs. A job without an entry in `states` is unknown to Slurm.
    `asked_at` is the ledger's clock before the question."""

    asked: frozenset[int]
    states: Mapping[int, JobState]
    asked_at: float


@dataclass(frozen=True, slots=True)
class JobRead:
    """The job of bound Pods was read, without a `ReadJob`: a state does not show all changes of a
    job."""

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
    | JobRead
    | ClusterObserved
    | Tick
)
