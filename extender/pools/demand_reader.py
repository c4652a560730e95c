"""Reads waiting jobs from Slurm for `demand`.

slurmrestd cannot list only the pending jobs. slurmrestd's list of all jobs takes 0.8 ms and 270 kB of
memory for each job. So the reader reads the states of all jobs (38 bytes a job), then the waiting jobs
one by one. New jobs are read at once. Known jobs are read again at intervals, because their reasons
change. A known job counts with the result of its last read, and with the current number of waiting
tasks. A job that was never read does not count."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pools.demand import Demand, demand
from extender.pools.pool import Pool
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import OutcomeUnknown, SlurmError, Unreadable
from slurm_client.model import Job
from slurm_client.protocol import Slurm

PART = "pending demand"
_INTERVAL_S = 15.0
_SHARE = 5  # factor: after a slow round, the pause is this many times as long as the round
_LONGEST_PAUSE_S = 120.0
_AGAIN = 300
"""Number of known jobs that are read again in a round. Jobs with the oldest reads come first."""
_RESTS_S = 600.0
"""Time until the next read of a job outside the pools' partitions, or of an array with many started
tasks."""
_MANY = 50
"""An array with more started tasks than this is read rarely, because slurmrestd lists all started tasks
of an array, at 0.8 ms each."""

_SILENT = 2
"""Number of reads in a round that may get no answer. Each such read takes the client's whole timeout."""


class _Known(NamedTuple):
    job: Job
    read_at: float


class DemandReader:
    """Reads the pending demand of pools. Sends no requests while no pool names partitions."""

    def __init__(
        self,
        slurm: Slurm,
        slurm_nodes: SlurmNodes,
        cluster: ClusterViewUpdater,
        pools: Callable[[], Sequence[Pool]],
        health: Health,
    ) -> None:
        self._slurm = slurm
        self._slurm_nodes = slurm_nodes
        self._cluster = cluster
        self._pools = pools
        self._health = health
        self._known: dict[int, _Known] = {}
        self._unread = ""
        """Error message about the jobs that the last round could not read."""
        self._pause_s = _INTERVAL_S
        self.demand: Mapping[str, Demand] = {}
        """Demand by the pool's name; empty while not yet known."""

    async def run(self) -> None:
        await periodically(self.turn, lambda: asyncio.sleep(self._pause_s))

    async def turn(self) -> None:
        """Reads all waiting jobs once."""
        clock = asyncio.get_running_loop().time
        pools, began = [pool for pool in self._pools() if pool.partitions], clock()
        self._unread = ""
        try:
            self.demand = await self._read(pools) if pools else {}
        except SlurmError as error:
            self.demand = {}
            self._health.says(PART, error)
        else:
            self._health.says(PART, self._unknown(pools) or self._unread or None)
        self._pause_s = max(_INTERVAL_S, min(_SHARE * (clock() - began), _LONGEST_PAUSE_S))

    async def _read(self, pools: Sequence[Pool]) -> Mapping[str, Demand]:
        waiting = (await self._slurm.all_states()).waiting
        self._known = {job_id: self._known[job_id] for job_id in waiting if job_id in self._known}
        now = asyncio.get_running_loop().time()
        new = [job_id for job_id in waiting if job_id not in self._known]
        await self._ask_each([*new, *self._due(pools, now)], now)
        nodes = (await self._slurm_nodes.read(_INTERVAL_S)).nodes
        jobs = [(known.job, waiting[job_id]) for job_id, known in self._known.items()]
        return await asyncio.to_thread(demand, pools, jobs, self._cluster.view.partitions, nodes)

    async def _ask_each(self, job_ids: Iterable[int], now: float) -> None:
        """Reads the given jobs. If Slurm does not answer for a job, for example for a huge array, goes
        on with the other jobs. If Slurm does not answer for more than two jobs, Slurm counts as down,
        and the method raises OutcomeUnknown."""
        unread: dict[int, str] = {}
        for job_id in job_ids:
            try:
                await self._ask(job_id, now)
            except Unreadable:  # the client reports the entry
                continue
            except OutcomeUnknown as error:
                if len(unread) == _SILENT:
                    raise
                unread[job_id] = f"job {job_id} cannot be read: {error}"
                if job_id in self._known:
                    self._known[job_id] = self._known[job_id]._replace(read_at=now)
        self._unread = "; ".join(unread.values())

    async def _ask(self, job_id: int, now: float) -> None:
        job = await self._slurm.job(job_id)
        if job is not None and job.state.pending:
            self._known[job_id] = _Known(job, now)
        else:  # the job has started or ended since the list of states
            self._known.pop(job_id, None)

    def _due(self, pools: Sequence[Pool], now: float) -> list[int]:
        """Returns the jobs to read again. An array with many started tasks is due rarely, except while
        its limit on running tasks allows more tasks to start."""
        wanted = frozenset[str]().union(*(pool.partitions for pool in pools))
        due = []
        for job_id, (job, read_at) in self._known.items():
            long = job.begun_tasks > _MANY and not job.more_tasks
            rests = _RESTS_S if long or wanted.isdisjoint(job.partition.split(",")) else 0.0
            if read_at + rests <= now:
                due.append((read_at + rests, job_id))
        return [job_id for _, job_id in sorted(due)[:_AGAIN]]

    def _unknown(self, pools: Sequence[Pool]) -> str | None:
        """Returns an error message with the pools' partitions that Slurm does not have, or None."""
        known = self._cluster.view.partitions
        unknown = [
            f"pool {pool.name}: Slurm has no partition {name}"
            for pool in pools
            for name in sorted(pool.partitions - known.keys())
        ]
        return "; ".join(unknown) or None
