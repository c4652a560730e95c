"""The Nodes of placed Pods, and the Nodes that placed Pods close to waiting Pods.

A Pod is placed after Slurm has granted a Node, even before the Binding: only the ledger knows such
grants. This module does not know the Pods of groups, nor the Pods that Slurm does not place. If such a
Pod closes a Node, kube-scheduler rejects the Node. If such a Pod opens a Node, because it is in the
smallest domain of a topology spread, the ledger leaves the spread to kube-scheduler (`PodsApart`).
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
from extender.request.pod_constraints import NO_CONSTRAINTS, ClosedNodes, PodConstraints, Spread


class _Place(NamedTuple):
    """Constraints and Nodes of one placed Pod."""

    constraints: PodConstraints = NO_CONSTRAINTS
    held: frozenset[str] = NO_NODES
    """Nodes where the Pod runs, may still be bound, or may still have containers."""
    node: str | None = None
    """Node of the Pod's Binding; None before the Binding."""
    counts: bool = True
    """False for a Pod in deletion: kube-scheduler ignores the Pod for topology spread."""


@dataclass(slots=True)
class _Alike:
    """Numbers of Pods by Node, for Pods with the same constraints and labels."""

    held: Counter[str] = field(default_factory=Counter)
    spread: Counter[str] = field(default_factory=Counter)
    bound: Counter[str] = field(default_factory=Counter)

    def add(self, place: _Place, number: int) -> None:
        """Adds the Nodes of a Pod (`number` is 1), or removes the Nodes (`number` is -1)."""
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
    """Counts placed Pods by constraints and labels, because Pods of one template share both."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._in: defaultdict[str, _Group] = defaultdict(dict)
        """Counts by namespace and constraints."""
        self._repelling: dict[PodConstraints, None] = {}
        """Constraints of placed Pods with anti-affinity, in the order of arrival."""
        self._with_ports: dict[PodConstraints, None] = {}

    def follow(self, uid: str, record: Placeholder | None) -> tuple[PodConstraints, ...]:
        """Follows the Nodes of a Pod. Returns the Pod's constraints before and after a change of the
        Nodes; empty without a change."""
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
        """Returns True if a Pod is placed."""
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

    def closed_to(
        self, pod: PodConstraints, constraints: NodeConstraints, view: ClusterView
    ) -> ClosedNodes:
        """Returns the Nodes that placed Pods close to a Pod, as sets of the view's Nodes."""
        if not (pod.exclusive or self._repelling):
            return ClosedNodes()
        closed, lasting = 0, True
        keys = tuple(each.topology_key for each in pod.spread)
        for each in pod.spread:
            by = each.honors_affinity, each.honors_taints
            domains = view.domains(Domains(each.topology_key, keys, constraints, *by))
            there, bound = self._counts(pod, each, view)
            closed |= ~_union(_within_skew(pod, each, domains, there, bound))
            lasting &= there == bound
        return ClosedNodes(_union(self._apart(pod, view)), closed, lasting)

    def _apart(self, pod: PodConstraints, view: ClusterView) -> Iterator[int]:
        for key, alike in chain(self._repelled_by(pod), self._repelling_to(pod)):
            yield view.sharing(key, alike.held)
        for other in self._with_ports if pod.ports else ():
            if pod.uses_port_of(other):
                yield view.named(self._in[other.namespace][other].held)

    def _repelled_by(self, pod: PodConstraints) -> Iterator[tuple[str, _Alike]]:
        for term in pod.anti_affinity:
            for other, alike in self._of(term.namespaces):
                if term.matches(other):
                    yield term.topology_key, alike

    def _repelling_to(self, pod: PodConstraints) -> Iterator[tuple[str, _Alike]]:
        for other in self._repelling:
            for term in other.anti_affinity:
                if term.matches(pod):
                    yield term.topology_key, self._in[other.namespace][other]

    def _of(self, namespaces: Iterable[str] | None) -> Iterator[tuple[PodConstraints, _Alike]]:
        """Yields the counts of some namespaces; None stands for all namespaces."""
        for namespace in self._in if namespaces is None else namespaces:
            yield from self._in.get(namespace, {}).items()

    def _counts(
        self, pod: PodConstraints, spread: Spread, view: ClusterView
    ) -> tuple[Counter[str], Counter[str]]:
        """Returns the numbers of all Pods that count for a spread, and of the bound Pods, by domain."""
        there, bound = Counter[str](), Counter[str]()
        for other, alike in self._in.get(pod.namespace, {}).items():
            if other.is_selected(spread.selector):
                _count(there, alike.spread, spread.topology_key, view)
                _count(bound, alike.bound, spread.topology_key, view)
        return there, bound


def _within_skew(
    pod: PodConstraints,
    spread: Spread,
    domains: Mapping[str, int],
    there: Mapping[str, int],
    bound: Mapping[str, int],
) -> Iterator[int]:
    """Yields the Nodes of each domain with room for another Pod. Only bound Pods count for the
    smallest domain, because kube-scheduler may see granted Pods in a different order than Slurm."""
    enough = len(domains) >= spread.min_domains
    least = min((bound.get(value, 0) for value in domains), default=0) if enough else 0
    most = spread.max_skew + least - pod.is_selected(spread.selector)
    return (nodes for value, nodes in domains.items() if there.get(value, 0) <= most)


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
