"""Makes Nodes with labels, and topologies from the labels."""

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
    """Returns a Node with labels. For example, spine="s1" becomes the label `example.io/spine: s1`."""
    keys = {f"example.io/{key}": value for key, value in labels.items()}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": keys}}


def places(*rows: str) -> list[Place]:
    """Returns a place for each text "NODE VALUE VALUE", with the values of the Node's labels. "-" stands
    for a missing label."""
    each = [row.split() for row in rows]
    return [Place(name, tuple(None if one == "-" else one for one in path)) for name, *path in each]


def racks(count: int, size: int, spines: int = 1) -> list[Place]:
    """Returns the places of Nodes in `count` leaves of `size` Nodes. The leaves alternate between the
    `spines` spines."""
    return [
        Place(f"node-{leaf * size + index}", (f"spine-{leaf % spines}", f"leaf-{leaf}"))
        for leaf in range(count)
        for index in range(size)
    ]


def made(rules: Rules, found: Iterable[Place], before: Topology | None = None) -> Mapping[str, str]:
    """Returns the units of a topology as text: nodes and child switches, by name."""
    return shown(build(rules, found, before).topology)


def shown(topology: Topology) -> Mapping[str, str]:
    return {unit.name: " ".join([*unit.children, *unit.nodes]) for unit in topology.units}


def problems_of(built: Built) -> Mapping[str, str]:
    """Returns the names of the Nodes with a problem, by problem."""
    return {problem.what: " ".join(problem.nodes) for problem in built.problems}
