"""Jobs that are asked for at once, as their owners', by their names: Slurm chooses their ids.

The name is the lock: Slurm makes its owner no second job of that name while one runs. And it tells
whose the job is: nobody else can make it up. What became of a request without an answer is found out by
`find`, and by the next leader. A request may arrive late, when its Pod has another job, or needs none:
such jobs are looked for after each request of unknown outcome, and the ledger has them ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import inf

import structlog

from extender.cluster.read_jobs import READERS, read_all
from extender.control.job_mark import LATE_S, JobMark
from extender.placement.ledger import Ledger
from extender.placement.on_job import failed_before_start
from extender.record.events import Event, OrphanFound, SlurmRestarted
from extender.record.ownership import key_of
from kubernetes_client.errors import KubernetesError
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import (
    NameTaken,
    NoRoomNow,
    OutcomeUnknown,
    SlurmError,
)
from slurm_client.model import Job, JobSpec
from slurm_client.protocol import Slurm
from wellknown.job_key import PlaceholderKey, is_own_name

log = structlog.get_logger()

PART = "jobs by name"
"""What health has of this."""
RESTARTS_IN_S = 0.01
"""A slurmctld that is killed makes no job sooner: 19 ms were the least where it waits for no slurmd
(26.05, EXTERNAL nodes), and it gave the same id again."""
_INTERVAL_S = 5.0
_QUIET_READERS = 2  # where no Pod waits for it
_SWEEPS_S = (5.0, 20.0, 60.0, LATE_S)
"""When late jobs are looked for, after a request of unknown outcome or a start."""
_ENCROACHED = "Slurm's own count of job ids has come into the placeholders' range"
KeyByName = Callable[[Job], Awaitable[PlaceholderKey | None]]
"""Returns the key of the Pod, or of nobody, that has asked for a job by its name; None: a Pod that is
bound names the job."""
IsOver = Callable[[PlaceholderKey], Awaitable[bool]]
"""Tells whether the Pod, or the attempt, that a key names is no more."""


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
        self._reading, self._looking = asyncio.Lock(), asyncio.Lock()
        self._read_at = self._looked_at = -inf
        self._encroached = False
        """Whether Slurm's own count has come into the placeholders' range: `job_id_check` says so."""
        self._taken = set[str]()
        """The names of which Slurm says that it has a job."""
        self._swept = False
        """Whether all of Slurm's jobs were read once."""
        self._sweeps: list[float] = []
        """When late jobs are looked for, the latest first."""

    async def begin(self) -> range:
        """Takes up the mark of the leader before. Returns the ids, of Slurm's own choice, of the jobs
        that must be read. Raises SlurmError."""
        told = await self._slurm.configuration()
        self._mark.begin(self.left, told)
        self._encroached = (told.next_job_id or 0) in self.rules.ids
        self._end = min(filter(None, (told.max_job_id, self.rules.max_job_id, self.rules.ids.first)))
        return self._ids()

    @property
    def mark(self) -> str | None:
        """Returns the mark for the next leader (`JobMark`)."""
        return self._mark.text(self._ledger.unrecorded_ids)

    async def allocate(self, asked: JobSpec) -> Job:
        """Asks for a job, and returns it as it was read. Raises what `Slurm.allocate_as_owner` raises;
        OutcomeUnknown once there is a job."""
        if self._encroached:
            raise NoRoomNow(_ENCROACHED)
        self._mark.asked(asked.name)
        try:
            job_id = await self._slurm.allocate_as_owner(asked)
            job = await self._made(job_id, asked)
            if job_id in self.rules.ids:
                self._encroached = True
                await self._slurm.cancel(job_id, asked.name)
                raise NoRoomNow(_ENCROACHED)
        except (OutcomeUnknown, NameTaken) as error:
            if isinstance(error, NameTaken):
                self._taken.add(asked.name)
            self._expect_late_jobs()
            raise
        except SlurmError:
            self._mark.answered(asked.name, None)
            raise
        self._mark.answered(asked.name, job_id)
        return job

    async def _made(self, job_id: int, asked: JobSpec) -> Job:
        """Returns the job that Slurm has just granted. Raises OutcomeUnknown where Slurm does not tell,
        its owner has renamed it, or slurmctld was killed since and the id is another job's."""
        try:
            job = await self._slurm.job(job_id)
        except SlurmError as error:
            raise OutcomeUnknown(f"job {job_id} was made, and then: {error}") from error
        if job is None or job.name != asked.name:
            raise OutcomeUnknown(f"job {job_id} was made, and is not there any more")
        return job

    async def find(self, asked: JobSpec) -> Job | None:
        """Returns the job that was asked for; None where Slurm has none. Raises SlurmError."""
        self._mark.asked(asked.name)
        job = _own(await self._shared_reading(), asked)
        if job is None and asked.name in self._taken:  # it may be older than is thought
            job = _own(await self._unknown(self._ids(all_of_them=True), ended=True), asked)
        self._taken.discard(asked.name)
        self._mark.answered(asked.name, None)
        if job is None:  # the request may arrive late
            self._expect_late_jobs()
        return job

    async def look(self) -> None:
        """Tells the ledger of it if slurmctld was restarted: it may have forgotten jobs, and given their
        ids to others. Where it was not, it has said of that very job what it said of an id before this
        was asked. Raises SlurmError."""
        asked_at = self._now()
        async with self._looking:  # those that ask meanwhile share the answer
            if self._looked_at < asked_at - RESTARTS_IN_S:
                began, told = self._now(), await self._slurm.configuration()
                self._looked_at = began
                if self._mark.configured(told):
                    self._foreign.clear()
                    self._expect_late_jobs()
                    self._feed(SlurmRestarted())

    async def run(self, health: Health, key_by_name: KeyByName, is_over: IsOver) -> None:
        """Looks for restarts, and for late jobs, for ever."""
        self._expect_late_jobs()
        await periodically(
            partial(self._go_round, key_by_name, is_over),
            _INTERVAL_S,
            outlives=(SlurmError, KubernetesError),
            report=partial(health.says, PART),
        )

    async def _go_round(self, key_by_name: KeyByName, is_over: IsOver) -> None:
        try:
            await self.look()
        except SlurmError:
            self._expect_late_jobs()  # what waits in Slurm arrives when it is back
            raise
        if self._sweeps and self._sweeps[-1] <= self._now():
            await self.sweep(key_by_name, is_over)
            self._sweeps.pop()

    async def sweep(self, key_by_name: KeyByName, is_over: IsOver) -> None:
        """Tells the ledger of the jobs that nobody needs: those that came late, and the first time those
        too whose Pods have gone while nobody led. Raises SlurmError and KubernetesError."""
        found = await self._unknown(self._ids(all_of_them=not self._swept), ended=False)
        for job in found:
            if self._is_known(job):
                continue
            key = key_of(job) or await key_by_name(job)
            if key is None:  # it will be known
                continue
            if self._ledger.record_of(key.uid) is not None or await is_over(key):
                self._feed(OrphanFound(key, job.id, job))
        self._swept = True
        if found:  # the ledger may have left some for later
            self._expect_late_jobs()

    def _expect_late_jobs(self) -> None:
        first, *later = (self._now() + seconds for seconds in _SWEEPS_S)
        self._sweeps = [*reversed(later), min([first, *self._sweeps[-1:]])]

    def _is_known(self, job: Job) -> bool:
        return self._mark.is_open(job.name) or job.id in self._ledger.job_ids

    async def _shared_reading(self) -> list[Job]:
        """Returns the jobs that may be ours and that nobody knows of, read once for all who ask before
        the reading begins."""
        asked_at = self._now()
        async with self._reading:
            if self._read_at <= asked_at:
                self._read_at = self._now()
                self._others = await self._unknown(self._ids(), ended=True)
            return self._others

    async def _unknown(self, ids: range, *, ended: bool) -> list[Job]:
        """Reads the jobs that may be ours and that nobody knows of, with or without those that have
        ended."""
        states, known = await self._slurm.all_states(), self._ledger.job_ids
        self._foreign.intersection_update(states)
        wanted = [
            job_id
            for job_id, state in states.items()
            if job_id in ids and (ended or not state.ended)
            if job_id not in known and job_id not in self._foreign
        ]
        read = await read_all(wanted, self._slurm, readers=READERS if ended else _QUIET_READERS)
        others = [job for job in read if self._may_be_ours(job)]
        self._foreign.update({job.id for job in read}.difference(job.id for job in others))
        return others

    def _ids(self, *, all_of_them: bool = False) -> range:
        """Returns the ids of Slurm's choice under which there may be a job of ours that nobody knows of;
        none where none is asked for so."""
        first = 0 if all_of_them else self._mark.first
        return range(first, self._end if self.rules.secret else 0)

    def _may_be_ours(self, job: Job) -> bool:
        key = key_of(job)
        if key is None:
            return is_own_name(job.name, self.rules.cluster, self.rules.secret)
        return key.cluster == self.rules.cluster

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _own(jobs: Iterable[Job], asked: JobSpec) -> Job | None:
    """Returns the job that was asked for; one that lives before one that has ended."""
    own = (job for job in jobs if _is_of(job, asked))
    return min(own, key=lambda each: (each.state.ended, each.id), default=None)


def _is_of(job: Job, asked: JobSpec) -> bool:
    return (job.name, job.user_id) == (asked.name, asked.user_id) and not failed_before_start(job)
