"""Observes a roll-out by reading sinfo again and again. Uses no data of the extender."""

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
"""sinfo's names for the states of nodes in service. For other nodes, sinfo shows another name, or adds a
mark to the name."""
_PLANNED = "-"
"""The mark that sinfo adds to the state if sched/backfill keeps the node for a waiting job. Such a node
is in service."""


@dataclass
class Observer:
    """Observes each node after the node takes jobs for the first time. After that, a node that takes no
    jobs is out of service."""

    cluster: Cluster
    limit: int
    """Maximum number of observed nodes out of service at the same time."""
    served: set[str] = field(default_factory=set)
    looks: int = 0
    beyond: list[dict[str, str]] = field(default_factory=list)
    """For each observation with too many nodes out of service: these nodes, with their states in
    sinfo."""
    most_out: int = 0
    went: list[tuple[float, str, str]] = field(default_factory=list)
    """Times (time.monotonic()) when a node went out of service, with the node's name and state in
    sinfo."""
    came: list[tuple[float, str]] = field(default_factory=list)
    """Times when a node started to take jobs, with the node's name."""
    waited: int = 0
    """Number of observations with a draining node. Such a node still has jobs, and gets no more jobs."""
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
        """Returns the seconds from each start of a slurmd until the node took jobs. `starts` has the
        node and the time of each start."""
        found = []
        for node, start in starts:
            after = [when - start for when, name in self.came if name == node and when >= start]
            found += [min(after)] if after else []
        return found


def states_of_nodes(cluster: Cluster) -> dict[str, str]:
    """Returns sinfo's state of each node of the pool."""
    lines = cluster.run_slurm("sinfo", "-h", "-N", "-p", "dynamic", "-o", "%N %T").stdout.splitlines()
    return dict(line.split() for line in lines)
