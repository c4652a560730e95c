"""A topology of Slurm as values, as in topology.yaml(5) and topology.conf(5)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final, Self

DEFAULT_NAME: Final = "default"
"""Name of the only topology in topology.conf. With this name, slurmd's Topology=default:UNIT fits both
files."""
LONGEST_NAME: Final = 64
_MOST_LEVELS: Final = 15
_LONGEST_NUMBER: Final = 18
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_NUMBER: Final = re.compile(r"(\d+)", re.ASCII)


class Kind(StrEnum):
    """The plugins that this package supports: topology/tree and topology/block."""

    TREE = "tree"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Unit:
    """A switch or a block. `nodes` and `children` may both be empty. A block has no children."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology of either switches or blocks. The order of blocks counts, because Slurm joins
    neighbouring blocks to larger blocks."""

    kind: Kind
    units: tuple[Unit, ...]
    block_sizes: tuple[int, ...] = ()
    """For blocks: the number of nodes in a base block, then in larger blocks."""
    name: str = DEFAULT_NAME

    @property
    def by_name(self) -> Mapping[str, Unit]:
        return {unit.name: unit for unit in self.units}

    @property
    def parents(self) -> Mapping[str, str]:
        """The parent of each switch. Switches without a parent are left out."""
        return {child: unit.name for unit in self.units for child in unit.children}

    def without_nodes(self, but: str) -> Self:
        """Returns the topology with no nodes in its units, because nodes report their own place. Only
        the unit `but` keeps its nodes."""
        units = (unit if unit.name == but else replace(unit, nodes=()) for unit in self.units)
        return replace(self, units=tuple(units))


def problem_of_name(name: str) -> str | None:
    """Returns the reason why Slurm would reject this name of a switch or block, or None. Slurm
    compresses names, and stores a number at the end of a name as a C integer (hostlist.c). If the number
    does not fit into this integer, slurmctld ends ("invalid child")."""
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if not _NAME.fullmatch(name):
        return "has characters that are not letters, digits, dots, dashes or underscores"
    if len(name) - len(name.rstrip("0123456789")) > _LONGEST_NUMBER:
        return f"ends with a number of more than {_LONGEST_NUMBER} digits"
    return None


def problem_of_sizes(sizes: Iterable[int]) -> str | None:
    """Returns the reason why Slurm would reject these BlockSizes, or None. Each size must be the first
    size times a power of two, and larger than the size before (topology.conf(5))."""
    given = tuple(sizes)
    if not given or given[0] < 1:
        return "a base block needs at least 1 node"
    if any(after <= before for before, after in pairwise(given)):
        return "each size must be larger than the size before"
    powers = [divmod(size, given[0]) for size in given]
    if any(rest or power.bit_count() != 1 for power, rest in powers):
        return f"each size must be {given[0]} times a power of two"
    if powers[-1][0].bit_length() > _MOST_LEVELS + 1:
        return f"the largest size is more than {given[0]} times 2 to the {_MOST_LEVELS}"
    return None


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names in natural order: b2 comes before b10."""
    return tuple(sorted(names, key=_numbers_as_numbers))


def _numbers_as_numbers(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = _NUMBER.split(name)
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts if part], name
