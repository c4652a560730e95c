"""Cores and devices that two slots have in common."""

from functools import lru_cache

from slurm_client import gres
from wellknown import number_list
from wellknown.allocation import Allocation

Unit = tuple[str, int]
"""A core or a device of a node, by Slurm's number: ("core", 3), ("gpu", 0)."""


def common(one: Allocation, other: Allocation) -> frozenset[Unit]:
    """Returns the cores and devices in both of two slots of a node. Parts of a shared GPU do not count:
    several jobs may have parts of one GPU."""
    return _units(one.cores, one.gres) & _units(other.cores, other.gres)


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
