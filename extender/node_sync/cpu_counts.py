"""Compares the CPUs of nodes in Slurm and in Kubernetes, for messages to an administrator.

Kubernetes counts logical CPUs. Slurm counts the CPUs that slurm.conf declares: threads, cores, or
parts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal

from extender.node_view.view import ClusterView
from slurm_client.model import Node as SlurmNode
from wellknown.resources import in_millis

_MILLI = Decimal("0.001")


def disagreements(view: ClusterView, nodes: Iterable[SlurmNode], unit: Decimal) -> tuple[str, ...]:
    """Returns messages about the nodes where Slurm's CPUs cannot be the CPUs of the Node. `unit` is the
    number of Kubernetes' CPUs in one CPU of Slurm."""
    kinds: defaultdict[tuple[Decimal, int], list[str]] = defaultdict(list)
    for slurm_node in nodes:
        node = view.node_of(slurm_node.name)
        if node is None or not node.cpus or not slurm_node.cpus:
            continue
        if _disagree(node.cpus, slurm_node, unit):
            kinds[node.cpus, slurm_node.cpus].append(node.name)
    return tuple(
        f"{_some(names)}: Slurm's {cpus} CPUs of {in_millis(unit)} stand for {in_millis(cpus * unit)}, "
        f"and Kubernetes counts {in_millis(has)}{_advice(has, cpus)}"
        for (has, cpus), names in kinds.items()
    )


def whole_cores(nodes: Iterable[SlurmNode], unit: Decimal) -> tuple[str, ...]:
    """Returns messages about the nodes where a job gets more CPUs than requested, because Slurm gives
    whole cores."""
    kinds: defaultdict[int, list[str]] = defaultdict(list)
    for node in nodes:
        if node.cpus_per_core > 1:
            kinds[node.cpus_per_core].append(node.name)
    return tuple(
        f"{_some(names)}: Slurm gives whole cores of {threads} CPUs, "
        f"so a Pod of {in_millis(unit)} CPU takes {in_millis(threads * unit)} there"
        for threads, names in kinds.items()
    )


def _disagree(has: Decimal, node: SlurmNode, unit: Decimal) -> bool:
    """Returns True if the number of a node's CPUs in Slurm is wrong. An administrator may keep CPUs of a
    Node back from Slurm. So fewer CPUs in Slurm are no error, with two exceptions. With unit 1, fewer
    CPUs are wrong if Slurm seems to count cores, and Kubernetes counts threads. With another unit, the
    number is wrong if Slurm has at most half of the Node's CPUs."""
    stand_for = node.cpus * unit
    if unit == 1:
        only_cores = node.cpus_per_core < node.threads_per_core
        return stand_for > has or (only_cores and stand_for * node.threads_per_core <= has)
    return not has / 2 < stand_for <= has


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _advice(has: Decimal, cpus: int) -> str:
    fitting = has / cpus
    if fitting % _MILLI:
        return ""
    return f": SLURM_EXTENDER_CPU_UNIT={in_millis(fitting)} would make them equal"
