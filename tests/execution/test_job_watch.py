"""Tests of the job watch: a push makes the watch poll a job at once. As in a regular poll, only Slurm's
answer counts."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from extender.execution import job_watch
from extender.execution.dispatcher import Dispatcher
from extender.execution.job_watch import _AGAIN_S, _GRACE_READERS, JobWatch
from extender.jobs.phase import Phase
from extender.placement.ledger import Ledger
from extender.record.events import ClusterObserved, Recovered
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import Telemetry
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.job_state import JobState
from slurm_client.model import Job, JobSpec, Partition
from tests.builders import RULES, kube_node, placeholder_job, pod, view
from tests.eventually import until

NO_POLL_S = 3600.0
FOREIGN = 40_000_000
CONFIGURING = JobState.parse("RUNNING,CONFIGURING")


class WatchedSlurm(InMemorySlurm):
    """Slurm in memory. Records all calls, and answers with the states in `says` first."""

    def __init__(self, cpus: int) -> None:
        self.now = 1000.0
        super().__init__(
            [node("n1", cpus=cpus)], [partition("main", "n1", default=True)], clock=lambda: self.now
        )
        self.questions: asyncio.Queue[frozenset[int]] = asyncio.Queue()
        self.says: list[JobState | None] = []
        """Next states. None stands for an unknown job."""
        self.read: list[int] = []
        self.expected, self.all_read = 20, asyncio.Event()
        self.preempting: set[int] = set()
        self.patience = asyncio.Event()
        """Each read of a job waits for this event."""
        self.patience.set()

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        asked = frozenset(ids)
        self.questions.put_nowait(asked)
        if not self.says:
            return await super().states(asked)
        said = self.says.pop(0)
        return {} if said is None else dict.fromkeys(asked, said)

    async def job(self, job_id: int) -> Job | None:
        self.read.append(job_id)
        if len(self.read) == self.expected:
            self.all_read.set()
        await self.patience.wait()
        job = await super().job(job_id)
        preempted = job is not None and job_id in self.preempting
        return replace(job, preempt_time=1) if job is not None and preempted else job

    def start_jobs(self) -> None:
        """Moves Slurm's clock forward, so that Slurm's scheduler starts jobs."""
        self.now += 1.0


class Stage:
    """A ledger and a job watch without regular polls."""

    def __init__(self, cpus: int = 1) -> None:
        self.slurm = WatchedSlurm(cpus)
        self.moved = asyncio.Event()
        self.ledger = Ledger(RULES, self._moved)
        self.dispatcher = Dispatcher(
            self.ledger, self.slurm, InMemoryKubernetes(), Telemetry().placement
        )
        self.watch = JobWatch(self.ledger, self.slurm, Health(), NO_POLL_S)

    def _moved(self, _before: Placeholder | None, _after: Placeholder) -> None:
        self.moved.set()

    async def queue(self, name: str) -> int:
        waiting = pod(name=name)
        job = placeholder_job(waiting, "PENDING")
        await self.slurm.submit(JobSpec(name, 1, 1, admin_comment=job.admin_comment), job.id)
        self.dispatcher.feed(ClusterObserved(view(kube_node())))
        self.dispatcher.feed(Recovered((waiting,), (job,)))
        self.moved.clear()
        return job.id

    async def bind(self, name: str, grace_time_s: int = 60) -> int:
        """Adds a running Pod, in a partition with the given GraceTime."""
        bound = pod(name=name, node="n1", gates=())
        job = placeholder_job(bound, "RUNNING", node="n1")
        await self.slurm.submit(JobSpec(name, 1, 1, admin_comment=job.admin_comment), job.id)
        main = Partition("main", ("n1",), default=True, grace_time_s=grace_time_s)
        self.dispatcher.feed(ClusterObserved(view(kube_node(), partitions=[main])))
        self.slurm.start_jobs()
        started = await self.slurm.job(job.id)
        assert started is not None
        self.dispatcher.feed(Recovered((bound,), (started,)))
        self.slurm.read.clear()
        self.moved.clear()
        return job.id

    @contextmanager
    def watching(self) -> Iterator[None]:
        task = asyncio.ensure_future(self.watch.run(self.dispatcher))
        try:
            yield
        finally:
            task.cancel()

    def states(self) -> list[State]:
        return [p.state for p in self.ledger.placeholders]

    def phase(self, job_id: int) -> Phase:
        return next(p.job.phase for p in self.ledger.placeholders if p.job.id == job_id)

    def state(self, job_id: int) -> State:
        return next(p.state for p in self.ledger.placeholders if p.job.id == job_id)

    async def asked(self) -> frozenset[int]:
        """Waits for the next poll, and returns the ids of the jobs."""
        return await asyncio.wait_for(self.slurm.questions.get(), 5)

    async def news(self) -> None:
        """Waits until a placeholder moves."""
        await asyncio.wait_for(self.moved.wait(), 5)
        self.moved.clear()

    async def push(self, job_id: int) -> None:
        """Pushes a job, and waits until a placeholder moves."""
        self.watch.poll_now(job_id)
        await self.news()

    async def nothing_more_is_asked(self) -> None:
        """Asserts that the last push causes no further poll: the next poll is about another job."""
        job = await self.queue("last")
        await asyncio.sleep(1.5 * sum(_AGAIN_S))
        self.watch.poll_now(job)
        assert await self.asked() == {job}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    built = Stage()
    with built.watching():
        yield built


@pytest.mark.parametrize(
    ("bound", "ended", "state"),
    [
        (False, False, State.ALLOCATED),
        (True, True, State.EVICTING),
        (False, True, State.SUBMITTING),  # the job's comment says whether the extender replaces the job
    ],
)
async def test_change_of_a_job_is_seen_at_a_push(
    stage: Stage, bound: bool, ended: bool, state: State
) -> None:
    job = await (stage.bind("p") if bound else stage.queue("p"))
    if ended:
        stage.slurm.admin_cancel(job)
    else:
        stage.slurm.start_jobs()
    await stage.push(job)
    assert stage.state(job) is state


async def test_eviction_causes_polls_of_all_jobs_until_no_more_have_ended() -> None:
    stage = Stage(cpus=20)
    jobs = [await stage.bind(f"p{number}") for number in range(5)]
    with stage.watching():
        for job in jobs[:3]:
            stage.slurm.admin_cancel(job)
        stage.watch.poll_now(jobs[0])
        assert await stage.asked() == {jobs[0]}
        assert await stage.asked() == set(jobs[1:])
        assert await stage.asked() == set(jobs[3:])
        assert [stage.state(job) for job in jobs] == [State.EVICTING] * 3 + [State.BOUND] * 2
        await stage.nothing_more_is_asked()


async def test_poll_of_all_jobs_counts_no_misses(stage: Stage) -> None:
    ended, other = await stage.bind("p"), await stage.queue("q")
    stage.slurm.says = [JobState.parse("CANCELLED"), None]
    stage.watch.poll_now(ended)
    assert await stage.asked() == {ended}
    assert await stage.asked() == {other}
    await stage.nothing_more_is_asked()
    assert stage.state(ended) is State.EVICTING
    assert next(p.job.mistrust.misses for p in stage.ledger.placeholders if p.job.id == other) == 0


async def test_push_without_a_change_in_slurm_has_no_effect(stage: Stage) -> None:
    job = await stage.queue("p")
    stage.watch.poll_now(job)
    assert await stage.asked() == {job}
    await stage.nothing_more_is_asked()
    assert stage.state(job) is State.QUEUED


async def test_simultaneous_pushes_cause_one_call(stage: Stage) -> None:
    jobs = [await stage.queue(name) for name in ("p", "q")]
    for job in [*jobs, *jobs]:
        stage.watch.poll_now(job)
    assert await stage.asked() == set(jobs)
    await stage.nothing_more_is_asked()


async def test_push_for_a_foreign_job_causes_no_call(stage: Stage) -> None:
    stage.watch.poll_now(FOREIGN)
    await stage.nothing_more_is_asked()


async def test_early_push_is_checked_when_the_job_becomes_known(stage: Stage) -> None:
    """PrologSlurmctld may run before Slurm has answered the submission."""
    job = placeholder_job(pod(name="p"), "PENDING").id
    stage.watch.poll_now(job)
    await asyncio.sleep(0)  # the watch takes the push, and does not poll yet
    assert await stage.queue("p") == job
    assert await stage.asked() == {job}


async def test_job_that_prolog_holds_is_polled_until_it_runs(stage: Stage) -> None:
    job = await stage.queue("p")
    stage.slurm.start_jobs()
    stage.slurm.says = [CONFIGURING, CONFIGURING, CONFIGURING]
    await stage.push(job)
    assert stage.state(job) is State.ALLOCATED
    assert stage.slurm.questions.qsize() == 4


async def test_job_that_stays_in_configuring_is_left_to_regular_polls(stage: Stage) -> None:
    job = await stage.queue("p")
    stage.slurm.says = [CONFIGURING] * 5
    stage.watch.poll_now(job)
    for _ in range(5):
        assert await stage.asked() == {job}
    await stage.nothing_more_is_asked()


async def test_a_job_that_slurm_does_not_know_is_not_lost_within_milliseconds(stage: Stage) -> None:
    """Several polls must confirm a loss: after a restart, slurmctld may know the job again."""
    job = await stage.queue("p")
    stage.slurm.says = [None] * 5
    stage.watch.poll_now(job)
    for _ in range(5):
        await stage.asked()
    assert stage.state(job) is State.QUEUED
    assert next(p.job.mistrust.misses for p in stage.ledger.placeholders if p.job.id == job) == 0


async def test_push_during_an_outage_of_slurm_is_left_to_regular_polls(stage: Stage) -> None:
    job = await stage.queue("p")
    stage.slurm.start_jobs()
    stage.slurm.outage(Unreachable("slurmctld was not reached"))
    stage.watch.poll_now(job)
    assert await stage.asked() == {job}
    stage.slurm.outage(None)
    await stage.nothing_more_is_asked()
    assert stage.state(job) is State.QUEUED
    await stage.push(job)
    assert stage.state(job) is State.ALLOCATED


async def test_a_lost_push_is_covered_by_a_poll() -> None:
    stage = Stage()
    stage.watch = JobWatch(stage.ledger, stage.slurm, Health(), 0.01)
    job = await stage.queue("p")
    stage.slurm.start_jobs()
    with stage.watching():
        await stage.news()
    assert stage.state(job) is State.ALLOCATED


async def test_grace_time_is_noticed_without_a_push_or_a_poll() -> None:
    stage = Stage(cpus=20)
    job = await stage.bind("p")
    await stage.bind("q")
    stage.slurm.preempting = {job}
    with stage.watching():
        await stage.news()
        assert stage.state(job) is State.EVICTING
    assert [state for state in stage.states() if state is State.EVICTING] == [State.EVICTING]


async def test_no_job_is_read_if_no_job_has_a_grace_time() -> None:
    stage = Stage(cpus=20)
    await stage.bind("p", grace_time_s=0)
    with stage.watching():
        await asyncio.sleep(0.05)
    assert stage.slurm.read == []


async def test_jobs_with_a_grace_time_are_read_a_few_at_once() -> None:
    stage = Stage(cpus=20)
    jobs = {await stage.bind(f"p{number}") for number in range(20)}
    stage.slurm.patience.clear()
    with stage.watching():
        await asyncio.sleep(0.05)
        assert len(stage.slurm.read) == _GRACE_READERS
        stage.slurm.patience.set()
        await asyncio.wait_for(stage.slurm.all_read.wait(), 5)
    assert sorted(stage.slurm.read) == sorted(jobs)


async def test_outage_stops_the_reads_of_jobs_with_a_grace_time() -> None:
    stage = Stage(cpus=20)
    for number in range(20):
        await stage.bind(f"p{number}")
    stage.slurm.outage(Unreachable("slurmctld was not reached"))
    with stage.watching():
        await asyncio.sleep(0.05)
    assert len(stage.slurm.read) == _GRACE_READERS


async def test_each_job_of_a_bound_pod_is_read_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state does not show that Slurm has suspended and resumed a job. After the read, the job is
    SUSPECT."""
    monkeypatch.setattr(job_watch, "_ROUND_S", 0.02)
    monkeypatch.setattr(job_watch, "_READ_S", 0.0)
    stage = Stage(cpus=20)
    jobs = [await stage.bind(f"p{number}", grace_time_s=0) for number in range(4)]
    waits = await stage.queue("q")
    stage.slurm.suspend(jobs[1])
    stage.slurm.resume(jobs[1])
    with stage.watching():
        await until(lambda: _has_read(stage, 8), within_s=5)
    assert sorted(stage.slurm.read[:4]) == sorted(stage.slurm.read[4:8]) == sorted(jobs)
    assert waits not in stage.slurm.read
    in_doubt = [job for job in jobs if stage.phase(job) is Phase.SUSPECT]
    assert in_doubt == [jobs[1]]


async def test_a_round_goes_on_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a read fails, the watch continues with the next job."""
    monkeypatch.setattr(job_watch, "_ROUND_S", 0.02)
    stage = Stage(cpus=20)
    jobs = [await stage.bind(f"p{number}", grace_time_s=0) for number in range(4)]
    stage.slurm.outage(Unreachable("slurmctld was not reached"))
    with stage.watching():
        await until(lambda: _has_read(stage, 4), within_s=5)
    assert sorted(stage.slurm.read[:4]) == sorted(jobs)


async def _has_read(stage: Stage, number: int) -> bool:
    return len(stage.slurm.read) >= number
