"""Words for quantities: durations, times, lists of names, and amounts of resources."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

CPUS: Final = "CPUs"
MEMORY: Final = "memory"
DAY_S: Final = 86_400
_MOST_NAMED: Final = 10
_LAST: Final = 0xFFFF_FFFF
"""The latest time in Slurm's format."""
_UNITS: Final = (("day", DAY_S), ("h", 3600), ("min", 60), ("s", 1))
_Item = TypeVar("_Item")
Amount = tuple[str, int]
"""A resource (`CPUS`, `MEMORY` in MiB, or a GRES), and how much of the resource."""
_Amounts = tuple[Amount, ...]
_Partitions = tuple[tuple[str, _Amounts], ...]
"""Names of partitions, and an amount of each resource."""


def duration(seconds: float) -> str:
    """Returns a duration in its two largest units: "4 min 10 s", "30 ms"."""
    if seconds < 1:
        return f"{int(1000 * seconds + 1e-6)} ms"
    left, parts = int(seconds), list[str]()
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number and len(parts) < 2:
            parts.append(f"{number} {unit}s" if unit == "day" and number > 1 else f"{number} {unit}")
        elif parts:  # a unit below a missing unit says nothing
            break
    return " ".join(parts)


def clock(unix_seconds: int) -> str:
    """Returns a time as "24 Nov 13:11"."""
    return datetime.fromtimestamp(min(unix_seconds, _LAST), UTC).strftime("%-d %b %H:%M")


def first(of: Iterable[_Item]) -> tuple[tuple[_Item, ...], int]:
    """Returns the first items, up to the number for a message, and the number of the other items. A
    cause keeps no more items: very many Pods may have a cause each."""
    items = tuple(of)
    return items[:_MOST_NAMED], max(0, len(items) - _MOST_NAMED)


def listed(names: Iterable[str], more: int) -> str:
    """Returns names, and the number of more names."""
    return ", ".join(names) + (f" and {more} more" if more else "")


def amounts(of: Iterable[Amount]) -> str:
    """Returns amounts of resources: "8 CPUs, 8 GiB, 2 GPUs (h100)"."""
    return ", ".join(_amount(name, number) for name, number in of)


def too_large(partition: str, most: _Amounts, asks: _Amounts, others: _Partitions, more: int) -> str:
    """Returns the largest amounts of a partition's nodes, and partitions with more (`others`)."""
    return _less(f"no node of partition {partition} has more than {amounts(most)}", asks, others, more)


def over_limit(partition: str, most: _Amounts, asks: _Amounts, others: _Partitions, more: int) -> str:
    """Returns a partition's own limits on a node, and partitions that allow more (`others`)."""
    return _less(f"partition {partition} allows a job {amounts(most)} on a node", asks, others, more)


def _less(where: str, asks: _Amounts, others: _Partitions, more: int) -> str:
    enough = (f"{name} ({_amounts_again(has)})" for name, has in others)
    return _with_others(f"{where}; the Pod requests {_amounts_again(asks)}", enough, more)


def too_few_nodes(
    partition: str, nodes: int, asks: int, others: tuple[tuple[str, int], ...], more: int
) -> str:
    """Returns the number of a partition's nodes, and partitions with more (`others`)."""
    where = f"partition {partition} has {_count(nodes, 'node')}"
    enough = (f"{name} ({has})" for name, has in others)
    return _with_others(f"{where}; the Pod requests {asks}", enough, more)


def too_small(partition: str, nodes: int, asks: int, others: tuple[str, ...], more: int) -> str:
    """Returns a partition's least number of nodes for a job, and partitions with a smaller number
    (`others`)."""
    where = f"each job of partition {partition} has at least {_count(nodes, 'node')}"
    return _with_others(f"{where}; the Pod requests {asks}", others, more)


def _with_others(said: str, partitions: Iterable[str], more: int) -> str:
    others = listed(partitions, more)
    return f"{said}. Other partitions: {others}" if others else said


def _amounts_again(of: Sequence[Amount]) -> str:
    """Returns amounts after a text with the resources' names: a single count needs no name."""
    return str(of[0][1]) if len(of) == 1 and of[0][0] != MEMORY else amounts(of)


def _count(number: int, what: str) -> str:
    """Returns a number with its noun: "1 CPU", "8 CPUs"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _amount(name: str, number: int) -> str:
    if name == CPUS:
        return _count(number, "CPU")
    return _memory(number) if name == MEMORY else _devices(name, number)


def _memory(mebibytes: int) -> str:
    """Returns an amount in GiB if exact, else in MiB: two different amounts must not read the same."""
    exact = mebibytes >= 1024 and 10 * mebibytes % 1024 == 0
    return f"{mebibytes / 1024:g} GiB" if exact else f"{mebibytes} MiB"


def _devices(name: str, number: int) -> str:
    kind, _, model = name.partition(":")
    what = _count(number, "GPU") if kind == "gpu" else f"{number} of the GRES {kind}"
    return f"{what} ({model})" if model else what
