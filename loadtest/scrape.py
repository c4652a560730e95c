"""What a page of metrics says, in Prometheus' text format: counters added up, and histograms.

kube-apiserver tells some megabytes: of a page, the lines of the name that is asked for are parsed alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

VERB_SECONDS: Final = "slurm_extender_verb_seconds"
"""The extender's histogram of its answers, by verb and HTTP status: from a request that is read to its
answer. Callers see more: what it takes to be heard, on a machine that they share with it."""


def total(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of that name that have these labels."""
    return sum(sums(text, name, **labels).values())


def sums(text: str, name: str, *by: str, **labels: str) -> dict[tuple[str, ...], float]:
    """The sums of the same samples, by the values of some labels: "" where a sample has none of it."""
    found: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for sample in _samples(text, name):
        if labels.items() <= sample.labels.items():
            found[tuple(sample.labels.get(label, "") for label in by)] += sample.value
    return dict(found)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Of durations. It is only known in which bucket each of them is."""

    at_most: Mapping[float, float] = field(default_factory=dict)
    """How many lasted at most so many seconds, by these; the last are infinite, and count all."""

    @classmethod
    def of(cls, text: str, name: str, **labels: str) -> Self:
        """All histograms of that name that have these labels, added up."""
        buckets = sums(text, f"{name}_bucket", "le", **labels)
        return cls({float(le): count for (le,), count in buckets.items()})

    def since(self, before: "Histogram") -> "Histogram":
        """Those that came after an earlier page."""
        return Histogram({le: count - before.at_most.get(le, 0) for le, count in self.at_most.items()})

    @property
    def count(self) -> int:
        return int(max(self.at_most.values(), default=0))

    def percentile_ms(self, percent: float) -> float | None:
        """As Prometheus' histogram_quantile has it, evenly spread within a bucket; but infinite where it
        is above the last bound. None of nothing. `percent` is above 0."""
        rank = self.count * percent / 100
        for lower, le, below, count in self._buckets():
            if count >= rank > below:
                return (lower + (le - lower) * (rank - below) / (count - below)) * 1000
        return None

    def longest_ms(self) -> list[float]:
        """Each duration, sorted, as if it were the longest of its bucket."""
        return [le * 1000 for _, le, below, count in self._buckets() for _ in range(int(count - below))]

    def _buckets(self) -> Iterator[tuple[float, float, float, float]]:
        """Of each: the seconds that it lies between, and how many lasted at most these."""
        for (lower, below), (le, count) in pairwise([(0.0, 0.0), *sorted(self.at_most.items())]):
            yield lower, le, below, count


def _samples(text: str, name: str) -> Iterator[Sample]:
    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    for family in text_string_to_metric_families("".join(f"{line}\n" for line in lines)):
        yield from family.samples
