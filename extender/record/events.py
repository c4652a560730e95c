"""Events that the ledger receives, and effects that the ledger returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from extender.explain.cause import Cause
from extender.node_view.node_hardware import NodeHardware
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from slurm_client.job_state import JobState
from slurm_client.model import Job, JobSpec
from slurm_client.rights import UserRights
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey

# Effects. The caller carries out each effect that the ledger returns, exactly once. Then the caller
# passes one Outcome to the ledger. In each effect, `uid` is the ledger's own key of the record.


@dataclass(frozen=True, slots=True)
class Submit:
    """Requests the job from Slurm under this id. If `immediate` is True, Slurm grants nodes at once or
    rejects the job. Otherwise Slurm may queue the job.

    Returns the Grant of an immediate job. Returns None for any other job, or if the grant is not known.
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
    """Writes into the job's comment how long the extender keeps the job for containers that outlive
    their Pod."""

    uid: str
    job_id: int
    comment: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    uid: str
    job_id: int
    name: str | None
    """Name of the job. Slurm does not cancel a job with another name. If None, the job is cancelled
    whatever its name."""
    comment: str
    """New comment of the job."""
    comment_first: bool = False
    """True if the comment must be written before the cancellation, because a later leader reads the
    comment."""


@dataclass(frozen=True, slots=True)
class WriteAllocation:
    """Writes the allocation onto the Pod and removes the extender's scheduling gate. Fails if the Pod's
    version has changed. Returns the new version."""

    uid: str
    pod: Pod
    allocation: Allocation
    nominate: bool
    """True if the extender first writes the Pod's status: the nominated Node and the conditions. The
    conditions need a change if the extender has reported a wait, or if kube-scheduler has found no
    Node."""
    learned_at: float | None = field(default=None, compare=False)
    """Time on the ledger's clock at which the extender learned that the job runs. None if no Event has
    to report the grant. Only a Pod with a report of waiting gets such an Event."""
    attempt: int | None = None
    """Number of the job's attempt, if the Pod has another number. None if the Pod has this number."""


@dataclass(frozen=True, slots=True)
class CheckDepartures:
    """Finds out whether terminating Pods are about to free a Node that kube-scheduler has rejected.
    Returns the seconds until the last such Pod should be gone, or 0.0 if no Pod leaves in time."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """Removes the allocation from the Pod and writes the number of the next attempt. Fails if the Pod's
    version has changed."""

    uid: str
    pod: Pod
    attempt: int
    cause: Cause | None = field(default=None, compare=False)
    """Reason for the Pod's condition: why the last attempt is over."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Reports a cause on the Pod by an Event. If the Pod waits or is to be evicted, also writes a
    condition, and the job's id if known."""

    uid: str
    pod: Pod
    cause: Cause
    job_id: int | None
    event_alone: bool = False


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Deletes the Pod with the grace period `pod.eviction_grace`. An Event and a condition show the
    cause. If the Pod is already being deleted, the grace period does not become longer."""

    uid: str
    pod: Pod
    cause: Cause
    in_any_version: bool = False
    """True if the deletion is valid for any version of the Pod with the same uid."""
    in_this_attempt: bool = False
    """True if the deletion is valid for any version of the Pod in the same attempt."""
    cancelled: int | None = None
    """Id of the job if the job was cancelled in Slurm. The Event then names the user who cancelled the
    job, if Slurm's accounting knows the user."""


@dataclass(frozen=True, slots=True)
class RecordJobId:
    """Writes the running job and its attempt onto a bound Pod. The write is needed if Slurm has lost the
    earlier job, or if another client has overwritten the numbers. Also writes a changed slot
    (`granted`)."""

    uid: str
    pod: Pod
    job_id: int
    attempt: int
    granted: Allocation | None = None
    """None if the slot on the Pod is current."""


@dataclass(frozen=True, slots=True)
class RecordAdoption:
    """Writes the id of the job that runs for an adopted Pod. An adopted Pod is a Pod that another
    scheduler has bound. `job_id` is None if no job runs for the Pod."""

    uid: str
    namespace: str
    name: str
    job_id: int | None


OnPod = WriteAllocation | WriteAttempt | EvictPod | RecordJobId
"""Effects that write to a Pod. For each Pod, the extender carries out only one of these effects at a
time."""

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
    """How the extender reacts to a failure. Each error of Slurm or of kube-apiserver has one remedy."""

    NO_ROOM = auto()  # submit under the next id
    ID_TAKEN = auto()  # read the job under the id
    OTHER_JOB = auto()  # the job under the id has another name: read the job
    CHANGE = auto()  # the user must change the Pod's request
    AGAIN = auto()  # repeat the request; the first request may have been carried out
    UNEXPLAINED = auto()  # the answer has no cause: find out whether the request was carried out
    LATER = auto()  # nothing was done; there is no room now
    OPERATOR = auto()  # an administrator must fix something; nothing was done
    FRESHER = auto()  # the Pod has changed: decide again with its new version
    GONE = auto()  # the Pod does not exist any more


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed effect. `message` and `codes` are for users; `inner` is the full text for the log."""

    remedy: Remedy
    message: str
    system: str = "Slurm"
    inner: str = ""
    codes: str = ""
    """Text with Slurm's error number and the HTTP status. Empty if the numbers do not help users."""
    number: int | None = None
    """Slurm's error number (slurm_errno.h), if known."""
    problem: str | None = None
    """If the whole system has a problem, the name of this problem in the health report. Otherwise
    None."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an effect: either a return value (a Job, a version, None) or a Failure."""

    effect: Effect
    result: Any
    hardware: Mapping[str, NodeHardware] = field(default_factory=dict)
    """Hardware of Slurm's nodes, by partition. Empty if no report needs the hardware."""
    rights: UserRights | None = None
    """Rights of the job's user, if Slurm rejects the account, the QOS or the reservation."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A new leader has read a workload's Pods, and the jobs that Slurm has under the possible job ids of
    the workload."""

    pods: tuple[Pod, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class OrphanFound:
    """A live job with the extender's key does not belong to a Pod any more. Either the extender has
    verified that the Pod is gone, or the Pod has another job now. `job` is the job as just read; None if
    the job was not read."""

    key: PlaceholderKey
    job_id: int
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class PodObserved:
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodVanished:
    """A Pod is gone. Either the deletion was seen, or the Pod is missing from a new list of all Pods."""

    uid: str
    seen: bool = True
    last: Pod | None = None
    """Last version of the Pod, if the deletion was seen."""


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """Reply of a healthy Slurm to a poll of job states. `asked` has the ids of the polled jobs. If a
    polled job has no entry in `states`, Slurm does not know the job. `asked_at` is the time on the
    ledger's clock before the poll."""

    asked: frozenset[int]
    states: Mapping[int, JobState]
    asked_at: float


@dataclass(frozen=True, slots=True)
class JobRead:
    """Another part of the extender has read the job of allocated or bound Pods, without the effect
    `ReadJob`. Such reads are needed because a poll of the state does not show all changes of a job."""

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
