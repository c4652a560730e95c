"""How long a slurmrestd takes to answer, and how it fails: what was measured of 26.05.5.

slurmctld does one thing at a time: a call waits until those before it are through, and longer where it
is busy with its own scheduling. The rest of a call's time is spent beside the others'. All this is
arithmetic on a clock that is told; `server` waits.
"""

import math
import random
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call. Milliseconds of slurmctld for itself, and of slurmrestd and the way beside; and
    microseconds of slurmctld more for each node of the cluster, or for each entry of a list."""

    held_ms: float = 0.0
    beside_ms: float = 0.0
    node_us: float = 0.0
    entry_us: float = 0.0


# On two cores, from rates with 1, 8 and 32 connections: the highest rate is what slurmctld takes for
# itself, and what one connection waits more is spent beside.
COSTS: Final = {
    "allocate": Cost(0.85, 1.3, node_us=0.51),  # 731/s with 1,000 nodes, 300/s with 5,000
    "submit": Cost(1.3, 0.8),  # 790/s
    "cancel": Cost(0.36, 0.43),  # 2,780/s
    "states": Cost(0.3, 0.3, entry_us=13),  # 2,160/s of one job; 0.13 s for 10,000
    "job": Cost(0.3, 0.5),
    "resources": Cost(0.3, 0.5),
    "update": Cost(0.5, 0.5),
    "node": Cost(0.3, 0.5),
    "nodes": Cost(1.0, 1.0, entry_us=140),  # 0.7 s for 5,000
    "partitions": Cost(0.3, 0.5, node_us=0.05),
    "ping": Cost(0.0, 0.7),
    "configuration": Cost(0.3, 0.5),
}
_NOTHING: Final = Cost()


class Mishap(Enum):
    """What becomes of a call, other than its answer."""

    UNSPECIFIED = auto()
    """HTTP 500 "Unspecified error", and nothing was done."""
    LOST = auto()
    """It is carried out, and the connection closes without a word."""


@dataclass(slots=True)
class Manners:
    """Of one slurmrestd.

    `slowness` times the measured latencies: 0 is at once. Every `busy_every_s` slurmctld answers nobody
    for `busy_s`. Of the calls, the parts `unspecified` and `lost` meet with that mishap, by `seed`.
    """

    nodes: int = 0
    slowness: float = 0.0
    busy_every_s: float = math.inf
    busy_s: float = 0.0
    unspecified: float = 0.0
    lost: float = 0.0
    seed: int = 0
    _free_at: float = field(default=0.0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 -- no secrets

    def answers_at(self, now: float, call: str, entries: int = 0) -> float:
        """When a call that comes now is answered, all in seconds of one clock. `entries` are those of a
        list that is asked for."""
        cost = COSTS.get(call, _NOTHING)
        held_us = cost.held_ms * 1e3 + cost.node_us * self.nodes + cost.entry_us * entries
        if held_us == 0:
            return now + self.slowness * cost.beside_ms / 1e3
        begins = self._not_busy(max(now, self._free_at))
        self._free_at = begins + self.slowness * held_us / 1e6
        return self._free_at + self.slowness * cost.beside_ms / 1e3

    def mishap(self) -> Mishap | None:
        """What becomes of the next call; None: nothing but its answer."""
        if not (self.unspecified or self.lost):
            return None
        drawn = self._random.random()
        if drawn < self.unspecified:
            return Mishap.UNSPECIFIED
        return Mishap.LOST if drawn < self.unspecified + self.lost else None

    def _not_busy(self, at: float) -> float:
        """The first moment from then on at which slurmctld begins something for others."""
        if not self.busy_s or math.isinf(self.busy_every_s):
            return at
        into = at % self.busy_every_s
        return at + max(0.0, self.busy_s - into)
