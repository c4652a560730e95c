"""What a cluster's meters show: the CPU of its processes, what Slurm and kube-apiserver were asked.

The extender and kube-apiserver count by themselves; a reading is what they had counted by then, and the
difference of two is what was counted between.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import psutil

from deploy.local.cluster import Cluster
from loadtest.scrape import VERB_SECONDS, Histogram, sums

Counts = Mapping[str, float]

_READS: Final = frozenset({"CONNECT", "GET", "LIST", "WATCH"})
_API_REQUESTS: Final = "apiserver_request_total"
_REST_CALLS: Final = "slurm_extender_slurmrestd_calls_total"
_REST_BYTES: Final = "slurm_extender_slurmrestd_bytes_total"


@dataclass(frozen=True, slots=True)
class Reading:
    """Since the start of each process or, of a difference, between two readings."""

    cpu_s: Counts
    """By component."""
    rest_calls: Counts = field(default_factory=dict)
    """Of the extender to slurmrestd, by call."""
    rest_bytes: Counts = field(default_factory=dict)
    """Both ways, by call."""
    api_writes: Counts = field(default_factory=dict)
    """Of all clients to kube-apiserver, by verb and resource: "PATCH pods/status"."""
    filter_s: Histogram = field(default_factory=Histogram)
    """Of the /filter requests that were answered, whatever the answer."""

    def since(self, before: "Reading") -> "Reading":
        return Reading(
            _difference(self.cpu_s, before.cpu_s),
            _difference(self.rest_calls, before.rest_calls),
            _difference(self.rest_bytes, before.rest_bytes),
            _difference(self.api_writes, before.api_writes),
            self.filter_s.since(before.filter_s),
        )


class Meters:
    """Of one cluster. `api` is a session with its kube-apiserver; only our own extender counts."""

    def __init__(self, cluster: Cluster, api: aiohttp.ClientSession, *, extender_counts: bool) -> None:
        self._cluster = cluster
        self._api = api
        self._extender_counts = extender_counts

    async def before(self) -> Reading:
        """To be subtracted. Reading costs CPU: the CPU is read last, and first in `after`."""
        counted = await self._counted()
        return Reading(cpu_by_component(self._cluster), *counted)

    async def after(self) -> Reading:
        cpu_s = cpu_by_component(self._cluster)
        return Reading(cpu_s, *(await self._counted()))

    def peak_rss_mb(self) -> float:
        """The most memory that the extender ever had, in millions of bytes (VmHWM of proc(5))."""
        return peak_rss_mb(self._cluster.pid("extender"))

    async def _counted(self) -> tuple[Counts, Counts, Counts, Histogram]:
        async with self._api.get("/metrics") as answer:
            api = await answer.text()
        own = await extenders_page(self._cluster) if self._extender_counts else ""
        return (
            _by_call(own, _REST_CALLS),
            _by_call(own, _REST_BYTES),
            api_writes(api),
            Histogram.of(own, VERB_SECONDS, verb="filter"),
        )


async def extenders_page(cluster: Cluster) -> str:
    """The extender's metrics."""
    url = f"http://127.0.0.1:{cluster.ports['extender-metrics']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        told = await answer.text()
    await asyncio.sleep(0)  # lets the connection close
    return told


def api_writes(metrics: str) -> Counts:
    """What kube-apiserver was told to change, from its /metrics."""
    found = sums(metrics, _API_REQUESTS, "verb", "resource", "subresource")
    return {
        f"{verb} {'/'.join(filter(None, parts))}": count
        for (verb, *parts), count in found.items()
        if verb not in _READS
    }


def cpu_by_component(cluster: Cluster) -> Counts:
    """What each component has used so far, in seconds."""
    return {name: cpu_s(cluster.pid(name)) for name in cluster.status()}


def cpu_s(pid: int) -> float:
    """The CPU time of a process and all below it so far, in seconds."""
    process, times = psutil.Process(pid), []
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a child that has just ended
            times.append(each.cpu_times())
    return sum(time.user + time.system for time in times)


def peak_rss_mb(pid: int) -> float:
    """In millions of bytes."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123 -- no file
        told = dict(line.split(":", 1) for line in status)
    return int(told["VmHWM"].split()[0]) * 1024 / 1e6


def _by_call(metrics: str, name: str) -> Counts:
    return {call: count for (call,), count in sums(metrics, name, "call").items()}


def _difference(now: Counts, before: Counts) -> Counts:
    return {name: value - before.get(name, 0.0) for name, value in now.items()}
