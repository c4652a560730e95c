"""Constraints between a Pod and a Node: node selector, required node affinity, taints, cordons, and
devices that the kubelet counts. No job gets a Node that kube-scheduler would reject.

If a Node has no allocatable devices of an extended resource, kube-scheduler rejects the Node, unless a
DeviceClass has the resource's name: then kube-scheduler allocates devices of ResourceSlices by its own
choice, and not the devices that Slurm granted. So the extender closes every Node without allocatable
devices to a Pod with devices that Slurm counts. The extender need not know DeviceClasses and
ResourceSlices. Source: Kubernetes 1.37.2, pkg/scheduler/framework/plugins, filterExtendedResources in
dynamicresources/extendeddynamicresources.go, shouldDelegateResourceToDRA in noderesources/fit.go.

`claims` knows the place of volumes, `pod_constraints` has constraints between Pods, and `node_index`
evaluates all Nodes at once.
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
"""Time without a heartbeat after which a Node has no node agent."""


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
    """The named Slurm node; `node_mapping` decides whether the Node stands for that node."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    cpus: Decimal | None = None  # logical CPUs
    allocatable: Mapping[str, str] = field(default_factory=dict)  # quantities for all Pods together
    has_agent: bool = False  # a node agent writes the Node's condition
    devices: frozenset[str] = frozenset()
    """Extended resources of the Node's capacity. While a device plugin restarts, the kubelet keeps the
    capacity for five minutes, and has nothing allocatable."""

    @classmethod
    def parse(cls, manifest: Manifest, name_label: str, now: float = 0.0) -> Self:
        """Returns the Node of a manifest at a time in UNIX seconds; `name_label` is the label that may
        name the Slurm node. A kubelet writes its Node every five minutes, so that a silent node agent
        is seen at the next version (k8s.io/kubelet config, nodeStatusReportFrequency)."""
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
        told = (each for each in status.get("conditions") or () if each.get("type") == DEVICE_PROBLEM)
        has_agent = any(not is_stale(each, now, AGENT_SILENT_S) for each in told)
        devices = frozenset(_extended(capacity))
        return cls(name, slurm_name, labels, taints, cordoned, cpus, allocatable, has_agent, devices)

    @property
    def away(self) -> bool:
        """True if Kubernetes has tainted the Node as not ready or unreachable."""
        return any(taint.key in _AWAY for taint in self.taints)

    @property
    def served(self) -> frozenset[str] | None:
        """Returns the extended resources of which the kubelet counts devices, also while a device plugin
        restarts: otherwise a new version of the node agents would change each waiting job twice for each
        Node. None if the Node has no allocatable at all: kube-scheduler rejects the Node for every
        Pod."""
        return self.devices.union(_extended(self.allocatable)) if self.allocatable else None

    def serves(self, resources: Iterable[str]) -> bool:
        """Returns False if kube-scheduler may choose the devices of one of these extended resources now:
        nothing is allocatable."""
        has = self.allocatable
        return not has or all(parse_quantity(has.get(each, "0")) > 0 for each in resources)

    @property
    def effective_taints(self) -> tuple[Taint, ...]:
        """Returns the taints, with that of a cordon, which the node controller adds later."""
        return (*self.taints, CORDON) if self.unschedulable else self.taints


def _extended(amounts: Mapping[str, str]) -> Iterator[str]:
    """Yields the extended resources with an amount."""
    named = ((name, amount) for name, amount in amounts.items() if "/" in name)
    return (name for name, amount in named if parse_quantity(amount) > 0)


def gains(before: Node, after: Node) -> bool:
    """Returns True if a Node may be open to more Pods: after the loss of a taint, other labels, an
    agent, or more of a resource."""
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
    """Node selector terms, one of which must match; None without a required affinity."""
    tolerations: list[Manifest]
    claimed: Sequence[Sequence[Manifest]] = ()
    """Such terms for each claim that has a place: one of each must match."""
    agent: bool = False  # a node agent must be there
    devices: Sequence[str] = ()  # extended resources of which devices must be allocatable


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """A Pod's constraints on Nodes, in a form that is small and quickly compared."""

    signature: bytes  # equal for equal constraints, as of all Pods of a template
    packed: bytes  # JSON, compressed if long

    @classmethod
    def parse(cls, spec: Manifest) -> Self:
        """Returns the constraints of a Pod's spec."""
        return cls._pack(limits.demands(spec))

    def with_claimed(self, terms: Sequence[Sequence[Manifest]]) -> Self:
        """Returns the constraints with the places of claims."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(claimed=terms))))

    def with_agent(self) -> Self:
        """Returns the constraints with the need of a node agent."""
        return self._pack(orjson.dumps(tuple(self.demands._replace(agent=True))))

    def with_devices(self, resources: Sequence[str]) -> Self:
        """Returns the constraints with the need of allocatable devices of these extended
        resources."""
        if not resources:  # as of most Pods
            return self
        return self._pack(orjson.dumps(tuple(self.demands._replace(devices=resources))))

    @classmethod
    def _pack(cls, text: bytes) -> Self:
        # A copy: orjson leaves a text in a buffer of 4 KiB.
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
        """Returns True if a taint leaves the Node open to this Pod."""
        return taint.effect == "PreferNoSchedule" or any(
            (key, value, effect) in self._kinds
            for key in (taint.key, None)
            for value in (taint.value, None)
            for effect in (taint.effect, None)
        )


def _kind(toleration: Manifest) -> tuple[str | None, str | None, str | None] | None:
    """Returns key, value and effect of the tolerated taints, None for any; None if none is tolerated."""
    key, effect = toleration.get("key") or None, toleration.get("effect") or None
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key, None, effect
    return (key, toleration.get("value") or "", effect) if operator == "Equal" and key else None
