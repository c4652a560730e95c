"""Reads the states of jobs for /bind. Calls of /bind at about the same time share one call to Slurm.

kube-scheduler binds in the background, one Pod after the other, a few milliseconds apart. If each bind
called Slurm, the calls would cost Slurm as much as the allocations of the jobs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from extender.node_view.job_states import JobStates
from slurm_client.job_state import UNKNOWN_STATE, JobState
from slurm_client.protocol import Slurm

_PROLOG_S = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8)
_RARE_S = 0.01  # pause between two calls to Slurm while only few Pods come
_BURST_S = 0.05  # pause during a burst, while Pods come fast: some four binds share a call
_BEGINS = 2  # a burst begins after so many binds in a pause of _RARE_S: above some 100 a second
_GOES_ON = 3  # a burst continues after so many binds in a pause of _BURST_S: 60 a second
_NOT_KNOWN = JobState(UNKNOWN_STATE)


class RunningJobs:
    """Reads the jobs of several binds together, in one call."""

    def __init__(self, slurm: Slurm, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._states = JobStates(slurm, self._rest_s, pause)
        self._binds = 0  # reads by `runs` since the last call; reads by `hold_nodes` do not count

    async def runs(self, job_id: int) -> bool:
        """Returns True if a job is RUNNING. The answer is never older than this call. While the job's
        Prolog runs, asks Slurm again for a short time, because kube-scheduler would repeat a failed bind
        only later. Raises SlurmError."""
        for pause in _PROLOG_S:
            self._binds += 1
            state = (await self._states.of((job_id,))).get(job_id, _NOT_KNOWN)
            if "CONFIGURING" not in state.flags:
                break
            await asyncio.sleep(pause)
        return state.running

    async def hold_nodes(self, job_ids: Collection[int]) -> bool:
        """Returns True if all jobs still have their nodes. The answer is never older than this call.
        Raises SlurmError."""
        states = await self._states.of(job_ids)
        return all(states.get(job_id, _NOT_KNOWN).holds_nodes for job_id in job_ids)

    def _rest_s(self, before: float) -> float:
        burst = self._binds >= (_GOES_ON if before == _BURST_S else _BEGINS)
        self._binds = 0
        return _BURST_S if burst else _RARE_S
