"""Computes the times that slurmrestd takes to answer, as measured with 26.05.5.

slurmctld serves one call at a time, so a call waits for the earlier calls. slurmrestd does its own part
of each call on two threads. While both threads write lists of all nodes, all other calls wait. This
module only computes times; `routes` waits.
"""

import heapq
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a call: milliseconds of slurmctld and slurmrestd, and microseconds for each node or
    entry."""

    slurmctld_ms: float = 0.0
    slurmrestd_ms: float = 0.0
    node_us: float = 0.0
    entry_us: float = 0.0


# The costs are measured on two cores, with 1,000 and 5,000 EXTERNAL nodes, with one and with sixteen
# connections. A comment below gives the time of a single call, and then the rate at which slurmctld is
# the bottleneck. If there are two values, the first is for 1,000 nodes. While one client reads all nodes
# repeatedly, other calls are as fast as without this client. While four clients do so, a call for a
# state takes 0.6 s.
COSTS: Final = {
    "allocate": Cost(0.7, 0.15, node_us=0.5),  # 1.3 and 3.2 ms; 540 to 730/s and 280 to 400/s
    "submit": Cost(0.85, 0.4, node_us=0.2),  # 1.4 and 2.5 ms; 880/s and 560/s
    "cancel": Cost(0.36, 0.43),  # 0.8 ms; 2,780/s
    "states": Cost(0.3, 0.5, entry_us=12),  # 0.8 ms for one job; 2,600 to 3,500/s; 0.13 s for 10,000
    "job": Cost(0.3, 1.4),
    "resources": Cost(0.3, 0.4),
    "update": Cost(0.4, 0.4),  # assumed to be as fast as a cancellation
    "node": Cost(0.3, 0.8),
    "nodes": Cost(1.0, 1.0, entry_us=140),  # 0.13 to 0.16 s and 0.7 to 1.3 s
    "nodes unchanged": Cost(0.6, 0.1, node_us=0.45),  # 1.1 and 2.7 ms; 900/s and 330/s
    "partitions": Cost(0.9, 0.0, node_us=0.45),  # 1.3 and 3.1 ms
    "reservations": Cost(0.3, 0.4),  # 0.8 ms for no reservations
    "ping": Cost(0.0, 0.7),
    "configuration": Cost(0.3, 0.9),
    "books": Cost(0.0, 20.0),  # 3 to 30 ms longer than "job", for slurmdbd and its database
}
_THREADS: Final = 2
_NOTHING: Final = Cost()


@dataclass(slots=True)
class Delays:
    """The delays of slurmrestd in a cluster with `nodes` nodes. `slowness` is a factor for the measured
    times. The factor 0 gives no delays."""

    nodes: int = 0
    slowness: float = 0.0
    _free_at: float = field(default=0.0, init=False)
    _threads: list[float] = field(default_factory=lambda: [0.0] * _THREADS, init=False)
    """The time at which each thread is free."""

    def answers_at(self, now: float, call: str, entries: int = 0) -> float:
        """Returns the time of the answer to a call that arrives at `now`. Both times are seconds of the
        caller's clock. `entries` is the length of the list in the answer."""
        cost = COSTS.get(call, _NOTHING)
        inside = self.slowness * (cost.slurmctld_ms * 1e-3 + cost.node_us * self.nodes * 1e-6)
        outside = self.slowness * (cost.slurmrestd_ms * 1e-3 + cost.entry_us * entries * 1e-6)
        ends = max(now, heapq.heappop(self._threads))
        if inside:
            self._free_at = max(ends, self._free_at) + inside
            ends = self._free_at
        heapq.heappush(self._threads, ends + outside)
        return ends + outside
