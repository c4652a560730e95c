"""A crowd of Pods that stay: an administrator cancels many jobs at once, to measure the evictions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.chaos.checker import Causes
from tests.chaos.cluster_spec import CROWD, CROWD_SIZE, LABEL, PREFIX, STOPS_AFTER
from tests.chaos.history import SeenPod
from tests.chaos.observer import Observer
from tests.chaos.workload import Workload
from tests.clock import slowness
from tests.end_to_end.actors import pod

AT_ONCE = 50
_NAME = "crowd-"
_THREADS = 8
_STOPS_AFTER_S = "3"
"""Seconds in which kwok ends a deleted Pod of the crowd. With a shorter time, the writes of kwok would
slow down the measured evictions, because both need the same CPU cores."""
_WITHIN_S = 45.0


@dataclass(slots=True)
class Crowd:
    """Pods in a partition of their own."""

    cluster: Cluster
    observer: Observer
    workload: Workload
    causes: Causes
    log: Callable[[str], None]
    sizes: list[int] = field(default_factory=list)
    """Number of bound Pods before each cancellation."""
    slowness: list[float] = field(default_factory=list)
    """Slowness of the machine just before each cancellation (`clock.slowness`)."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def gather(self) -> None:
        """Creates the missing Pods of the crowd."""
        missing = range(CROWD_SIZE - len(self._there()))
        annotations = {PREFIX + "partition": CROWD, STOPS_AFTER: _STOPS_AFTER_S}
        names = [f"{_NAME}{next(self._numbers)}" for _ in missing]
        manifests = [pod(name, own_annotations=annotations, labels={LABEL: "true"}) for name in names]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self.workload.create, manifests))

    def thin_out(self) -> None:
        """Cancels the jobs of AT_ONCE Pods, as an administrator does. Waits until all Pods are bound,
        and until the Pods of the cancelled jobs are in deletion."""
        _eventually(lambda: len(self._bound()) == CROWD_SIZE)
        bound = self._bound()
        self.sizes.append(len(bound))
        self.slowness.append(slowness())
        leaving = bound[:AT_ONCE]
        jobs = {job.uid: job.id for job in self.observer.latest_jobs() if job.live}
        self.causes.cancelled.update((each.name, time.monotonic()) for each in leaving)
        uids = {each.uid for each in leaving}
        try:
            self.cluster.run_slurm("scancel", *(str(jobs[uid]) for uid in uids if uid in jobs))
        except ClusterError as error:
            self.log(str(error).splitlines()[0])
        if not _eventually(lambda: uids.isdisjoint(each.uid for each in self._there())):
            self.log("some of the crowd do not leave")

    def _there(self) -> list[SeenPod]:
        pods = self.observer.pods()
        return [each for each in pods if each.name.startswith(_NAME) and not each.over]

    def _bound(self) -> list[SeenPod]:
        return [each for each in self._there() if each.node]


def _eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
