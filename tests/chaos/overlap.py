"""Finds when native jobs and Pods had the same cores, and for how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """Reads the lines of native jobs' processes: name, run, node and time. `cpus` are by name."""
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
    processes: Iterable[Stay],
    pods: Iterable[Stay],
    node_cpus: Mapping[str, int],
    disowned: Callable[[Stay, float], bool] = lambda *_: False,
) -> Iterator[Overlap]:
    """Yields each start on CPUs that others had, with Pods among them. `disowned` jobs do not count."""
    on: defaultdict[str, list[tuple[Stay, bool]]] = defaultdict(list)
    for native, lingering_pods in ((True, processes), (False, pods)):
        for each in lingering_pods:
            on[each.node].append((each, native))
    for node, everybody in on.items():
        for one, _ in everybody:
            covering = [
                (each, native)
                for each, native in everybody
                if _covers(each, one.first) and not (native and disowned(each, one.first))
            ]
            there = sorted((each for each, _ in covering), key=lambda each: each.last)
            seconds = _until_they_fit(there, node_cpus[node]) - one.first
            if one in there and seconds > 0 and not all(native for _, native in covering):
                names = ", ".join(each.who for each in there if each is not one)
                yield Overlap(one.first, seconds, node, f"{one.who} started on {names}")


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
