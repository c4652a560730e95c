"""Nodes with labels, and what is made of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from slurm_cluster.topology.build import Built, build
from slurm_cluster.topology.model import Kind, Topology
from slurm_cluster.topology.places import Place
from slurm_cluster.topology.rules import Rules

ZONE, SPINE, LEAF = "example.io/zone", "example.io/spine", "example.io/leaf"
TREE = Rules(Kind.TREE, (SPINE, LEAF))
BLOCKS = Rules(Kind.BLOCK, (LEAF,), (4, 8))


def node(name: str, **labels: str) -> dict[str, Any]:
    """A Node; its labels are given by the last part of their keys: spine="s1"."""
    keys = {f"example.io/{key}": value for key, value in labels.items()}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": keys}}


def places(*rows: str) -> list[Place]:
    """Places, each "NODE VALUE VALUE"; "-" is no label."""
    each = [row.split() for row in rows]
    return [Place(name, tuple(None if one == "-" else one for one in path)) for name, *path in each]


def racks(count: int, size: int, spines: int = 1) -> list[Place]:
    """Places of `count` leaves of `size` nodes, in so many spines."""
    return [
        Place(f"node-{leaf * size + index}", (f"spine-{leaf % spines}", f"leaf-{leaf}"))
        for leaf in range(count)
        for index in range(size)
    ]


def made(rules: Rules, found: Iterable[Place], before: Topology | None = None) -> Mapping[str, str]:
    """The units as text: nodes and child switches, by name."""
    return shown(build(rules, found, before).topology)


def shown(topology: Topology) -> Mapping[str, str]:
    return {unit.name: " ".join([*unit.children, *unit.nodes]) for unit in topology.units}


def told(built: Built) -> Mapping[str, str]:
    """The troubles: which nodes, by what is wrong."""
    return {trouble.what: " ".join(trouble.nodes) for trouble in built.troubles}
