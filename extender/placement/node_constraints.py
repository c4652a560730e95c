"""Which Nodes Kubernetes itself would refuse to a Pod, so that Slurm is not asked to choose them.

Node selector, required node affinity, taints, cordons: what can be told from a Pod and a Node alone.
What depends on other Pods (anti-affinity, spread, ports, volumes) is kube-scheduler's to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from extender.placement.resources import parse_quantity

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node, with the name of the Slurm node that it stands for."""

    name: str
    slurm_name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    cpus: Decimal | None = None
    """What it has, as Kubernetes counts: logical CPUs."""

    @classmethod
    def parse(cls, manifest: Manifest, name_label: str) -> Node:
        """Returns a Node from its manifest; a label may name its Slurm node, else the names agree."""
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        labels = metadata.get("labels") or {}
        taints = tuple(
            Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()
        )
        name = metadata["name"]
        cordoned = bool(spec.get("unschedulable"))
        capacity = (manifest.get("status") or {}).get("capacity") or {}
        cpus = parse_quantity(capacity["cpu"]) if "cpu" in capacity else None
        return cls(name, labels.get(name_label) or name, labels, taints, cordoned, cpus)


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """What a Pod demands of Nodes, as its manifest says it."""

    selector: Mapping[str, str]
    affinity: tuple[Manifest, ...] | None
    """Node selector terms, any of which may match; None where there is no required affinity."""
    tolerations: tuple[Manifest, ...]

    @property
    def signature(self) -> str:
        """Returns the same text for equal constraints: Pods made from one template share it."""
        return repr((self.selector, self.affinity, self.tolerations))

    @classmethod
    def parse(cls, spec: Manifest) -> NodeConstraints:
        """Returns the constraints of a Pod's spec."""
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        return cls(
            spec.get("nodeSelector") or {},
            None if required is None else tuple(required.get("nodeSelectorTerms") or ()),
            tuple(spec.get("tolerations") or ()),
        )

    def admit(self, node: Node) -> bool:
        """Tells whether kube-scheduler's own rules leave this Node open to the Pod."""
        return (
            all(node.labels.get(key) == value for key, value in self.selector.items())
            and (self.affinity is None or any(_term_matches(t, node) for t in self.affinity))
            and all(self._tolerates(taint) for taint in _effective_taints(node))
        )

    def _tolerates(self, taint: Taint) -> bool:
        return taint.effect == "PreferNoSchedule" or any(
            _tolerates(toleration, taint) for toleration in self.tolerations
        )


def _effective_taints(node: Node) -> tuple[Taint, ...]:
    """A cordon is a taint that the node controller adds a moment later."""
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    return (*node.taints, cordon) if node.unschedulable else node.taints


def _tolerates(toleration: Manifest, taint: Taint) -> bool:
    """Source: k8s.io/api/core/v1 Toleration.ToleratesTaint."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    same = (toleration.get("value") or "") == taint.value
    return operator == "Equal" and bool(toleration.get("key")) and same


def _term_matches(term: Manifest, node: Node) -> bool:
    """A term without any requirement matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    return all(_expression_matches(e, node.labels) for e in labels) and all(
        _expression_matches(e, {"metadata.name": node.name}) for e in fields
    )


def _expression_matches(expression: Manifest, labels: Mapping[str, str]) -> bool:
    """Source: k8s.io/apimachinery labels.Requirement.Matches."""
    value = labels.get(expression["key"])
    wanted: list[str] = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator if value is not None:
            return _compares(operator, value, wanted[0])
    return False


def _compares(operator: str, value: str, bound: str) -> bool:
    mine, limit = _integer(value), _integer(bound)
    if mine is None or limit is None:
        return False
    return mine > limit if operator == "Gt" else mine < limit


def _integer(text: str) -> int | None:
    """As strconv.ParseInt: ASCII digits with a sign, in 64 bits."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
