"""The Nodes of placed Pods, and the Nodes that waiting Pods cannot use because of placed Pods.

A Pod counts as placed as soon as Slurm has granted a Node. Before the Binding, only the ledger knows the
grant. This module does not know the Pods of groups, nor the Pods that Slurm does not place. If such a
Pod closes a Node, kube-scheduler rejects the Node. With a topology spread, a Pod can also open Nodes: a
Pod in the smallest domain makes room in the other domains. If this module does not know the Pod, the
ledger leaves the spread to kube-scheduler (`PodsApart`).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple, TypeVar

from extender.node_view.view import ClusterView, Domains
from extender.pod_request.constraints.node_constraints import NodeConstraints
from extender.pod_request.constraints.pod_constraints import (
    NO_CONSTRAINTS,
    AntiAffinity,
    ClosedNodes,
    HostPort,
    PodConstraints,
    Selector,
    Spread,
)
from extender.record.placeholder import NO_NODES, Placeholder


class _Place(NamedTuple):
    """Constraints and Nodes of one placed Pod."""

    constraints: PodConstraints = NO_CONSTRAINTS
    held: frozenset[str] = NO_NODES
    """Nodes where the Pod runs, may still be bound, or may still have containers."""
    node: str | None = None
    """Node of the Pod's Binding; None before the Binding."""
    counts: bool = True
    """False for a Pod that is being deleted, because kube-scheduler ignores the Pod for topology
    spread."""


@dataclass(slots=True)
class _Alike:
    """For the Pods that a rule selects: the number of Pods on each Node."""

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


_Kind = TypeVar("_Kind", bound=Hashable)
_Rule = TypeVar("_Rule", bound=Hashable)


def _note(
    book: dict[_Kind, dict[_Rule, Counter[str]]],
    kind: _Kind,
    rule: _Rule,
    nodes: Iterable[str],
    number: int,
) -> None:
    """Adds the Nodes of a Pod to the Nodes of a rule, or removes the Nodes."""
    rules = book.setdefault(kind, {})
    counted = rules.setdefault(rule, Counter())
    _add(counted, nodes, number)
    if not counted:
        del rules[rule]
    if not rules:
        del book[kind]


_Selection = tuple[frozenset[str] | None, Selector]
"""Namespaces (None for all namespaces) and a label selector."""
_MAX_SELECTIONS = 1000


class PlacedPods:
    """Counts placed Pods by the rules in use, so that the cost of `closed_to` does not grow with the
    number of placed Pods. An index by label would not help, because each Pod of an Indexed Job or a
    StatefulSet has its own label."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._selected: dict[_Selection, _Alike] = {}
        """Counts of the Pods that a rule selects. The counts are computed at the first use of the rule,
        and then kept up to date."""
        self._repelling: dict[str | None, dict[AntiAffinity, Counter[str]]] = {}
        """Nodes of the Pods with an anti-affinity term, by the namespaces that the term names."""
        self._with_port: dict[tuple[str, int], dict[HostPort, Counter[str]]] = {}
        """Nodes of the Pods with a host port, by protocol and number."""

    def follow(self, uid: str, record: Placeholder | None) -> tuple[PodConstraints, ...]:
        """Notes the Nodes of a Pod. Returns the Pod's constraints before and after a change of the
        Nodes; empty if nothing has changed."""
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
        of, held = place.constraints, place.held
        for selection, alike in self._selected.items():
            if _is_selected(of, selection):
                alike.add(place, number)
        for term in of.anti_affinity:
            for namespace in (None,) if term.namespaces is None else term.namespaces:
                _note(self._repelling, namespace, term, held, number)
        for port in of.ports:
            _note(self._with_port, (port.protocol, port.port), port, held, number)

    def closed_to(
        self, pod: PodConstraints, constraints: NodeConstraints, view: ClusterView
    ) -> ClosedNodes:
        """Returns the Nodes that a Pod cannot use because of placed Pods, as sets of the view's
        Nodes."""
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
        for term in pod.anti_affinity:
            yield view.sharing(term.topology_key, self._all(term.namespaces, term.selector).held)
        for namespace in (pod.namespace, None):
            for term, held in self._repelling.get(namespace, {}).items():
                if term.matches(pod):
                    yield view.sharing(term.topology_key, held)
        for port in pod.ports:
            for other, held in self._with_port.get((port.protocol, port.port), {}).items():
                if port.conflicts(other):
                    yield view.named(held)

    def _all(self, namespaces: frozenset[str] | None, selector: Selector) -> _Alike:
        """Returns the counts of the Pods that a selector selects in some namespaces."""
        selection = namespaces, selector
        if selection not in self._selected:
            if len(self._selected) >= _MAX_SELECTIONS:
                del self._selected[next(iter(self._selected))]
            self._selected[selection] = alike = _Alike()
            for place in self._places.values():
                if _is_selected(place.constraints, selection):
                    alike.add(place, 1)
        return self._selected[selection]

    def _counts(
        self, pod: PodConstraints, spread: Spread, view: ClusterView
    ) -> tuple[Counter[str], Counter[str]]:
        """Returns two counts by domain: all placed Pods that count for a topology spread, and the bound
        Pods among these Pods."""
        alike, key = self._all(frozenset((pod.namespace,)), spread.selector), spread.topology_key
        return _by_domain(alike.spread, key, view), _by_domain(alike.bound, key, view)


def _within_skew(
    pod: PodConstraints,
    spread: Spread,
    domains: Mapping[str, int],
    there: Mapping[str, int],
    bound: Mapping[str, int],
) -> Iterator[int]:
    """Yields the Nodes of each domain with room for another Pod. For the size of the smallest domain,
    only bound Pods count. Other granted Pods may be unknown to kube-scheduler, because kube-scheduler
    may see the Pods in a different order than Slurm."""
    enough = len(domains) >= spread.min_domains
    least = min((bound.get(value, 0) for value in domains), default=0) if enough else 0
    most = spread.max_skew + least - pod.is_selected(spread.selector)
    return (nodes for value, nodes in domains.items() if there.get(value, 0) <= most)


def _by_domain(nodes: Mapping[str, int], key: str, view: ClusterView) -> Counter[str]:
    domains = Counter[str]()
    for name, number in nodes.items():
        node = view.nodes.get(name)
        if node is not None and key in node.labels:
            domains[node.labels[key]] += number
    return domains


def _place_of(record: Placeholder | None) -> _Place | None:
    """Returns the constraints and Nodes of a workload's Pod; None for a workload without a Node, and for
    a group."""
    if record is None or record.workload.size > 1 or not record.members:
        return None
    held, pod = record.holds, record.lead
    return (
        _Place(pod.scheduling.constraints, held, pod.life.node, not pod.life.deleting) if held else None
    )


def _is_selected(pod: PodConstraints, selection: _Selection) -> bool:
    namespaces, selector = selection
    return (namespaces is None or pod.namespace in namespaces) and pod.is_selected(selector)


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)
