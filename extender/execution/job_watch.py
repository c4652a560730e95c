"""Watches the placeholders' jobs: polls the states of only these jobs, all in one call.

A push is a call that a script of Slurm (deploy/slurm) makes after a change of a job. After a push, the
watch reads the state of the job at once. The watch is correct without any push, because the polls find
every change.
"""

import asyncio
from collections.abc import Collection, Iterator
from functools import partial

from extender.execution.dispatcher import Dispatcher
from extender.placement.ledger import Ledger
from extender.record.events import JobRead, JobsPolled
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError, Unreadable
from slurm_client.job_state import JobState
from slurm_client.protocol import Slurm

PART = "jobs"  # part of the health report
_QUIET = 4  # intervals between two polls while no job waits: then only ends of jobs are news
# Pauses before the watch looks again at a pushed job. A push may come before slurmctld shows the new
# state of the job, or before the ledger knows the job.
_AGAIN_S = (0.01, 0.02, 0.05, 0.1)
_TOGETHER_S = 0.01  # pushes within this time share one call
_AROUND_S = 0.05  # pause between two looks at all jobs; longer if a look takes longer
_GRACE_S = 0.5  # least pause between two rounds of reads of the jobs that may have a GraceTime
_GRACE_READERS = 4
_GRACES_A_SECOND = 100
_ROUND_S = 10.0  # pause between two rounds; a round reads each job of bound Pods
_READ_S = 0.1  # pause between two reads of such a round


class JobWatch:
    """Polls every `interval` seconds while a job waits, and otherwise a quarter as often."""

    def __init__(self, ledger: Ledger, slurm: Slurm, health: Health, interval: float) -> None:
        self._ledger, self._slurm, self._health, self._interval = ledger, slurm, health, interval
        self._pushed: dict[int, int] = {}  # job id -> the number of looks since the push
        self._woken, self._evicted = asyncio.Event(), asyncio.Event()

    async def run(self, dispatcher: Dispatcher) -> None:
        """Watches for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_polling(dispatcher))
            tasks.create_task(self._follow_pushes(dispatcher))
            tasks.create_task(self._keep_looking_around(dispatcher))
            tasks.create_task(self._keep_reading_graces(dispatcher))
            tasks.create_task(self._keep_reading_jobs(dispatcher))

    def poll_now(self, job_id: int, looked: int = 0) -> None:
        """Makes the watch look at a watched job now. Returns at once."""
        self._pushed[job_id] = looked
        self._woken.set()

    async def _keep_polling(self, dispatcher: Dispatcher) -> None:
        await self._pause()
        poll, report = partial(self._poll, dispatcher), partial(self._health.says, PART)
        await periodically(poll, self._pause, outlives=SlurmError, report=report)

    async def _pause(self) -> None:
        for _ in range(_QUIET):
            await asyncio.sleep(self._interval)
            if self._ledger.waits():
                return

    async def _poll(self, dispatcher: Dispatcher) -> None:
        asked, asked_at = self._ledger.watched_jobs(), dispatcher.now()
        if asked:
            states = await self._slurm.states(asked)
            dispatcher.feed(JobsPolled(asked, states, asked_at))
        else:
            await self._slurm.ping()

    async def _keep_reading_graces(self, dispatcher: Dispatcher) -> None:
        """Reads the jobs that may have a GraceTime, because the state of a job does not show whether its
        GraceTime has begun. Each round reads each job once. The reads take at most half of the time."""
        while True:
            began, jobs = dispatcher.now(), self._ledger.jobs_with_grace()
            left = iter(jobs.items())
            await asyncio.gather(*(self._read(left, dispatcher) for _ in range(_GRACE_READERS)))
            took = dispatcher.now() - began
            await asyncio.sleep(max(_GRACE_S, took, len(jobs) / _GRACES_A_SECOND - took))

    async def _keep_reading_jobs(self, dispatcher: Dispatcher) -> None:
        """Reads each job of bound Pods, one after the other. The state of a job does not show whether
        Slurm has suspended and resumed the job, or has started the job once more. After a failed read,
        the same round continues with the next job."""
        left = iter(self._ledger.bound_jobs().items())
        while True:
            await asyncio.sleep(_ROUND_S)
            if await self._read(left, dispatcher, _READ_S):
                left = iter(self._ledger.bound_jobs().items())

    async def _read(
        self, left: Iterator[tuple[str, int]], dispatcher: Dispatcher, pause_s: float = 0.0
    ) -> bool:
        """Reads the remaining jobs of a round. Returns False after a failed read, because a poll reports
        the error."""
        for uid, job_id in left:
            try:
                job = await self._slurm.job(job_id)
            except Unreadable:
                continue
            except SlurmError:
                return False
            if job is not None:
                dispatcher.feed(JobRead(uid, job))
            await asyncio.sleep(pause_s)
        return True

    async def _follow_pushes(self, dispatcher: Dispatcher) -> None:
        later = asyncio.get_running_loop().call_later
        while True:
            await self._woken.wait()
            self._woken.clear()
            pushed, self._pushed = self._pushed, {}
            plain = await self._look(pushed.keys(), dispatcher)
            for job_id, looked in pushed.items():
                if job_id not in plain and looked < len(_AGAIN_S):
                    later(_AGAIN_S[looked], self._poll_again, job_id, looked + 1)
            await asyncio.sleep(_TOGETHER_S)

    async def _keep_looking_around(self, dispatcher: Dispatcher) -> None:
        """Looks at all jobs after the end of a bound Pod's job, and looks again while more jobs end. An
        administrator may have cancelled all jobs, or a partition may have lost all nodes. One look then
        finds all ended jobs, while slurmctld still starts a script for the push of each job."""
        while True:
            await self._evicted.wait()
            self._evicted.clear()
            began = dispatcher.now()
            await self._look(self._ledger.watched_jobs(), dispatcher)
            await asyncio.sleep(max(_AROUND_S, dispatcher.now() - began))

    def _poll_again(self, job_id: int, looked: int) -> None:
        if job_id not in self._pushed:  # after a newer push, the looks count from 0
            self.poll_now(job_id, looked)

    async def _look(self, job_ids: Collection[int], dispatcher: Dispatcher) -> Collection[int]:
        """Reads the states of the watched jobs among `job_ids`. Returns the jobs that need no further
        look."""
        asked, asked_at = self._ledger.watched_of(job_ids), dispatcher.now()
        if not asked:
            return ()
        try:
            states = await self._slurm.states(asked)
        except SlurmError:
            return job_ids  # a poll will report the error, and read these jobs
        before = self._evictions()
        # Leaves out the jobs that Slurm does not know. Only polls decide that a job is lost, because
        # this decision needs several answers, and more time than some milliseconds.
        dispatcher.feed(JobsPolled(frozenset(states), states, asked_at))
        if self._evictions() > before:
            self._evicted.set()
        return [job_id for job_id, state in states.items() if _is_plain(state)]

    def _evictions(self) -> int:
        return sum(1 for _ in self._ledger.evicting)


def _is_plain(state: JobState) -> bool:
    """Returns False while PrologSlurmctld holds the job (CONFIGURING): the job needs another look."""
    return state.running or state.pending or state.suspended or state.ended
