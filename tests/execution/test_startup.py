"""Tests of the recovery at the start of a leader: the jobs to read in Slurm, and the jobs of deleted
Pods."""

from collections.abc import Container, Iterable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from extender.execution.dispatcher import Dispatcher
from extender.execution.failures import failure_of
from extender.execution.pod_watch import PodWatch
from extender.execution.startup import recover, tell_those_who_wait
from extender.pod_request.pod import Pod
from extender.pod_request.translation import TranslationConfig
from extender.record.events import Event, OrphanFound, Recovered
from extender.unmanaged.adoption import adoptable
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from slurm_client.errors import Unexplained, Unreachable, Unreadable
from slurm_client.job_state import UNREAD, AllStates, JobState
from slurm_client.model import Job, JobChanges
from slurm_client.protocol import Slurm
from slurm_client.server import Configuration
from tests.builders import RULES, TRANSLATION, Manifest, placeholder_job, pod, pod_manifest, unmanaged
from wellknown.job_key import ADOPTED_ATTEMPT, PlaceholderKey
from wellknown.names import JOB_ID

POD = pod(name="p", uid="u1")
GONE = pod(name="gone", uid="u2")
NATIVE = Job(4711, JobState("RUNNING"), name="train.sh")


class FakeSlurm:
    """Has jobs, and records the ids of all reads."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.read: set[int] = set()
        self.error: Exception | None = None
        self.garbled: dict[int, Job] = {}
        """Jobs with unreadable entries: even the id is missing."""

    async def configuration(self) -> Configuration:
        return Configuration()

    async def update(self, _job_id: int, _changes: JobChanges) -> None:
        raise Unexplained("a job_submit plugin minds")

    async def all_states(self) -> AllStates:
        states = AllStates({job.id: job.state for job in self.jobs.values()})
        states.nameless = len(self.garbled)
        states.entries = len(states) + len(self.garbled)
        return states

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        assert self.garbled, "this costs a question more"
        return {job_id: UNREAD for job_id in ids if job_id not in self.jobs}

    async def job(self, job_id: int) -> Job | None:
        if self.error is not None:
            raise self.error
        self.read.add(job_id)
        if job_id in self.garbled:
            raise Unreadable("a reply that cannot be read")
        return self.jobs.get(job_id)


class Heard:
    """Records events, in place of the dispatcher."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> None:
        self.events.append(event)

    async def feed_all(self, events: Iterable[Event]) -> None:
        self.events.extend(events)


async def told(
    pods: tuple[Pod, ...], slurm: FakeSlurm, kubernetes: InMemoryKubernetes | None = None
) -> list[Event]:
    events, _ = await told_and_adopted(pods, slurm, kubernetes, TRANSLATION)
    return events


async def told_and_adopted(
    pods: tuple[Pod, ...],
    slurm: FakeSlurm,
    kubernetes: InMemoryKubernetes | None,
    translation: TranslationConfig,
    adopted_pods: Container[str] = (),
) -> tuple[list[Event], list[int]]:
    heard = Heard()
    found = await recover(
        pods,
        cast(Slurm, slurm),
        kubernetes or InMemoryKubernetes(),
        RULES,
        cast(Dispatcher, heard),
        adoptable=lambda manifest: adoptable(manifest, translation) is not None,
        adopted=adopted_pods,
    )
    return heard.events, [job.id for _, job in found]


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED"])
async def test_every_pod_is_recovered_with_its_own_jobs(state: str) -> None:
    job, other = placeholder_job(POD, state), placeholder_job(GONE, "PENDING")
    events = await told((POD, GONE), FakeSlurm(job, other))
    assert events == [Recovered((POD,), (job,)), Recovered((GONE,), (other,))]


async def test_job_named_by_a_pod_is_recovered_for_any_try() -> None:
    job = placeholder_job(POD, "CANCELLED", attempt_try=9)
    named = pod(name="p", uid="u1", annotations={JOB_ID: str(job.id)})
    assert await told((named,), FakeSlurm(job)) == [Recovered((named,), (job,))]


async def test_only_jobs_of_existing_pods_are_read() -> None:
    """Slurm may list 10,000 finished placeholders and native jobs. The extender reads none of these
    jobs."""
    over = placeholder_job(GONE, "COMPLETED")
    slurm = FakeSlurm(NATIVE, over, placeholder_job(POD))
    await told((POD,), slurm)
    assert slurm.read == {placeholder_job(POD).id}


async def test_foreign_job_in_the_id_range_is_left_alone() -> None:
    elsewhere = PlaceholderKey("elsewhere", "default", "p", "u1", 1)
    foreign = placeholder_job(POD, admin_comment=str(elsewhere))
    assert await told((POD,), FakeSlurm(foreign)) == [Recovered((POD,), ())]
    assert await told((), FakeSlurm(foreign)) == []


async def test_job_without_a_key_is_recovered_by_its_id() -> None:
    """The placement decides later if the job belongs to the Pod."""
    for comment in ("", "by hand"):
        unsigned = placeholder_job(POD, admin_comment=comment)
        assert await told((POD,), FakeSlurm(unsigned)) == [Recovered((POD,), (unsigned,))]
        assert await told((), FakeSlurm(unsigned)) == []


def orphan(job: Job) -> OrphanFound:
    key = PlaceholderKey.parse(job.admin_comment)
    assert key is not None
    return OrphanFound(key, job.id, job)


@pytest.mark.parametrize(
    ("there", "gone"), [((), True), (("its-successor",), True), (("u2",), False)], ids=str
)
async def test_live_job_is_an_orphan_if_the_pod_is_gone(there: tuple[str, ...], gone: bool) -> None:
    """The given list has no Pods, so the extender asks kube-apiserver about the Pod."""
    job = placeholder_job(GONE, "PENDING")
    kubernetes = InMemoryKubernetes(*(pod_manifest("gone", uid=uid) for uid in there))
    assert await told((), FakeSlurm(job), kubernetes) == ([orphan(job)] if gone else [])


async def test_an_orphan_that_has_ended_is_left_alone() -> None:
    """If another Pod names the job, the extender reads the job, and does nothing else."""
    over = placeholder_job(GONE, "CANCELLED")
    forger = pod(name="p", uid="u1", annotations={JOB_ID: str(over.id)})
    slurm = FakeSlurm(over)
    assert await told((forger,), slurm) == [Recovered((forger,), ())]
    assert slurm.read == {over.id}


async def test_job_that_slurm_forgot_is_not_recovered() -> None:
    class Forgetful(FakeSlurm):
        async def job(self, _job_id: int) -> Job | None:
            return None

    assert await told((POD,), Forgetful(placeholder_job(POD))) == [Recovered((POD,), ())]


async def test_nothing_is_recovered_while_either_system_does_not_answer() -> None:
    slurm, kubernetes = FakeSlurm(placeholder_job(GONE)), InMemoryKubernetes()
    kubernetes.outage(Unavailable(0, "kube-apiserver does not answer"))
    with pytest.raises(Unavailable):
        await told((POD,), slurm, kubernetes)
    slurm.error = Unreachable("slurmctld was not reached")
    with pytest.raises(Unreachable):
        await told((POD,), slurm)


async def test_unreadable_job_prevents_no_recovery() -> None:
    job, unread = placeholder_job(GONE, "PENDING"), placeholder_job(POD)
    slurm = FakeSlurm(job)
    slurm.garbled[unread.id] = unread
    assert await told((POD, GONE), slurm) == [Recovered((POD,), ()), Recovered((GONE,), (job,))]
    assert unread.id in slurm.read


async def test_many_jobs_are_all_read() -> None:
    pods = tuple(POD._replace(uid=f"u{i}") for i in range(100))
    slurm = FakeSlurm(*(placeholder_job(of, "PENDING") for of in pods))
    events = await told(pods, slurm)
    assert all(isinstance(event, Recovered) and len(event.jobs) == 1 for event in events)
    assert len(events) == 100


ADOPTED_POD = unmanaged("g", uid="u3", node="n1")
ADOPTS = TranslationConfig(adopts=True)


def adopted_pods_job(state: str = "RUNNING") -> Job:
    return placeholder_job(pod(name="g", uid="u3"), state, attempt=ADOPTED_ATTEMPT, node="n1")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
async def test_job_of_an_adopted_pod_is_found_and_left_alone(state: str) -> None:
    job, kubernetes = adopted_pods_job(state), InMemoryKubernetes(ADOPTED_POD)
    found = await told_and_adopted((POD,), FakeSlurm(job), kubernetes, ADOPTS)
    assert found == ([Recovered((POD,), ())], [job.id])


async def test_known_adopted_pod_is_not_read() -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.outage(Unavailable(0, "kube-apiserver does not answer"))
    job = adopted_pods_job()
    found = await told_and_adopted((), FakeSlurm(job), kubernetes, ADOPTS, {"u3"})
    assert found == ([], [job.id])


@pytest.mark.parametrize(
    ("manifests", "translation"),
    [
        pytest.param((), ADOPTS, id="gone"),
        pytest.param((ADOPTED_POD | {"status": {"phase": "Succeeded"}},), ADOPTS, id="succeeded"),
        pytest.param((pod_manifest("g", uid="u4", gates=(), node="n1"),), ADOPTS, id="its successor"),
        pytest.param((ADOPTED_POD,), TRANSLATION, id="none are adopted"),
    ],
)
async def test_job_of_an_ended_adopted_pod_is_an_orphan(
    manifests: tuple[Manifest, ...], translation: TranslationConfig
) -> None:
    job = adopted_pods_job()
    found = await told_and_adopted((), FakeSlurm(job), InMemoryKubernetes(*manifests), translation)
    assert found == ([orphan(job)], [])


@pytest.mark.parametrize(("known", "level"), [(False, "warning"), (True, "debug")])
async def test_failed_condition_is_a_warning_except_in_an_outage(known: bool, level: str) -> None:
    health, down = Health(), Unavailable(0, "kube-apiserver does not answer")

    async def fails() -> tuple[Pod, ...]:
        raise down

    if known:
        health.says("recovery", down)
    pods = cast(PodWatch, SimpleNamespace(list=fails))
    with capture_logs() as logs:
        await tell_those_who_wait(pods, cast(Kubernetes, None), failure_of(down), health)
    assert [line["log_level"] for line in logs] == [level]
