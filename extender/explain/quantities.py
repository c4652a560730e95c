"""Words for quantities: durations, times, lists of names, and amounts of resources."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from extender.explain.cause import Fact
from slurm_client.hostlist import compress

CPUS: Final = "CPUs"
MEMORY: Final = "memory"
DAY_S: Final = 86_400
_MOST_NAMED: Final = 10
_LAST: Final = 0xFFFF_FFFF
"""The latest time that Slurm can report, in UNIX seconds (32 bits)."""
_UNITS: Final = (("day", DAY_S), ("h", 3600), ("min", 60), ("s", 1))
_Item = TypeVar("_Item")
Amount = tuple[str, int]
"""A resource (`CPUS`, `MEMORY` in MiB, or a GRES), and how much of the resource."""
_Amounts = tuple[Amount, ...]
_Partitions = tuple[tuple[str, _Amounts], ...]
"""Names of partitions, each with an amount of each resource."""


def duration(seconds: float) -> str:
    """Returns a duration in its two largest units, like "4 min 10 s" or "30 ms"."""
    if seconds < 1:
        return f"{int(1000 * seconds + 1e-6)} ms"
    left, parts = int(seconds), list[str]()
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number and len(parts) < 2:
            parts.append(f"{number} {unit}s" if unit == "day" and number > 1 else f"{number} {unit}")
        elif parts:  # after a unit with the number 0, smaller units are left out
            break
    return " ".join(parts)


def clock(unix_seconds: int) -> str:
    """Returns a time as "24 Nov 13:11"."""
    return datetime.fromtimestamp(min(unix_seconds, _LAST), UTC).strftime("%-d %b %H:%M")


def first(of: Iterable[_Item]) -> tuple[tuple[_Item, ...], int]:
    """Returns the first items, at most as many as a message names, and the number of the other items. A
    cause stores only the first items to save memory, because very many Pods may have a cause."""
    items = tuple(of)
    return items[:_MOST_NAMED], max(0, len(items) - _MOST_NAMED)


def listed(names: Iterable[str], more: int) -> str:
    """Returns the names, followed by the number of further names, like "a, b and 3 more"."""
    return ", ".join(names) + (f" and {more} more" if more else "")


def with_node_names(facts: Iterable[tuple[str, Fact]]) -> dict[str, Fact]:
    """Returns the facts of a cause, with a text instead of the tuple `nodes`. A long list is shortened
    as in Slurm, like "gpu[01-64]"."""
    found = dict(facts)
    if isinstance(nodes := found.get("nodes"), tuple):
        names = [str(each) for each in nodes]
        found["nodes"] = ", ".join(names) if len(names) <= _MOST_NAMED else compress(names)
    return found


def amounts(of: Iterable[Amount]) -> str:
    """Returns amounts of resources in words, like "8 CPUs, 8 GiB, 2 GPUs (h100)"."""
    return ", ".join(_amount(name, number) for name, number in of)


def too_large(partition: str, most: _Amounts, asks: _Amounts, others: _Partitions, more: int) -> str:
    """Returns the message that no node of a partition has the Pod's requested amounts. `others` are the
    partitions with larger nodes."""
    return _less(f"no node of partition {partition} has more than {amounts(most)}", asks, others, more)


def over_limit(partition: str, most: _Amounts, asks: _Amounts, others: _Partitions, more: int) -> str:
    """Returns the message that a partition's own limits on a node are below the Pod's requested amounts.
    `others` are the partitions with higher limits."""
    return _less(f"partition {partition} allows a job {amounts(most)} on a node", asks, others, more)


def _less(where: str, asks: _Amounts, others: _Partitions, more: int) -> str:
    enough = (f"{name} ({_amounts_again(has)})" for name, has in others)
    return _with_others(f"{where}; the Pod requests {_amounts_again(asks)}", enough, more)


def too_few_nodes(
    partition: str, nodes: int, asks: int, others: tuple[tuple[str, int], ...], more: int
) -> str:
    """Returns the message that a partition has fewer nodes than the Pod requests. `others` are the
    partitions with more nodes."""
    where = f"partition {partition} has {_count(nodes, 'node')}"
    enough = (f"{name} ({has})" for name, has in others)
    return _with_others(f"{where}; the Pod requests {asks}", enough, more)


def too_small(partition: str, nodes: int, asks: int, others: tuple[str, ...], more: int) -> str:
    """Returns the message that each job of a partition must have more nodes than the Pod requests.
    `others` are the partitions that allow fewer nodes."""
    where = f"each job of partition {partition} has at least {_count(nodes, 'node')}"
    return _with_others(f"{where}; the Pod requests {asks}", others, more)


def _with_others(words: str, partitions: Iterable[str], more: int) -> str:
    others = listed(partitions, more)
    return f"{words}. Other partitions: {others}" if others else words


def _amounts_again(of: Sequence[Amount]) -> str:
    """Returns amounts for a sentence that has already named the resources. A single count then needs no
    name."""
    return str(of[0][1]) if len(of) == 1 and of[0][0] != MEMORY else amounts(of)


def _count(number: int, what: str) -> str:
    """Returns a number with a noun, like "1 CPU" or "8 CPUs"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _amount(name: str, number: int) -> str:
    if name == CPUS:
        return _count(number, "CPU")
    return _memory(number) if name == MEMORY else _devices(name, number)


def _memory(mebibytes: int) -> str:
    """Returns an amount in GiB if this is exact, else in MiB, because two different amounts must not
    read the same."""
    exact = mebibytes >= 1024 and 10 * mebibytes % 1024 == 0
    return f"{mebibytes / 1024:g} GiB" if exact else f"{mebibytes} MiB"


def _devices(name: str, number: int) -> str:
    kind, _, model = name.partition(":")
    what = _count(number, "GPU") if kind == "gpu" else f"{number} of the GRES {kind}"
    return f"{what} ({model})" if model else what
