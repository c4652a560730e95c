"""Finds the places of Slurm's nodes by the labels of Nodes. This module does no I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubernetes_client.protocol import Manifest
from wellknown.names import NODE_NAME_LABEL
from wellknown.node_mapping import NodeNames, slurm_name

Path = tuple[str | None, ...]
"""The values of the tiers' labels, with None for a missing or empty label."""


@dataclass(frozen=True, slots=True)
class Place:
    """Slurm's name of a Node, and the Node's place."""

    node: str
    path: Path


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the places of Nodes with all labels of `selector`. A value "" in `selector` matches any
    value."""

    tiers: tuple[str, ...]
    selector: Mapping[str, str]
    name_label: str = NODE_NAME_LABEL

    def place_of(self, node: Manifest) -> Place | None:
        """Returns the place of a Node, or None if `selector` does not match."""
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
