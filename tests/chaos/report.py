"""What came of a run: the figures that it is held to, and the story of every violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.anomalies import KINDS, Anomaly

_LINES_OF_HISTORY = 60
# The Lease's duration and 5 s.
FAILOVER_LIMIT_S = 10.0
LEAST_BOUND = 0.5
"""Of all Pods; many are deleted before they are bound."""


@dataclass(frozen=True, slots=True)
class Report:
    """build/chaos.json. The first seven are what a run is held to."""

    kills: int
    pods: int
    duplicates: int
    lost: int
    wrong_kills: int
    unbound_leaks: int
    failover_s_max: float | None
    seed: int
    duration_s: float
    overcommitted: int
    failovers_s: list[float]
    attacks: dict[str, int]
    kills_of: dict[str, int]
    ended_by_themselves: dict[str, int]
    repairs: dict[str, int]
    """What had to be done about Slurm's own damage."""
    longest_s: dict[str, float]
    """How long what may not last lasted at most, by kind, while anything failed."""
    pods_bound: int
    native_jobs: int
    audit_settled_s: float
    audit_bound: int
    audit_waiting: int
    looks: int
    violations: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Also where so little was bound that nothing was tried."""
        slow = self.failover_s_max is None or self.failover_s_max > FAILOVER_LIMIT_S
        return bool(self.violations) or slow or self.pods_bound < self.pods * LEAST_BOUND

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def count(violations: Iterable[Anomaly]) -> dict[str, int]:
    """How many of each kind; one Pod's repeated trouble of a kind counts once."""
    found = Counter(kind for kind, _ in {(each.kind, each.about) for each in violations})
    return {kind: found[kind] for kind in KINDS}


def story(
    violation: Anomaly, history: Callable[[str], list[tuple[float, str]]], begin: float
) -> Iterable[str]:
    """A violation and what was seen of its Pod, in seconds since the run began."""
    yield f"VIOLATION {violation.kind}: {violation.words} ({violation.about})"
    for at, words in history(violation.about)[-_LINES_OF_HISTORY:]:
        yield f"  {at - begin:8.2f} s  {words}"
