"""Cores and devices that two slots have in common."""

from dataclasses import replace
from functools import lru_cache

from extender.pod_request.pod import Pod
from slurm_client import gres
from wellknown import number_list
from wellknown.allocation import Allocation

Unit = tuple[str, int]
"""A core or a device of a node, by Slurm's number: ("core", 3), ("gpu", 0)."""
_CORE, _GPU = "core", "gpu"


def common(one: Allocation, other: Allocation) -> frozenset[Unit]:
    """Returns the cores and devices that two slots have in common; empty for slots of different Nodes.
    Two jobs may have parts of the same GPU, so parts do not overlap. A whole GPU overlaps with a part of
    the GPU."""
    if one.node != other.node:
        return frozenset()
    own, parts = _units(one.cores, one.gres)
    others, other_parts = _units(other.cores, other.gres)
    return (own & others) | (own & other_parts) | (parts & others)


def covers(one: Allocation, other: Allocation) -> bool:
    """Returns True if a slot has all cores, devices and parts of GPUs of another slot on the same
    Node."""
    own, parts = _units(one.cores, one.gres)
    others, other_parts = _units(other.cores, other.gres)
    return one.node == other.node and others <= own and other_parts <= own | parts


def units_on(pod: Pod, slot: Allocation) -> frozenset[Unit]:
    """Returns the cores and devices of a slot that a Pod also uses; empty if the Pod belongs to the
    slot's job."""
    own = pod.scheduling.allocation
    return frozenset() if own is None or own.job_id == slot.job_id else common(own, slot)


def without(slot: Allocation, taken: frozenset[Unit]) -> Allocation | None:
    """Returns a slot without the taken cores; None if no core is left, or if `taken` contains
    devices."""
    left = [core for core in number_list.expand(slot.cores) if (_CORE, core) not in taken]
    if not left or any(name != _CORE for name, _ in taken):
        return None
    return replace(slot, cores=number_list.compress(left))


@lru_cache(maxsize=4096)
def _units(cores: str, devices: str) -> tuple[frozenset[Unit], frozenset[Unit]]:
    """Returns two sets: the units that belong to a slot alone, and the GPUs of which the slot has parts.
    If the text of the devices is invalid, the sets contain no devices."""
    try:
        by_name = gres.numbers(devices)
    except ValueError:
        by_name = {}
    parts = {(_GPU, n) for name in gres.SHARED & by_name.keys() for n in by_name[name]}
    whole = {(name, n) for name in by_name.keys() - gres.SHARED for n in by_name[name]}
    own = whole | {(_CORE, core) for core in number_list.expand(cores)}
    return frozenset(own), frozenset(parts)
