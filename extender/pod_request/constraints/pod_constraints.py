"""Constraints between Pods, enforced by kube-scheduler: required anti-affinity, topology spread with
DoNotSchedule, and host ports.

The extender ignores an anti-affinity term if the namespaceSelector of the term has requirements, because
a Pod's manifest lacks the labels of Namespaces. If a Pod is above a limit `_MAX_...`, the extender
ignores all constraints of the Pod. In both cases, kube-scheduler may reject the Node that Slurm granted.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kubernetes_client.protocol import Manifest

_MAX_RULES = 20  # anti-affinity terms and spread constraints of one Pod together
_MAX_VALUES = 100  # requirements and values of all requirements of one Pod together
_MAX_LABELS = 64
_MAX_PORTS = 100
_EVERY_IP = "0.0.0.0"  # noqa: S104 -- Kubernetes' value for a host port without a hostIP
_BY_PODS = re.compile(r"anti-affinity rules|topology spread constraints|free ports")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Requirement(NamedTuple):
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Returns True if labels meet the requirement (labels.Requirement.Matches)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


Selector = tuple[Requirement, ...]


class AntiAffinity(NamedTuple):
    """A term of a Pod's required anti-affinity."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str] | None  # None for all namespaces

    def matches(self, other: "PodConstraints") -> bool:
        """Returns True if the term forbids another Pod in the same topology domain."""
        here = self.namespaces is None or other.namespace in self.namespaces
        return here and other.is_selected(self.selector)


class Spread(NamedTuple):
    """A topology spread constraint with DoNotSchedule."""

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class HostPort(NamedTuple):
    """A port of the Node that a container uses."""

    protocol: str
    port: int
    ip: str = _EVERY_IP

    def conflicts(self, other: "HostPort") -> bool:
        """Returns True if both ports cannot be in use on one Node."""
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.ip == other.ip or _EVERY_IP in (self.ip, other.ip))


class PodConstraints(NamedTuple):
    """A Pod's constraints on other Pods. `namespace` and `labels` are the Pod's own, for the selectors
    of other Pods."""

    namespace: str = ""
    labels: frozenset[tuple[str, str]] = frozenset()
    anti_affinity: tuple[AntiAffinity, ...] = ()
    spread: tuple[Spread, ...] = ()
    ports: tuple[HostPort, ...] = ()

    @property
    def exclusive(self) -> bool:
        """Returns True if the Pod's own rules can exclude Nodes because of other Pods."""
        return bool(self.anti_affinity or self.spread or self.ports)

    @property
    def rules(self) -> tuple[Any, ...]:
        """Returns all fields except the labels. The result is equal for all Pods of a template."""
        return self.namespace, self.anti_affinity, self.spread, self.ports

    def is_selected(self, selector: Selector) -> bool:
        """Returns True if a selector matches the Pod's labels."""
        labels = _as_mapping(self.labels)
        return all(each.matches(labels) for each in selector)

    def heeds(self, other: "PodConstraints") -> bool:
        """Returns True if the Node of another Pod matters for the Nodes that this Pod may use."""
        spread = self.namespace == other.namespace and any(
            other.is_selected(each.selector) for each in self.spread
        )
        return spread or self.excludes(other)

    def excludes(self, other: "PodConstraints") -> bool:
        """Returns True if a rule of either Pod forbids both Pods in one topology domain."""
        own = any(each.matches(other) for each in self.anti_affinity)
        return own or any(each.matches(self) for each in other.anti_affinity) or self.uses_port_of(other)

    def uses_port_of(self, other: "PodConstraints") -> bool:
        """Returns True if two Pods cannot be on one Node because of a host port."""
        return any(own.conflicts(port) for own in self.ports for port in other.ports)


NO_CONSTRAINTS = PodConstraints()


class ClosedNodes(NamedTuple):
    """The Nodes that a Pod cannot use because of placed Pods, as sets of the read model's Nodes."""

    apart: int = 0  # Nodes excluded by anti-affinity or host ports
    spread: int = 0
    """Nodes excluded by topology spread. This set is an estimate, because the ledger does not know all
    Pods. If an unknown Pod is in the smallest domain, the waiting Pod may use more Nodes."""
    lasting: bool = True
    """False while a Pod that counts for the spread is not bound, because the Binding of such a Pod may
    make more Nodes usable."""

    @property
    def all(self) -> int:
        """Returns all Nodes that the Pod cannot use."""
        return self.apart | self.spread


def names_other_pods(rejection: str) -> bool:
    """Returns True if kube-scheduler's message says that a Node was rejected because of other Pods."""
    return bool(rejection) and _BY_PODS.search(rejection) is not None


@lru_cache(4096)
def _as_mapping(labels: frozenset[tuple[str, str]]) -> Mapping[str, str]:
    return dict(labels)


@lru_cache(4096)
def _shared(constraints: PodConstraints) -> PodConstraints:
    """Returns the same object for equal constraints, to save memory: many Pods have the same
    template."""
    return constraints


def parse_pod_constraints(metadata: Manifest, spec: Manifest) -> PodConstraints:
    """Returns the constraints in a Pod's manifest. A malformed manifest has no constraints, because
    kube-apiserver rejects such a Pod."""
    namespace, labels = metadata.get("namespace") or "default", metadata.get("labels") or {}
    if len(labels) > _MAX_LABELS:
        return NO_CONSTRAINTS
    try:
        terms = tuple(_anti_affinity(spec, namespace))
        spread = tuple(_spread(spec, labels))
        ports = tuple(dict.fromkeys(_ports(spec)))
    except (AttributeError, KeyError, TypeError, ValueError):
        terms, spread, ports = (), (), ()
    selectors = [*(each.selector for each in terms), *(each.selector for each in spread)]
    values = sum(1 + len(each.values) for selector in selectors for each in selector)
    if len(selectors) > _MAX_RULES or values > _MAX_VALUES or len(ports) > _MAX_PORTS:
        terms, spread, ports = (), (), ()
    return _shared(PodConstraints(namespace, frozenset(labels.items()), terms, spread, ports))


def _anti_affinity(spec: Manifest, own: str) -> Iterator[AntiAffinity]:
    """Yields the required terms. kube-apiserver (since 1.31) has already merged matchLabelKeys and
    mismatchLabelKeys into the selector."""
    affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    for term in affinity.get(_REQUIRED) or ():
        selector, of_namespaces = _selector(term.get("labelSelector")), term.get("namespaceSelector")
        every = of_namespaces is not None and not _selector(of_namespaces)
        if selector is None or (of_namespaces and not every):
            continue
        namespaces = None if every else frozenset(term.get("namespaces") or (own,))
        yield AntiAffinity(term["topologyKey"], selector, namespaces)


def _spread(spec: Manifest, labels: Mapping[str, str]) -> Iterator[Spread]:
    for each in spec.get("topologySpreadConstraints") or ():
        selector = _selector(each.get("labelSelector"))
        if each.get("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule" or selector is None:
            continue
        keys = each.get("matchLabelKeys") or ()
        same = (Requirement(key, "In", frozenset((labels[key],))) for key in keys if key in labels)
        yield Spread(
            each["topologyKey"],
            int(each["maxSkew"]),
            (*selector, *same),
            int(each.get("minDomains") or 1),
            each.get("nodeAffinityPolicy") != "Ignore",
            each.get("nodeTaintsPolicy") == "Honor",
        )


def _selector(selector: Manifest | None) -> Selector | None:
    """Returns the requirements of a label selector. An empty selector has no requirements, and matches
    every Pod. Returns None if the selector is absent, and then no Pod matches."""
    if selector is None:
        return None
    labels = sorted((selector.get("matchLabels") or {}).items())
    equal = (Requirement(key, "In", frozenset((value,))) for key, value in labels)
    expressions = (
        Requirement(each["key"], each["operator"], frozenset(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    )
    return (*equal, *expressions)


def _ports(spec: Manifest) -> Iterator[HostPort]:
    """Yields the host ports of containers and of sidecars, because kube-scheduler counts both."""
    others = spec.get("initContainers") or ()
    sidecars = (each for each in others if each.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                protocol, ip = port.get("protocol") or "TCP", port.get("hostIP") or _EVERY_IP
                yield HostPort(protocol, int(port["hostPort"]), ip)
