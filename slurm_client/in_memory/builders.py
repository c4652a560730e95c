"""Short functions that make nodes and partitions for an `InMemorySlurm`."""

from collections.abc import Sequence
from typing import Any

from slurm_client import hostlist
from slurm_client.model import Node, Partition


def node(
    name: str, *, cpus: int = 16, memory_mb: int = 64_000, external: bool = True, **others: Any
) -> Node:
    """Returns an available node. `others` are fields of a Node, like gres="gpu:h100:8"."""
    states = frozenset({"IDLE", "EXTERNAL"} if external else {"IDLE"})
    return Node(name, states, cpus, memory_mb, **({"address": "127.0.0.1", "hostname": name} | others))


def partition(name: str, nodes: Sequence[str] | str, **others: Any) -> Partition:
    """Returns a partition. `nodes` are names or a hostlist expression. `others` are fields of a
    Partition."""
    return Partition(name, hostlist.expand(nodes) if isinstance(nodes, str) else tuple(nodes), **others)
