"""What the labels of Nodes say of where Slurm's nodes are: pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubernetes_client.protocol import Manifest
from wellknown.names import NODE_NAME_LABEL
from wellknown.node_mapping import NodeNames, slurm_name

Path = tuple[str | None, ...]
"""The values of the tiers' labels, None where a label is missing or empty."""


@dataclass(frozen=True, slots=True)
class Place:
    """One Node: Slurm's name of it, and where it is."""

    node: str
    path: Path


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads Nodes. It takes those that have all labels of `selector`; a value "" there is any value."""

    tiers: tuple[str, ...]
    selector: Mapping[str, str]
    name_label: str = NODE_NAME_LABEL

    def place_of(self, node: Manifest) -> Place | None:
        """Returns the place of a Node, None where the selector does not take it."""
        labels: Mapping[str, str] = node["metadata"].get("labels") or {}
        if not all(self._has(labels, key, value) for key, value in self.selector.items()):
            return None
        name = slurm_name(node["metadata"]["name"], labels, self.name_label)
        return Place(name, tuple(labels.get(tier) or None for tier in self.tiers))

    def _has(self, labels: Mapping[str, str], key: str, value: str) -> bool:
        return key in labels and (not value or labels[key] == value)


def standing(places: Mapping[str, Place]) -> tuple[Place, ...]:
    """Returns one place for each Slurm node, by the rule of `wellknown.node_mapping`."""
    names = NodeNames({node: place.node for node, place in places.items()})
    stands = (names.standing_for(each) for each in _sorted_nodes(places.values()))
    return tuple(places[node] for node in stands if node is not None)


def _sorted_nodes(places: Iterable[Place]) -> list[str]:
    return sorted({place.node for place in places})
