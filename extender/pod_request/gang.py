"""Reads the gang of a Pod: a set of Pods with one job, which start together or not at all.

The Pods of a gang are in one namespace, belong to the same gang, and request the same amounts. Either
the author of the Pods names the gang, or the gang has the Pods of a controller or of a PodGroup
(`CONTROLLERS`). The uid of the gang determines the ids of the jobs, so no user may choose the uid of a
gang in another namespace. Therefore the uid is a digest of the namespace, and of the name or the
controller's labels.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from extender.pod_request.annotations import LARGEST_GANG
from kubernetes_client.protocol import Manifest
from slurm_client.gres import SHARED
from slurm_client.model import JobSpec
from wellknown.job_key import whole_number

_FIELDS: Final = {"gang": "name", "gang_size": "size", "members_per_node": "members_per_node"}
"""The fields of `Gang`, by the field of the annotation (`annotations.GANG_ANNOTATIONS`)."""


_NAMES: Final = ("gang", "gang-size", "members-per-node")
"""The annotations, in the order of the fields of `Gang`."""

JOB: Final = "job"
JOB_SET: Final = "jobset"
LEADER_WORKER_SET: Final = "lws"
POD_GROUP: Final = "podgroup"

LEADER: Final = "leaderworkerset.sigs.k8s.io/leader-name"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
_BESIDE_LABELS: Final = {
    LEADER_WORKER_SET: f", or a wrong annotation {LEADER}",
    POD_GROUP: ", and no spec.schedulingGroup.podGroupName",
}
"""By the value of the annotation `gang`: what else a Pod without a gang lacks."""
_NAME: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class Controller(NamedTuple):
    """A kind of controller whose Pods are a gang. Each Pod has these labels from the controller."""

    kind: str
    name: str
    """Label with the name of the gang."""
    identity: tuple[str, ...]
    """Labels that differ between two gangs of the namespace."""


CONTROLLERS: Final[Mapping[str, Controller]] = {
    JOB: Controller("Job", "batch.kubernetes.io/job-name", ("batch.kubernetes.io/controller-uid",)),
    JOB_SET: Controller(
        "JobSet",
        "jobset.sigs.k8s.io/jobset-name",
        ("jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/restart-attempt"),
    ),
    LEADER_WORKER_SET: Controller("LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name", ()),
    POD_GROUP: Controller("PodGroup", "scheduling.x-k8s.io/pod-group", ()),
}
"""The kinds of controllers, by the value of the annotation `gang`. With another label, or with another
annotation LEADER or LWS_SIZE, the Pod would leave the gang. So the chart's policies fix the labels and
the annotations. The label of a PodGroup is the label of the plugin coscheduling; a Pod may name a
PodGroup of Kubernetes in `spec.schedulingGroup` instead."""


def native_group(spec: Manifest) -> str | None:
    """Returns the name of a Pod's PodGroup in the API of Kubernetes; None without such a PodGroup."""
    return (spec.get("schedulingGroup") or {}).get("podGroupName")


class Gang(NamedTuple):
    """The gang that a Pod's annotations name. A missing annotation is None."""

    name: str | None = None
    size: int | None = None
    """Number of Pods."""
    members_per_node: int | None = None
    """Number of Pods on each node. None: Slurm packs the Pods onto as few nodes as possible."""
    controller: str = ""
    """The key in `CONTROLLERS`; empty if the author of the Pods names the gang."""
    key: str = ""
    """Text by which a controller's gang differs from other gangs of the namespace; empty if unknown."""

    @classmethod
    def taken_from(
        cls, fields: Mapping[str, Any], manifest: Manifest
    ) -> tuple[Self | None, dict[str, Any]]:
        """Returns the gang in the fields of annotations, and the other fields. The gang is None without
        an annotation for gangs, and for `gang: none`. `manifest` is the Pod."""
        own = {_FIELDS[name]: value for name, value in fields.items() if name in _FIELDS}
        rest = {name: value for name, value in fields.items() if name not in _FIELDS}
        named = str(own.get("name"))
        if not own or named == "none":
            return None, rest
        if named not in CONTROLLERS:
            return cls(**own), rest
        metadata = manifest["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        controller = CONTROLLERS[named]
        name, parts = labels.get(controller.name), [labels.get(label) for label in controller.identity]
        if name is not None and named == LEADER_WORKER_SET:
            # Only the workers name the leader. The gang has the leader's name.
            name = annotations.get(LEADER) or metadata.get("name") or ""
            parts = [name if _NAME.fullmatch(name) else None]
            size = whole_number(annotations.get(LWS_SIZE, ""))
            own["size"] = size if size is not None and 0 < size <= LARGEST_GANG else None
        if named == POD_GROUP:
            native = native_group(manifest["spec"])
            parts = ["native", native] if native else ["labelled", name]
            name = native or name
        known = name is not None and None not in parts
        key = "/".join((named, *map(str, parts))) if known else ""
        return cls(**own | {"name": name}, controller=named, key=key), rest

    def uid(self, namespace: str) -> str:
        """Returns the uid of the gang, which no gang of another namespace has, and no Pod."""
        digest = blake2b(f"{namespace}/{self.key or self.name}".encode(), digest_size=16).hexdigest()
        return f"gang-{digest}"

    @property
    def whole(self) -> bool:
        """Returns True if the gang and its size are known."""
        named = self.key if self.controller else self.name
        return bool(named) and self.size is not None

    def problems(self, job: JobSpec, prefix: str) -> Iterator[str]:
        """Yields the problems of a gang whose Pods each request `job`. `prefix` is the prefix of the
        annotations."""
        if not self.whole:
            yield self._lacking(prefix)
            return
        here = self.members_per_node
        if here is not None and (self.size or 0) % here:
            yield (
                f"annotation {prefix}members-per-node: a gang of {self.size} Pods cannot have {here}"
                " Pods on each node: choose a divisor of gang-size, or remove members-per-node"
            )
        nodes = None if here is None else (self.size or 0) // here
        if job.segment is not None and (nodes is None or nodes % job.segment):
            on = "" if nodes is None else f" on {nodes} nodes"
            yield (
                f"annotation {prefix}segment: a gang{on} cannot have segments of {job.segment} nodes:"
                " set members-per-node, and choose a divisor of the number of nodes"
            )
        if job.required_nodes:
            yield (
                f"annotation {prefix}required-nodes: a gang cannot name its nodes: use constraints,"
                " excluded-nodes, a nodeSelector or node affinity"
            )
        shared = sorted({name.partition(":")[0] for name, _ in job.gres} & SHARED)
        if shared and here != 1:
            yield (
                f"the Pod requests parts of GPUs ({', '.join(shared)}): in a gang, only Pods on"
                " different nodes may have parts of GPUs: set the annotation"
                f" {prefix}members-per-node to 1"
            )

    def _lacking(self, prefix: str) -> str:
        """Returns the problem of a gang that is not `whole`."""
        if not self.controller:
            given = [name for name, value in zip(_NAMES, self[:3], strict=True) if value is not None]
            missing = [f"{prefix}{name}" for name in _NAMES[:2] if name not in given]
            return f"annotation {prefix}{given[0]}: a gang also needs {' and '.join(missing)}"
        kind = CONTROLLERS[self.controller].kind
        about = f"annotation {prefix}gang: {self.controller} is for Pods of a {kind}"
        if not self.key:
            labels = (CONTROLLERS[self.controller].name, *CONTROLLERS[self.controller].identity)
            also = _BESIDE_LABELS.get(self.controller, "")
            return f"{about}: the Pod has no label {' or '.join(labels)}{also}"
        if self.controller == LEADER_WORKER_SET:
            return f"{about}: the annotation {LWS_SIZE} is no number from 1 to {LARGEST_GANG}"
        of, new = (f" the Pod template of a new {kind}", kind)
        if self.controller == POD_GROUP:
            of, new = (" a new Pod", "Pod")
        return (
            f"{about}: the Pod has no annotation {prefix}gang-size, which the extender's webhook adds to"
            f"{of}: create the {new} again"
        )
