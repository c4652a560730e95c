"""An observer of a roll-out: it looks at Slurm all the time, by sinfo, and knows nothing of the
extender."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from deploy.local.cluster import Cluster

_LOOK_S = 0.2
_OPEN = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
"""sinfo's words for nodes that take jobs: other states have a mark behind them, or are other words."""
_PLANNED = "-"
"""The mark of a node that sched/backfill keeps for a job that waits: it is in service."""


@dataclass
class Observer:
    """Of nodes that took jobs once, and are to go on with it."""

    cluster: Cluster
    limit: int
    """How many of them may be out of service at a time."""
    served: set[str] = field(default_factory=set)
    looks: int = 0
    beyond: list[dict[str, str]] = field(default_factory=list)
    """At each look that saw too many nodes out of service: these, with sinfo's word for each."""
    most_out: int = 0
    went: list[tuple[float, str, str]] = field(default_factory=list)
    """When each node went out of service, by time.monotonic(), and sinfo's word for it."""
    came: list[tuple[float, str]] = field(default_factory=list)
    """When each was seen to take jobs, after it had not."""
    waited: int = 0
    """How many looks saw a node that has jobs yet and gets no more."""
    _out: frozenset[str] = frozenset()

    @contextmanager
    def looking(self) -> Iterator[Observer]:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                began = time.monotonic()
                self._look(began)
                stop.wait(max(0.0, began + _LOOK_S - time.monotonic()))

        with ThreadPoolExecutor(1) as thread:
            looks = thread.submit(look)
            try:
                yield self
            finally:
                stop.set()
            looks.result()

    def _look(self, began: float) -> None:
        states = states_of_nodes(self.cluster)
        opened = {node for node, state in states.items() if state.removesuffix(_PLANNED) in _OPEN}
        self.waited += "draining" in states.values()
        self.came += [(began, node) for node in sorted(opened - (self.served - self._out))]
        self.served |= opened
        out = frozenset(self.served - opened)
        self.went += [(began, node, states.get(node, "unknown")) for node in sorted(out - self._out)]
        self.looks += 1
        self.most_out = max(self.most_out, len(out))
        if len(out) > self.limit:
            self.beyond.append({node: states.get(node, "unknown") for node in sorted(out)})
        self._out = out

    def joined_s(self, starts: Iterable[tuple[str, float]]) -> list[float]:
        """How long it took from each start of a slurmd (its node, and when) until the node took jobs."""
        found = []
        for node, start in starts:
            after = [when - start for when, name in self.came if name == node and when >= start]
            found += [min(after)] if after else []
        return found


def states_of_nodes(cluster: Cluster) -> dict[str, str]:
    """Returns sinfo's word for each node of the pool."""
    lines = cluster.run_slurm("sinfo", "-h", "-N", "-p", "dynamic", "-o", "%N %T").stdout.splitlines()
    return dict(line.split() for line in lines)
