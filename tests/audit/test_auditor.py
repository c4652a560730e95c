"""Tests of the leader's audit: the reads of a round, the reported differences, and the corrections."""

import asyncio
import threading
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from extender.audit import auditor
from extender.audit.auditor import PeriodicAudit
from extender.audit.compare import Finding, FindingKind
from extender.audit.reader import Reader
from extender.execution.dispatcher import Dispatcher
from extender.node_view.slurm_nodes import SlurmNodes
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod
from extender.pod_request.translation import TranslationConfig
from extender.pod_request.workload import Workload
from extender.record.events import (
    ClusterObserved,
    Event,
    OrphanFound,
    PodObserved,
    Recovered,
    Tick,
)
from extender.record.states import State
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Manifest
from service.health import Health
from slurm_client.errors import Unreachable
from slurm_client.job_state import AllStates, JobState
from slurm_client.model import Job, Node
from slurm_client.protocol import Slurm
from tests.builders import (
    RULES,
    TRANSLATION,
    changed,
    kube_node,
    placeholder_job,
    pod,
    pod_manifest,
    unmanaged,
    view,
)
from tests.execution import test_startup
from tests.execution.test_startup import GONE, NATIVE, POD
from tests.placement.ledger_world import World
from wellknown.job_key import ADOPTED_ATTEMPT, PlaceholderKey
from wellknown.names import ATTEMPT, JOB_ID, NODE

STANDS = pod_manifest(name="p", uid="u1")


class FakeSlurm(test_startup.FakeSlurm):
    """Also answers requests for the states of some jobs, and counts the requests for all jobs."""

    def __init__(self, *jobs: Job) -> None:
        super().__init__(*jobs)
        self.rounds = 0
        self.asked = set[int]()
        self.again = asyncio.Event()

    async def all_states(self) -> AllStates:
        self.rounds += 1
        if self.rounds > 1:
            self.again.set()
        if self.error is not None:
            raise self.error
        return await super().all_states()

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        self.asked = set(ids)
        return {job_id: self.jobs[job_id].state for job_id in self.asked if job_id in self.jobs}

    async def nodes(self) -> tuple[Node, ...]:
        return ()


class Leader:
    """Runs rounds of the audit. `heard` has the events for the ledger, and `told` the findings for the
    metrics."""

    def __init__(
        self,
        slurm: FakeSlurm,
        kubernetes: InMemoryKubernetes | None = None,
        translation: TranslationConfig = TRANSLATION,
        ledger: Ledger | None = None,
    ) -> None:
        self.slurm = slurm
        self.jobs_of_adopted_pods = frozenset[int]()
        self.native: list[int | None] = []
        self.heard: list[Event] = []
        self.told: tuple[Finding, ...] = ()
        self.ledger = ledger or Ledger(RULES)
        self.health = Health()
        self.periodic_audit = PeriodicAudit(
            Reader(
                cast(Slurm, slurm),
                SlurmNodes(cast(Slurm, slurm)),
                kubernetes or InMemoryKubernetes(),
                RULES,
                translation,
                self.native.append,
            ),
            self.ledger,
            lambda: view(kube_node("n1")),
            self.hear,
            interval=120.0,
            health=self.health,
            jobs_of_adopted_pods=lambda: self.jobs_of_adopted_pods,
        )

    def hear(self, findings: Iterable[Finding]) -> None:
        self.told = tuple(findings)

    def feed(self, event: Event) -> None:
        self.heard.append(event)

    def knows(self, of: Pod, *jobs: Job) -> None:
        self.ledger.apply(Recovered((of,), jobs), 0.0)

    async def go_round(self) -> list[Event]:
        self.heard = []
        await self.periodic_audit.go_round(cast(Dispatcher, self))
        return self.heard

    def orphans(self) -> list[int]:
        return [event.job_id for event in self.heard if isinstance(event, OrphanFound)]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "_CONFIRM_S", 0.0)


async def test_job_that_arrived_after_its_pod_was_gone_is_cancelled() -> None:
    late = placeholder_job(GONE)
    leader = Leader(FakeSlurm(NATIVE, late))
    await leader.go_round()
    assert leader.orphans() == [late.id]
    assert [finding.kind for finding in leader.told] == [FindingKind.ORPHAN_JOB]


async def test_job_of_an_earlier_attempt_is_cancelled() -> None:
    moved_on = pod_manifest(name="p", uid="u1", annotations={ATTEMPT: "2"})
    leader = Leader(FakeSlurm(placeholder_job(POD)), InMemoryKubernetes(moved_on))
    await leader.go_round()
    assert leader.orphans()


async def test_second_live_job_of_a_pod_is_cancelled() -> None:
    first, second = placeholder_job(POD, node="n1"), placeholder_job(POD, attempt_try=1, node="n1")
    bound = pod(name="p", uid="u1", gates=(), node="n1", annotations={JOB_ID: str(first.id), NODE: "n1"})
    leader = Leader(FakeSlurm(first, second), InMemoryKubernetes(STANDS))
    leader.knows(bound, first)
    await leader.go_round()
    assert leader.orphans() == [second.id]


async def test_difference_gone_at_the_second_look_is_not_reported() -> None:
    class Ending(FakeSlurm):
        async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
            self.jobs = {}
            return await super().states(ids)

    leader = Leader(Ending(placeholder_job(GONE)))
    assert await leader.go_round() == []
    assert leader.told == ()


async def test_second_look_requests_only_the_jobs_of_the_difference() -> None:
    late = placeholder_job(GONE)
    slurm = FakeSlurm(NATIVE, late)
    await Leader(slurm).go_round()
    assert (slurm.rounds, slurm.asked) == (1, {late.id})


async def test_pod_that_reappears_keeps_its_job() -> None:
    """The Pod counts as gone only if the absence is confirmed (invariant I5)."""

    class Late(InMemoryKubernetes):
        async def read_pod(self, namespace: str, name: str) -> Manifest | None:
            seen = await super().read_pod(namespace, name)
            if self.calls.count("read_pod") == 2:
                self.put("pods", STANDS)
            return seen

    leader = Leader(FakeSlurm(placeholder_job(POD)), Late())
    assert await leader.go_round() == []


async def test_job_of_an_existing_pod_is_kept() -> None:
    leader = Leader(FakeSlurm(NATIVE, placeholder_job(POD)), InMemoryKubernetes(STANDS))
    assert await leader.go_round() == []
    assert leader.told == ()


async def test_listed_group_is_not_requested_by_the_name_of_a_pod() -> None:
    group = Workload("uid-g", "default", "g", size=2)
    pods = [pod(name=name, uid=name)._replace(group=group) for name in ("p0", "p1")]
    key = str(PlaceholderKey(RULES.cluster, "default", "g", group.uid, 1))
    kubernetes = InMemoryKubernetes()
    leader = Leader(FakeSlurm(placeholder_job(POD, admin_comment=key)), kubernetes)
    for each in pods:
        leader.ledger.apply(PodObserved(each), 0.0)
    await leader.go_round()
    assert (leader.orphans(), kubernetes.calls) == ([], [])


async def test_job_known_to_the_ledger_is_not_read() -> None:
    slurm = FakeSlurm(job := placeholder_job(POD))
    leader = Leader(slurm)
    leader.knows(POD, job)
    assert await leader.go_round() == []
    assert slurm.read == set()


async def test_pod_with_a_job_not_yet_submitted_has_a_job() -> None:
    """The record already has the id of the later submission."""
    leader = Leader(FakeSlurm(), InMemoryKubernetes(STANDS))
    leader.ledger.apply(ClusterObserved(view(kube_node("n1"))), 0.0)
    leader.knows(POD)
    leader.ledger.apply(Tick(), 0.0)
    (record,) = leader.ledger.placeholders
    assert (record.state, record.job.id) == (State.SUBMITTING, placeholder_job(POD).id)
    await leader.go_round()
    kinds = [finding.kind for finding in leader.told]
    assert kinds == [FindingKind.STUCK_GATE]  # the Pod is from another day


async def test_records_are_read_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 records take 60 ms. In the event loop, /filter would wait for this time."""
    threads = list[threading.Thread]()

    def noted(records: Any, go_through: Any = auditor._pods_and_jobs) -> Any:
        threads.append(threading.current_thread())
        return go_through(records)

    monkeypatch.setattr(auditor, "_pods_and_jobs", noted)
    await Leader(FakeSlurm()).go_round()
    assert threads
    assert threading.main_thread() not in threads


async def test_foreign_jobs_are_reported_read_once_and_never_cancelled() -> None:
    elsewhere = placeholder_job(
        GONE, admin_comment=str(PlaceholderKey("elsewhere", "default", "p", "u9", 1))
    )
    by_hand = placeholder_job(POD, admin_comment="")
    slurm = FakeSlurm(elsewhere, by_hand)
    leader, kinds = Leader(slurm), {FindingKind.OTHER_CLUSTER, FindingKind.FOREIGN_KEY}
    for _ in range(3):
        assert await leader.go_round() == []
        assert {finding.kind for finding in leader.told} == kinds
        assert slurm.read == ({elsewhere.id, by_hand.id} if slurm.rounds == 1 else set())
        slurm.read = set()


async def test_resolved_difference_is_not_reported_again() -> None:
    slurm = FakeSlurm(placeholder_job(GONE))
    leader = Leader(slurm)
    await leader.go_round()
    slurm.jobs = {}
    assert await leader.go_round() == []
    assert leader.told == ()


@pytest.mark.parametrize("system", ["Slurm", "Kubernetes"])
async def test_audit_does_nothing_during_an_outage_of_either_system(system: str) -> None:
    slurm, kubernetes = FakeSlurm(placeholder_job(GONE)), InMemoryKubernetes()
    if system == "Slurm":
        slurm.error = Unreachable("slurmctld was not reached")
    else:
        kubernetes.outage(Unavailable(0, "kube-apiserver does not answer"))
    leader = Leader(slurm, kubernetes)
    with pytest.raises((Unreachable, Unavailable)):
        await leader.go_round()
    assert leader.heard == []


@pytest.mark.parametrize(("known", "level"), [(False, "warning"), (True, "debug")])
async def test_rounds_go_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, known: bool, level: str
) -> None:
    monkeypatch.setattr(auditor, "_FIRST_S", (0.0, 0.0))
    slurm = FakeSlurm()
    slurm.error = Unreachable("slurmctld was not reached")
    leader = Leader(slurm)
    if known:
        leader.health.says("jobs", slurm.error)
    with capture_logs() as logs:
        rounds = asyncio.ensure_future(leader.periodic_audit.run(cast(Dispatcher, leader)))
        async with asyncio.timeout(10):
            await slurm.again.wait()
        rounds.cancel()
    assert {line["log_level"] for line in logs if line["event"] == "not audited"} == {level}


async def test_audits_are_less_frequent_with_more_jobs() -> None:
    """A round reads at most 85 bytes for each job. On average, the audit reads at most 2 kB per
    second."""
    leader = Leader(FakeSlurm(NATIVE))
    await leader.go_round()
    assert leader.periodic_audit.pause == 120.0
    many = (placeholder_job(GONE, "CANCELLED"), *(Job(n, JobState("PENDING")) for n in range(1, 10_000)))
    leader = Leader(FakeSlurm(*many))
    await leader.go_round()
    assert leader.periodic_audit.pause == 425.0


async def audited(world: World) -> Leader:
    """Runs a round of a leader with the ledger of a world. Returns the leader."""
    leader = Leader(FakeSlurm(*world.jobs.values()), ledger=world.ledger)
    await leader.go_round()
    return leader


async def test_ended_pod_is_no_difference_during_the_cancel_of_its_job() -> None:
    deleted, finished = World(), World()
    uid = deleted.create_pod()
    deleted.settle()
    deleted.remove_pod(uid)
    deleted.settle()
    uid = finished.bound_pod()
    finished.write(changed(finished.pods[uid], finished=True))
    finished.hear()
    for world in (deleted, finished):
        leader = await audited(world)
        assert (leader.told, leader.orphans()) == ((), [])


async def test_wrong_attempt_annotation_of_a_running_pod_cancels_nothing() -> None:
    world = World()
    uid = world.bound_pod()
    world.write(changed(world.pods[uid], attempt=5))
    world.settle()
    leader = await audited(world)
    assert (leader.told, leader.orphans()) == ((), [])


async def test_job_of_an_adopted_pod_is_no_orphan() -> None:
    adopted_pod = unmanaged("g", uid="u3", node="n1")
    job = placeholder_job(pod(name="g", uid="u3"), attempt=ADOPTED_ATTEMPT, node="n1")
    for translation, orphans in ((TranslationConfig(adopts=True), []), (TRANSLATION, [job.id])):
        leader = Leader(FakeSlurm(job), InMemoryKubernetes(adopted_pod), translation)
        await leader.go_round()
        assert leader.orphans() == orphans


async def test_job_of_a_known_adopted_pod_is_not_read() -> None:
    job = placeholder_job(pod(name="g", uid="u3"), attempt=ADOPTED_ATTEMPT, node="n1")
    leader = Leader(FakeSlurm(job))
    leader.jobs_of_adopted_pods = frozenset({job.id})
    await leader.go_round()
    assert leader.orphans() == []
    assert leader.slurm.read == set()


async def test_each_audit_reports_the_highest_id_of_native_jobs() -> None:
    leader = Leader(FakeSlurm(NATIVE, placeholder_job(POD)))
    await leader.go_round()
    leader.slurm.jobs.clear()
    await leader.go_round()
    assert leader.native == [NATIVE.id, None]
