"""Whether native jobs and Pods ever had the same cores: for how long both were surely there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stay:
    """Somebody was surely on a node from `first` to `last`, by the clock on the wall, with its CPUs."""

    who: str
    node: str
    cpus: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Overlap:
    at: float
    seconds: float
    node: str
    words: str


def read_processes(lines: Iterable[str], cpus: Mapping[str, int]) -> list[Stay]:
    """Reads what native jobs' processes said of themselves: name, run, node and time, again and again.

    `cpus` are the jobs' by name. A job that Slurm requeues has a second run.
    """
    said: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for line in lines:
        name, run, node, at = line.split()
        said[name, run, node].append(float(at))
    return [
        Stay(name, node, cpus[name], min(times), max(times))
        for (name, _, node), times in said.items()
        if name in cpus
    ]


def overlaps(
    processes: Collection[Stay], pods: Collection[Stay], node_cpus: Mapping[str, int]
) -> Iterator[Overlap]:
    """Yields each start of a native job's process on a node whose CPUs Pods and jobs had in full, and
    how long that lasted."""
    for process in processes:
        at = process.first
        there = sorted(
            (each for each in (*processes, *pods) if each.node == process.node and _covers(each, at)),
            key=lambda each: each.last,
        )
        seconds = _until_they_fit(there, node_cpus[process.node]) - at
        if seconds > 0:
            names = ", ".join(each.who for each in there if each is not process)
            yield Overlap(at, seconds, process.node, f"{process.who} started on {names}")


def _covers(stay: Stay, at: float) -> bool:
    return stay.first <= at < stay.last


def _until_they_fit(there: list[Stay], cpus: int) -> float:
    """Until enough of them, in the order of their ends, are gone; minus infinity if they fit."""
    asked, until = sum(each.cpus for each in there), float("-inf")
    for each in there:
        if asked <= cpus:
            break
        asked, until = asked - each.cpus, each.last
    return until
