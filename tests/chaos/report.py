"""What came of a run: the figures that it is held to, and the story of every violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.anomalies import KINDS, Anomaly
from tests.chaos.evictions import percentile
from tests.chaos.plan import Mischief, Odd
from tests.chaos.signals import Kind

_LINES_OF_HISTORY = 60
# The Lease's duration and 5 s.
FAILOVER_LIMIT_S = 10.0
LEAST_BOUND = 0.5
"""Of all Pods; many are deleted before they are bound."""
EVICT_LIMIT_MS = 1000.0
"""Multiplied by the slowness of the machine: 50 evictions at once take over a second of CPU."""
MOST_DENIALS = 60
"""Of one Pod: six a leader, and some for each request that has no answer."""
MOST_HELD_S = 120.0
"""The deadline of an allocation twice, and the time to give the node back while everything fails."""
USUAL_DENIALS = 16
"""Of half of those Pods: a request every 5 s for ever makes more of most Pods, whoever leads."""
USUALLY_HELD_S = 80.0
"""The deadline of an allocation, at most twice: 49 to 76 s. One job after the other made 88 s."""
_FEW = 3
MISCHIEF_TAKES_S = 600.0
"""A run that lasts as long has every kind of it."""
LEAST_EVICTIONS = {Kind.CANCELLED: 50, Kind.PREEMPTED: 1, Kind.GRACE: 1}


@dataclass(frozen=True, slots=True)
class Report:
    """build/chaos.json. A run is held to the first thirteen. `figures.Figures` explains some."""

    kills: int
    pods: int
    duplicates: int
    lost: int
    wrong_kills: int
    unbound_leaks: int
    overcommitted: int
    stuck_nodes: int
    undone: int
    """What a person did to a node."""
    undersized: int
    overlap_seconds_max: float
    evict_ms_p99: float | None
    slowness: float
    """Median slowness of the machine before the evictions (`clock.slowness`)."""
    failover_s_max: float | None
    overlap_after_state_loss_s: float
    overlap_of_forgotten_jobs_s: float
    seed: int
    duration_s: float
    failovers_s: list[float]
    attacks: dict[str, int]
    kills_of: dict[str, int]
    ended_by_themselves: dict[str, int]
    repairs: dict[str, int]
    """What had to be done about Slurm's own damage."""
    longest_s: dict[str, float]
    """How long what may not last lasted at most, by kind, while anything failed."""
    blind_s: float
    """For how long kube-scheduler was waited for to see Pods, all in all; a run is not held to it."""
    evict_ms_p50: float | None
    evict_ms_max: float | None
    evictions: dict[str, int]
    native_starts: int
    crowd_bound: list[int]
    """How many were bound of the crowd each time that 50 of it were cancelled."""
    guests_adopted: int
    state_losses: int
    outages: dict[str, int]
    """Of nodes, by how a person took them out of service."""
    pods_bound: int
    unbindable_held_s: float
    """Most seconds that jobs of an unbindable Pod held a node while kube-scheduler saw Pods."""
    unbindable_held_s_p50: float | None
    """The same of half of those that kube-scheduler refuses every Node."""
    native_jobs: int
    deletions: dict[str, int]
    """By force, and with a grace of a day, after which an admin cancels the placeholder."""
    mischief: dict[str, int]
    """What was done to placeholders by those who may (`plan.Mischief`), and how often."""
    odd_pods: dict[str, int]
    """How many Pods were never to be bound, by why (`plan.Odd`)."""
    denials_max: int
    """How often job_submit.lua refused one Pod's jobs at most."""
    denials_p50: float | None
    """The same of half of the Pods that it always refuses."""
    audit_settled_s: float
    audit_bound: int
    audit_waiting: int
    looks: int
    violations: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Also where so little was bound, started, evicted or adopted that nothing was tried."""
        slow = _exceeds(self.failover_s_max, FAILOVER_LIMIT_S)
        slow |= _exceeds(self.evict_ms_p99, EVICT_LIMIT_MS * self.slowness)
        overlaps = self.overlap_seconds_max > 0
        return bool(self.violations) or slow or overlaps or self._insists or not self._tried

    @property
    def _insists(self) -> bool:
        """Slurm was asked again and again for what it had refused, or for what was of no use."""
        at_most = self.denials_max > MOST_DENIALS or self.unbindable_held_s > MOST_HELD_S
        usually = (self.denials_p50 or 0) > USUAL_DENIALS
        return at_most or usually or (self.unbindable_held_s_p50 or 0) > USUALLY_HELD_S

    @property
    def _tried(self) -> bool:
        measured = all(self.evictions.get(kind, 0) >= least for kind, least in LEAST_EVICTIONS.items())
        to_be_bound = self.pods - sum(self.odd_pods.values())
        bound = self.pods_bound >= to_be_bound * LEAST_BOUND
        done = self.duration_s < MISCHIEF_TAKES_S or self._mischievous
        return measured and bound and done and bool(self.native_starts and self.guests_adopted)

    @property
    def _mischievous(self) -> bool:
        """Everything that tenants and admins do was done."""
        done = self.mischief.keys() >= set(Mischief) and self.odd_pods.keys() >= set(Odd)
        return done and all(self.deletions.values())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _exceeds(measured: float | None, limit: float) -> bool:
    """Also where nothing was measured."""
    return measured is None or measured > limit


def usual(measured: Collection[float]) -> float | None:
    """Half of the Pods have at most that; None of a few, who may all have lived amid a storm."""
    return percentile(measured, 0.5) if len(measured) >= _FEW else None


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
