"""Finds out whether Slurm gives memory of a node to several jobs at once: pure.

If SelectTypeParameters (slurm.conf(5)) lacks memory, a Pod and a native job can each get all memory of
one node.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from extender.cluster.view import ClusterView
from slurm_client.model import Partition
from slurm_client.server import counts_memory

CURE: Final = "Set SelectTypeParameters=CR_Core_Memory in slurm.conf, and run `scontrol reconfigure`."


def uncounted_memory(parameters: Sequence[str], view: ClusterView) -> str | None:
    """Returns a message that names the SelectTypeParameters without memory; None if there are none.
    `parameters` are the cluster's; empty: not known. A partition can override the cluster's parameters.
    Partitions whose nodes have no Node are ignored."""
    lacking = list(_lacking(parameters, view))
    if not lacking:
        return None
    return f"{'; '.join(lacking)}, without memory: Slurm gives the same memory to several jobs"


def _lacking(parameters: Sequence[str], view: ClusterView) -> Iterator[str]:
    shared = [each for each in view.partitions.values() if _has_nodes(each, view)]
    in_force = not shared or any(not each.select_type_parameters for each in shared)
    if in_force and parameters and not counts_memory(parameters):
        yield f"SelectTypeParameters is {','.join(parameters)}"
    for partition in shared:
        own = partition.select_type_parameters
        if own and not counts_memory(own):
            yield f"SelectTypeParameters of partition {partition.name} is {','.join(own)}"


def _has_nodes(partition: Partition, view: ClusterView) -> bool:
    return any(view.node_of(name) is not None for name in partition.nodes)
