"""All Nodes, and an index to find the Nodes open to a Pod.

A set of Nodes is a number with a bit for each Node. The index has such a set for each label, each value
of a label, and each taint. The constraints of a Pod are evaluated with a few operations on these sets,
for any number of Nodes.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import reduce
from itertools import accumulate
from operator import and_, or_
from typing import Any

from extender.pod_request.constraints.node_constraints import Node, NodeConstraints, Taint, Tolerated
from kubernetes_client.protocol import Manifest
from wellknown.node_mapping import NodeNames

_NAME_FIELD = "metadata.name"  # the only field for node selector terms


class _Of(Enum):
    """The kinds of keys in the index besides labels."""

    TAINT = 0
    AGENT = 1
    SERVED = 2


class By(Enum):
    """Reasons that close Nodes to a Pod, besides taints and the node selector."""

    AFFINITY = auto()
    """The Pod's required node affinity."""
    CLAIM = auto()
    """A claim of the Pod, usable on some Nodes only."""
    AGENT = auto()
    """No node agent on the Node."""


@dataclass(frozen=True, slots=True)
class NotServed:
    """Reason that closes a Node: the Pod requests an extended resource, and the kubelet counts no device
    of this resource on the Node (`Node.served`)."""

    resource: str


Closing = Taint | tuple[str, str] | By | NotServed
"""A taint without a toleration, a label of the node selector (key and value), or another reason."""
_ANY = None
"""Key of the set of the Nodes with a label, with any value."""
_Key = str | _Of
_Sets = Mapping[Any, int]
_Ordered = tuple[list[int], list[int]]
"""First: the numeric values of a label, ascending. Second: for each number, the Nodes with this number
or a larger number as the value."""


class Nodes(dict[str, Node]):
    """All Nodes by name. An index is immutable: a change returns the next version."""

    __slots__ = ("_all", "_bits", "_free", "_names", "_numbers", "_sets")

    def __init__(self, nodes: Mapping[str, Node] | None = None) -> None:
        super().__init__(nodes or {})
        self._bits = {name: 1 << place for place, name in enumerate(self)}
        self._all = (1 << len(self)) - 1
        self._free: tuple[int, ...] = ()
        """The bits of deleted Nodes. New Nodes get these bits."""
        self._sets: Mapping[_Key, _Sets] = _gathered(self)
        self._numbers: dict[str, tuple[_Sets, _Ordered]] = {}
        """For each label: the label's sets, and the ordered values. The values are computed from these
        sets at the first use."""
        self._names: NodeNames | None = None

    @property
    def names(self) -> NodeNames:
        """The mapping to Slurm nodes. The first call computes the mapping, in a millisecond for 5,000
        Nodes."""
        if self._names is None:
            self._names = NodeNames({name: node.slurm_name for name, node in self.items()})
        return self._names

    def with_node(self, name: str, node: Node | None) -> "Nodes":
        """Returns the next version after a Node was added, changed or deleted. `node` is None for a
        deleted Node."""
        after = Nodes()
        after.update(self)
        after._bits, after._free = dict(self._bits), self._free
        if node is None:
            after.pop(name, None)
            bit = after._bits.pop(name, 0)
            after._free = (*self._free, bit) if bit else self._free
            after._all = self._all & ~bit
        else:
            bit = after._place(name)
            after[name] = node
            after._all = self._all | bit
        after._sets = _moved(self._sets, bit, _facts(self.get(name)), _facts(node))
        numbers = self._numbers.items()  # drops computed values of changed labels
        after._numbers = {key: known for key, known in numbers if after._sets.get(key) is known[0]}
        after._names = self._names if _named(self.get(name)) == _named(node) else None
        return after

    def _place(self, name: str) -> int:
        if name not in self._bits:
            self._bits[name] = self._free[-1] if self._free else 1 << len(self._bits)
            self._free = self._free[:-1]
        return self._bits[name]

    def named(self, names: Iterable[str]) -> int:
        """Returns the set of the Nodes with these names."""
        return _union(self._bits.get(name, 0) for name in names)

    def standing_for(self, slurm_name: str) -> int:
        """Returns the set with the Node that represents a Slurm node. If no Node does, the set is
        empty."""
        return self._bits.get(self.names.standing_for(slurm_name) or "", 0)

    def sharing(self, key: str, names: Iterable[str]) -> int:
        """Returns the set of all Nodes with the same value of a label as any named Node."""
        found = (self.get(name) for name in names)
        values = {node.labels.get(key) for node in found if node is not None} - {None}
        return _union(self._of(key).get(value, 0) for value in values)

    def domains(self, key: str, within: int) -> dict[str, int]:
        """Returns, for each value of a label, the Nodes with this value in the set `within`."""
        found = ((value, each & within) for value, each in self._of(key).items() if value is not _ANY)
        return {value: each for value, each in found if each}

    def counted(self, constraints: NodeConstraints, *, affinity: bool, taints: bool) -> int:
        """Returns the set of the Nodes that kube-scheduler counts for a Pod's topology spread.
        `affinity` and `taints` are True if the spread constraint honors the node affinity and the
        taints."""
        closed = 0
        for closing, nodes in self.closed_to(constraints):
            is_taint, is_label = isinstance(closing, Taint), isinstance(closing, tuple)
            by_affinity = closing is By.AFFINITY or (is_label and not is_taint)
            if (taints and is_taint) or (affinity and by_affinity):
                closed |= nodes
        return self._all & ~closed

    def having(self, keys: Iterable[str]) -> int:
        """Returns the set of the Nodes with all of these labels."""
        return reduce(and_, (self._of(key).get(_ANY, 0) for key in keys), self._all)

    def open_to(self, constraints: NodeConstraints) -> int:
        """Returns the set of the Nodes that kube-scheduler's own rules leave open to a Pod."""
        return self._all & ~_union(nodes for _, nodes in self.closed_to(constraints))

    def closed_to(self, constraints: NodeConstraints) -> Iterator[tuple[Closing, int]]:
        """Yields the reasons that close Nodes to a Pod, each with the set of closed Nodes."""
        selector, terms, tolerations, claimed, agent, devices = constraints.demands
        tolerated = Tolerated(tolerations)
        for taint, nodes in self._of(_Of.TAINT).items():
            if not tolerated.passes(taint):
                yield taint, nodes
        for key, value in selector.items():
            yield (key, value), self._all & ~self._of(key).get(value, 0)
        if terms is not None:
            yield By.AFFINITY, self._all & ~_union(map(self._matching, terms))
        served = self._of(_Of.SERVED)
        for resource in devices:
            yield NotServed(resource), self._all & ~(served.get(resource, 0) | served.get(_ANY, 0))
        if agent:
            yield By.AGENT, self._all & ~self._of(_Of.AGENT).get(True, 0)
        for each in claimed:
            yield By.CLAIM, self._all & ~_union(map(self._matching, each))

    def _of(self, key: _Key) -> _Sets:
        return self._sets.get(key, {})

    def _matching(self, term: Manifest) -> int:
        """Returns the set of the Nodes that match a term. A term without requirements matches no
        Node."""
        labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
        found = self._all if labels or fields else 0
        for expression in labels:
            found &= self._meeting(expression, self._of(expression["key"]))
        for expression in fields:
            found &= self._meeting(expression, self._bits if expression["key"] == _NAME_FIELD else {})
        return found

    def _meeting(self, expression: Manifest, sets: _Sets) -> int:
        """Returns the Nodes that meet a requirement, as k8s.io/apimachinery
        labels.Requirement.Matches does."""
        wanted: list[str] = expression.get("values") or []
        match expression["operator"]:
            case "In":
                return _union(sets.get(value, 0) for value in wanted)
            case "NotIn":
                return self._all & ~_union(sets.get(value, 0) for value in wanted)
            case "Exists":
                return sets.get(_ANY, 0)
            case "DoesNotExist":
                return self._all & ~sets.get(_ANY, 0)
            case "Gt" | "Lt" as operator if _ANY in sets:
                return self._beyond(expression["key"], operator, wanted)
        return 0

    def _beyond(self, key: str, operator: str, wanted: list[str]) -> int:
        limit = _integer(wanted[0]) if len(wanted) == 1 else None
        if limit is None:
            return 0
        numbers, at_least = self._in_order(key)
        if operator == "Gt":
            return at_least[bisect_right(numbers, limit)]
        return at_least[0] & ~at_least[bisect_left(numbers, limit)]

    def _in_order(self, key: str) -> _Ordered:
        sets = self._of(key)
        known = self._numbers.get(key)
        if known is None or known[0] is not sets:
            known = self._numbers[key] = sets, _ordered(sets)
        return known[1]


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _named(node: Node | None) -> str | None:
    return None if node is None else node.slurm_name


def _facts(node: Node | None) -> set[tuple[_Key, Any]]:
    """Returns the keys of a Node in the index, each with a value."""
    if node is None:
        return set()
    taints = ((_Of.TAINT, taint) for taint in node.effective_taints)
    labelled = ((key, _ANY) for key in node.labels)
    agent = ((_Of.AGENT, True),) if node.has_agent else ()
    served = ((_Of.SERVED, each) for each in (node.served or ()))
    unknown = ((_Of.SERVED, _ANY),) if node.served is None else ()
    return {*node.labels.items(), *labelled, *taints, *agent, *served, *unknown}


def _gathered(nodes: Mapping[str, Node]) -> dict[_Key, dict[Any, int]]:
    places: defaultdict[_Key, defaultdict[Any, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, node in enumerate(nodes.values()):
        for key, value in _facts(node):
            places[key][value].append(place)
    return {
        key: {value: _as_set(those, len(nodes)) for value, those in values.items()}
        for key, values in places.items()
    }


def _as_set(places: list[int], size: int) -> int:
    if len(places) == 1:
        return 1 << places[0]
    bits = bytearray(size // 8 + 1)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


def _moved(
    sets: Mapping[_Key, _Sets], bit: int, before: set[tuple[_Key, Any]], after: set[tuple[_Key, Any]]
) -> Mapping[_Key, _Sets]:
    """Returns the index after a change of one Node. Both versions of the index share the unchanged
    parts."""
    changed = {key: dict(sets.get(key, {})) for key, _ in before ^ after}
    for key, value in before - after:
        changed[key][value] &= ~bit
        if not changed[key][value]:
            del changed[key][value]
    for key, value in after - before:
        changed[key][value] = changed[key].get(value, 0) | bit
    return {key: values for key, values in {**sets, **changed}.items() if values}


def _ordered(sets: _Sets) -> _Ordered:
    values = ((_integer(value), each) for value, each in sets.items() if value is not _ANY)
    numbers = sorted((number, each) for number, each in values if number is not None)
    at_least = [0, *accumulate((each for _, each in reversed(numbers)), or_)]
    return [n for n, _ in numbers], at_least[::-1]


def _integer(text: str) -> int | None:
    """Parses an integer as Go's strconv.ParseInt does: ASCII digits, perhaps with a sign, in 64 bits."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
