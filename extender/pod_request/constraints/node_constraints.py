"""Constraints between a Pod and a Node: node selector, required node affinity, taints, cordons, and
devices that the kubelet counts. The extender keeps a Pod's job off Nodes that kube-scheduler would
reject for the Pod.

If a Node has no allocatable devices of an extended resource, kube-scheduler usually rejects the Node.
The exception is an extended resource that a DeviceClass names. For such a resource, kube-scheduler
itself chooses devices from ResourceSlices, and not the devices that Slurm granted. So if a Pod requests
devices that Slurm counts, the extender gives the Pod no Node without allocatable devices. For this rule,
the extender need not know DeviceClasses and ResourceSlices. Source: Kubernetes 1.37.2,
pkg/scheduler/framework/plugins, filterExtendedResources in dynamicresources/extendeddynamicresources.go,
shouldDelegateResourceToDRA in noderesources/fit.go.

Related modules: `claims` finds the Nodes that a Pod's claims allow, `pod_constraints` has the
constraints between Pods, and `node_index` checks all Nodes at once.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import NamedTuple, Self

import orjson

from extender.pod_request import limits
from kubernetes_client.protocol import Manifest
from wellknown import node_mapping
from wellknown.conditions import AGENT_HEARTBEAT_S, is_stale
from wellknown.names import DEVICE_PROBLEM
from wellknown.resources import parse_quantity

_SMALL = 512
AGENT_SILENT_S = 3 * AGENT_HEARTBEAT_S
"""A node agent counts as absent after this time without a heartbeat."""


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_AWAY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node."""

    name: str
    slurm_name: str
    """Name of the Slurm node, from the Node's label or own name. `node_mapping` decides whether the Node
    stands for this Slurm node."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    cpus: Decimal | None = None  # logical CPUs
    allocatable: Mapping[str, str] = field(default_factory=dict)  # quantities for all Pods together
    has_agent: bool = False  # a node agent writes the Node's condition
    devices: frozenset[str] = frozenset()
    """Extended resources in the Node's capacity. While a device plugin restarts, the kubelet keeps the
    capacity for five minutes, but reports no allocatable devices."""

    @classmethod
    def parse(cls, manifest: Manifest, name_label: str, now: float = 0.0) -> Self:
        """Returns the Node of a manifest. `name_label` is the label that may name the Slurm node. `now`
        is the time in UNIX seconds, to find a silent node agent. The extender needs no timer to find a
        silent agent, because the kubelet writes a new version of each Node every five minutes
        (k8s.io/kubelet config, nodeStatusReportFrequency)."""
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
        reports = (each for each in status.get("conditions") or () if each.get("type") == DEVICE_PROBLEM)
        has_agent = any(not is_stale(each, now, AGENT_SILENT_S) for each in reports)
        devices = frozenset(_extended(capacity))
        return cls(name, slurm_name, labels, taints, cordoned, cpus, allocatable, has_agent, devices)

    @property
    def away(self) -> bool:
        """True if Kubernetes has tainted the Node as not ready or unreachable."""
        return any(taint.key in _AWAY for taint in self.taints)

    @property
    def served(self) -> frozenset[str] | None:
        """Returns the extended resources whose devices the kubelet counts. A resource stays in the
        result while its device plugin restarts. Otherwise, a roll-out of new node agents would change
        each waiting job twice for each Node. Returns None if the Node's status has no `allocatable`,
        because kube-scheduler then rejects the Node for every Pod."""
        return self.devices.union(_extended(self.allocatable)) if self.allocatable else None

    def serves(self, resources: Iterable[str]) -> bool:
        """Returns False if one of these extended resources has no allocatable devices now, so that
        kube-scheduler might choose the devices itself."""
        has = self.allocatable
        return not has or all(parse_quantity(has.get(each, "0")) > 0 for each in resources)

    @property
    def effective_taints(self) -> tuple[Taint, ...]:
        """Returns the Node's taints. For a cordoned Node, the taint of a cordon is included, because the
        node controller adds this taint later."""
        return (*self.taints, CORDON) if self.unschedulable else self.taints


def _extended(amounts: Mapping[str, str]) -> Iterator[str]:
    """Yields the names of the extended resources with an amount above 0."""
    named = ((name, amount) for name, amount in amounts.items() if "/" in name)
    return (name for name, amount in named if parse_quantity(amount) > 0)


def gains(before: Node, after: Node) -> bool:
    """Returns True if more Pods may be able to use a Node after a change. Such a change is a lost taint,
    a changed label, a new agent, or more of a resource."""
    untainted = not set(before.effective_taints) <= set(after.effective_taints)
    new = before.labels != after.labels or (after.has_agent and not before.has_agent)
    return untainted or new or _has_more(before.allocatable, after.allocatable)


def _has_more(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    changed = ((name, amount) for name, amount in after.items() if before.get(name) != amount)
    return any(
        parse_quantity(amount) > parse_quantity(before.get(name, "0")) for name, amount in changed
    )


class Demands(NamedTuple):
    """A Pod's constraints on Nodes, as the manifest states them."""

    selector: Mapping[str, str]
    terms: list[Manifest] | None
    """Node selector terms, of which one must match. None if the Pod has no required node affinity."""
    tolerations: list[Manifest]
    claimed: Sequence[Sequence[Manifest]] = ()
    """For each claim that is tied to certain Nodes: the node selector terms, of which one must match."""
    agent: bool = False  # the Node must have a node agent
    devices: Sequence[str] = ()  # extended resources that must have allocatable devices


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """A Pod's constraints on Nodes, in a form that is small and quickly compared."""

    signature: bytes  # equal for equal constraints, for example of all Pods of a template
    packed: bytes  # JSON, compressed if long

    @classmethod
    def parse(cls, spec: Manifest) -> Self:
        """Returns the constraints of a Pod's spec."""
        return cls._pack(limits.demands(spec))

    def with_claimed(self, terms: Sequence[Sequence[Manifest]]) -> Self:
        """Returns the constraints, extended by the Nodes of the Pod's claims. `terms` has the node
        selector terms of each claim."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(claimed=terms))))

    def with_agent(self) -> Self:
        """Returns the constraints, extended by the requirement of a node agent."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(agent=True))))

    def with_devices(self, resources: Sequence[str]) -> Self:
        """Returns the constraints, extended by the requirement of allocatable devices of these extended
        resources."""
        if not resources:  # most Pods request no devices
            return self
        return self._pack(orjson.dumps(tuple(self.demands._replace(devices=resources))))

    @classmethod
    def _pack(cls, text: bytes) -> Self:
        # Copies a short text, because orjson leaves the text in a buffer of 4 KiB.
        packed = bytes(memoryview(text)) if len(text) < _SMALL else zlib.compress(text, 1)
        return cls(blake2b(text, digest_size=16).digest(), packed)

    @property
    def demands(self) -> Demands:
        """Returns the constraints in readable form. Takes up to a millisecond."""
        text = self.packed if self.packed.startswith(b"[") else zlib.decompress(self.packed)
        return Demands(*orjson.loads(text))


ANYWHERE = NodeConstraints.parse({})


class Tolerated:
    """The taints that tolerations allow. Source: k8s.io/api/core/v1 Toleration.ToleratesTaint."""

    def __init__(self, tolerations: list[Manifest]) -> None:
        self._kinds = {kind for each in tolerations if (kind := _kind(each)) is not None}

    def passes(self, taint: Taint) -> bool:
        """Returns True if a Pod with these tolerations may use a Node with this taint."""
        return taint.effect == "PreferNoSchedule" or any(
            (key, value, effect) in self._kinds
            for key in (taint.key, None)
            for value in (taint.value, None)
            for effect in (taint.effect, None)
        )


def _kind(toleration: Manifest) -> tuple[str | None, str | None, str | None] | None:
    """Returns the key, the value and the effect of the taints that a toleration allows. In this result,
    None stands for any key, value or effect. Returns None, and no tuple, if the toleration allows no
    taint."""
    key, effect = toleration.get("key") or None, toleration.get("effect") or None
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key, None, effect
    return (key, toleration.get("value") or "", effect) if operator == "Equal" and key else None
