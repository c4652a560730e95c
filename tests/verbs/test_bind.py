"""/bind makes a Binding if Slurm runs the Pod's job on the Node. Otherwise /bind answers with an error
message."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from extender.bind import job_as_read
from extender.bind.job_as_read import JobAsRead, NotBound
from extender.bind.running import RunningJobs
from extender.explain.wording import NOT_SERVED
from extender.jobs.phase import Phase
from extender.jobs.slots import slots
from extender.jobs.tracked_job import Asked, TrackedJob
from extender.node_view.view import ClusterView
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.pod_request.workload import Workload
from extender.record.member import Member
from extender.record.placeholder import Placeholder
from extender.record.states import State
from kubernetes_client.errors import Conflict, KubernetesError, Rejected, Unavailable
from slurm_client.errors import NeedsOperator, OutcomeUnknown, SlurmError, Unreachable
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from tests.builders import (
    RULES,
    Manifest,
    changed,
    kube_node,
    placeholder_job,
    placeholder_of,
    pod,
    pod_manifest,
    view,
)
from tests.verbs.callers import BoundPods, FakeSlurm, Listeners, body
from wellknown.allocation import Allocation
from wellknown.lingering import LingeringNote
from wellknown.names import ATTEMPT, GRANTED, JOB_ID, NODE

CALL = body("bind")
UID, NAME = CALL["PodUID"], CALL["PodName"]
VIEW = view(kube_node("n4", labels={"slurm": "gpu-04"}), kube_node("n5"))
POD = pod(name=NAME, uid=UID, gates=())
JOB = placeholder_job(POD, node="gpu-04", gres=("gpu:2(IDX:0-1)",))


def gpus(gres: str) -> str:
    """Returns the annotation on a Pod with these devices."""
    return Allocation(JOB.id, "n4", gres, slurm_node="gpu-04").annotations()[GRANTED]


BOUND = [("n4", {JOB_ID: str(JOB.id), NODE: "n4", GRANTED: gpus("gpu:2(IDX:0-1)")})]
"""The Binding of the Pod with the allocation."""


def granted(**changed: Any) -> Manifest:
    """Returns the Pod with the annotations of the allocation."""
    annotations = {ATTEMPT: "1", JOB_ID: str(JOB.id), NODE: "n4", GRANTED: gpus("gpu:2(IDX:0-1)")}
    seen = {"name": NAME, "uid": UID, "version": "41", "gates": (), "annotations": annotations}
    return pod_manifest(**seen | changed)


class Cluster:
    """Kubernetes and Slurm, and the extender's listeners."""

    def __init__(
        self,
        *pods: Manifest,
        jobs: tuple[Job, ...] = (JOB,),
        seen: ClusterView = VIEW,
        **settings: Any,
    ) -> None:
        self.kubernetes = BoundPods(*pods)
        self.slurm = FakeSlurm(*jobs, calls=self.kubernetes.calls)
        self.listeners = Listeners(self.kubernetes, self.slurm, seen, **settings)
        self.health = self.listeners.health

    def knows(
        self,
        manifest: Manifest,
        *,
        immediate: bool = False,
        holding: Sequence[Placeholder] = (),
        age_s: float = 0.0,
    ) -> None:
        """Makes the extender the leader, with this version of the Pod and with the Pods of `holding` on
        the Node. The job began `age_s` seconds ago."""
        seen = parse_pod(manifest, TranslationConfig())
        since = asyncio.get_running_loop().time() - age_s
        known = placeholder_of(
            seen,
            State.ALLOCATED,
            members=(Member(seen, seen.scheduling.allocation),),
            job=TrackedJob(id=seen.scheduling.job_id, asked=Asked(immediate=immediate), since=since),
        )
        self.listeners.leads({seen.uid: known}, holding=holding)

    async def bind(self, **changed: str) -> str:
        """Returns the error message; "" if kube-scheduler gets a success."""
        answer = await self.listeners.ask("bind", CALL | changed)
        assert set(answer) == {"Error"}
        return str(answer["Error"])


# Conditions for an allocation


def check(job: Job | None, node: str = "n4", attempt: int = 1) -> Allocation:
    numbered = pod(name=NAME, uid=UID, annotations={ATTEMPT: str(attempt), JOB_ID: str(JOB.id)})
    return JobAsRead(job).slot(numbered, node, VIEW, RULES)


def test_a_running_job_on_the_node_is_the_allocation() -> None:
    assert check(JOB) == Allocation(JOB.id, "n4", "gpu:2(IDX:0-1)")


def test_an_allocation_belongs_to_an_attempt() -> None:
    second = placeholder_job(POD, attempt=2, attempt_try=3, node="n5")
    assert check(second, "n5", attempt=2).job_id == second.id


NOT_RUNNING = ["PENDING", "SUSPENDED", "COMPLETED", "CANCELLED", "CANCELLED,COMPLETING", "UNHEARD-OF"]
NOT_RUNNING += ["RUNNING,CONFIGURING", "RUNNING,COMPLETING", "RUNNING,STOPPED"]


@pytest.mark.parametrize("state", NOT_RUNNING)
def test_a_job_that_does_not_run_grants_nothing(state: str) -> None:
    with pytest.raises(NotBound, match="is not running"):
        check(placeholder_job(POD, state, node="gpu-04"))


def test_a_job_that_slurm_does_not_know_grants_nothing() -> None:
    with pytest.raises(NotBound, match=f"{JOB.id} is not running"):
        check(None)


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "by hand",
        f"slurm-extender/elsewhere/default/{NAME}/{UID}/1.0",
        f"slurm-extender/{RULES.cluster}/default/{NAME}/another/1.0",
        f"slurm-extender/{RULES.cluster}/default/{NAME}/{UID}/2.0",
    ],
)
def test_a_job_without_this_pods_key_grants_nothing(comment: str) -> None:
    with pytest.raises(NotBound, match="is not this Pod's placeholder"):
        check(placeholder_job(POD, node="gpu-04", admin_comment=comment, name="another@default"))


def test_job_without_its_key_still_belongs_to_its_pod() -> None:
    """`extender.jobs.verdict` explains the rule."""
    submitted = int(datetime.fromisoformat(POD.created).timestamp())
    unsigned = placeholder_job(POD, node="gpu-04", admin_comment="by hand", submit_time=submitted)
    assert check(unsigned).job_id == JOB.id
    with pytest.raises(NotBound, match="is not this Pod's placeholder"):
        check(replace(unsigned, id=7))


@pytest.mark.parametrize("less", [{"cpus_allocated": 0}, {"node_count": 2}, {"memory_mb": 1}])
def test_a_job_that_its_owner_has_made_smaller_grants_nothing(less: dict[str, Any]) -> None:
    with pytest.raises(NotBound, match="differs from the Pod's request: the job"):
        check(placeholder_job(POD, node="gpu-04", **less))


@pytest.mark.parametrize("slurm_node", ["n5", "n4", "native-01", None])
def test_job_on_another_node_grants_nothing(slurm_node: str | None) -> None:
    """n4 stands for gpu-04, so the Slurm node n4 is another node."""
    with pytest.raises(NotBound, match="does not run on n4"):
        check(placeholder_job(POD, node=slurm_node))


def test_each_of_two_pods_on_a_node_is_bound_with_its_own_slot() -> None:
    job = placeholder_job(POD, nodes=("gpu-04",), cores=("0-3",))
    first, second, other = (Allocation(job.id, "n4", cores=cores) for cores in ("0-1", "2-3", "1-2"))
    of_two = POD._replace(group=Workload(UID, POD.namespace, NAME, POD.created, 2, 2))
    for own in (first, second):
        assert JobAsRead(job).slot(changed(of_two, allocation=own), "n4", VIEW, RULES) == own
    for lacking in (changed(of_two, allocation=other), of_two):
        with pytest.raises(NotBound, match="has no slot for this Pod on n4"):
            JobAsRead(job).slot(lacking, "n4", VIEW, RULES)


def test_the_job_of_a_gang_is_divided_once_for_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """To divide the job of 512 Pods takes some 10 ms."""
    divided: list[int] = []

    def noted(*of: Any) -> Iterator[Allocation]:
        divided.append(1)
        return slots(*of)

    monkeypatch.setattr(job_as_read, "slots", noted)
    job = placeholder_job(POD, nodes=("gpu-04",), cores=("0-3",))
    of_two = POD._replace(group=Workload(UID, POD.namespace, NAME, POD.created, 2, 2))
    other = of_two._replace(uid="other", name="other")
    read = JobAsRead(job)
    for member, cores in ((of_two, "0-1"), (other, "2-3")):
        own = Allocation(job.id, "n4", cores=cores)
        assert read.slot(changed(member, allocation=own), "n4", VIEW, RULES) == own
    assert len(divided) == 1


# Binding


async def test_a_pod_is_bound_with_its_allocation_in_the_same_write() -> None:
    cluster = Cluster(granted())
    assert await cluster.bind() == ""
    assert cluster.kubernetes.bindings == BOUND


async def test_the_pod_is_read_before_the_job_and_both_before_the_binding() -> None:
    """Every change after the read of the job changes the version of the Pod. Then the Binding fails."""
    cluster = Cluster(granted())
    await cluster.bind()
    assert cluster.kubernetes.calls == ["read_pod", "read job", "list pods", "bind_pod"]


@pytest.mark.parametrize(("immediate", "question"), [(False, "read job"), (True, "read states")])
async def test_known_version_of_a_pod_is_not_read_again(immediate: bool, question: str) -> None:
    cluster = Cluster(granted())
    cluster.knows(granted(), immediate=immediate)
    assert await cluster.bind() == ""
    assert cluster.kubernetes.calls == [question, "bind_pod"]
    assert cluster.kubernetes.bindings == BOUND


@pytest.mark.parametrize("known", [False, True])
async def test_a_node_without_allocatable_devices_binds_nothing(known: bool) -> None:
    """Since /filter, kube-scheduler may have chosen devices by Dynamic Resource Allocation."""
    manifest = granted(gpus=2)
    job = replace(JOB, tres_per_node="gres/gpu:2")
    for amount, words in (("0", NOT_SERVED), ("4", "")):
        node = replace(VIEW.nodes["n4"], allocatable={"cpu": "8", "nvidia.com/gpu": amount})
        cluster = Cluster(manifest, jobs=(job,), seen=VIEW.with_node("n4", node))
        if known:
            cluster.knows(manifest)
        assert await cluster.bind() == words
        assert bool(cluster.kubernetes.bindings) is not bool(words)


@pytest.mark.parametrize("state", NOT_RUNNING)
async def test_immediate_job_that_no_longer_runs_binds_nothing(state: str) -> None:
    cluster = Cluster(granted(), jobs=(placeholder_job(POD, state, node="gpu-04"),))
    cluster.knows(granted(), immediate=True)
    assert "is not running" in await cluster.bind()
    assert cluster.kubernetes.bindings == []


@pytest.mark.parametrize(("age_s", "binds"), [(4.0, True), (6.0, False)])
async def test_immediate_job_that_began_earlier_is_read(age_s: float, *, binds: bool) -> None:
    """The job may have been suspended and resumed, but the state does not show a past suspension."""
    cluster = Cluster(granted(), jobs=(replace(JOB, suspend_time=1),))
    cluster.knows(granted(), immediate=True, age_s=age_s)
    assert ("the job was suspended" in await cluster.bind()) is not binds
    assert len(cluster.kubernetes.bindings) == binds


async def test_immediate_job_binds_only_to_its_node() -> None:
    cluster = Cluster(granted())
    cluster.knows(granted(), immediate=True)
    assert "does not run on n5" in await cluster.bind(Node="n5")


def asked(*jobs: Job) -> tuple[FakeSlurm, RunningJobs]:
    """Returns a Slurm with these jobs, and the reader of job states."""
    slurm = FakeSlurm(*jobs)
    return slurm, RunningJobs(cast(Slurm, slurm))


async def test_bind_waits_for_the_prolog_of_the_job() -> None:
    slurm, running_jobs = asked(placeholder_job(POD, "RUNNING,CONFIGURING", node="gpu-04"))
    running = asyncio.ensure_future(running_jobs.runs(JOB.id))
    await asyncio.sleep(0.02)
    assert not running.done()
    slurm.jobs[JOB.id] = JOB
    assert await running


async def test_concurrent_binds_share_a_request() -> None:
    slurm, running = asked(JOB)
    assert await asyncio.gather(*(running.runs(job_id) for job_id in (JOB.id, 7, JOB.id, 8))) == [
        True,
        False,
        True,
        False,
    ]
    assert slurm.calls == ["read states"]


async def test_jobs_of_the_node_are_read_in_the_same_request() -> None:
    slurm, running = asked(JOB)
    runs, hold = await asyncio.gather(running.runs(JOB.id), running.hold_nodes([JOB.id, 7]))
    assert runs
    assert not hold
    assert slurm.calls == ["read states"]


async def test_bind_during_a_request_makes_another_request() -> None:
    """The answer to the first request may be older than the second bind."""
    slurm, running = asked(JOB)
    first = asyncio.ensure_future(running.runs(JOB.id))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the request is sent
    assert slurm.calls == ["read states"]
    assert await running.runs(JOB.id)
    assert await first
    assert slurm.calls == ["read states", "read states"]


async def test_consecutive_binds_share_requests() -> None:
    """The first bind gets a request at once. The binds during the pause after the request share the next
    request."""
    slurm, over, pauses = FakeSlurm(JOB), asyncio.Event(), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await over.wait()

    running = RunningJobs(cast(Slurm, slurm), pause)
    assert await running.runs(JOB.id)
    rest = [asyncio.ensure_future(running.runs(JOB.id)) for _ in range(3)]
    await asyncio.sleep(0)
    assert slurm.calls == ["read states"]
    over.set()
    assert await asyncio.gather(*rest) == [True, True, True]
    assert slurm.calls == ["read states", "read states"]
    await asyncio.sleep(0)
    assert pauses[0] < pauses[1]  # a single bind, then several binds in a row


async def paused_after(*waiting: int, beside: int = 0) -> list[float]:
    """Returns the pause after each request. Each number in `waiting` is the number of binds that share a
    request. Each request also reads `beside` other jobs."""
    turns, pauses, over = [*waiting[1:], 0], list[float](), asyncio.Event()
    answers = list[asyncio.Future[bool]]()

    def come(binds: int) -> None:
        answers.extend(asyncio.ensure_future(running.runs(JOB.id)) for _ in range(binds))
        if binds:
            answers.append(asyncio.ensure_future(running.hold_nodes(range(beside))))

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        come(turns.pop(0))
        if not turns:
            over.set()
        await asyncio.sleep(0)

    running = RunningJobs(cast(Slurm, FakeSlurm(JOB)), pause)
    come(waiting[0])
    await over.wait()
    await asyncio.gather(*answers)
    return pauses


async def test_only_a_burst_of_binds_gets_a_long_pause() -> None:
    """25 binds in a second are no burst. Each bind gets a request of its own, and waits for no long
    pause."""
    rare, burst = 0.01, 0.05
    assert await paused_after(1, 1, 1) == [rare, rare, rare]
    assert await paused_after(1, 2, 3, 4, 2, 1) == [rare, burst, burst, burst, rare, rare]


async def test_other_jobs_of_the_node_do_not_count_as_a_burst() -> None:
    assert await paused_after(1, 1, beside=5) == [0.01, 0.01]


async def test_failed_request_fails_for_all_its_callers() -> None:
    slurm, running = asked(JOB)
    slurm.error = Unreachable("down")
    answers = await asyncio.gather(*(running.runs(n) for n in (1, 2)), return_exceptions=True)
    assert all(isinstance(answer, Unreachable) for answer in answers)
    slurm.error = None
    assert await running.runs(JOB.id)


async def test_pod_with_an_unknown_version_is_read() -> None:
    cluster = Cluster(granted(version="42"))
    cluster.knows(granted(version="41"))
    assert await cluster.bind() == ""
    as_read = ["read_pod", "read job", "list pods", "bind_pod"]
    assert cluster.kubernetes.calls == ["read job", "bind_pod", *as_read]


async def test_a_pod_that_changes_after_it_was_read_is_not_bound() -> None:
    cluster = Cluster(granted())

    async def job(job_id: int) -> Job | None:
        cluster.kubernetes.edit("pods", NAME, {"metadata": {"labels": {"x": "y"}}})
        return cluster.slurm.jobs[job_id]

    cluster.slurm.job = job  # type: ignore[method-assign]
    assert "has been modified" in await cluster.bind()
    assert cluster.kubernetes.bindings == []


async def test_allocation_of_slurm_overrides_the_annotations_of_the_pod() -> None:
    annotations = {ATTEMPT: "1", JOB_ID: str(JOB.id), NODE: "n4", GRANTED: gpus("gpu:8(IDX:0-7)")}
    cluster = Cluster(granted(annotations=annotations))
    assert await cluster.bind() == ""
    assert cluster.kubernetes.bindings[0][1][GRANTED] == gpus("gpu:2(IDX:0-1)")


@pytest.mark.parametrize("known", [True, False])
async def test_pod_is_not_bound_to_the_new_cores_of_its_job_beside_another_pod(known: bool) -> None:
    """After a crash of slurmctld, Slurm has started both jobs again, each on the cores of the other
    Pod."""
    other = pod(name="other", uid="other", node="n4", gates=())
    own, others = (placeholder_job(each, node="gpu-04", cores=("0-3",)) for each in (POD, other))
    there = Allocation(others.id, "n4", cores="0-3")
    notes = {ATTEMPT: "1"} | there.annotations()
    bound = pod_manifest(name="other", uid="other", node="n4", gates=(), annotations=notes)
    manifest = granted(annotations={ATTEMPT: "1"} | Allocation(own.id, "n4", cores="4-7").annotations())
    cluster = Cluster(manifest, bound, jobs=(own, replace(others, cores=("4-7",))))
    if known:
        holding = placeholder_of(
            changed(other, allocation=there),
            State.BOUND,
            members=(Member(changed(other, allocation=there), there),),
            job=TrackedJob(id=others.id, phase=Phase.RUNNING),
        )
        cluster.knows(manifest, holding=(holding,))
    assert "still use the resources of this Pod's job" in await cluster.bind()
    assert cluster.kubernetes.bindings == []
    assert (UID, own) in cluster.listeners.reported


async def test_bind_of_an_already_bound_pod_succeeds_without_a_binding() -> None:
    cluster = Cluster(granted(node="n4"))
    assert await cluster.bind() == ""
    assert cluster.kubernetes.bindings == []


async def test_a_call_repeated_after_a_lost_answer_is_success() -> None:
    cluster = Cluster(granted())
    assert [await cluster.bind(), await cluster.bind()] == ["", ""]
    assert len(cluster.kubernetes.bindings) == 1


async def test_a_pod_bound_elsewhere_is_an_error() -> None:
    cluster = Cluster(granted(node="n5"))
    assert "bound to n5 already" in await cluster.bind()


OTHER = placeholder_job(pod(uid="another"), node="gpu-04")
FORGED = granted(annotations={ATTEMPT: "1", JOB_ID: str(OTHER.id), NODE: "n4"})
CANCELLED = placeholder_job(POD, "CANCELLED", node="gpu-04")


@pytest.mark.parametrize(
    ("pods", "job", "known", "node", "words"),
    [
        ((), JOB, None, "n4", "does not exist any more"),
        ((granted(uid="its-successor"),), JOB, None, "n4", "does not exist any more"),
        ((granted(annotations={ATTEMPT: "1"}),), JOB, None, "n4", "has no Slurm job"),
        ((granted(),), CANCELLED, None, "n4", "is not running"),
        ((granted(),), CANCELLED, granted(), "n4", "is not running"),
        ((FORGED,), OTHER, None, "n4", "is not this Pod's placeholder"),
        ((granted(),), JOB, None, "n5", "does not run on n5"),
    ],
)
async def test_pod_without_an_allocation_there_is_not_bound(
    pods: tuple[Manifest, ...], job: Job, known: Manifest | None, node: str, words: str
) -> None:
    cluster = Cluster(*pods, jobs=(job,))
    if known is not None:
        cluster.knows(known)
    assert words in await cluster.bind(Node=node)
    assert cluster.kubernetes.bindings == []


@pytest.mark.parametrize(
    "error",
    [
        Conflict(409, "the object has been modified"),
        Unavailable(0, "kube-apiserver does not answer"),
        Rejected(403, "binding is forbidden"),
        KubernetesError(418, "a teapot"),
    ],
)
async def test_failed_binding_is_never_reported_as_success(error: KubernetesError) -> None:
    cluster = Cluster(granted())
    cluster.kubernetes.outage(error, "bind_pod")
    assert error.message in await cluster.bind()


async def test_pod_deleted_during_its_bind_is_an_error() -> None:
    cluster = Cluster(granted())
    cluster.kubernetes.before_next("bind_pod", lambda: cluster.kubernetes.remove("pods", NAME))
    assert "does not exist any more" in await cluster.bind()


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("slurmctld was not reached", number=1001),
        OutcomeUnknown("slurmctld did not answer", number=5004),
        NeedsOperator("the token expired", number=6001),
    ],
)
async def test_no_pod_is_bound_while_slurm_does_not_answer(error: SlurmError) -> None:
    cluster = Cluster(granted())
    cluster.slurm.error = error
    assert error.words in await cluster.bind()
    assert cluster.kubernetes.bindings == []


async def test_failed_bind_is_logged_with_the_job_except_in_an_outage() -> None:
    cluster = Cluster(granted())
    cluster.slurm.error = Unreachable("slurmctld was not reached", number=1001)
    cluster.knows(granted())
    with capture_logs() as logs:
        await cluster.bind()
        cluster.health.says("jobs", cluster.slurm.error)
        await cluster.bind()
    told, untold = (line for line in logs if line["event"] == "not bound")
    assert (told["log_level"], untold["log_level"]) == ("warning", "debug")
    assert (told["pod"], told["uid"], told["job"]) == (f"default/{NAME}", UID, JOB.id)


# Containers of a Pod that was deleted by force

GONE = pod(name="gone", uid="gone", gates=(), node="n4")


@pytest.mark.parametrize("version", ["41", "40"])
@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("PREEMPTED", {}),
        ("PENDING", {}),
        ("RUNNING", {"suspend_time": 1}),
        ("RUNNING", {"restart_count": 1}),
        ("RUNNING", {"nodes": ("gpu-05",)}),
        ("RUNNING", {"cores": ("2-5",)}),  # restarted on other cores after a crash of slurmctld
    ],
)
async def test_no_pod_is_bound_beside_containers_that_outlive_their_pod_and_its_job(
    state: str, changes: dict[str, Any], version: str, *, immediate: bool, leads: bool
) -> None:
    """No list of Pods has such containers. Slurm does not count the resources of the containers any
    more, or has given the cores to other jobs."""
    job = placeholder_job(GONE, state, **{"nodes": ("gpu-04",), "cores": ("0-3",), **changes})
    cluster = Cluster(granted(), jobs=(JOB, job))
    if leads:
        cluster.knows(granted(version=version), immediate=immediate)
    containers = LingeringNote(job.id, "default/gone", 0.5, cores="0-3")
    cluster.listeners.lingering_notes.add("n4", containers)
    assert "containers of a Pod that was deleted by force still end there: default/gone" in (
        await cluster.bind()
    )
    assert cluster.kubernetes.bindings == []
    await asyncio.sleep(0.6)
    assert await cluster.bind() == ""
    assert [node for node, _ in cluster.kubernetes.bindings] == ["n4"]


async def test_containers_with_a_running_job_block_no_bind() -> None:
    """Slurm gives the resources of the containers to no other job."""
    job = placeholder_job(GONE, node="gpu-04", cores=("8-15",))
    containers = LingeringNote(job.id, "default/gone", 35.0, cores="8-9")
    for version in ("41", "40"):
        cluster = Cluster(granted(), jobs=(JOB, job))
        cluster.knows(granted(version=version))
        cluster.listeners.lingering_notes.add("n4", containers)
        assert await cluster.bind() == ""
