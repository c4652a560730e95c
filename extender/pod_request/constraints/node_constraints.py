"""The Nodes that Kubernetes itself would reject for a Pod, so that Slurm is not asked to choose them.

These are constraints between a Pod and a Node alone: node selector, required node affinity, taints,
cordons. The place of its volumes is known from its claims (`claims`), constraints that depend
on other Pods (anti-affinity, spread, ports) by `pod_constraints`. The index of `node_index` evaluates
all Nodes at once.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import NamedTuple, Self

import orjson

from extender.pod_request import limits
from kubernetes_client.protocol import Manifest
from wellknown import node_mapping
from wellknown.names import DEVICE_PROBLEM
from wellknown.resources import parse_quantity

_SMALL = 512


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_AWAY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""The taints that Kubernetes puts on a Node that is not ready."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node."""

    name: str
    slurm_name: str
    """The name of the Slurm node that it names; `node_mapping` decides whether it stands for that
    node."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    cpus: Decimal | None = None
    """The CPUs that it has, as Kubernetes counts: logical CPUs."""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What all Pods on it may request together, as quantities."""
    has_agent: bool = False
    """Whether a node agent holds Pods to their devices there: it has written its condition."""

    @classmethod
    def parse(cls, manifest: Manifest, name_label: str) -> Self:
        """Returns a Node from its manifest; `name_label` is the label that may name its Slurm node."""
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        labels = metadata.get("labels") or {}
        taints = tuple(
            Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()
        )
        name = metadata["name"]
        cordoned = bool(spec.get("unschedulable"))
        status = manifest.get("status") or {}
        capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
        cpus = parse_quantity(capacity["cpu"]) if "cpu" in capacity else None
        slurm_name = node_mapping.slurm_name(name, labels, name_label)
        has_agent = any(each.get("type") == DEVICE_PROBLEM for each in status.get("conditions") or ())
        return cls(name, slurm_name, labels, taints, cordoned, cpus, allocatable, has_agent)

    @property
    def away(self) -> bool:
        """Tells whether Kubernetes takes it for not ready, or hears nothing of it."""
        return any(taint.key in _AWAY for taint in self.taints)

    @property
    def effective_taints(self) -> tuple[Taint, ...]:
        """Returns its taints. A cordon is included: the node controller adds that taint a moment
        later."""
        return (*self.taints, CORDON) if self.unschedulable else self.taints


def gains(before: Node, after: Node) -> bool:
    """Tells whether a Node may be open to more Pods than before: it has lost a taint, or has other
    labels, or more of a resource."""
    untainted = not set(before.effective_taints) <= set(after.effective_taints)
    new = before.labels != after.labels or (after.has_agent and not before.has_agent)
    return untainted or new or _has_more(before.allocatable, after.allocatable)


def _has_more(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    changed = ((name, amount) for name, amount in after.items() if before.get(name) != amount)
    return any(
        parse_quantity(amount) > parse_quantity(before.get(name, "0")) for name, amount in changed
    )


class Demands(NamedTuple):
    """A Pod's constraints on Nodes, as its manifest states them."""

    selector: Mapping[str, str]
    terms: list[Manifest] | None
    """Node selector terms, any of which may match; None where there is no required affinity."""
    tolerations: list[Manifest]
    claimed: Sequence[Sequence[Manifest]] = ()
    """For each of its claims that has a place, such terms: one of each must match."""
    agent: bool = False
    """Whether a node agent must be there."""


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """A Pod's constraints on Nodes, in a form that is small and quickly compared."""

    signature: bytes
    """The same for equal constraints: Pods made from one template share it."""
    packed: bytes
    """JSON, compressed where it is long."""

    @classmethod
    def parse(cls, spec: Manifest) -> Self:
        """Returns the constraints of a Pod's spec."""
        return cls._pack(limits.demands(spec))

    def with_claimed(self, terms: Sequence[Sequence[Manifest]]) -> Self:
        """Returns the constraints of a Pod whose claims have a place."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(claimed=terms))))

    def with_agent(self) -> Self:
        """Returns the constraints of a Pod that needs a node agent."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(agent=True))))

    @classmethod
    def _pack(cls, text: bytes) -> Self:
        # A copy: orjson makes its text in a buffer of 4 KiB, and leaves it so.
        packed = bytes(memoryview(text)) if len(text) < _SMALL else zlib.compress(text, 1)
        return cls(blake2b(text, digest_size=16).digest(), packed)

    @property
    def demands(self) -> Demands:
        """Returns the constraints in readable form, which takes up to a millisecond."""
        text = self.packed if self.packed.startswith(b"[") else zlib.decompress(self.packed)
        return Demands(*orjson.loads(text))


ANYWHERE = NodeConstraints.parse({})
"""No constraints."""


class Tolerated:
    """The taints that tolerations allow. Source: k8s.io/api/core/v1 Toleration.ToleratesTaint."""

    def __init__(self, tolerations: list[Manifest]) -> None:
        self._kinds = {kind for each in tolerations if (kind := _kind(each)) is not None}

    def passes(self, taint: Taint) -> bool:
        """Tells whether a taint leaves its Node open to this Pod."""
        return taint.effect == "PreferNoSchedule" or any(
            (key, value, effect) in self._kinds
            for key in (taint.key, None)
            for value in (taint.value, None)
            for effect in (taint.effect, None)
        )


def _kind(toleration: Manifest) -> tuple[str | None, str | None, str | None] | None:
    """The key, value and effect of the taints that are tolerated; None for any. A toleration that
    tolerates nothing has no kind."""
    key, effect = toleration.get("key") or None, toleration.get("effect") or None
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key, None, effect
    return (key, toleration.get("value") or "", effect) if operator == "Equal" and key else None
