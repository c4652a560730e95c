"""Jobs that are asked for at once, as their owners', by their names: Slurm chooses their ids.

The name is the lock: Slurm makes no second job of it while one runs. The key, which proves whose a job
is, can be written only afterwards: what happens between the two is found out by `find`, and by the next
leader. A request may arrive late, when its Pod has another job, or needs none: such jobs are looked for
after each request of unknown outcome, and given back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf

import structlog

from extender.cluster.read_jobs import read_all
from extender.control.job_mark import LATE_S, JobMark
from extender.placement.events import Event, OrphanFound, SlurmRestarted
from extender.placement.ledger import Ledger
from extender.placement.on_job import failed_before_start
from extender.placement.ownership import key_of
from extender.request.pod_end import replaced_in_words
from kubernetes_client.errors import KubernetesError
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import InvalidRequest, NameTaken, OutcomeUnknown, SlurmError
from slurm_client.model import Configuration, Job, JobChanges, JobSpec
from slurm_client.protocol import Slurm
from wellknown.job_key import PlaceholderKey, is_own_name
from wellknown.log_fields import about

log = structlog.get_logger()

PART = "jobs by name"
"""What health has of this."""
RESTARTS_IN_S = 0.5
"""A slurmctld that is killed does not answer again sooner."""
_INTERVAL_S = 5.0
_SWEEPS_S = (5.0, 20.0, 60.0, LATE_S)
"""When late jobs are looked for, after a request of unknown outcome or a start."""
_LATE = "its Pod has another job, or needs none"


class NamedJobs:
    """The jobs of one leader. `feed` tells the ledger news."""

    def __init__(self, slurm: Slurm, ledger: Ledger, feed: Callable[[Event], object]) -> None:
        self._slurm = slurm
        self._ledger = ledger
        self._feed = feed
        self.rules = ledger.rules
        self.left: str | None = None
        """The mark of the leader before (`JobMark`), None where it has left none."""
        self._mark = JobMark(self._now)
        self._end = self.rules.ids.first
        self._foreign = set[int]()
        """Jobs that were read, and are somebody else's."""
        self._others: list[Job] = []
        """The jobs that nobody knew of when they were read last, and that may be ours."""
        self._reading = asyncio.Lock()
        self._read_at = self._looked_at = -inf
        self._sweeps: list[float] = []
        """When late jobs are looked for, the latest first."""

    async def begin(self) -> range:
        """Takes up the mark of the leader before. Returns the ids, of Slurm's own choice, of the jobs
        that must be read. Raises SlurmError."""
        told = await self._slurm.configuration()
        self._mark.begin(self.left, told)
        self._end = min(filter(None, (told.max_job_id, self.rules.max_job_id, self.rules.ids.first)))
        self._expect_late_jobs()
        return self._newer

    @property
    def mark(self) -> str | None:
        """Returns the mark for the next leader (`JobMark`)."""
        return self._mark.text(self._ledger.unrecorded_ids)

    async def allocate(self, asked: JobSpec) -> Job:
        """Asks for a job, and writes its key. Raises what `Slurm.allocate_as_owner` raises;
        OutcomeUnknown once there is a job."""
        self._mark.asked(asked.name)
        try:
            job_id = await self._slurm.allocate_as_owner(replace(asked, admin_comment=""))
            job = await self._signed(job_id, asked)
        except (OutcomeUnknown, NameTaken):
            self._expect_late_jobs()
            raise
        except SlurmError:
            self._mark.answered(asked.name, None)
            raise
        self._mark.answered(asked.name, job_id)
        return job

    async def find(self, asked: JobSpec) -> Job | None:
        """Returns the job that was asked for, with its key; None where Slurm has none. Raises
        SlurmError."""
        self._mark.asked(asked.name)
        own = [job for job in await self._shared_reading() if _is_of(job, asked)]
        job = min(own, key=lambda each: (each.state.ended, each.id), default=None)
        signed = None if job is None else await self._signed(job.id, asked)
        self._mark.answered(asked.name, None)
        return signed

    async def sign(self, job: Job, key: PlaceholderKey) -> Job:
        """Writes a job's key, and returns the job as it is then. Raises SlurmError."""
        asked = JobSpec(job.name, 0, 0, user_id=job.user_id, admin_comment=str(key))
        return await self._signed(job.id, asked)

    async def look(self) -> None:
        """Tells the ledger if slurmctld was restarted: it may have forgotten jobs, and have given their
        ids to others. Raises SlurmError."""
        if self._now() >= self._looked_at + RESTARTS_IN_S:
            asked_at, told = self._now(), await self._slurm.configuration()
            self._hear(told)
            self._looked_at = asked_at

    async def run(self, health: Health, is_over: Callable[[PlaceholderKey], Awaitable[bool]]) -> None:
        """Looks for restarts, and for late jobs, for ever. `is_over` tells whether the Pod, or the
        attempt, that a key names is no more."""
        await periodically(
            partial(self._go_round, is_over),
            _INTERVAL_S,
            outlives=(SlurmError, KubernetesError),
            report=partial(health.says, PART),
        )

    async def _go_round(self, is_over: Callable[[PlaceholderKey], Awaitable[bool]]) -> None:
        await self.look()
        if self._sweeps and self._sweeps[-1] <= self._now():
            await self.sweep(is_over)
            self._sweeps.pop()

    async def sweep(self, is_over: Callable[[PlaceholderKey], Awaitable[bool]]) -> None:
        """Ends the late jobs. Raises SlurmError and KubernetesError."""
        for job in await self._unknown(ended=False):
            key = key_of(job)
            if job.state.ended or self._is_known(job):
                continue
            if key is None:
                await self._give_back(job)
            elif self._ledger.record_of(key.uid) is not None or await is_over(key):
                self._feed(OrphanFound(key, job.id, job))

    def _expect_late_jobs(self) -> None:
        first, *later = (self._now() + seconds for seconds in _SWEEPS_S)
        self._sweeps = [*reversed(later), min([first, *self._sweeps[-1:]])]

    def _is_known(self, job: Job) -> bool:
        return self._mark.is_open(job.name) or job.id in self._ledger.job_ids()

    async def _give_back(self, job: Job) -> None:
        """Ends a job without a key: no Pod has been bound by it. Another replica that asked for it, and
        does not know yet that it leads no more, is told that its Pod is to have another."""
        with suppress(InvalidRequest):  # it has ended
            comment = replaced_in_words(_LATE, job.comment)
            await self._slurm.update(job.id, JobChanges(comment=comment))
        await self._slurm.cancel(job.id, job.name)
        log.info("a job that nobody needs is ended", **about(None, job.id), name=job.name)

    async def _signed(self, job_id: int, asked: JobSpec) -> Job:
        try:
            with suppress(InvalidRequest):  # it has ended
                await self._slurm.update(job_id, JobChanges(admin_comment=asked.admin_comment))
            job = await self._slurm.job(job_id)
            if job is not None and (job.name == asked.name or job.user_id == asked.user_id):
                return job  # its owner may have renamed it, or Slurm given it to somebody else
            if job is not None and job.admin_comment == asked.admin_comment:
                # slurmctld was killed since, and the id is another job's, which is nobody's again.
                await self._slurm.update(job_id, JobChanges(admin_comment=""))
        except SlurmError as error:
            raise OutcomeUnknown(f"job {job_id} was made, and then: {error}") from error
        raise OutcomeUnknown(f"job {job_id} was made, and is not there any more")

    async def _shared_reading(self) -> list[Job]:
        """Returns the jobs that may be ours and that nobody knows of, read once for all who ask before
        the reading begins."""
        asked_at = self._now()
        async with self._reading:
            if self._read_at <= asked_at:
                self._read_at = self._now()
                self._others = await self._unknown(ended=True)
            return self._others

    async def _unknown(self, *, ended: bool) -> list[Job]:
        """Reads the jobs that may be ours and that nobody knows of, with or without those that have
        ended."""
        states, known = await self._slurm.all_states(), self._ledger.job_ids()
        self._foreign.intersection_update(states)
        newer, passed_over = self._newer, self._foreign | known
        wanted = [
            job_id
            for job_id, state in states.items()
            if job_id in newer and job_id not in passed_over and (ended or not state.ended)
        ]
        read = await read_all(wanted, self._slurm)
        others = [job for job in read if self._may_be_ours(job)]
        self._foreign.update({job.id for job in read}.difference(job.id for job in others))
        return others

    @property
    def _newer(self) -> range:
        return range(self._mark.first, self._end if self.rules.secret else 0)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _may_be_ours(self, job: Job) -> bool:
        key = key_of(job)
        if key is None:
            return is_own_name(job.name, self.rules.cluster, self.rules.secret)
        return key.cluster == self.rules.cluster

    def _hear(self, slurm: Configuration) -> None:
        if self._mark.configured(slurm):
            self._foreign.clear()
            self._expect_late_jobs()
            self._feed(SlurmRestarted())


def _is_of(job: Job, asked: JobSpec) -> bool:
    named = (job.name, job.user_id) == (asked.name, asked.user_id) and key_of(job) is None
    return (named or job.admin_comment == asked.admin_comment) and not failed_before_start(job)
