"""Cores and devices that two slots have in common."""

from functools import lru_cache

from extender.pod_request.pod import Pod
from slurm_client import gres
from wellknown import number_list
from wellknown.allocation import Allocation

Unit = tuple[str, int]
"""A core or a device of a node, by Slurm's number: ("core", 3), ("gpu", 0)."""


def common(one: Allocation, other: Allocation) -> frozenset[Unit]:
    """Returns the cores and devices in both of two slots; none for slots of two Nodes. Parts of a shared
    GPU do not count: several jobs may have parts of one GPU."""
    if one.node != other.node:
        return frozenset()
    return _units(one.cores, one.gres) & _units(other.cores, other.gres)


def units_on(pod: Pod, slot: Allocation) -> frozenset[Unit]:
    """Returns the cores and devices of a slot that are on a Pod of another job."""
    own = pod.scheduling.allocation
    return frozenset() if own is None or own.job_id == slot.job_id else common(own, slot)


@lru_cache(maxsize=4096)
def _units(cores: str, devices: str) -> frozenset[Unit]:
    """Returns the units of a slot, without the devices of an invalid text."""
    try:
        by_name = gres.numbers(devices)
    except ValueError:
        by_name = {}
    whole = {name: numbers for name, numbers in by_name.items() if name not in gres.SHARED}
    by_name = {"core": number_list.expand(cores)} | whole
    return frozenset((name, number) for name, numbers in by_name.items() for number in numbers)
