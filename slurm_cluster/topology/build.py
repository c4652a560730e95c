"""Builds the topology that the labels of Nodes describe. This module does no I/O. Equal Nodes in any
order give an equal topology.

One wrong label does not remove the topology of the cluster. Invalid parts are omitted, and reported as a
`Problem`. Units (switches or blocks) of an earlier file stay, even without nodes. So an absent Node
changes no other node's place. Also, slurmctld can start even if a node still names such a unit:
slurmctld does not start if the file lacks a unit that a node names.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_cluster.topology.model import Kind, Topology, Unit, in_order, problem_of_name
from slurm_cluster.topology.places import Place
from slurm_cluster.topology.rules import Members, Names, Rules
from wellknown.quoting import quoted

_ROOT_TIER = -1


class Problem(NamedTuple):
    """A problem, and the Slurm nodes with the problem."""

    what: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """A topology, and the problems of the labels."""

    topology: Topology
    problems: tuple[Problem, ...]


class _Claim(NamedTuple):
    """A claim by a Node's labels about a switch: the switch's tier, and its parent. The parent is the
    Node's next wider switch."""

    tier: int
    parent_tier: int
    parent: str


@dataclass(slots=True)
class _Sorted:
    """Nodes with consistent labels, and the problems of the other Nodes."""

    names: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    """For each node, the names of its switches, with a name for each tier."""
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Nodes whose labels give no switch, by the problem."""


def build(rules: Rules, places: Iterable[Place], before: Topology | None = None) -> Built:
    """Returns the topology of these places. `before` is the earlier topology. The result keeps the units
    of the earlier topology, and the order of its blocks."""
    found = _named(rules, places)
    parents = _believed(found)
    if rules.kind is Kind.TREE:
        topology = _tree(rules, found, parents, before)
    else:
        topology = _blocks(rules, found, before)
    small = _too_small(topology, rules)
    if rules.members is Members.REPORTED:
        topology = topology.without_nodes(but=rules.unlabelled)
    problems = (Problem(what, in_order(nodes)) for what, nodes in sorted(found.problems.items()))
    return Built(topology, (*problems, *small))


def _named(rules: Rules, places: Iterable[Place]) -> _Sorted:
    found = _Sorted()
    for place in places:
        names = tuple(_names_of(rules, place))
        if wrong := _wrong(rules, place, names):
            found.problems[wrong].append(place.node)
        else:
            found.names[place.node] = names
    return found


def _names_of(rules: Rules, place: Place) -> Iterator[str | None]:
    for tier, value in enumerate(place.path):
        wider = filter(None, place.path[:tier])
        as_path = value is not None and rules.names is Names.PATH
        yield ".".join([*wider, value]) if as_path and value is not None else value


def _wrong(rules: Rules, place: Place, names: tuple[str | None, ...]) -> str | None:
    """Returns the reason why a Node's labels give no switch or block, or None."""
    if names[-1] is None:
        return f"label {rules.tiers[-1]} is missing"
    if rules.names is Names.PATH and None in place.path and any(place.path[: place.path.index(None)]):
        return "a label between two others is missing: its switch has no path"
    for name in filter(None, names):
        if problem := problem_of_name(name):
            return f"the name {quoted(name)} {problem}"
        if name in rules.own_names:
            return f"the name {quoted(name)} is reserved for a switch of slurm-cluster"
    return None


def _believed(found: _Sorted) -> dict[str, str]:
    """Removes nodes whose labels contradict the majority. Returns the parent of each switch, with "" for
    the root. The result is a tree, because each switch has one parent, and the parent is of a wider
    tier."""
    while True:
        claims = _claims(found.names)
        most = {name: _most(votes) for name, votes in claims.items()}
        losers = [node for node in found.names if _contradicts(found.names[node], most)]
        if not losers:
            return {name: claim.parent for name, claim in most.items()}
        for node in losers:
            del found.names[node]
        found.problems["the labels contradict those of other Nodes"] += losers


def _claims(named: Mapping[str, tuple[str | None, ...]]) -> dict[str, Counter[_Claim]]:
    claims: dict[str, Counter[_Claim]] = defaultdict(Counter)
    for names in named.values():
        for name, claim in _claimed(names):
            claims[name][claim] += 1
    return claims


def _claimed(names: tuple[str | None, ...]) -> Iterator[tuple[str, _Claim]]:
    parent_tier, parent = _ROOT_TIER, ""
    for tier, name in enumerate(names):
        if name is not None:
            yield name, _Claim(tier, parent_tier, parent)
            parent_tier, parent = tier, name


def _most(votes: Counter[_Claim]) -> _Claim:
    """Returns the claim that wins. First, the tier with the most votes wins. Among the claims of this
    tier, only the claims with the narrowest parent count. Among these, the claim with the most votes
    wins."""
    tiers = Counter[int]()
    for claim, count in votes.items():
        tiers[claim.tier] += count
    tier = min(tiers, key=lambda each: (-tiers[each], each))
    here = [claim for claim in votes if claim.tier == tier]
    nearest = max(claim.parent_tier for claim in here)
    known = [claim for claim in here if claim.parent_tier == nearest]
    return min(known, key=lambda claim: (-votes[claim], claim.parent))


def _contradicts(names: tuple[str | None, ...], most: Mapping[str, _Claim]) -> bool:
    return any(
        claim.tier != most[name].tier
        or (claim.parent_tier == most[name].parent_tier and claim.parent != most[name].parent)
        for name, claim in _claimed(names)
    )


def _members(found: _Sorted) -> dict[str, list[str]]:
    """Returns the nodes of each narrowest switch or block."""
    members: dict[str, list[str]] = defaultdict(list)
    for node, names in found.names.items():
        assert names[-1] is not None  # _wrong has removed nodes without the last name
        members[names[-1]].append(node)
    return members


def _tree(rules: Rules, found: _Sorted, parents: dict[str, str], before: Topology | None) -> Topology:
    members = _members(found)
    known = {name: parent or rules.root for name, parent in parents.items()}
    lost = [node for nodes in found.problems.values() for node in nodes]
    if lost:
        members[rules.unlabelled] = lost
        known[rules.unlabelled] = rules.root
    known |= _kept(known, members, rules, before)
    children: dict[str, list[str]] = defaultdict(list)
    for name, parent in known.items():
        if parent is not None:
            children[parent].append(name)
    root = (rules.root,) if rules.root is not None else ()
    units = (
        Unit(name, in_order(members.get(name, ())), in_order(children.get(name, ())))
        for name in (*root, *in_order(known))
    )
    return Topology(Kind.TREE, tuple(units))


def _kept(
    known: Mapping[str, str | None],
    members: Mapping[str, list[str]],
    rules: Rules,
    before: Topology | None,
) -> dict[str, str | None]:
    """Returns the parents of switches that no Node names any longer: the earlier parent if
    possible, otherwise the root."""
    if before is None or before.kind is not Kind.TREE:
        return {}
    gone = before.by_name.keys() - known.keys() - {rules.root, rules.unlabelled}
    may_have_children = (known.keys() - members.keys()) | gone
    were = before.parents
    return {name: were[name] if were.get(name) in may_have_children else rules.root for name in gone}


def _blocks(rules: Rules, found: _Sorted, before: Topology | None) -> Topology:
    """Returns the blocks. Blocks of an earlier file keep their positions, because Slurm joins
    neighbouring blocks to larger blocks."""
    members = _members(found)
    paths = {names[-1]: names for names in found.names.values()}
    old = before.by_name if before is not None and before.kind is Kind.BLOCK else {}
    ranks = {name: rank for rank, name in enumerate(in_order(_all_names(paths.values())))}
    new = sorted(members.keys() - old.keys(), key=lambda name: _rank(paths[name], ranks))
    units = (Unit(name, in_order(members.get(name, ()))) for name in (*old, *new))
    return Topology(Kind.BLOCK, tuple(units), rules.block_sizes)


def _all_names(paths: Iterable[tuple[str | None, ...]]) -> set[str]:
    return {name for path in paths for name in path if name is not None}


def _rank(path: tuple[str | None, ...], ranks: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the sort key of a block. Wider tiers come first in the key, so that blocks below the same
    wider switch are neighbours."""
    return tuple(-1 if name is None else ranks[name] for name in path)


def _too_small(topology: Topology, rules: Rules) -> Iterator[Problem]:
    for unit in topology.units if topology.kind is Kind.BLOCK else ():
        if 0 < len(unit.nodes) < rules.block_sizes[0]:
            what = f"block {unit.name} has fewer nodes than a base block ({rules.block_sizes[0]})"
            yield Problem(what, unit.nodes)
