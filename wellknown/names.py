"""Every name that stands in objects of Kubernetes and is read again: annotations, conditions, gates."""

from __future__ import annotations

from enum import StrEnum

DOMAIN = "slurm-extender.io/"
GATE = DOMAIN + "placeholder"
ATTEMPT = DOMAIN + "attempt"
JOB_ID = DOMAIN + "job-id"
NODE = DOMAIN + "node"
GRES = DOMAIN + "gres"
ADOPTED = DOMAIN + "adopted-as"
"""On a Pod that another scheduler bound: the job that runs for it, so that nobody counts it twice."""
FEASIBLE_NODES = DOMAIN + "feasible-nodes"
"""Written by /filter where kube-scheduler rejects the allocated Node: the job, and the Nodes that it
offered instead, as many as go into an annotation. The job is 0 where the Pod has no allocation."""
CAPACITY_FREED = DOMAIN + "capacity-freed"
"""On an unmanaged Pod: when a Node got room. A change of it wakes the Pod in kube-scheduler's queue."""
WAITING = "Slurm has not allocated a Node to this Pod yet"
"""What /filter says about every Node while the Pod has no allocation; kube-scheduler repeats it in the
Pod's condition."""
ELSEWHERE = "Slurm allocated another Node to this Pod"
"""What /filter says about every other Node once the Pod has an allocation."""
CONDITION = DOMAIN + "Placeholder"
"""The Pod condition that tells the state of the Pod's placeholder."""
SLURM_OUT_OF_SERVICE = DOMAIN + "SlurmOutOfService"
"""The Node condition that says whether Slurm starts jobs there."""
OUT_OF_SERVICE = DOMAIN + "out-of-service"
"""The key of the taint that keeps Pods from a Node while Slurm starts no jobs there."""


class Reason(StrEnum):
    """The reasons of a Pod's condition (CONDITION) and of Events about a Pod: docs/waiting.md and
    docs/endings.md explain each. While its job waits in Slurm a Pod has Slurm's own reason instead."""

    WAITING_FOR_SUBMIT_SLOT = "WaitingForSubmitSlot"
    SCHEDULING_GATED = "SchedulingGated"
    CLAIM_NOT_READY = "ClaimNotReady"
    NOT_BINDABLE = "NotBindable"
    NO_ELIGIBLE_NODE = "NoEligibleNode"
    NODE_REJECTED = "NodeRejected"
    NODE_UNKNOWN = "NodeUnknown"
    NOT_BOUND = "NotBound"
    CHANGED = "Changed"
    PARTITION_CLOSED = "PartitionClosed"
    SLURM_BUSY = "SlurmBusy"
    SLURM_UNAVAILABLE = "SlurmUnavailable"
    SLURM_NEEDS_OPERATOR = "SlurmNeedsOperator"
    REJECTED_BY_SLURM = "RejectedBySlurm"
    KUBERNETES_UNAVAILABLE = "KubernetesUnavailable"
    KUBERNETES_NEEDS_OPERATOR = "KubernetesNeedsOperator"
    EXTENDER_UNAVAILABLE = "ExtenderUnavailable"
    INVALID = "Invalid"
    ALLOCATED = "Allocated"
    GRANTED = "Granted"
    POD_ENDED = "PodEnded"
    EVICTION_THROTTLED = "EvictionThrottled"
    SLURM_JOB_CANCELLED = "SlurmJobCancelled"
    SLURM_JOB_PREEMPTED = "SlurmJobPreempted"
    SLURM_JOB_TIMEOUT = "SlurmJobTimeout"
    SLURM_JOB_DEADLINE = "SlurmJobDeadline"
    SLURM_JOB_COMPLETED = "SlurmJobCompleted"
    SLURM_JOB_SUSPENDED = "SlurmJobSuspended"
    SLURM_JOB_REQUEUED = "SlurmJobRequeued"
    SLURM_JOB_ENDED = "SlurmJobEnded"
    SLURM_JOB_LOST = "SlurmJobLost"
    SLURM_JOB_CHANGED = "SlurmJobChanged"
    SLURM_JOB_UNSIGNED = "SlurmJobUnsigned"
    WRONG_OWNER = "WrongOwner"
    SLURM_NODE_FAILED = "SlurmNodeFailed"
    SLURM_NODE_UNNAMED = "SlurmNodeUnnamed"
    SLURM_NODE_CHANGED = "SlurmNodeChanged"


class NodeReason(StrEnum):
    """The reasons of a Node's condition SLURM_OUT_OF_SERVICE; README.md explains them."""

    IN_SERVICE = "InService"
    RESUMING = "Resuming"
    RESUMED_BY_HAND = "ResumedByHand"
    DRAINED_FOR_KUBERNETES = "DrainedForKubernetes"
    DRAINED_IN_SLURM = "DrainedInSlurm"
    DOWN_IN_SLURM = "DownInSlurm"
