"""Causes as data: why a Pod waits, is rejected, replaced or evicted. `sentences` makes the text of a
cause."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self, TypeAlias

from wellknown.names import Reason, RejectionReason


class Kind(StrEnum):
    """Kind of a cause, or of a part of a cause. Each kind has one sentence."""

    reason: str
    """Reason in the Pod's condition, unless the code that makes the cause gives another reason. Empty if
    the kind is only a part of another cause."""
    normal: bool
    """True if nothing is wrong, so that the Event is no warning."""

    def __new__(cls, value: str, reason: str = "", normal: bool = False) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.reason, member.normal = value, reason, normal
        return member

    # The Pod waits for its turn
    IN_LINE = "InLine", Reason.WAITING_FOR_SUBMIT_SLOT, True
    NO_PLACE = "NoPlace", Reason.WAITING_FOR_SUBMIT_SLOT, True
    ONE_AT_A_TIME = "OneAtATime", Reason.WAITING_FOR_SUBMIT_SLOT, True
    PODS_MISSING = "PodsMissing", Reason.PODS_MISSING, True
    GANG_FULL = "GangFull", Reason.NOT_IN_GANG
    GANG_BEGUN = "GangBegun", Reason.NOT_IN_GANG
    GATED = "Gated", Reason.SCHEDULING_GATED
    CLAIM_MISSING = "ClaimMissing", Reason.CLAIM_NOT_READY
    CLAIM_NOT_CREATED = "ClaimNotCreated", Reason.CLAIM_NOT_READY
    CLAIM_DELETED = "ClaimDeleted", Reason.CLAIM_NOT_READY
    CLAIM_OF_OTHER_POD = "ClaimOfOtherPod", Reason.CLAIM_NOT_READY
    CLAIM_LOST = "ClaimLost", Reason.CLAIM_NOT_READY
    CLAIM_UNBOUND = "ClaimUnbound", Reason.CLAIM_NOT_READY
    VOLUME_MISSING = "VolumeMissing", Reason.CLAIM_NOT_READY
    CLAIM = "Claim"
    VOLUME_NOT_BOUND = "VolumeNotBound"
    NO_CLASS = "NoClass"
    CLASS_MISSING = "ClassMissing"
    CLASS_WITHOUT_WAIT = "ClassWithoutWait"
    NOT_BINDABLE = "NotBindable", Reason.NOT_BINDABLE
    NOT_WRITABLE = "NotWritable", Reason.NOT_BINDABLE
    NO_OPEN_NODE = "NoOpenNode", Reason.NO_ELIGIBLE_NODE
    REQUEST_REPEATED = "RequestRepeated"

    # Why Nodes are closed to the Pod: the Pod cannot use these Nodes
    CLOSED_NODES = "ClosedNodes"
    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    OTHER_LABEL = "OtherLabel"
    OTHER_AFFINITY = "OtherAffinity"
    APART_FROM_VOLUMES = "ApartFromVolumes"
    WITHOUT_AGENT = "WithoutAgent"
    NOT_SERVED = "NotServed"
    NOT_REQUIRED = "NotRequired"
    EXCLUDED_BY_POD = "ExcludedByPod"
    BESIDE_PODS = "BesidePods"
    EXCLUDED = "Excluded"
    REJECTING = "Rejecting"
    NOT_FOUND = "NotFound"

    # The job waits in Slurm
    WAITS = "Waits", "", True
    WAITS_TOO_LARGE = "WaitsTooLarge", Reason.TOO_LARGE
    WAITING_JOB = "WaitingJob"
    PENDING_REASON = "PendingReason"
    HELD_BY_AUTHOR = "HeldByAuthor"
    TIME_LIMIT_TOO_LONG = "TimeLimitTooLong"
    REQUESTED_AMOUNTS = "RequestedAmounts"
    PLAN = "Plan"

    # The Pod is rejected
    INVALID_REQUEST = "InvalidRequest", Reason.INVALID
    REFUSED_BY_SLURM = "RefusedBySlurm", Reason.INVALID
    SLURM_REFUSES = "SlurmRefuses"
    REFUSED_VALUE = "RefusedValue"
    REFUSED_MINUTES = "RefusedMinutes"
    REFUSED_DEFAULT = "RefusedDefault"
    BY_PRIORITY_CLASS = "ByPriorityClass"
    BY_POLICY = "ByPolicy"
    BY_ANNOTATION = "ByAnnotation"
    KNOWN_PARTITIONS = "KnownPartitions"
    ALLOWED_MINUTES = "AllowedMinutes"
    KNOWN_FEATURES = "KnownFeatures"
    WITHOUT_ACCOUNT = "WithoutAccount"
    OTHER_ACCOUNTS = "OtherAccounts"
    ACCOUNT_REFUSED = "AccountRefused"
    OTHER_QOS = "OtherQos"
    QOS_REFUSED = "QosRefused"
    RESERVATION_UNKNOWN = "ReservationUnknown"
    RESERVATION_REFUSED = "ReservationRefused"
    OWN_ACCOUNTS = "OwnAccounts"
    OWN_QOS = "OwnQos"
    OWN_RESERVATIONS = "OwnReservations"
    TOO_LARGE = "TooLarge", Reason.TOO_LARGE
    TOO_FEW_NODES = "TooFewNodes", Reason.TOO_LARGE
    OVER_LIMIT = "OverLimit", Reason.TOO_LARGE
    TOO_SMALL = "TooSmall", Reason.INVALID
    HELD = "Held", Reason.INVALID
    HELD_TOO_LARGE = "HeldTooLarge", Reason.TOO_LARGE
    UNKNOWN_USER = "UnknownUser", Reason.INVALID
    OTHER_OWNER = "OtherOwner", Reason.INVALID
    ALTERED_AT_ONCE = "AlteredAtOnce", Reason.INVALID
    WITHOUT_KEY = "WithoutKey", Reason.INVALID
    NOT_STARTED = "NotStarted", Reason.INVALID
    ERROR_CODES = "ErrorCodes"

    # The Pod got nodes
    ALLOCATED = "Allocated", Reason.ALLOCATED
    GRANTED = "Granted", Reason.GRANTED, True
    CORES_IN_USE = "CoresInUse", Reason.CORES_IN_USE

    # The allocation is given back, or the job is replaced
    CLOSED_BY_PODS = "ClosedByPods", Reason.NODE_REJECTED
    NODES_REJECTED = "NodesRejected", Reason.NODE_REJECTED
    NODE_REFUSED = "NodeRefused", Reason.NODE_REJECTED
    NODES_REFUSED = "NodesRefused"
    NOT_BOUND = "NotBound", Reason.NOT_BOUND
    NODES_UNKNOWN = "NodesUnknown", Reason.NODE_UNKNOWN
    NODES_SHARED = "NodesShared", Reason.NODE_UNKNOWN
    GRANT_INDIVISIBLE = "GrantIndivisible", Reason.NODE_UNKNOWN
    GRANT_WITHOUT_GRES = "GrantWithoutGres", Reason.NODE_UNKNOWN
    REQUEST_CHANGED = "RequestChanged", Reason.CHANGED
    JOB_REPLACED = "JobReplaced", Reason.CHANGED
    JOB_ALTERED = "JobAltered", Reason.SLURM_JOB_CHANGED
    GANG_LACKS_POD = "GangLacksPod", Reason.POD_OF_GANG_GONE

    # The Pod continues to run, and its job needs attention
    JOB_LOST_AND_REPEATED = "JobLostAndRepeated", Reason.SLURM_JOB_LOST
    NODE_FAILED_AND_REPEATED = "NodeFailedAndRepeated", Reason.SLURM_JOB_LOST
    JOB_WAITS_FOR_POD = "JobWaitsForPod", Reason.SLURM_JOB_LOST
    NODE_UNNAMED = "NodeUnnamed", Reason.SLURM_NODE_UNNAMED
    UPDATE_REFUSED = "UpdateRefused", Reason.REJECTED_BY_SLURM

    # A part of a job is not as requested
    KEY_OVERWRITTEN = "KeyOverwritten"
    OTHER_NAME = "OtherName"
    OTHER_NODE_COUNT = "OtherNodeCount"
    OTHER_PARTITION = "OtherPartition"
    OTHER_USER = "OtherUser"
    FEWER_TASKS = "FewerTasks"
    FEWER_CPUS = "FewerCpus"
    LESS_MEMORY = "LessMemory"
    LESS_GRES = "LessGres"
    SHORTER_TIME_LIMIT = "ShorterTimeLimit"
    STARTED_AGAIN = "StartedAgain"
    SUSPENDED = "Suspended"
    OTHER_DEVICES = "OtherDevices"

    # The job has ended, or the Pod is evicted
    JOB_CANCELLED = "JobCancelled", Reason.SLURM_JOB_CANCELLED
    JOB_PREEMPTED = "JobPreempted", Reason.SLURM_JOB_PREEMPTED
    JOB_IN_GRACE_TIME = "JobInGraceTime", Reason.SLURM_JOB_PREEMPTED
    JOB_TIMEOUT = "JobTimeout", Reason.SLURM_JOB_TIMEOUT
    JOB_DEADLINE = "JobDeadline", Reason.SLURM_JOB_DEADLINE
    NODE_FAILED = "NodeFailed", Reason.SLURM_NODE_FAILED
    NODE_FAILED_AT_BOOT = "NodeFailedAtBoot", Reason.SLURM_NODE_FAILED
    JOB_COMPLETED = "JobCompleted", Reason.SLURM_JOB_COMPLETED
    JOB_SUSPENDED = "JobSuspended", Reason.SLURM_JOB_SUSPENDED
    JOB_RESUMED = "JobResumed", Reason.SLURM_JOB_SUSPENDED
    JOB_REQUEUED = "JobRequeued", Reason.SLURM_JOB_REQUEUED
    JOB_ENDED = "JobEnded", Reason.SLURM_JOB_ENDED
    JOB_FORGOTTEN = "JobForgotten", Reason.SLURM_JOB_ENDED
    JOB_LOST = "JobLost", Reason.SLURM_JOB_LOST
    JOB_STARTED_ELSEWHERE = "JobStartedElsewhere", Reason.SLURM_NODE_CHANGED
    DEVICES_TAKEN = "DevicesTaken", Reason.SLURM_DEVICES_CHANGED
    GANG_BROKEN = "GangBroken", Reason.POD_OF_GANG_GONE
    MANY_EVICTIONS = "ManyEvictions", Reason.EVICTION_THROTTLED

    # The Pod has ended
    POD_ENDED = "PodEnded", Reason.POD_ENDED
    POD_DELETED = "PodDeleted", Reason.POD_ENDED
    POD_BOUND_ELSEWHERE = "PodBoundElsewhere", Reason.POD_ENDED
    POD_MISSED = "PodMissed", Reason.POD_ENDED
    JOB_NOT_NEEDED = "JobNotNeeded"

    # A Node is closed
    KUBELET_REJECTS_PODS = "KubeletRejectsPods", RejectionReason.KUBELET_REJECTS_PODS
    PODS_LIKE = "PodsLike"
    PODS_OF_OWNER = "PodsOfOwner"
    ALL_PODS = "AllPods"

    # Slurm and Kubernetes disagree (`audit`)
    JOB_WITHOUT_OUR_KEY = "JobWithoutOurKey"
    JOB_OF_OTHER_CLUSTER = "JobOfOtherCluster"
    JOB_WITH_OTHER_COMMENT = "JobWithOtherComment"
    ORPHAN_JOB = "OrphanJob"
    ATTEMPT_OVER = "AttemptOver"
    POD_INVALID = "PodInvalid"
    OTHER_JOB_NAMED = "OtherJobNamed"
    SECOND_JOB = "SecondJob"
    BOUND_BY_OTHERS = "BoundByOthers"
    BOUND_AND_JOB_UNKNOWN = "BoundAndJobUnknown"
    BOUND_AND_JOB_WAITS = "BoundAndJobWaits"
    BOUND_AND_JOB_OVER = "BoundAndJobOver"
    BOUND_BESIDE_JOB = "BoundBesideJob"
    WAITS_WITHOUT_JOB = "WaitsWithoutJob"
    GATED_AND_JOB_RUNS = "GatedAndJobRuns"
    GATED_WITHOUT_CAUSE = "GatedWithoutCause"
    CONTESTED_NODE = "ContestedNode"
    DRAIN_OUTDATED = "DrainOutdated"


class Step(StrEnum):
    """Next step of the extender."""

    NOT_BEFORE = "NotBefore"
    NODE_ALLOWED = "NodeAllowed"
    ANOTHER_JOB = "AnotherJob"
    SLURM_ASKED_AGAIN = "SlurmAskedAgain"


@dataclass(frozen=True, slots=True)
class Due:
    """A next step of the extender, and the time of the step by the ledger's clock."""

    step: Step
    at: float
    node: str = ""
    """Name of the step's Node, if the step concerns a Node."""


Fact: TypeAlias = "str | int | float | tuple[Fact, ...] | Cause | None"
"""A value of a cause: a number, a name, a text of another system, a tuple of values, or another cause as
a part."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of an end or of an obstacle, or a part of a cause."""

    kind: Kind
    reason: str
    """Reason for the condition, in CamelCase: the kind's reason, or Slurm's own reason for a waiting
    job."""
    facts: tuple[tuple[str, Fact], ...] = ()
    """Names and values of the quantities that the sentence needs."""
    dues: tuple[Due, ...] = ()
    """Next steps, as far as known."""
    aside: "Cause | None" = None
    """Additional fact, as text after the sentence."""
    outlook: "Cause | None" = field(default=None, compare=False)
    """Last part of the text, for example a time. If only the outlook changes, the change is not
    reported."""

    @classmethod
    def of(cls, kind: Kind, /, **facts: Fact) -> Self:
        """Returns the cause of a kind with these facts and the kind's reason."""
        return cls(kind, kind.reason, tuple(facts.items()))


Causes: TypeAlias = tuple[Cause, ...]


def codes(of: str) -> Cause | None:
    """Returns the numbers of an error as the outlook of a cause; None if there are no numbers."""
    return Cause.of(Kind.ERROR_CODES, codes=of) if of else None
