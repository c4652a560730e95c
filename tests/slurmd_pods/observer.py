"""Observes a roll-out by sinfo all the time, and knows nothing of the extender."""

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
"""States in sinfo of nodes in service. Any other state has another name, or a mark at the end."""
_PLANNED = "-"
"""Mark of a node that sched/backfill keeps for a waiting job. Such a node is in service."""


@dataclass
class Observer:
    """Observes each node from the first time that the node takes jobs. Afterwards, the node should
    always take jobs."""

    cluster: Cluster
    limit: int
    """Maximum number of observed nodes out of service at the same time."""
    served: set[str] = field(default_factory=set)
    looks: int = 0
    beyond: list[dict[str, str]] = field(default_factory=list)
    """Nodes out of service, with the states in sinfo, for each look that saw too many."""
    most_out: int = 0
    went: list[tuple[float, str, str]] = field(default_factory=list)
    """Times (time.monotonic()) when a node went out of service, with the node's name and state in
    sinfo."""
    came: list[tuple[float, str]] = field(default_factory=list)
    """Times when a node started to take jobs, with the node's name."""
    waited: int = 0
    """Number of looks that saw a draining node. Such a node still has jobs, and gets no more."""
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
        """Returns the seconds from each start of a slurmd (node and time) until the node took jobs."""
        found = []
        for node, start in starts:
            after = [when - start for when, name in self.came if name == node and when >= start]
            found += [min(after)] if after else []
        return found


def states_of_nodes(cluster: Cluster) -> dict[str, str]:
    """Returns the state in sinfo of each node of the pool."""
    lines = cluster.run_slurm("sinfo", "-h", "-N", "-p", "dynamic", "-o", "%N %T").stdout.splitlines()
    return dict(line.split() for line in lines)
