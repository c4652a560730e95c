"""Reads the meters of a cluster: the CPU time of processes, and the counters of the extender and of
kube-apiserver.

kube-apiserver's page of metrics has several megabytes, so only the lines of a requested metric are
parsed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.cluster import Cluster

_READS: Final = frozenset({"CONNECT", "GET", "LIST", "WATCH"})
_API_REQUESTS: Final = "apiserver_request_total"
_REST: Final = tuple(f"slurm_extender_slurmrestd_{what}_total" for what in ("calls", "bytes"))
VERB_SECONDS: Final = "slurm_extender_verb_seconds"
"""The extender's histogram of answer times, by verb and HTTP status. For the caller, a call takes longer
than in this histogram."""

Counts = Mapping[str, float]


def sums(text: str, name: str, *by: str, **labels: str) -> dict[tuple[str, ...], float]:
    """Adds up the metric's samples that have the labels `labels`. The keys of the result are the values
    of the labels `by`, with "" for a missing label."""
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                found[tuple(sample.labels.get(label, "") for label in by)] += sample.value
    return dict(found)


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of durations. `at_most` has each upper bound in seconds, with the number of durations
    up to this bound. The last bound is infinite."""

    at_most: Mapping[float, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, name: str, **labels: str) -> Self:
        """Returns the sum of all histograms of this name with these labels."""
        buckets = sums(text, f"{name}_bucket", "le", **labels)
        return cls({float(le): count for (le,), count in buckets.items()})

    def since(self, before: "Histogram") -> "Histogram":
        """Returns the histogram of the durations since an earlier histogram."""
        return Histogram({le: count - before.at_most.get(le, 0) for le, count in self.at_most.items()})

    @property
    def count(self) -> int:
        return int(max(self.at_most.values(), default=0))

    def percentile_ms(self, percent: float) -> float | None:
        """Returns the percentile as Prometheus' histogram_quantile does, in milliseconds. But if the
        percentile is above the last finite bound, returns infinity. Returns None for an empty
        histogram."""
        rank = self.count * percent / 100
        for lower, le, below, count in self._buckets():
            if count >= rank > below:
                return (lower + (le - lower) * (rank - below) / (count - below)) * 1000
        return None

    def longest_ms(self) -> list[float]:
        """Returns all durations, sorted. Each duration counts as the upper bound of its bucket."""
        return [le * 1000 for _, le, below, count in self._buckets() for _ in range(int(count - below))]

    def _buckets(self) -> Iterator[tuple[float, float, float, float]]:
        """Yields each bucket: its bounds in seconds, and the numbers of durations up to each bound."""
        for (lower, below), (le, count) in pairwise([(0.0, 0.0), *sorted(self.at_most.items())]):
            yield lower, le, below, count


_BY_THE_CLOCK: Final = frozenset({"GET conf", "GET nodes", "GET partitions"})
"""Calls that read the whole cluster, and that the extender makes at fixed intervals, whatever the Pods
and jobs. By chance, a burst has one read of all nodes more or fewer. Such a read has as many bytes as
all other calls together."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A reading of all meters. It counts either since the start of each process, or between two
    readings:

    * `cpu_s`: CPU time by component
    * `rest_calls` and `rest_bytes`: the extender's calls of slurmrestd, and their bytes in both
      directions
    * `api_writes`: writes of all clients by verb and resource ("PATCH pods/status")
    * `filter_s`: durations of all answered /filter requests
    """

    cpu_s: Counts
    rest_calls: Counts = field(default_factory=dict)
    rest_bytes: Counts = field(default_factory=dict)
    api_writes: Counts = field(default_factory=dict)
    filter_s: Histogram = field(default_factory=Histogram)

    def cpu_ms(self, component: str) -> float:
        return self.cpu_s.get(component, 0.0) * 1000

    @property
    def rest_bytes_for_pods(self) -> float:
        """Returns the bytes of the extender's calls of slurmrestd, without the calls at fixed
        intervals."""
        return sum(n for call, n in self.rest_bytes.items() if call not in _BY_THE_CLOCK)

    def since(self, before: "MeterReading") -> "MeterReading":
        return MeterReading(
            _difference(self.cpu_s, before.cpu_s),
            _difference(self.rest_calls, before.rest_calls),
            _difference(self.rest_bytes, before.rest_bytes),
            _difference(self.api_writes, before.api_writes),
            self.filter_s.since(before.filter_s),
        )


@dataclass(frozen=True, slots=True)
class Meters:
    """The meters of a cluster. `api` is a session with its kube-apiserver. `extender_counts` is
    True for this project's extender, which has metrics."""

    cluster: Cluster
    api: aiohttp.ClientSession
    extender_counts: bool

    async def before(self) -> MeterReading:
        """Returns the reading at the start of a measurement, to be subtracted from a later reading.
        Reading itself takes CPU time, so the CPU time is read last here, and first in `after`."""
        counted = await self._counted()
        return MeterReading(cpu_by_component(self.cluster), *counted)

    async def after(self) -> MeterReading:
        cpu_s = cpu_by_component(self.cluster)
        return MeterReading(cpu_s, *(await self._counted()))

    async def _counted(self) -> tuple[Counts, Counts, Counts, Histogram]:
        writes = api_writes(await self._page("/metrics"))
        own = await self._page(self.cluster.probes["extender"][1]) if self.extender_counts else ""
        calls, sent = ({call: n for (call,), n in sums(own, name, "call").items()} for name in _REST)
        return calls, sent, writes, Histogram.of(own, VERB_SECONDS, verb="filter")

    async def _page(self, url: str) -> str:
        async with self.api.get(url) as answer:
            return await answer.text()


def api_writes(metrics: str) -> Counts:
    """Returns kube-apiserver's writes, from its /metrics."""
    found = sums(metrics, _API_REQUESTS, "verb", "resource", "subresource")
    return {
        f"{verb} {'/'.join(filter(None, parts))}": count
        for (verb, *parts), count in found.items()
        if verb not in _READS
    }


def cpu_by_component(cluster: Cluster) -> Counts:
    return {name: cpu_s(cluster.pid(name)) for name in cluster.status()}


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process and all its descendants."""
    process, times = psutil.Process(pid), []
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # the child has just ended
            times.append(each.cpu_times())
    return sum(time.user + time.system for time in times)


def peak_rss_mb(cluster: Cluster) -> float:
    """Returns the extender's peak memory, in millions of bytes (VmHWM of proc(5))."""
    status = Path(f"/proc/{cluster.pid('extender')}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return round(int(fields["VmHWM"].split()[0]) * 1024 / 1e6, 1)


def _difference(now: Counts, before: Counts) -> Counts:
    return {name: value - before.get(name, 0.0) for name, value in now.items()}
