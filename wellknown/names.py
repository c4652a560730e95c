"""All names of annotations, labels, taints, conditions and gates that the programs write and read."""

from enum import StrEnum

DEFAULT_PREFIX = "sunk.coreweave.com/"
"""Prefix of the annotations with a Pod author's requests to Slurm."""
DOMAIN = "slurm-extender.io/"
"""Prefix of all names that only the extender writes. Admission guards each annotation by name."""
GRES = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
"""Default mapping of extended resources in Kubernetes to GRES in Slurm."""
GATE = DOMAIN + "placeholder"
RELEASE_NAMESPACE = DOMAIN + "release-namespace"
"""Label of the chart's admission policies, with the namespace of the release."""
LEASE = "slurm-extender"
"""Lease of the extender's replicas, in the extender's own namespace."""
ATTEMPT = DOMAIN + "attempt"
JOB_ID = DOMAIN + "job-id"
"""Annotation and label with the id of a Pod's job. Decisions read the annotation. The label is for
people, also on adopted Pods: `kubectl get pods -l slurm-extender.io/job-id=4711`."""
NODE = DOMAIN + "node"
GRANTED = DOMAIN + "granted"
"""Cores, memory and devices of the job on the Pod's Node, as JSON (`Allocation`)."""
RANK = DOMAIN + "rank"
"""Annotation with the rank of a Pod in its gang, from 0, for the downward API. No decision reads the
annotation."""
ADOPTED = DOMAIN + "adopted-as"
"""Annotation with the id of the job that the extender runs for an adopted Pod, which another scheduler
placed. With the id, the resources of the Pod and of the job do not count twice."""
FEASIBLE_NODES = DOMAIN + "feasible-nodes"
"""Annotation from /filter for the case that kube-scheduler rejects the allocated Node. The annotation
has the job, and as many as possible of the Nodes that kube-scheduler offered instead. The job 0 means
that the Pod has no allocation."""
CAPACITY_FREED = DOMAIN + "capacity-freed"
"""Annotation with the time at which a Node got room for an unmanaged Pod. The extender writes the
annotation, because kube-scheduler tries a Pod again after a change of the Pod."""
NODE_NAME_LABEL = "slurm-extender.io.node-restriction.kubernetes.io/node"
"""Label with the name of a Node's Slurm node. No kubelet may set the label."""
WAITING = "Slurm has not allocated a Node to this Pod yet"
"""/filter's message about every Node while the Pod has no allocation; kube-scheduler repeats the message
in the Pod's condition."""
ELSEWHERE = "Slurm allocated another Node to this Pod"
"""/filter's message about every other Node after the Pod has an allocation."""
CONDITION = DOMAIN + "Placeholder"
"""Pod condition with the state of the Pod's placeholder."""
SLURM_OUT_OF_SERVICE = DOMAIN + "SlurmOutOfService"
"""Node condition: True while Slurm starts no jobs on the Node."""
DEVICE_PROBLEM = DOMAIN + "DeviceProblem"
"""Node condition of the node agent: True while a device of Slurm cannot be used, or while Slurm, the
kubelet and the machine count differently."""
PODS_REJECTED = DOMAIN + "PodsRejected"
"""Node condition of the extender: True while the Node is closed to new placeholders, because the kubelet
rejects Pods."""
SLURMD = DOMAIN + "slurmd"
"""Node annotation: the Node's pool, and the revision of the slurmd Pod (`slurmd_pod.Assignment`)."""
SLURMD_LABEL = DOMAIN + "slurmd"
"""Node label with the same name. By this label, a person states where slurmd runs."""
ON_HOST = "host"
"""Only value of the label SLURMD_LABEL. With this value, slurmd runs on the host, and the Node is in no
pool."""
SLURMD_PROBLEM = DOMAIN + "SlurmdProblem"
"""Node condition of the node agent: True while the agent cannot create the slurmd Pod, or may not end
the slurmd Pod."""
POOL = DOMAIN + "pool"
REVISION = DOMAIN + "revision"
"""Labels of slurmd Pods."""
DEVICES = DOMAIN + "devices"
"""Node annotation of the node agent, for people: the devices by Slurm's numbers, as JSON. No decision
reads the annotation."""
LINGERING = DOMAIN + "lingering-containers"
"""Node annotation of the extender: containers of Pods that were deleted by force (`lingering`)."""
OUT_OF_SERVICE = DOMAIN + "out-of-service"
"""Key of the taint that keeps Pods from a Node while Slurm starts no jobs on the Node."""


class Reason(StrEnum):
    """Reasons of a Pod's condition (CONDITION) and of Events about a Pod; docs/reference/reasons.md and
    docs/concepts/endings.md explain each. While the job waits in Slurm, a Pod has Slurm's own reason
    instead."""

    WAITING_FOR_SUBMIT_SLOT = "WaitingForSubmitSlot"
    SCHEDULING_GATED = "SchedulingGated"
    PODS_MISSING = "PodsMissing"
    POD_OF_GANG_GONE = "PodOfGangGone"
    NOT_IN_GANG = "NotInGang"
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
    TOO_LARGE = "TooLarge"
    CORES_IN_USE = "CoresInUse"
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
    SLURM_JOB_NOT_STARTED = "SlurmJobNotStarted"
    SLURM_JOB_UNSIGNED = "SlurmJobUnsigned"
    WRONG_OWNER = "WrongOwner"
    SLURM_NODE_FAILED = "SlurmNodeFailed"
    SLURM_NODE_UNNAMED = "SlurmNodeUnnamed"
    SLURM_NODE_CHANGED = "SlurmNodeChanged"
    SLURM_DEVICES_CHANGED = "SlurmDevicesChanged"


class NodeReason(StrEnum):
    """Reasons of a Node's condition SLURM_OUT_OF_SERVICE; docs/concepts/nodes.md explains each."""

    IN_SERVICE = "InService"
    RESUMING = "Resuming"
    RESUMED_BY_HAND = "ResumedByHand"
    DRAINED_FOR_KUBERNETES = "DrainedForKubernetes"
    DRAINED_IN_SLURM = "DrainedInSlurm"
    DOWN_IN_SLURM = "DownInSlurm"


class RejectionReason(StrEnum):
    """Reasons of a Node's condition PODS_REJECTED and of Events about a Node."""

    KUBELET_REJECTS_PODS = "KubeletRejectsPods"
    PODS_ADMITTED = "PodsAdmitted"
