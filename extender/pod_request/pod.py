"""A Pod for placement: a small snapshot of one version of the object, without the manifest."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from extender.explain.cause import Cause
from extender.pod_request.constraints.pod_constraints import (
    NO_CONSTRAINTS,
    PodConstraints,
    names_other_pods,
    parse_pod_constraints,
)
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.pod_request.gang import Gang
from extender.pod_request.grace_period import KUBELET_S, KUBERNETES_DEFAULT_S, own_grace
from extender.pod_request.job_request import MANDATORY, Request, read_request
from extender.pod_request.pod_end import end_in_words, is_ended_by_pod_gc, kubelet_rejection
from extender.pod_request.translation import TranslationConfig
from extender.pod_request.workload import Workload
from kubernetes_client.protocol import Manifest
from wellknown.allocation import Allocation
from wellknown.job_key import whole_number
from wellknown.names import ATTEMPT, CONDITION, DOMAIN, GATE, JOB_ID, WAITING, Reason
from wellknown.natural_order import natural_key

_MOST_GATES = 4  # gates of other controllers, kept only for messages
_MOST_ATTEMPTS = 1_000_000
_LONGEST_REJECTION = 400
_LONGEST_REASON = 63
_LONGEST_NAME = 253  # Kubernetes' own limit for most names
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_TOO_MANY_PODS = "Too many pods"


class Owner(NamedTuple):
    """The controller of a Pod, such as a Job."""

    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def of(cls, metadata: Manifest) -> Self | None:
        """Returns the controller in a Pod's metadata; None without a controller. kube-apiserver does not
        limit the length of these texts."""
        for each in metadata.get("ownerReferences") or ():
            if each.get("controller"):
                owner = cls(*(each.get(key) or "" for key in ("apiVersion", "kind", "name", "uid")))
                return owner if all(0 < len(text) <= _LONGEST_NAME for text in owner) else None
        return None


class Life(NamedTuple):
    """The Pod's life, until the end of the Pod."""

    node: str | None = None
    bound_at: str = ""  # the time of the Binding, as kube-apiserver writes times
    started: bool = False  # the kubelet has started the containers
    finished: bool = False
    deleting: bool = False
    deletion_grace: int = 0  # graces are in seconds
    grace: int = KUBERNETES_DEFAULT_S
    eviction_grace: int = KUBERNETES_DEFAULT_S  # from `GraceRule.of_eviction`
    end: str = ""  # from `end_in_words`
    kubelet_rejection: str = ""
    owner: Owner | None = None  # only of a member of a gang


class Scheduling(NamedTuple):
    """The decisions about the Pod's Node so far, and the obstacles."""

    gates: tuple[str, ...] = ()
    attempt: int = 1
    job_id: int | None = None
    allocation: Allocation | None = None
    waiting: str | None = None
    """Reason of the extender's condition, while the condition is False."""
    feasible_nodes: FeasibleNodes | None = None
    """The Nodes that kube-scheduler offered instead of an allocated Node."""
    looked_at: bool = False  # kube-scheduler looked for a Node, and found none
    node_rejection: str = ""
    """kube-scheduler's message if no Node fits by kube-scheduler's own rules; empty if only the
    allocation was missing."""
    lacks_room: bool = False  # the message names a shortage that Slurm may end (`lacks_room`)
    obstacle: Cause | None = None  # a claim that is not ready, so that no Node can take the Pod
    provisioned_on: str | None = None  # the Node where a volume is being made for the Pod
    constraints: PodConstraints = NO_CONSTRAINTS  # between the Pod and other Pods


class Pod(NamedTuple):
    """One version of a Pod. The class is a tuple, because each version is created and copied, and tuples
    are fast for both."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    request: Request
    life: Life = Life()
    scheduling: Scheduling = Scheduling()
    created: str = ""
    priority: int = 0
    service_account: str = "default"
    group: Workload | None = None
    """The workload that has this Pod as a member. None if the Pod is a workload by itself."""
    touch: int = 0  # hash of all annotations that are not the extender's own

    @property
    def workload(self) -> Workload:
        """Returns the workload of the Pod."""
        return self.group or Workload(self.uid, self.namespace, self.name, self.created)

    def with_scheduling(self, **fields: Any) -> Self:
        """Returns the Pod with other fields of `scheduling`."""
        return self._replace(scheduling=self.scheduling._replace(**fields))

    @property
    def full_name(self) -> str:
        """Returns namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def rank(self) -> str:
        """Returns the key that sorts the Pods of a gang: the name in natural order, in which train-2
        comes before train-10. The names of the Pods of an Indexed Job, a StatefulSet and a
        LeaderWorkerSet contain the index of the Pod."""
        return natural_key(self.name)

    @property
    def gated(self) -> bool:
        """True while the extender's own scheduling gate is on the Pod."""
        return GATE in self.scheduling.gates

    @property
    def other_gates(self) -> tuple[str, ...]:
        """Returns the Pod's scheduling gates of other controllers. The extender does not remove these
        gates."""
        return tuple(gate for gate in self.scheduling.gates if gate != GATE)

    @property
    def shows_wait(self) -> bool:
        """True while the Pod's condition says that the Pod waits."""
        return self.scheduling.waiting is not None

    @property
    def doomed(self) -> bool:
        """True if the Pod's condition says that the job has ended, and that the eviction limiter delays
        the deletion of the Pod."""
        return self.scheduling.waiting == Reason.EVICTION_THROTTLED

    @property
    def leaving(self) -> bool:
        """True if the Pod is being deleted, with a grace that is not longer than the grace of an
        eviction."""
        return self.life.deleting and self.life.deletion_grace <= self.life.eviction_grace

    @property
    def over(self) -> bool:
        """True if the Pod has ended, or is being deleted and was never bound to a Node."""
        return self.life.finished or (self.life.deleting and self.life.node is None)

    @property
    def lingers_s(self) -> float:
        """Returns the number of seconds for which containers may run after the last version of the Pod.
        The result is 0 if the Pod was not bound, or if the kubelet has reported the end. A kubelet
        reports the last phase after the end of the containers, before the deletion of the Pod
        (canBeDeleted, since Kubernetes 1.27). A force deletion does not wait for the kubelet."""
        there = self.life.node is not None and not self.life.finished
        return max(1, self.life.grace) + KUBELET_S if there else 0.0

    @property
    def unschedulable(self) -> bool:
        """True if kube-scheduler rejects every Node by kube-scheduler's own rules."""
        return bool(self.scheduling.node_rejection)

    @property
    def kept_from_pods(self) -> bool:
        """True if kube-scheduler may reject a Node for the Pod because of other Pods."""
        constrained = self.scheduling.constraints.exclusive
        return constrained or names_other_pods(self.scheduling.node_rejection)


def parse_pod(manifest: Manifest, translation: TranslationConfig, request: Request | None = None) -> Pod:
    """Returns the snapshot of a Pod's manifest. No input of a user raises an error. `request` is the
    Pod's request, if already known."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    annotations = metadata.get("annotations") or {}
    namespace = metadata.get("namespace") or "default"
    request = request or read_request(manifest, translation)
    return Pod(
        uid=metadata.get("uid") or "",
        namespace=namespace,
        name=metadata.get("name") or metadata.get("generateName") or "",
        resource_version=metadata.get("resourceVersion") or "",
        request=request,
        life=_life(manifest, translation, request),
        scheduling=_scheduling(manifest, translation),
        created=metadata.get("creationTimestamp") or "",
        priority=spec.get("priority") or 0,
        service_account=spec.get("serviceAccountName") or "default",
        group=_group(request.gang, namespace),
        touch=_touch(annotations),
    )


def _life(manifest: Manifest, translation: TranslationConfig, request: Request) -> Life:
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    grace, phase = own_grace(spec), status.get("phase")
    return Life(
        node=spec.get("nodeName") or None,
        bound_at=_bound_at(status),
        started=phase in ("Running", "Succeeded"),
        finished=phase in ("Succeeded", "Failed") and not is_ended_by_pod_gc(status),
        deleting="deletionTimestamp" in metadata,
        deletion_grace=metadata.get("deletionGracePeriodSeconds") or 0,
        grace=grace,
        eviction_grace=translation.grace.of_eviction(grace),
        end=end_in_words(manifest),
        kubelet_rejection=kubelet_rejection(status),
        owner=None if request.gang is None else Owner.of(metadata),
    )


def _bound_at(status: Manifest) -> str:
    conditions = (each for each in status.get("conditions") or () if each.get("type") == "PodScheduled")
    times = (each.get("lastTransitionTime") for each in conditions if each.get("status") == "True")
    return next(times, "") or ""


def _scheduling(manifest: Manifest, translation: TranslationConfig) -> Scheduling:
    metadata, spec = manifest["metadata"], manifest["spec"]
    annotations = metadata.get("annotations") or {}
    false = _false(manifest.get("status") or {})
    waiting, scheduled = false.get(CONDITION), false.get("PodScheduled") or {}
    looked_at = scheduled.get("reason") == "Unschedulable"
    node_rejection = _node_rejection(scheduled) if looked_at else ""
    return Scheduling(
        gates=_gates(spec),
        attempt=attempt_of(annotations),
        job_id=whole_number(annotations.get(JOB_ID, "")),
        allocation=Allocation.parse(annotations),
        waiting=None if waiting is None else (waiting.get("reason") or "")[:_LONGEST_REASON],
        feasible_nodes=FeasibleNodes.parse(annotations),
        looked_at=looked_at,
        node_rejection=node_rejection[:_LONGEST_REJECTION],
        lacks_room=lacks_room(node_rejection, translation),
        constraints=parse_pod_constraints(metadata, spec),
    )


def _group(gang: Gang | None, namespace: str) -> Workload | None:
    """Returns the workload of a gang. A Pod is a workload by itself if its gang has no other Pod, or if
    an annotation is missing."""
    if gang is None or not gang.whole or gang.size == 1:
        return None
    return Workload(
        gang.uid(namespace),
        namespace,
        gang.name or "",
        size=gang.size or 1,
        members_per_node=gang.members_per_node,
    )


def _touch(annotations: Mapping[str, str]) -> int:
    return hash(frozenset(each for each in annotations.items() if not each[0].startswith(DOMAIN)))


def _gates(spec: Manifest) -> tuple[str, ...]:
    """Returns the names of the Pod's gates: first the extender's gate, then the first gates of other
    controllers."""
    names = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    others = [name for name in names if name != GATE][:_MOST_GATES]
    return (GATE, *others) if GATE in names else tuple(others)


def attempt_of(annotations: Mapping[str, str]) -> int:
    """Returns the number of the attempt in a Pod's annotations. An impossibly large number is forged and
    counts as 1, because the next numbers must fit into a job's key."""
    number = whole_number(annotations.get(ATTEMPT, "")) or 1
    return number if number < _MOST_ATTEMPTS else 1


def _false(status: Manifest) -> Mapping[str, Manifest]:
    """Returns the conditions that are False, by type."""
    conditions = status.get("conditions") or ()
    return {each.get("type"): each for each in conditions if each.get("status") == "False"}


def _node_rejection(unschedulable: Manifest) -> str:
    words = (unschedulable.get("message") or "").strip() or "kube-scheduler finds no Node"
    return "" if WAITING in words else words


def lacks_room(node_rejection: str, translation: TranslationConfig) -> bool:
    """Returns True if a message of kube-scheduler (NodeResourcesFit) names a shortage of CPUs, memory,
    GRES, or places for Pods. The Pod's job may end such a shortage, if Slurm preempts other jobs."""
    if not node_rejection:  # nearly always
        return False
    lacking = {name.rstrip(".,") for name in _INSUFFICIENT.findall(node_rejection)}
    return _TOO_MANY_PODS in node_rejection or not lacking.isdisjoint((*MANDATORY, *translation.gres))


def is_retried(manifest: Manifest) -> bool:
    """Returns True if this is not the first attempt to place the Pod."""
    return attempt_of(manifest["metadata"].get("annotations") or {}) > 1
