"""The report of a run: the measurements, their limits, and the story of every violation."""

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
# The Lease's duration, and 5 s more.
FAILOVER_LIMIT_S = 10.0
LEAST_BOUND = 0.5
"""Smallest share of bound Pods. Many Pods are deleted before their Binding."""
EVICT_LIMIT_MS = 1000.0
"""Limit of the 99th percentile on a machine of normal speed. On a slow machine, the limit is multiplied
by the slowness, because 50 evictions at once take over a second of CPU time."""
MOST_DENIALS = 60
"""Largest allowed number of rejections of a Pod's jobs: six for each leader, and some for each request
without a reply."""
MOST_HELD_S = 120.0
"""Longest allowed time for which an unbindable Pod's jobs hold nodes: twice the deadline of an
allocation, and the time to give the node back while everything fails."""
USUAL_DENIALS = 16
"""Highest allowed median of the rejections of a Pod's jobs. With requests every 5 s without end, most
Pods would have more rejections, no matter how often the leader changes."""
USUALLY_HELD_S = 80.0
"""Highest allowed median of the time for which an unbindable Pod's jobs hold nodes. An allocation
reaches its deadline at most twice (49 to 76 s). Repeated jobs without a limit would take 88 s."""
_FEW = 3
MISCHIEF_TAKES_S = 600.0
"""A run of this length or longer must have every kind of mischief."""
LEAST_EVICTIONS = {Kind.CANCELLED: 50, Kind.PREEMPTED: 1, Kind.GRACE: 1}


@dataclass(frozen=True, slots=True)
class Report:
    """The content of build/chaos.json. `failed` compares values with the limits. `figures.Figures`
    explains some fields."""

    kills: int
    pods: int
    duplicates: int
    lost: int
    wrong_kills: int
    unbound_leaks: int
    overcommitted: int
    stuck_nodes: int
    undone: int
    """Number of a person's changes of nodes that another actor reverted."""
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
    """Number of repairs of Slurm's own damage, by kind."""
    longest_s: dict[str, float]
    """Longest duration of an anomaly by kind, including disturbed times."""
    blind_s: float
    """Total seconds of waiting until kube-scheduler saw Pods. No limit applies."""
    evict_ms_p50: float | None
    evict_ms_max: float | None
    evictions: dict[str, int]
    native_starts: int
    crowd_bound: list[int]
    """Number of bound Pods of the crowd before each cancellation of 50 jobs."""
    guests_adopted: int
    state_losses: int
    outages: dict[str, int]
    """Number of nodes taken out of service by a person, by kind (`plan.Outage`)."""
    pods_bound: int
    gangs: int
    """Number of gangs with a bound member."""
    partial_gangs: list[str]
    """Gangs of which only a part was bound for too long (`gangs.limit_s`), while nothing failed."""
    partial_s_max: float
    unbindable_held_s: float
    """Longest time of an unbindable Pod's jobs on nodes, in seconds, while kube-scheduler saw Pods."""
    unbindable_held_s_p50: float | None
    """Median of these times for Pods without a Node that kube-scheduler accepts."""
    native_jobs: int
    deletions: dict[str, int]
    """Number of deletions by force, and of deletions with a grace period of a day. After a deletion of
    the second kind, an administrator cancels the placeholder."""
    mischief: dict[str, int]
    """Number of changes of placeholders by administrators and owners, by kind (`plan.Mischief`)."""
    odd_pods: dict[str, int]
    """Number of Pods that can never be bound, by reason (`plan.Odd`)."""
    denials_max: int
    """Most rejections of a Pod's jobs by job_submit.lua."""
    denials_p50: float | None
    """Median of the rejections, for Pods whose jobs job_submit.lua always rejects."""
    audit_settled_s: float
    audit_bound: int
    audit_waiting: int
    looks: int
    violations: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Returns True after a violation or an exceeded limit. Also returns True if too few Pods, jobs,
        evictions or adoptions occurred to prove anything."""
        slow = _exceeds(self.failover_s_max, FAILOVER_LIMIT_S)
        slow |= _exceeds(self.evict_ms_p99, EVICT_LIMIT_MS * self.slowness)
        overlaps = self.overlap_seconds_max > 0
        wrong = bool(self.violations) or bool(self.partial_gangs)
        return wrong or slow or overlaps or self._insists or not self._tried

    @property
    def _insists(self) -> bool:
        """Returns True if the extender repeated rejected or useless requests too often."""
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
        """Returns True if the run had every kind of mischief, of unbindable Pods, and of deletions."""
        done = self.mischief.keys() >= set(Mischief) and self.odd_pods.keys() >= set(Odd)
        return done and all(self.deletions.values()) and self.gangs > 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _exceeds(measured: float | None, limit: float) -> bool:
    """Returns True for a value above the limit, and without a value."""
    return measured is None or measured > limit


def usual(measured: Collection[float]) -> float | None:
    """Returns the median; None for fewer than _FEW values, because a storm may affect all of so few
    Pods."""
    return percentile(measured, 0.5) if len(measured) >= _FEW else None


def count(violations: Iterable[Anomaly]) -> dict[str, int]:
    """Returns the number of violations by kind. Repeated violations of a Pod of the same kind count
    once."""
    found = Counter(kind for kind, _ in {(each.kind, each.about) for each in violations})
    return {kind: found[kind] for kind in KINDS}


def story(
    violation: Anomaly, history: Callable[[str], list[tuple[float, str]]], begin: float
) -> Iterable[str]:
    """Yields a violation, and the history of the Pod, in seconds since the start of the run."""
    yield f"VIOLATION {violation.kind}: {violation.words} ({violation.about})"
    for at, words in history(violation.about)[-_LINES_OF_HISTORY:]:
        yield f"  {at - begin:8.2f} s  {words}"
