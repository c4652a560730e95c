"""Where Pods are that have a Node or were granted one, and the Nodes that those Pods close to others.

The ledger alone knows of grants whose Pods are not bound yet. Pods that Slurm does not place are not
known here: kube-scheduler rejects a Node because of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

from extender.cluster.view import ClusterView, Domains
from extender.record.placeholder import NO_NODES, Placeholder
from extender.request.node_constraints import NodeConstraints
from extender.request.pod_constraints import NO_CONSTRAINTS, PodConstraints, Spread


class _Place(NamedTuple):
    """The Nodes of one Pod."""

    constraints: PodConstraints = NO_CONSTRAINTS
    held: frozenset[str] = NO_NODES
    """Nodes where the Pod is, may yet be bound, or may still have containers."""
    node: str | None = None
    """The Node that the Pod is bound to."""
    counts: bool = True
    """kube-scheduler counts no Pod that is being deleted for topology spread."""


@dataclass(slots=True)
class _Alike:
    """The Nodes of all Pods with the same constraints and labels."""

    held: Counter[str] = field(default_factory=Counter)
    spread: Counter[str] = field(default_factory=Counter)
    bound: Counter[str] = field(default_factory=Counter)

    def add(self, place: _Place, number: int) -> None:
        """Adds a Pod's Nodes, or (-1) takes them out."""
        _add(self.held, place.held, number)
        if place.counts:
            _add(self.spread, place.held, number)
            _add(self.bound, (place.node,) if place.node else (), number)


def _add(counted: Counter[str], nodes: Iterable[str], number: int) -> None:
    for node in nodes:
        counted[node] += number
        if not counted[node]:
            del counted[node]


_Group = dict[PodConstraints, _Alike]


class PlacedPods:
    """Pods are counted by their constraints and labels: Pods of one template share these."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._in: defaultdict[str, _Group] = defaultdict(dict)
        """By namespace."""
        self._repelling: dict[PodConstraints, None] = {}
        """Those of them with anti-affinity."""
        self._with_ports: dict[PodConstraints, None] = {}

    def follow(self, uid: str, record: Placeholder | None) -> tuple[PodConstraints, ...]:
        """Takes note of the Nodes of a record's Pod. Returns the constraints of Pods that have moved."""
        before, place = self._places.get(uid), _place_of(record)
        if place == before:
            return ()
        if before is not None:
            self._add(before, -1)
            del self._places[uid]
        if place is not None:
            self._add(place, 1)
            self._places[uid] = place
        return tuple(each.constraints for each in (before, place) if each is not None)

    def holds(self, uid: str) -> bool:
        """Returns True if a Pod has a Node here."""
        return uid in self._places

    def _add(self, place: _Place, number: int) -> None:
        of = place.constraints
        group = self._in[of.namespace]
        alike = group.setdefault(of, _Alike())
        alike.add(place, number)
        if not alike.held:
            del group[of]
            self._repelling.pop(of, None)
            self._with_ports.pop(of, None)
            if not group:
                del self._in[of.namespace]
            return
        if of.anti_affinity:
            self._repelling[of] = None
        if of.ports:
            self._with_ports[of] = None

    def closed_to(self, pod: PodConstraints, constraints: NodeConstraints, view: ClusterView) -> int:
        """Returns the set of the Nodes that placed Pods close to a Pod."""
        if not (pod.exclusive or self._repelling):
            return 0
        closed = _union(self._apart(pod, view))
        keys = tuple(each.topology_key for each in pod.spread)
        for each in pod.spread:
            by = each.honors_affinity, each.honors_taints
            domains = view.domains(Domains(each.topology_key, keys, constraints, *by))
            closed |= ~_union(self._within_skew(pod, each, domains, view))
        return closed

    def _apart(self, pod: PodConstraints, view: ClusterView) -> Iterator[int]:
        for key, alike in chain(self._repelled_by(pod), self._that_repel(pod)):
            yield view.sharing(key, alike.held)
        for other in self._with_ports if pod.ports else ():
            if pod.uses_port_of(other):
                yield view.named(self._in[other.namespace][other].held)

    def _repelled_by(self, pod: PodConstraints) -> Iterator[tuple[str, _Alike]]:
        for term in pod.anti_affinity:
            for other, alike in self._of(term.namespaces):
                if term.matches(other):
                    yield term.topology_key, alike

    def _that_repel(self, pod: PodConstraints) -> Iterator[tuple[str, _Alike]]:
        for other in self._repelling:
            for term in other.anti_affinity:
                if term.matches(pod):
                    yield term.topology_key, self._in[other.namespace][other]

    def _of(self, namespaces: Iterable[str] | None) -> Iterator[tuple[PodConstraints, _Alike]]:
        """Yields what is known of some namespaces, or (None) of all."""
        for namespace in self._in if namespaces is None else namespaces:
            yield from self._in.get(namespace, {}).items()

    def _within_skew(
        self, pod: PodConstraints, spread: Spread, domains: Mapping[str, int], view: ClusterView
    ) -> Iterator[int]:
        """The smallest domain is counted by bound Pods alone: kube-scheduler may look at two Pods in
        another order than Slurm did."""
        there, bound = Counter[str](), Counter[str]()
        for other, alike in self._in.get(pod.namespace, {}).items():
            if other.is_selected(spread.selector):
                _count(there, alike.spread, spread.topology_key, view)
                _count(bound, alike.bound, spread.topology_key, view)
        enough = len(domains) >= spread.min_domains
        least = min((bound[value] for value in domains), default=0) if enough else 0
        most = spread.max_skew + least - pod.is_selected(spread.selector)
        return (nodes for value, nodes in domains.items() if there[value] <= most)


def _count(domains: Counter[str], nodes: Mapping[str, int], key: str, view: ClusterView) -> None:
    for name, number in nodes.items():
        node = view.nodes.get(name)
        if node is not None and key in node.labels:
            domains[node.labels[key]] += number


def _place_of(record: Placeholder | None) -> _Place | None:
    """Returns None for a workload without a Node, and for a group."""
    if record is None or record.workload.size > 1 or not record.members:
        return None
    held, pod = record.holds, record.lead
    return _Place(pod.constraints, held, pod.node, not pod.deleting) if held else None


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)
