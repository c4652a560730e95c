"""Finds overlaps of native jobs and Pods: shared cores, or too few CPUs for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wellknown import number_list


@dataclass(frozen=True, slots=True)
class Stay:
    """A stay of a Pod, or of a native job's process, on a node: surely from `first` to `last`. `cores`
    is empty if the cores are unknown."""

    who: str
    node: str
    cpus: int
    first: float
    last: float
    cores: frozenset[int] = field(default=frozenset(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Overlap:
    at: float
    seconds: float
    node: str
    words: str


def read_processes(
    lines: Iterable[str],
    cpus: Mapping[str, int],
    cores_of: Callable[[int, str], frozenset[int]] = lambda *_: frozenset(),
) -> list[Stay]:
    """Reads the lines from native jobs' processes: name, run (job id and process), node and time. `cpus`
    has the CPUs by the name of the job. `cores_of` returns the cores of a job on a node. Times are UNIX
    seconds."""
    said: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for line in lines:
        name, run, node, at = line.split()
        said[name, run, node].append(float(at))
    return [
        Stay(
            name, node, cpus[name], min(times), max(times), cores=cores_of(int(run.split(".")[0]), node)
        )
        for (name, run, node), times in said.items()
        if name in cpus
    ]


def overlaps(
    processes: Iterable[Stay],
    pods: Iterable[Stay],
    node_cpus: Mapping[str, int],
    disowned: Callable[[Stay, float], bool] = lambda *_: False,
) -> Iterator[Overlap]:
    """Yields an Overlap for each Pod or native job that starts on a node with too few CPUs for
    everything that runs there, or on cores in use. Overlaps among native jobs alone are left out. Jobs
    for which `disowned` returns True do not count."""
    on: defaultdict[str, list[tuple[Stay, bool]]] = defaultdict(list)
    for native, lingering_pods in ((True, processes), (False, pods)):
        for each in lingering_pods:
            on[each.node].append((each, native))
    for node, everybody in on.items():
        for one, is_native in everybody:
            covering = [
                (each, native)
                for each, native in everybody
                if _covers(each, one.first) and not (native and disowned(each, one.first))
            ]
            if any(each is one for each, _ in covering):
                yield from _among_too_many(one, covering, node_cpus[node])
                yield from _on_their_cores(one, covering, is_native=is_native)


def _among_too_many(one: Stay, covering: list[tuple[Stay, bool]], cpus: int) -> Iterator[Overlap]:
    there = sorted((each for each, _ in covering), key=lambda each: each.last)
    seconds = _until_they_fit(there, cpus) - one.first
    if seconds > 0 and not all(native for _, native in covering):
        names = ", ".join(each.who for each in there if each is not one)
        yield Overlap(one.first, seconds, one.node, f"{one.who} started on {names}")


def _on_their_cores(
    one: Stay, covering: list[tuple[Stay, bool]], *, is_native: bool
) -> Iterator[Overlap]:
    for each, native in covering:
        shared = one.cores & each.cores
        if each is not one and shared and not (native and is_native):
            words = f"{one.who} started on cores of {each.who}: {number_list.compress(shared)}"
            yield Overlap(one.first, min(one.last, each.last) - one.first, one.node, words)


def _covers(stay: Stay, at: float) -> bool:
    return stay.first <= at < stay.last


def _until_they_fit(there: list[Stay], cpus: int) -> float:
    """Returns the time at which enough stays have ended for the remaining stays to fit; minus infinity
    if all fit."""
    asked, until = sum(each.cpus for each in there), float("-inf")
    for each in there:
        if asked <= cpus:
            break
        asked, until = asked - each.cpus, each.last
    return until
