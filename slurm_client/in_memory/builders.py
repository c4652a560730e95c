"""Nodes and partitions for an `InMemorySlurm`, in one line each."""

from collections.abc import Sequence

from slurm_client import hostlist
from slurm_client.model import Node, Partition


def node(
    name: str,
    *,
    cpus: int = 16,
    memory_mb: int = 64_000,
    gres: str = "",
    features: Sequence[str] = (),
    external: bool = True,
    address: str = "127.0.0.1",
) -> Node:
    """A node that is up; `gres` as in slurm.conf: "gpu:h100:8"."""
    states = frozenset({"IDLE", "EXTERNAL"} if external else {"IDLE"})
    return Node(
        name,
        states,
        cpus,
        memory_mb,
        gres=gres,
        features=tuple(features),
        address=address,
        hostname=name,
    )


def partition(
    name: str,
    nodes: Sequence[str] | str,
    *,
    default: bool = False,
    priority_tier: int = 1,
    up: bool = True,
    max_time_minutes: int | None = None,
    max_nodes: int | None = None,
) -> Partition:
    """A partition over these nodes: names, or a hostlist expression."""
    names = hostlist.expand(nodes) if isinstance(nodes, str) else tuple(nodes)
    return Partition(
        name,
        names,
        default=default,
        up=up,
        priority_tier=priority_tier,
        max_time_minutes=max_time_minutes,
        max_nodes=max_nodes,
    )
