"""Checks whether Slurm gives the same memory of a node to several jobs. This module is pure.

If SelectTypeParameters (slurm.conf(5)) lacks memory, a Pod and a native job can each get all memory
of a node. Memory is not shared if each job gets whole nodes (OverSubscribe=EXCLUSIVE, or
SelectType=select/linear)."""

from collections.abc import Iterator, Sequence
from typing import Final

from extender.node_view.view import ClusterView
from slurm_client.model import Partition
from slurm_client.server import counts_memory

FIX: Final = "Set SelectTypeParameters=CR_Core_Memory in slurm.conf, and run `scontrol reconfigure`."
_LINEAR: Final = "select/linear"


def uncounted_memory(
    parameters: Sequence[str], view: ClusterView, select_type: str | None = None
) -> str | None:
    """Returns a message if SelectTypeParameters lacks memory, otherwise None. `parameters` are
    SelectTypeParameters of the cluster, empty if unknown. A partition may override the cluster's
    parameters. `select_type` is SelectType, None if unknown. Ignores partitions without Nodes, and
    partitions whose nodes no jobs share."""
    lacking = list(_lacking(parameters, view, linear=select_type == _LINEAR))
    if not lacking:
        return None
    return f"{'; '.join(lacking)}, without memory: Slurm gives the same memory to several jobs"


def _lacking(parameters: Sequence[str], view: ClusterView, *, linear: bool) -> Iterator[str]:
    nodes = {name: set(filter(view.node_of, each.nodes)) for name, each in view.partitions.items()}
    shared_nodes = set[str]().union(
        *(nodes[name] for name, each in view.partitions.items() if not _gives_whole_nodes(each, linear))
    )
    shared = [each for name, each in view.partitions.items() if nodes[name] & shared_nodes]
    unknown = not linear and not any(nodes.values())
    in_force = unknown or any(not each.select_type_parameters for each in shared)
    if in_force and parameters and not counts_memory(parameters):
        yield f"SelectTypeParameters is {','.join(parameters)}"
    for partition in shared:
        own = partition.select_type_parameters
        if own and not counts_memory(own):
            yield f"SelectTypeParameters of partition {partition.name} is {','.join(own)}"


def _gives_whole_nodes(partition: Partition, linear: bool) -> bool:
    mode = partition.oversubscribe.partition(":")[0]
    return mode == "EXCLUSIVE" or (linear and mode not in ("YES", "FORCE"))
