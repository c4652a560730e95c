"""Whether a job that Slurm starts on a node would meet a Pod there whose own job has ended.

Slurm gives a node away the moment a job ends; the Pod has its grace. So each node's Prolog
(deploy/slurm) asks here first, and the job's first process waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from extender.kubernetes_api import KubernetesApi
from extender.occupancy_view import RUNNING
from extender.placement.cluster import ClusterView
from extender.placement.ledger import Ledger
from extender.placement.placeholder import Placeholder, State
from extender.placement.workload import Dialect, Pod, parse_pod
from slurm_client.model import JobState
from slurm_client.protocol import Slurm

_LOOK_AGAIN_S = 0.1
_BY_ITS_JOB = frozenset({State.ALLOCATED, State.BOUND})


class NotLeading(Exception):
    """Another replica knows, or soon will."""


class Gate:
    """`ledger` gives None while this replica does not lead; `nudge` has a job looked at."""

    def __init__(
        self,
        kubernetes: KubernetesApi,
        slurm: Slurm,
        dialect: Dialect,
        view: Callable[[], ClusterView],
        ledger: Callable[[], Ledger | None],
        nudge: Callable[[int], None],
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._dialect = dialect
        self._view = view
        self._ledger = ledger
        self._nudge = nudge

    async def wait(self, node: str, seconds: float) -> tuple[str, ...]:
        """Returns the Pods (namespace/name) that are still in the way on a Slurm node, at the latest
        after so many seconds; as soon as there are none. Raises NotLeading, SlurmError,
        KubernetesError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            there = await self.in_the_way(node)
            if not there or loop.time() >= deadline:
                return there
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def in_the_way(self, node: str) -> tuple[str, ...]:
        """Returns the Pods that are on a node, or may yet be bound to it, without a job that runs.

        Who may yet be bound only the leader knows. Who is bound it may not have heard of yet, if
        another replica believes to lead as well: so kube-apiserver has the last word.
        """
        ledger, where = self._leading(), self._view().node_of(node)
        if where is None:  # native jobs' alone
            return ()
        held = ledger.holding(where.name)
        there = await self._without_their_jobs(held)
        if there:
            return tuple(f"{each.pod.namespace}/{each.pod.name}" for each in there)
        known = {each.pod.uid for each in held}
        bound = [pod for pod in await self._bound(where.name) if pod.uid not in known]
        states = await self._slurm.states(_ids(bound))
        self._leading()  # still
        return tuple(f"{pod.namespace}/{pod.name}" for pod in bound if not _runs(pod.job_id, states))

    def _leading(self) -> Ledger:
        ledger = self._ledger()
        if ledger is None:
            raise NotLeading
        return ledger

    async def _without_their_jobs(self, held: Iterable[Placeholder]) -> tuple[Placeholder, ...]:
        """A job may have ended a moment ago, to make room for the one that asks: its end is news."""
        by_their_jobs = [each for each in held if each.state in _BY_ITS_JOB]
        states = await self._slurm.states(_ids(by_their_jobs))
        ended = [each for each in by_their_jobs if not _runs(each.job_id, states)]
        for job_id in _ids(ended):
            self._nudge(job_id)
        return (*(each for each in held if each.state not in _BY_ITS_JOB), *ended)

    async def _bound(self, node: str) -> Iterator[Pod]:
        listed = await self._kubernetes.list("pods", f"spec.nodeName={node},{RUNNING}")
        items: list[Mapping[str, Any]] = listed.get("items") or []
        return (parse_pod(item, self._dialect) for item in items if self._dialect.manages(item))


def _ids(those: Iterable[Placeholder | Pod]) -> list[int]:
    return [each.job_id for each in those if each.job_id is not None]


def _runs(job_id: int | None, states: Mapping[int, JobState]) -> bool:
    state = states.get(job_id or 0)
    return state is not None and state.running
