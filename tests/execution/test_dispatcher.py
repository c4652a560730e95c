"""Tests of the dispatcher: the effects on both systems, and the outcomes for the ledger."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Self, cast

import pytest
from structlog.testing import capture_logs

from extender.execution import dispatcher
from extender.execution.dispatcher import Dispatcher
from extender.execution.failures import failure_of
from extender.explain.cause import Due, Step
from extender.jobs.tracked_job import TrackedJob
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Owner, Pod, parse_pod
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    Effect,
    Event,
    EvictPod,
    Failure,
    Outcome,
    PodVanished,
    ReadJob,
    RecordJobId,
    Remedy,
    ReportWaiting,
    Submit,
    Tick,
    WriteAllocation,
    WriteAttempt,
)
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.telemetry import Telemetry
from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service import cooperative
from service.health import Health
from slurm_client.errors import (
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    OtherJob,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
)
from slurm_client.model import Grant, JobChanges, JobSpec, Node
from slurm_client.protocol import Slurm
from slurm_client.rights import UserRights
from slurm_client.server import Configuration
from tests.builders import TRANSLATION, Manifest, cause_of, placeholder_job, placeholder_of, pod_manifest
from tests.clock import Clock
from tests.service.turns import turns_of_others
from wellknown.allocation import Allocation
from wellknown.names import ATTEMPT, CONDITION

MANIFESTS = [
    pod_manifest("p", uid="u1", version="7"),
    *(pod_manifest(f"p{number}", uid=f"u{number}", version=f"{7 + number}") for number in range(2, 20)),
]
PODS = [parse_pod(manifest, TRANSLATION) for manifest in MANIFESTS]
POD = PODS[0]
CAUSE = cause_of("SlurmJobCancelled", "it was cancelled")
SAID = "it was cancelled"
SPEC = JobSpec("p@default", 1, 1)
EVICTION = EvictPod("u1", POD, CAUSE)


def evictions(number: int) -> list[EvictPod]:
    """Returns evictions of different Pods."""
    return [replace(EVICTION, uid=each.uid, pod=each) for each in PODS[:number]]


class FakeSlurm:
    """Records calls. Submissions wait for `open`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None]] = []
        self.rights_error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None
        self.grant_error: Exception | None = None
        self.update_error: Exception | None = None
        self.reason = ""
        """Reason for which the job waits."""
        self.deaf = False
        """If True, updates and queries of accounting get no answer."""
        self.who: str | None = None
        """Canceller of the job."""
        self.boot_time = 1

    async def _did(self, call: str, job_id: int) -> int:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.calls.append((call, job_id))
        return job_id

    async def configuration(self) -> Configuration:
        return Configuration(boot_time=self.boot_time)

    async def allocate(self, _spec: JobSpec, job_id: int) -> int:
        return await self._did("allocate", job_id)

    async def submit(self, _spec: JobSpec, job_id: int) -> int:
        return await self._did("submit", job_id)

    async def grant(self, job_id: int) -> Grant | None:
        self.calls.append(("grant", job_id))
        if self.grant_error is not None:
            raise self.grant_error
        return Grant(("n1",))

    async def job(self, job_id: int) -> object:
        self.calls.append(("job", job_id))
        return placeholder_job(POD, node="n1", reason=self.reason)

    async def nodes(self) -> tuple[Node, ...]:
        self.calls.append(("nodes", 0))
        return (Node("n1", frozenset(), 8, 1000, partitions=("main",)),)

    async def update(self, job_id: int, changes: JobChanges) -> None:
        if self.deaf:
            await asyncio.Event().wait()
        if self.update_error is not None:
            raise self.update_error
        self.calls.append((f"comment {changes.comment}", job_id))

    async def rights(self, user_id: int | None) -> UserRights:
        self.calls.append(("rights", user_id))
        if self.rights_error is not None:
            raise self.rights_error
        return UserRights("root")

    async def canceller(self, job_id: int) -> str | None:
        self.calls.append(("canceller", job_id))
        if self.deaf:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.who

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        assert name == "p@default"
        self.calls.append(("cancel", job_id))


class FakeLedger:
    """Records events, and sets the time of the next wake."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Event] = asyncio.Queue()
        self.effects: list[Effect] = []
        self.wake = inf
        self.records: dict[str, Placeholder] = {}
        self.rules = PlacementConfig()

    def apply(self, event: Event, _now: float) -> tuple[Effect, ...]:
        self.heard.put_nowait(event)
        effects, self.effects = tuple(self.effects), []
        return effects

    def next_wake(self) -> float:
        return self.wake

    def record_of(self, uid: str) -> Placeholder | None:
        return self.records.get(uid)


class Works:
    """A running dispatcher with fake systems."""

    def __init__(
        self,
        kubernetes: InMemoryKubernetes | None = None,
        workers: int = 2,
        events_after_s: float = 0.0,
        allowed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.kubernetes = kubernetes or InMemoryKubernetes(*MANIFESTS)
        self.slurm = FakeSlurm()
        self.ledger = FakeLedger()
        self.telemetry = Telemetry()
        self.dispatcher = Dispatcher(
            cast(Ledger, self.ledger),
            cast(Slurm, self.slurm),
            self.kubernetes,
            self.telemetry.placement,
            workers,
            allowed=allowed,
            events_after_s=events_after_s,
        )

    async def __aenter__(self) -> Self:
        self._running = asyncio.ensure_future(self.dispatcher.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def put(self, *effects: Effect) -> None:
        """Lets the ledger answer the next event with the effects."""
        self.ledger.effects = list(effects)
        self.dispatcher.feed(Tick())
        assert self.ledger.heard.get_nowait() == Tick()

    async def outcome(self) -> Event:
        return await asyncio.wait_for(self.ledger.heard.get(), 10)

    async def told(self) -> None:
        """Waits until all due Events are created."""
        for _ in range(100):
            await asyncio.sleep(0)

    async def tell(self, effect: Effect) -> None:
        """Carries an effect out, and creates all Events about the effect."""
        self.put(effect)
        await self.outcome()
        await self.told()

    async def do(self, effect: Effect) -> Any:
        return await self.dispatcher.carry_out(effect)

    @property
    def pod(self) -> Manifest:
        """Returns the current Pod."""
        return self.kubernetes.read("pods", POD.name)

    @property
    def version(self) -> str:
        return str(self.pod["metadata"]["resourceVersion"])

    @property
    def condition(self) -> Manifest:
        """Returns the condition about the placement of the Pod."""
        conditions = self.pod["status"]["conditions"]
        return next(dict(each) for each in conditions if each["type"] == CONDITION)

    def events(self, field: str) -> list[str]:
        """Returns a field of all Events, in the order of creation."""
        made = self.kubernetes.objects("events")
        made.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event[field] for event in made]

    def somebody_writes(self) -> None:
        """Changes a label of the Pod. The Pod gets another version."""
        self.kubernetes.edit("pods", POD.name, {"metadata": {"labels": {"version": self.version}}})

    def is_gone(self, of: Pod = POD) -> bool:
        return all(each["metadata"]["uid"] != of.uid for each in self.kubernetes.objects("pods"))


@pytest.fixture
async def works() -> AsyncIterator[Works]:
    async with Works() as at_work:
        yield at_work


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NoRoomNow, Remedy.NO_ROOM),
        (JobIdTaken, Remedy.ID_TAKEN),
        (OtherJob, Remedy.OTHER_JOB),
        (InvalidRequest, Remedy.CHANGE),
        (RetryLater, Remedy.LATER),
        (Unreachable, Remedy.AGAIN),
        (OutcomeUnknown, Remedy.AGAIN),
        (Unexplained, Remedy.UNEXPLAINED),
        (NeedsOperator, Remedy.OPERATOR),
        (SlurmError, Remedy.AGAIN),
        (Conflict, Remedy.FRESHER),
        (NotFound, Remedy.GONE),
        (Unavailable, Remedy.AGAIN),
        (Rejected, Remedy.OPERATOR),
        (KubernetesError, Remedy.OPERATOR),
    ],
)
def test_error_has_a_remedy(error: type[SlurmError | KubernetesError], remedy: Remedy) -> None:
    if issubclass(error, SlurmError):
        failure, system = failure_of(error("because", number=7)), "Slurm"
    else:
        failure, system = failure_of(error(400, "because")), "Kubernetes"
    assert (failure.remedy, failure.system) == (remedy, system)
    assert "because" in failure.message


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("slurmrestd at http://10.0.0.7:6820 is not reached: [Errno 111]"),
        RetryLater("slurmrestd at http://10.0.0.7:6820: [Errno 111]"),
        NeedsOperator("the token file /etc/slurm/token cannot be read: [Errno 111]"),
        Unavailable(0, "kube-apiserver does not answer: https://10.0.0.7 [Errno 111]"),
        ValueError("http://10.0.0.7 [Errno 111]"),
    ],
)
def test_message_of_a_failure_hides_addresses_and_paths(error: Exception) -> None:
    failure = failure_of(error)
    assert not any(inner in failure.message for inner in ("10.0.0.7", "/etc", "Errno", "Error"))
    assert failure.inner == (type(error).__name__ if isinstance(error, ValueError) else str(error))


SUBMISSION = Submit("u1", 40_000_000, SPEC, immediate=False)


async def failed(works: Works, effect: Effect) -> list[Any]:
    """Carries out an effect that fails, and returns the log."""
    with capture_logs() as logs:
        outcome = await works.dispatcher.outcome_of(effect)
        assert isinstance(outcome.result, Failure)
    return list(logs)


async def test_failure_is_logged_with_the_pod_and_the_job_if_known(works: Works) -> None:
    works.slurm.error = NeedsOperator("only root may do that", number=2002)
    (line,) = await failed(works, SUBMISSION)
    assert (line["pod"], line["uid"], line["job"]) == (None, "u1", 40_000_000)
    works.ledger.records["u1"] = placeholder_of(POD, State.QUEUED, job=TrackedJob(id=40_000_000))
    (line,) = await failed(works, SUBMISSION)
    assert (line["effect"], line["log_level"]) == ("Submit", "info")
    named = (f"{POD.namespace}/{POD.name}", "u1", 40_000_000)
    assert (line["pod"], line["uid"], line["job"]) == named
    works.slurm.error = ValueError("a defect")
    for line in await failed(works, SUBMISSION):
        assert (line["pod"], line["uid"], line["job"]) == named


async def test_failures_of_a_known_outage_are_counted_and_not_logged() -> None:
    works, health = Works(), Health()
    works.telemetry.follow(health)
    works.slurm.error = Unreachable("slurmctld was not reached")
    assert [line["log_level"] for line in await failed(works, SUBMISSION)] == ["info"]
    health.says("jobs", works.slurm.error)
    assert [line["log_level"] for line in await failed(works, SUBMISSION)] == ["debug"]
    counted = {"effect": "Submit", "outcome": "again"}
    count = works.telemetry.registry.get_sample_value
    assert count("slurm_extender_effect_seconds_count", counted) == 2
    works.slurm.error = InvalidRequest("no such partition", number=2000)
    assert [line["log_level"] for line in await failed(works, SUBMISSION)] == ["info"]
    health.says("jobs", None)
    works.slurm.error = Unreachable("slurmctld was not reached")
    assert [line["log_level"] for line in await failed(works, SUBMISSION)] == ["info"]


async def test_failed_event_is_logged_with_its_pod_unless_kubernetes_is_down() -> None:
    error, health = Unavailable(0, "kube-apiserver does not answer"), Health()
    first, second = evictions(2)
    with capture_logs() as logs:
        async with Works() as works:
            works.kubernetes.outage(error, "create_event")
            works.telemetry.follow(health)
            await works.tell(first)
            health.says("Lease", error)
            await works.tell(second)
    lines = [line for line in logs if line["event"] == "Event not made"]
    assert [line["log_level"] for line in lines] == ["warning", "debug"]
    assert lines[0]["pod"] == f"{POD.namespace}/{POD.name}"


# Effects on Slurm


async def test_job_is_queued_or_allocated_at_once(works: Works) -> None:
    """If Slurm does not answer the query for the grant, the grant of the job is unknown at first."""
    immediate = replace(SUBMISSION, immediate=True)
    assert await works.do(SUBMISSION) is None
    assert await works.do(immediate) == Grant(("n1",))
    called = ["submit", "allocate", "grant"]
    assert works.slurm.calls == [(call, 40_000_000) for call in called]
    works.slurm.grant_error = Unreachable("down")
    assert await works.do(immediate) is None


async def test_a_job_is_read_and_cancelled_by_its_id(works: Works) -> None:
    assert await works.do(ReadJob("u1", 7)) == placeholder_job(POD, node="n1")
    await works.do(CancelJob("u1", 7, "p@default", "Pod deleted"))
    assert works.slurm.calls == [("job", 7), ("comment Pod deleted", 7), ("cancel", 7)]


@pytest.mark.parametrize("error", [InvalidRequest("no such job"), Unreachable("down")])
async def test_job_with_rejected_comment_is_cancelled(works: Works, error: SlurmError) -> None:
    works.slurm.update_error = error
    await works.do(CancelJob("u1", 7, "p@default", "Pod deleted"))
    assert works.slurm.calls == [("cancel", 7)]


async def test_job_that_needs_a_comment_first_is_not_cancelled_without_it(works: Works) -> None:
    """If the job has ended, the extender cancels without the comment."""
    works.slurm.update_error = Unreachable("down")
    replaced = CancelJob("u1", 7, "p@default", "Replaced: because", comment_first=True)
    with pytest.raises(Unreachable):
        await works.do(replaced)
    assert works.slurm.calls == []
    works.slurm.update_error = InvalidRequest("the job has ended", number=2021)
    await works.do(replaced)
    assert works.slurm.calls == [("cancel", 7)]


async def test_a_job_whose_comment_hangs_is_cancelled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_COMMENT_TIMEOUT_S", 0.01)
    works = Works()
    works.slurm.deaf = True
    await works.do(CancelJob("u1", 7, "p@default", "Pod deleted"))
    assert works.slurm.calls == [("cancel", 7)]


# Effects on Kubernetes


ALLOCATION = Allocation(7, "n1")


async def test_an_allocation_is_nominated_and_then_granted_in_the_next_version(works: Works) -> None:
    await works.do(WriteAllocation("u1", POD, ALLOCATION, nominate=True))
    assert works.kubernetes.calls == ["patch_pod_status", "patch_pod"]
    assert works.pod["status"]["nominatedNodeName"] == "n1"
    assert works.pod["metadata"]["annotations"] == ALLOCATION.annotations()
    assert not works.pod["spec"].get("schedulingGates")


@pytest.mark.parametrize(
    ("write", "nominate"), [("patch_pod_status", True), ("patch_pod", True), ("patch_pod", False)]
)
async def test_changed_pod_is_not_granted(works: Works, write: str, nominate: bool) -> None:
    works.kubernetes.before_next(write, works.somebody_writes)
    with pytest.raises(Conflict):
        await works.do(WriteAllocation("u1", POD, ALLOCATION, nominate=nominate))
    assert works.pod["spec"]["schedulingGates"]
    assert "annotations" not in works.pod["metadata"]


async def test_pod_without_a_nomination_is_granted_in_one_write(works: Works) -> None:
    version = await works.do(WriteAllocation("u1", POD, ALLOCATION, nominate=False))
    assert works.kubernetes.calls == ["patch_pod"]
    assert works.pod["metadata"]["annotations"] == ALLOCATION.annotations()
    assert version == works.version


async def test_grant_after_a_reported_wait_creates_an_event(works: Works) -> None:
    heard_at = works.dispatcher.now()
    await works.tell(WriteAllocation("u1", POD, ALLOCATION, nominate=False, learned_at=heard_at))
    assert works.events("reason") == ["Granted"]
    assert re.fullmatch(
        r"Slurm job 7 runs on Node n1; the Pod waited .+, \d+ ms of it for slurm-extender",
        works.events("message")[0],
    )


async def test_failed_grant_creates_no_event(works: Works) -> None:
    works.kubernetes.outage(Conflict(409, "modified"), "patch_pod")
    await works.tell(WriteAllocation("u1", POD, ALLOCATION, nominate=False, learned_at=0.0))
    assert works.kubernetes.calls == ["patch_pod"]
    assert works.pod == MANIFESTS[0]


@pytest.mark.parametrize("effect", [WriteAllocation("u1", POD, ALLOCATION, nominate=True), EVICTION])
async def test_conflict_of_the_status_patch_ends_an_effect(works: Works, effect: Effect) -> None:
    """kube-apiserver itself repeats a patch after a conflict, and gives up after five tries. The ledger
    then repeats the effect."""
    works.kubernetes.outage(Conflict(409, "modified"), "patch_pod_status")
    with pytest.raises(Conflict):
        await works.do(effect)
    assert works.pod == MANIFESTS[0]


async def test_next_attempt_removes_the_nomination(works: Works) -> None:
    await works.do(WriteAllocation("u1", POD, ALLOCATION, nominate=True))
    works.kubernetes.calls.clear()
    await works.do(WriteAttempt("u1", parse_pod(works.pod, TRANSLATION), 2))
    assert works.kubernetes.calls == ["patch_pod", "patch_pod_status"]
    assert works.pod["metadata"]["annotations"] == {ATTEMPT: "2"}
    assert "nominatedNodeName" not in works.pod["status"]


async def test_next_attempt_writes_why_the_last_attempt_ended(works: Works) -> None:
    refused = cause_of("NodeRejected", "kube-scheduler refused n1")
    cause = replace(refused, dues=(Due(Step.NODE_ALLOWED, 0.0, "n1"),))
    await works.do(WriteAttempt("u1", POD, 2, cause))
    assert works.kubernetes.calls == ["patch_pod", "patch_pod_status"]
    condition = works.condition
    assert (condition["status"], condition["reason"]) == ("False", "NodeRejected")
    assert re.fullmatch(r"kube-scheduler refused n1; n1 is excluded until \S+ UTC", condition["message"])


async def test_job_id_is_written_to_a_bound_pod_in_any_version(works: Works) -> None:
    works.somebody_writes()
    await works.do(RecordJobId("u1", POD, 8, 2))
    numbers = {"slurm-extender.io/job-id": "8", "slurm-extender.io/attempt": "2"}
    assert works.pod["metadata"]["annotations"] == numbers
    with pytest.raises(Conflict):
        await works.do(RecordJobId("another", POD._replace(uid="another"), 9, 3))


async def test_changed_allocation_is_written_with_the_job_id(works: Works) -> None:
    await works.do(RecordJobId("u1", POD, 8, 2, granted=Allocation(8, "n1", cores="4-7")))
    assert works.pod["metadata"]["annotations"] == {
        "slurm-extender.io/job-id": "8",
        "slurm-extender.io/attempt": "2",
        "slurm-extender.io/granted": '{"v":1,"cores":"4-7"}',
    }


async def test_cause_becomes_a_condition_and_an_event(works: Works) -> None:
    await works.tell(ReportWaiting("u1", POD, CAUSE, 7))
    assert works.kubernetes.calls == ["patch_pod_status", "create_event"]
    assert works.condition["message"] == SAID
    assert works.events("message") == [SAID]


async def test_due_time_is_in_the_condition_and_not_in_the_event(works: Works) -> None:
    due = Due(Step.ANOTHER_JOB, works.dispatcher.now() + 60)
    await works.tell(ReportWaiting("u1", POD, replace(CAUSE, dues=(due,)), None))
    dated = rf"{SAID}; the extender requests another job at \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(dated, works.condition["message"])
    assert works.events("message") == [SAID]


async def test_running_pod_gets_an_event_and_no_condition(works: Works) -> None:
    await works.tell(ReportWaiting("u1", POD, CAUSE, 7, event_alone=True))
    assert works.kubernetes.calls == ["create_event"]


@pytest.mark.parametrize(
    ("reason", "action"), [("EvictionThrottled", "Evicting"), ("Resources", "Placing")]
)
async def test_action_of_an_event_follows_from_its_reason(
    works: Works, reason: str, action: str
) -> None:
    await works.tell(ReportWaiting("u1", POD, cause_of(reason), 7))
    assert works.events("action") == [action]


async def test_hardware_is_read_once_for_many_jobs_that_are_too_large(works: Works) -> None:
    works.slurm.error = InvalidRequest("no node has that", number=2014)
    for _ in range(3):
        outcome = await works.dispatcher.outcome_of(Submit("u1", 7, SPEC, immediate=False))
        assert outcome.hardware["main"].cpus == 8
    assert works.slurm.calls == [("nodes", 0)]
    works.slurm.error = InvalidRequest("no such account", number=2045)
    outcome = await works.dispatcher.outcome_of(Submit("u1", 7, SPEC, immediate=False))
    assert outcome.hardware == {}
    assert works.slurm.calls == [("nodes", 0), ("rights", None)]


async def test_rights_of_a_user_are_read_once_for_many_refusals(works: Works) -> None:
    works.slurm.error = InvalidRequest("no such account", number=2045)
    for _ in range(3):
        outcome = await works.dispatcher.outcome_of(Submit("u1", 7, SPEC, immediate=False))
        assert outcome.rights == UserRights("root")
    assert works.slurm.calls == [("rights", None)]


async def test_rights_that_cannot_be_read_are_not_read_again_soon(works: Works) -> None:
    works.slurm.error = works.slurm.rights_error = InvalidRequest("no such account", number=2045)
    for user in range(3):
        asked = Submit("u1", 7, replace(SPEC, user_id=user), immediate=False)
        assert (await works.dispatcher.outcome_of(asked)).rights is None
    assert works.slurm.calls == [("rights", 0)]


async def test_hardware_is_read_if_a_waiting_job_is_too_large(works: Works) -> None:
    for reason, known in {"Resources": {}, "PartitionConfig": {"main": 8}}.items():
        works.slurm.reason = reason
        for_words = await works.dispatcher.outcome_of(ReadJob("u1", 7, for_words=True))
        assert {name: has.cpus for name, has in for_words.hardware.items()} == known
        assert (await works.dispatcher.outcome_of(ReadJob("u1", 7))).hardware == {}


async def test_effects_wait_while_this_replica_may_not_act() -> None:
    may_act = asyncio.Event()

    async def allowed() -> None:
        await may_act.wait()

    async with Works(allowed=allowed) as works:
        works.put(CancelJob("u1", 7, "p@default", "Pod deleted"))
        await asyncio.sleep(0)
        assert works.slurm.calls == []
        may_act.set()
        await works.outcome()
        assert works.slurm.calls[-1] == ("cancel", 7)


async def test_eviction_writes_the_cause_before_the_deletion() -> None:
    leaving = pod_manifest(
        uid="u1", version="7", node="n1", deleting=True, terminationGracePeriodSeconds=9
    )
    leaving["metadata"]["deletionGracePeriodSeconds"] = 86_400
    for written_to in (False, True):
        works = Works(InMemoryKubernetes(leaving))
        if written_to:  # the deletion applies only to the version with the condition
            works.kubernetes.before_next("delete_pod", works.somebody_writes)
        with suppress(Conflict):
            await works.do(EvictPod("u1", parse_pod(leaving, TRANSLATION), CAUSE))
        assert works.kubernetes.calls == ["patch_pod_status", "delete_pod"]
        assert works.condition["message"] == SAID
        grace = works.pod["metadata"]["deletionGracePeriodSeconds"]
        assert grace == (86_400 if written_to else 9)


@pytest.mark.parametrize("refused", [False, True])
async def test_pod_that_others_write_to_is_evicted_by_uid(works: Works, refused: bool) -> None:
    if refused:
        works.kubernetes.outage(Conflict(409, "modified"), "patch_pod_status")
    for call in ("patch_pod_status", "delete_pod"):
        works.kubernetes.before_next(call, works.somebody_writes)
    await works.do(replace(EVICTION, in_any_version=True))
    assert works.is_gone()


@pytest.mark.parametrize(
    "effect",
    [
        EVICTION,
        replace(EVICTION, in_any_version=True),
        replace(EVICTION, in_this_attempt=True),
    ],
)
async def test_a_pod_whose_condition_is_refused_is_evicted_all_the_same(
    works: Works, effect: EvictPod
) -> None:
    works.kubernetes.outage(Rejected(403, "denied by a webhook"), "patch_pod_status")
    await works.do(effect)
    assert works.is_gone()


async def test_new_pod_of_the_same_name_is_not_evicted(works: Works) -> None:
    another = replace(EVICTION, pod=POD._replace(uid="another"), in_any_version=True)
    with pytest.raises(Conflict):
        await works.do(another)
    assert works.pod == MANIFESTS[0]


class Written(InMemoryKubernetes):
    """A Pod that another program changes often: every third deletion succeeds."""

    def __init__(self, **given: Any) -> None:
        super().__init__(pod_manifest(**{"uid": "u1", "version": "7"} | given))
        self.tries = 0

    def _is_written(self, name: str) -> None:
        version = self.read("pods", name)["metadata"]["resourceVersion"]
        self.edit("pods", name, {"metadata": {"labels": {"version": version}}})

    async def read_pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        self._is_written(name)
        return await super().read_pod(namespace, name)

    async def delete_pod(
        self, namespace: str, name: str, preconditions: Mapping[str, Any], grace_s: int
    ) -> None:
        self.tries += 1
        if self.tries % 3 != 0:
            self._is_written(name)
        await super().delete_pod(namespace, name, preconditions, grace_s)


async def test_eviction_of_a_changing_pod_reads_the_pod_before_each_try() -> None:
    """The extender writes the cause once, into any version of the Pod."""
    works = Works(Written())
    await works.do(replace(EVICTION, in_this_attempt=True))
    tries = ["read_pod", "patch_pod_status", "delete_pod"] + 2 * ["read_pod", "delete_pod"]
    assert works.kubernetes.calls == tries
    assert works.is_gone()


@pytest.mark.parametrize("given", [{"annotations": {ATTEMPT: "2"}}, {"uid": "another"}])
async def test_pod_with_a_new_attempt_or_uid_is_not_deleted(given: dict[str, Any]) -> None:
    works = Works(Written(**given))
    with suppress(Conflict):
        await works.do(replace(EVICTION, in_this_attempt=True))
    assert works.kubernetes.calls == ["read_pod"]


CANCELLED = replace(EVICTION, cancelled=7)


@pytest.mark.parametrize(("who", "words"), [("alice", f"{SAID}, by alice"), (None, SAID)])
async def test_eviction_event_names_the_canceller(works: Works, who: str | None, words: str) -> None:
    works.slurm.who = who
    await works.tell(CANCELLED)
    assert works.slurm.calls == [("canceller", 7)]
    assert works.events("message") == [words]
    assert works.kubernetes.calls == ["patch_pod_status", "delete_pod", "create_event"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_event_names_no_canceller_without_a_cancellation_or_accounting(
    works: Works, cancelled: bool
) -> None:
    works.slurm.error = RetryLater("slurmdbd is not reached", number=7000)
    await works.tell(CANCELLED if cancelled else EVICTION)
    assert works.slurm.calls == ([("canceller", 7)] if cancelled else [])
    assert works.events("message") == [SAID]


@pytest.mark.parametrize(("deaf", "words"), [(True, SAID), (False, f"{SAID}, by alice")])
async def test_slow_accounting_is_not_called_again_soon(
    monkeypatch: pytest.MonkeyPatch, deaf: bool, words: str
) -> None:
    monkeypatch.setattr(dispatcher, "_SLOW_ACCOUNTING_S", -1.0)  # any answer takes longer
    monkeypatch.setattr(dispatcher, "_COMMENT_TIMEOUT_S", 0.0 if deaf else 10.0)
    async with Works() as works:
        works.slurm.deaf, works.slurm.who = deaf, "alice"
        for eviction in evictions(2):
            await works.tell(replace(eviction, cancelled=7))
        assert works.slurm.calls == [("canceller", 7)]
        assert works.events("message") == [words, SAID]


async def test_events_come_after_all_evictions_that_wait(works: Works) -> None:
    works.put(*evictions(9))
    for _ in range(9):
        await works.outcome()
    await works.told()
    assert works.kubernetes.calls[-9:] == ["create_event"] * 9


async def test_events_come_after_evictions_that_follow_soon() -> None:
    async with Works(events_after_s=0.5) as works:
        for eviction in evictions(3):
            await works.tell(eviction)
            await asyncio.sleep(0.05)
        assert works.kubernetes.calls == ["patch_pod_status", "delete_pod"] * 3
        await asyncio.sleep(0.6)
        assert works.kubernetes.calls[6:] == ["create_event"] * 3


async def test_evictions_wait_for_no_event_and_each_gets_an_event(works: Works) -> None:
    works.kubernetes.hold("create_event")
    works.put(*evictions(5))
    for _ in range(5):
        await works.outcome()
    assert all(works.is_gone(of) for of in PODS[:5])
    assert works.events("reason") == []
    works.kubernetes.release()
    await works.told()
    assert len(works.events("reason")) == 5


@pytest.mark.parametrize("status", [403, 422])
async def test_rejected_event_delays_no_eviction(works: Works, status: int) -> None:
    works.kubernetes.outage(Rejected(status, "no such Event"), "create_event")
    for eviction in evictions(2):
        await works.tell(eviction)
    assert all(works.is_gone(of) for of in PODS[:2])
    assert works.events("reason") == []


async def test_unexpected_event_error_stops_no_later_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("not JSON")

    *those_that_fail, last = evictions(2 * dispatcher._EVENT_WRITERS + 1)
    async with Works() as works:
        monkeypatch.setattr(works.kubernetes, "create_event", fails)
        for eviction in those_that_fail:
            await works.tell(eviction)
        monkeypatch.undo()
        await works.tell(last)
        assert len(works.events("reason")) == 1


async def test_too_many_events_are_dropped_with_one_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_MAX_QUEUED_EVENTS", 3)
    made = dispatcher._EVENT_WRITERS + 3
    *too_many, last = evictions(made + 3)
    with capture_logs() as logs:
        async with Works() as works:
            works.kubernetes.hold("create_event")
            for eviction in too_many:
                await works.tell(eviction)
            works.kubernetes.release()
            await works.told()
            assert len(works.events("reason")) == made
            await works.tell(last)
            assert len(works.events("reason")) == made + 1
    assert [line["waiting"] for line in logs if line["event"].startswith("Events are dropped")] == [3]


async def test_gang_has_one_event_about_its_controller(works: Works) -> None:
    """`kubectl describe job` then shows why the Pods are gone."""
    owner = Owner("batch/v1", "Job", "train", "uid-of-the-job")
    for eviction in evictions(3):
        pod = eviction.pod
        of_gang = pod._replace(life=pod.life._replace(owner=owner))
        await works.tell(replace(eviction, pod=of_gang))
    about = works.kubernetes.objects("events")
    (own,) = (each for each in about if each["involvedObject"]["kind"] == "Job")
    assert own["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": "train",
        "uid": "uid-of-the-job",
    }
    assert (len(about), own["reason"]) == (4, CAUSE.reason)


async def test_eviction_of_a_missing_pod_succeeds(works: Works) -> None:
    works.kubernetes.remove("pods", POD.name)
    await works.do(EVICTION)
    assert works.kubernetes.calls == ["patch_pod_status"]


# The running dispatcher


async def test_ledger_gets_the_result_of_an_effect(works: Works) -> None:
    works.put(ReadJob("u1", 7))
    assert await works.outcome() == Outcome(ReadJob("u1", 7), placeholder_job(POD, node="n1"))


async def test_ledger_gets_failures_and_the_worker_continues() -> None:
    submission = Submit("u1", 7, SPEC, immediate=True)
    async with Works(workers=1) as works:
        for error, remedy in ((NoRoomNow("full"), Remedy.NO_ROOM), (KeyError("x"), Remedy.AGAIN)):
            works.slurm.error = error
            works.put(submission)
            heard = await works.outcome()
            assert isinstance(heard, Outcome)
            assert isinstance(heard.result, Failure)
            assert heard.result.remedy is remedy


async def test_submissions_that_hang_hold_up_no_eviction_and_no_cancellation() -> None:
    async with Works(workers=1) as works:
        works.slurm.open.clear()
        works.put(*(Submit("u1", 7 + i, SPEC, immediate=True) for i in range(5)), EVICTION)
        assert await works.outcome() == Outcome(EVICTION, None)
        works.put(CancelJob("u1", 7, "p@default", "Pod deleted"))
        assert await works.outcome() == Outcome(CancelJob("u1", 7, "p@default", "Pod deleted"), None)
        assert works.slurm.calls[-1] == ("cancel", 7)


async def test_writes_that_hang_hold_up_no_eviction_and_no_cancellation() -> None:
    async with Works(workers=1) as works:
        works.kubernetes.hold("patch_pod")
        _, eviction = evictions(2)
        works.put(*(WriteAllocation("u1", POD, ALLOCATION, nominate=True) for _ in range(5)), eviction)
        assert await works.outcome() == Outcome(eviction, None)
        works.put(CancelJob("u1", 7, "p@default", "Pod deleted"))
        assert await works.outcome() == Outcome(CancelJob("u1", 7, "p@default", "Pod deleted"), None)


async def test_reports_to_users_delay_no_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 1,000 waiting Pods, the extender reads the reasons every ten seconds."""

    async def never(*_: object) -> object:
        return await asyncio.Event().wait()

    async with Works(workers=1) as works:
        monkeypatch.setattr(works.slurm, "job", never)
        works.kubernetes.hold("patch_pod_status")
        reads = [ReadJob(f"u{number}", number, for_words=True) for number in range(5)]
        submission = Submit("u7", 7, SPEC, immediate=False)
        works.put(*reads, submission)
        assert await works.outcome() == Outcome(submission, None)
        allocation = WriteAllocation("u1", POD, ALLOCATION, nominate=False)
        works.put(*(ReportWaiting("u1", POD, CAUSE, 7) for _ in range(5)), allocation)
        assert await works.outcome() == Outcome(allocation, works.version)


@pytest.mark.parametrize("delays", [(0.01,), (3600.0, 0.01)])
async def test_ledger_is_woken_at_the_earliest_time(works: Works, delays: Sequence[float]) -> None:
    for delay in delays:
        works.ledger.wake = works.dispatcher.now() + delay
        works.put()
    works.ledger.wake = inf
    assert await works.outcome() == Tick()


async def test_many_events_are_fed_before_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative, "_TURN_S", 0.0)
    works = Works()
    works.ledger.wake = works.dispatcher.now()
    works.put()
    gone = [PodVanished(f"u{number}") for number in range(100)]
    given = await turns_of_others(works.dispatcher.feed_all(gone))
    works.ledger.wake = inf
    heard = [works.ledger.heard.get_nowait() for _ in gone]
    assert heard == gone
    assert given >= 99
    assert await works.outcome() == Tick()


async def test_many_effects_at_once_let_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, begun = Clock(0.0), Counter[int]()
    monkeypatch.setattr(cooperative, "perf_counter", clock)
    turn = 0

    async def begin() -> None:
        clock.now += 0.01
        begun[turn] += 1

    async with Works(workers=10, allowed=begin) as works:
        works.put(*evictions(10))
        while begun.total() < 10:
            turn += 1
            await asyncio.sleep(0)
    assert max(begun.values()) == 2
