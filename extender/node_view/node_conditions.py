"""Reads the conditions of a Node: the conditions of Kubernetes, and the extender's own conditions."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from kubernetes_client.protocol import Manifest
from wellknown.lingering import NO_NOTES, NotesOnNode, lingering_on
from wellknown.names import PODS_REJECTED, SLURM_OUT_OF_SERVICE, SLURMD_PROBLEM
from wellknown.slurmd_pod import Assignment

_KNOWN = frozenset({"Ready", SLURM_OUT_OF_SERVICE})


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition that the extender writes on a Node."""

    out: bool
    """The status of the condition. For SLURM_OUT_OF_SERVICE, True means that Slurm starts no new jobs on
    the node. For PODS_REJECTED, True means that the extender places no Pods on the Node."""
    reason: str
    message: str
    since: float = field(default=0.0, compare=False)
    """Time since which the condition has this status, in UNIX seconds."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The parts of a Node's status that the extender uses."""

    ready: bool = True
    """False if Kubernetes reports the Node as not ready, or as unknown."""
    condition: NodeCondition | None = None
    """The condition SLURM_OUT_OF_SERVICE."""
    problems: tuple[tuple[str, str], ...] = ()
    """Types and messages, sorted, of the conditions with the status True, except Ready and
    SLURM_OUT_OF_SERVICE. For these conditions, True means a problem."""
    assigned: Assignment | None = None
    """The slurmd Pod assigned to the Node, if any."""
    rejections: NodeCondition | None = None
    """The condition PODS_REJECTED."""
    lingering: NotesOnNode = NO_NOTES
    """The leader's notes about containers that may outlive their Pods."""

    @property
    def slurmd_problem(self) -> str:
        """Error message of the node agent about the slurmd Pod; "" without an error."""
        return dict(self.problems).get(SLURMD_PROBLEM, "")

    @classmethod
    def parse(cls, manifest: Manifest) -> Self:
        listed = (manifest.get("status") or {}).get("conditions") or ()
        conditions = {each["type"]: each for each in listed}
        ready = "Ready" not in conditions or conditions["Ready"].get("status") == "True"
        own, rejections = (
            _notice(conditions[kind]) if kind in conditions else None
            for kind in (SLURM_OUT_OF_SERVICE, PODS_REJECTED)
        )
        problems = (
            (kind, each.get("message") or each.get("reason") or "")
            for kind, each in conditions.items()
            if kind not in _KNOWN and each.get("status") == "True"
        )
        annotations = manifest["metadata"].get("annotations") or {}
        assigned, lingering = Assignment.on(annotations), lingering_on(annotations)
        return cls(ready, own, tuple(sorted(problems)), assigned, rejections, lingering)


def _notice(condition: Manifest) -> NodeCondition:
    since = condition.get("lastTransitionTime")
    return NodeCondition(
        condition.get("status") == "True",
        condition.get("reason") or "",
        condition.get("message") or "",
        datetime.fromisoformat(since).timestamp() if since else 0.0,
    )
