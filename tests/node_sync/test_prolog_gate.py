"""Tests of the Prolog gate. The gate uses the ledger, Slurm's jobs and bound Pods."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.node_sync.lingering_check import LingeringCheck
from extender.node_sync.overlaps import Overlaps
from extender.node_sync.prolog_gate import Gate, NotLeading, NotOurs
from extender.node_view.lingering_notes import LingeringNotes
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.pod_request.translation import TranslationConfig
from extender.record.config import PlacementConfig
from extender.record.events import ClusterObserved, PodVanished
from extender.record.states import State
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.errors import Unreachable
from slurm_client.job_state import JobState
from slurm_client.model import Grant, Job, grant_of
from slurm_client.protocol import Slurm
from tests.builders import RULES, changed, kube_node, pod_manifest, view
from tests.placement.ledger_world import VIEW, World
from wellknown.job_key import TRIES_AT_RECOVERY, PlaceholderKey
from wellknown.lingering import LingeringNote
from wellknown.names import ATTEMPT, JOB_ID, NODE

PLACEHOLDER = 40_000_000


class Site:
    """A gate, and the systems behind the gate."""

    def __init__(self) -> None:
        self.world = World()
        self.leads = True
        self.view = VIEW
        self.kubernetes = InMemoryKubernetes()
        self.pushed: list[int] = []
        self.reported: list[tuple[str, Job]] = []
        self.asked: list[list[int]] = []
        self.read: list[int] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self._heard = asyncio.Event()
        self.outage: Exception | None = None
        self.reading: Exception | None = None
        """Error of each read of a job."""
        self.notes = LingeringNotes()
        self.gate = Gate(
            self.kubernetes,
            cast(Slurm, self),
            TranslationConfig(),
            lambda: self.view,
            self._ledger,
            self._poll_now,
            overlaps=Overlaps(cast(Slurm, self), lambda: self.view, self._report, RULES.ids),
            lingering=LingeringCheck(cast(Slurm, self), lambda: self.view, self.notes),
        )

    def _ledger(self) -> Ledger | None:
        return self.world.ledger if self.leads else None

    def _report(self, uid: str, job: Job) -> None:
        self.reported.append((uid, job))

    def _poll_now(self, job_id: int) -> None:
        self.pushed.append(job_id)

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        if self.outage is not None:
            raise self.outage
        self.asked.append(list(ids))
        self._heard.set()
        await self.answers.wait()
        jobs = self.world.jobs
        return {job_id: jobs[job_id].state for job_id in self.asked[-1] if job_id in jobs}

    def poll(self) -> None:
        """The ledger learns the states of jobs."""
        self.world.ask()
        self.world.answer()

    def bound_job(self) -> tuple[str, int]:
        """Binds a Pod to n1. Returns the uid of the Pod and the id of its job."""
        uid = self.world.bound_pod()
        return uid, self.world.job_id_of(uid)

    async def hears_a_question(self) -> None:
        await self._heard.wait()

    async def job(self, job_id: int) -> Job | None:
        self.read.append(job_id)
        if self.reading is not None:
            raise self.reading
        await asyncio.sleep(0)
        return self.world.jobs.get(job_id)

    async def grant(self, job_id: int) -> Grant | None:
        return grant_of(await self.job(job_id))

    def bound(self, uid: str, job_id: int) -> None:
        """Binds a Pod by a job in kube-apiserver, unknown to the ledger."""
        self.binds(uid, {JOB_ID: str(job_id), NODE: "n1"})

    def binds(self, uid: str, notes: Mapping[str, str]) -> None:
        """Binds a Pod with these annotations of the extender."""
        late = pod_manifest("late", uid=uid, node="n1", gates=(), annotations=notes)
        self.kubernetes.put("pods", late)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_node_without_pods_is_clear(site: Site) -> None:
    assert await site.gate.in_the_way("n1") == ()


@pytest.mark.parametrize("leads", [True, False])
async def test_any_replica_reports_a_slurm_node_without_a_kubernetes_node(
    site: Site, leads: bool
) -> None:
    site.leads = leads
    with pytest.raises(NotOurs):
        await site.gate.in_the_way("login-1")
    with pytest.raises(NotOurs):
        await site.gate.is_placeholder("login-1", PLACEHOLDER)


def meets_a_leaving_pod(site: Site, **job: Any) -> int:
    """Makes a Pod leave n1 while another job starts there. Returns the other job's id, which is in the
    placeholders' range."""
    site.world.disturb(site.bound_job()[1], "CANCELLED")
    site.world.jobs[PLACEHOLDER] = Job(PLACEHOLDER, JobState("RUNNING"), nodes=("n1",), **job)
    return PLACEHOLDER


def key(cluster: str) -> str:
    return str(PlaceholderKey(cluster, "default", "p2", "u2", 1))


@pytest.mark.parametrize(
    ("comment", "is_placeholder"),
    [
        (key(RULES.cluster), True),
        (key("elsewhere"), False),
        ("", False),
        ("train", False),
        (None, False),
    ],
    ids=["ours", "of another cluster", "without a key", "of a person", "unknown to Slurm"],
)
async def test_placeholder_has_a_key_of_this_cluster(
    site: Site, comment: str | None, is_placeholder: bool
) -> None:
    """Slurm's own ids may reach the range, and placeholders of other clusters use the same range."""
    job_id = meets_a_leaving_pod(site, admin_comment=comment or "")
    if comment is None:
        del site.world.jobs[job_id]
    assert await site.gate.is_placeholder("n1", job_id) is is_placeholder
    assert await site.gate.wait("n1", 0) == ("default/p1",)


async def test_a_placeholder_whose_key_was_overwritten_is_known_by_its_record(site: Site) -> None:
    _, job_id = site.bound_job()
    site.world.overwrite_key(job_id)
    site.bound("u10", own_id("u10"))
    assert await site.gate.wait("n1", 0) == ("default/late",)
    assert await site.gate.is_placeholder("n1", job_id)


async def test_a_job_below_the_placeholders_ids_is_not_read(site: Site) -> None:
    site.world.jobs[4711] = Job(4711, JobState("RUNNING"), admin_comment=key(RULES.cluster))
    assert not await site.gate.is_placeholder("n1", 4711)
    assert site.read == []


CONTESTED = view(kube_node("n0", {"slurm": "gpu"}), kube_node("n1", {"slurm": "gpu"}))
"""Two Nodes for one Slurm node, so the extender does not know which Node is correct."""


async def test_pods_of_all_nodes_that_name_a_node_are_in_the_way(site: Site) -> None:
    """Pods that the ledger does not know are also in the way."""
    site.bound("u-late", own_id("u-late"))
    site.view = CONTESTED
    assert await site.gate.in_the_way("gpu") == ("default/late",)
    site.world.disturb(site.bound_job()[1], "PREEMPTED")
    assert await site.gate.in_the_way("gpu") == ("default/p1",)


async def test_pod_whose_job_runs_is_not_in_the_way(site: Site) -> None:
    uid = site.world.bound_pod()
    assert await site.gate.in_the_way("n1") == ()
    assert site.asked[0] == [site.world.job_id_of(uid)]


async def test_end_of_a_job_is_polled_at_once(site: Site) -> None:
    job_id = site.bound_job()[1]
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    assert site.pushed == [job_id]


async def test_a_pod_that_is_being_evicted_is_in_the_way_until_it_is_gone(site: Site) -> None:
    site.world.disturb(site.bound_job()[1], "CANCELLED")
    site.poll()
    assert await site.gate.wait("n1", 0.15) == ("default/p1",)
    site.world.settle()
    assert await site.gate.wait("n1", 0.15) == ()


async def test_pod_is_in_the_way_after_the_grace_time_of_its_job(site: Site) -> None:
    """Until the end of the grace time, no other job gets the job's resources."""
    uid, job_id = site.bound_job()
    site.world.begin_grace(job_id)
    site.world.read_jobs()
    assert site.world.state_of(uid) is State.EVICTING
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    assert site.pushed == [job_id]


@pytest.mark.parametrize("changes", [{"nodes": ("n2",)}, {"suspend_time": 1}], ids=str)
async def test_a_leaving_pod_without_its_jobs_cores_is_in_the_way(
    site: Site, changes: dict[str, Any]
) -> None:
    _, job_id = site.bound_job()
    site.world.begin_grace(job_id)
    site.world.read_jobs()
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], **changes)
    assert await site.gate.in_the_way("n1") == ("default/p1",)


async def test_unverified_job_is_read(site: Site) -> None:
    """A killed slurmctld may have started the job on another node."""
    site.world = World(replace(PlacementConfig(), fast_path=False))
    uid = site.world.create_pod()
    site.world.catch_up()
    assert site.world.state_of(uid) is State.BOUND
    assert await site.gate.in_the_way("n1") == ()
    job_id = site.world.job_id_of(uid)
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], nodes=("n2",))
    assert await site.gate.in_the_way("n1") == ("default/p1",)


@pytest.mark.parametrize("known", [True, False])
async def test_a_pod_whose_job_has_other_devices_now_is_in_the_way(site: Site, known: bool) -> None:
    """The starting job may already have the Pod's devices before the leader polls Slurm."""
    site.world = World(replace(PlacementConfig(), fast_path=False), numbers=True)
    uid = site.world.create_pod()
    site.world.catch_up()
    allocation, job_id = site.world.pods[uid].scheduling.allocation, site.world.job_id_of(uid)
    assert allocation is not None
    if not known:
        site.world.tell(PodVanished(uid))
        site.binds(uid, allocation.annotations())
    assert await site.gate.in_the_way("n1") == ()
    others = replace(site.world.jobs[job_id], gres=("gpu:1(IDX:7)",))
    site.world.jobs[job_id] = others
    assert await site.gate.in_the_way("n1") == ("default/p1" if known else "default/late",)


async def test_pod_evicted_for_its_devices_is_in_the_way(site: Site) -> None:
    site.world = World(numbers=True)
    uid = site.world.bound_pod()
    site.world.forget_the_start(uid)
    site.poll()
    site.world.schedule()
    read = site.world.effects.pop()
    site.world.finish(read, site.world.do(read))
    assert site.world.state_of(uid) is State.EVICTING
    assert await site.gate.wait("n1", 0.15) == ("default/p1",)
    site.world.settle()
    assert await site.gate.wait("n1", 0.15) == ()


async def test_pod_is_in_the_way_on_left_cores_while_the_agent_is_away(site: Site) -> None:
    """Slurm has started the Pod's job again on other cores. The native job 8 has the Pod's earlier
    cores."""
    site.world = World(numbers=True)
    uid, job_id = site.bound_job()
    job = site.world.jobs[job_id]
    site.world.jobs[job_id] = replace(job, cores=("7",))
    for native, cores in ((8, job.cores), (9, ("9",))):
        site.world.jobs[native] = Job(native, JobState("RUNNING"), nodes=("n1",), cores=cores)
    site.world.read_jobs()
    site.world.outlast(int(RULES.job_id_rewrite_pause) + 1)
    site.binds(uid, site.world.allocation_of(uid).annotations())
    assert await site.gate.in_the_way("n1", 8) == ()
    assert await site.gate.in_the_way("n1", 8, agent_away=True) == ("default/p1",)
    assert await site.gate.in_the_way("n1", 9, agent_away=True) == ()


async def test_pod_that_the_ledger_does_not_know_is_checked(site: Site) -> None:
    uid, job_id = site.bound_job()
    site.world.tell(PodVanished(uid))
    site.bound(uid, job_id)
    assert await site.gate.in_the_way("n1") == ()
    site.bound("u10", own_id("u10"))
    assert await site.gate.in_the_way("n1") == ("default/late",)


def own_id(uid: str, attempt_try: int = 0) -> int:
    return PlaceholderKey(RULES.cluster, "default", "late", uid, 1, attempt_try).job_id(RULES.ids)


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {ATTEMPT: "1"},
        {ATTEMPT: "1", NODE: "n1"},
        {JOB_ID: str(own_id("u10")), NODE: "n2"},
        {JOB_ID: str(own_id("u11")), NODE: "n1"},
    ],
    ids=["nothing", "attempt", "node", "elsewhere", "another's"],
)
async def test_pod_without_its_own_job_is_not_in_the_way(site: Site, notes: dict[str, str]) -> None:
    """Any user may bind a Pod with the extender's scheduler name to any node, so such a Pod must not
    delay jobs."""
    site.binds("u10", notes)
    assert await site.gate.in_the_way("n1") == ()


async def test_pod_with_a_late_id_is_in_the_way_after_its_job(site: Site) -> None:
    """The id is not computed from the uid, but the job has the Pod's key."""
    uid = site.world.bound_pod()
    job = site.world.jobs.pop(site.world.job_id_of(uid))
    site.world.tell(PodVanished(uid))
    late = own_id(uid, TRIES_AT_RECOVERY)
    site.world.jobs[late] = replace(job, id=late)
    site.bound(uid, late)
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(late, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/late",)


async def test_pod_whose_job_ended_before_a_restart_is_in_the_way(site: Site) -> None:
    """The result is the same if Slurm still knows the job, and if the next leader knows only the Pod's
    annotation."""
    _, job_id = site.bound_job()
    site.world.disturb(job_id, "PREEMPTED")
    site.world.restart()
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    del site.world.jobs[job_id]
    site.world.restart()
    assert await site.gate.in_the_way("n1") == ("default/p1",)


async def test_pod_of_a_deleted_node_is_in_the_way_after_its_job(site: Site) -> None:
    _, job_id = site.bound_job()
    site.view = replace(site.view, nodes={})
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)


async def test_containers_with_a_job_on_a_deleted_node_are_not_in_the_way(site: Site) -> None:
    _, job_id = site.bound_job()
    site.notes.add("n1", LingeringNote(7, "default/gone", 30.0, cores="2-3"))
    site.world.jobs[7] = replace(site.world.jobs[job_id], id=7, cores=("2-3",))
    site.view = replace(site.view, nodes={})
    assert await site.gate.in_the_way("n1") == ()


@pytest.mark.parametrize("labels", [{"slurm": "gpu"}, None], ids=["another label", "deleted"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_pod_is_in_the_way_on_the_slurm_node_that_granted_its_cores(
    site: Site, labels: dict[str, str] | None, *, restarts: bool
) -> None:
    """The label of the Pod's Node has changed, and another Node has the old label. The next leader knows
    the grant from the Pod's annotation."""
    uid, job_id = site.bound_job()
    slot = replace(site.world.allocation_of(uid), slurm_node="granted")
    site.world.pods[uid] = changed(site.world.pods[uid], allocation=slot)
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], nodes=("granted",))
    site.world.view = view(kube_node("n1", {"slurm": "granted"}))
    site.world.restart()
    moved = (kube_node("n1", labels),) if labels else ()
    site.view = site.world.view = view(*moved, kube_node("n9", {"slurm": "granted"}))
    site.world.tell(ClusterObserved(site.view))
    if restarts:
        site.world.restart()
    assert await site.gate.in_the_way("granted") == ()
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("granted") == ("default/p1",)
    with pytest.raises(NotOurs):  # the Slurm node has the same name as the Node, but is another machine
        await site.gate.in_the_way("n1")


async def test_noted_containers_are_in_the_way_without_their_job(site: Site) -> None:
    """An earlier leader made the note."""
    _, job_id = site.bound_job()
    site.notes.add("n1", LingeringNote(7, "default/gone", 30.0, cores="2-3"))
    for cores, in_the_way in (("2-3", ()), ("0-7", ()), ("3-4", ("default/gone",))):
        site.world.jobs[7] = replace(site.world.jobs[job_id], id=7, cores=(cores,))
        assert await site.gate.in_the_way("n1") == in_the_way
    del site.world.jobs[7]
    assert await site.gate.in_the_way("n1") == ("default/gone",)


ANOTHERS = str(PlaceholderKey(RULES.cluster, "default", "p2", "u2", 1))


@pytest.mark.parametrize("lie", [{"admin_comment": ANOTHERS}, {"nodes": ("n2",)}])
async def test_job_named_by_a_pod_must_be_confirmed_by_slurm(site: Site, lie: dict[str, Any]) -> None:
    """The named job runs for another Pod, or on another node."""
    uid, job_id = site.bound_job()
    site.world.tell(PodVanished(uid))
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], **lie)
    site.bound(uid, job_id)
    assert await site.gate.in_the_way("n1") == ("default/late",)


async def test_force_deleted_pod_is_in_the_way_until_its_containers_end(site: Site) -> None:
    """While the job runs, Slurm gives the resources to no other job."""
    uid, job_id = site.bound_job()
    site.world.force_delete(uid)
    site.world.settle()
    assert await site.gate.in_the_way("n1") == ()
    assert site.world.jobs[job_id].state.running
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(34.9)
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(0.2)
    assert await site.gate.in_the_way("n1") == ()


async def test_a_pod_deleted_by_force_after_its_job_had_ended_is_in_the_way(site: Site) -> None:
    uid = site.world.bound_pod()
    site.world.disturb(site.world.job_id_of(uid), "CANCELLED")
    site.poll()
    site.world.effects.clear()
    site.world.force_delete(uid)
    site.world.settle()
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(35.1)
    assert await site.gate.in_the_way("n1") == ()


async def test_only_a_leader_that_knows_the_nodes_answers(site: Site) -> None:
    site.leads = False
    with pytest.raises(NotLeading):
        await site.gate.in_the_way("n1")
    with pytest.raises(NotLeading):
        await site.gate.is_placeholder("n1", PLACEHOLDER)
    site.leads, site.view = True, ClusterView()  # the Nodes are not read yet
    with pytest.raises(NotLeading):
        await site.gate.wait("n1", 5)


async def test_a_thousand_gates_share_their_calls(site: Site) -> None:
    """No call of a gate gets the reply to a request from before the call, because this reply may be out
    of date."""
    job_id = site.bound_job()[1]
    site.answers.clear()
    first = asyncio.ensure_future(site.gate.in_the_way("n1"))
    await site.hears_a_question()
    others = asyncio.gather(*(site.gate.in_the_way("n1") for _ in range(1000)))
    await asyncio.sleep(0)
    site.world.disturb(job_id, "PREEMPTED")
    site.answers.set()
    assert await first == ("default/p1",)
    assert set(await others) == {("default/p1",)}
    assert len(site.asked) == 2


async def test_waiting_gates_share_repeated_calls(site: Site) -> None:
    site.world.disturb(site.bound_job()[1], "PREEMPTED")
    await asyncio.gather(*(site.gate.wait("n1", 0.25) for _ in range(100)))
    assert len(site.asked) <= 6


async def test_gates_of_one_job_share_the_read_of_the_job(site: Site) -> None:
    job_id = meets_a_leaving_pod(site, admin_comment=key(RULES.cluster))
    await asyncio.gather(*(site.gate.is_placeholder("n1", job_id) for _ in range(1000)))
    assert site.read == [job_id]
    await site.gate.is_placeholder("n1", job_id)
    assert site.read == [job_id] * 2


async def test_shared_call_fails_for_all_gates_and_is_repeated(site: Site) -> None:
    site.world.bound_pod()
    site.outage = Unreachable("slurmctld is down")
    calls = (site.gate.wait("n1", 5) for _ in range(5))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, Unreachable) for each in answers)
    site.outage = None
    assert await site.gate.in_the_way("n1") == ()


@pytest.mark.parametrize("system", [Unreachable("slurmctld is down"), Unavailable(503, "no etcd")])
async def test_last_pods_count_during_an_outage(site: Site, system: Exception) -> None:
    uid = site.world.bound_pod()
    site.world.disturb(site.world.job_id_of(uid), "PREEMPTED")
    waits = asyncio.ensure_future(site.gate.wait("n1", 5))
    await site.hears_a_question()
    site.outage = system
    assert await waits == ("default/p1",)


async def test_containers_without_a_pod_are_in_the_way_after_their_job(site: Site) -> None:
    """The next leader knows of the containers from the last leader's comment on the job."""
    uid, job_id = site.bound_job()
    site.world.force_delete(uid)
    site.world.settle()
    site.world.restart()
    site.world.settle()
    (held,) = site.world.ledger.holding("n1")
    assert not held.members
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)


# A job that starts on a Pod's cores


STARTS = 100
"""Id of a native job that starts on n1."""


class Started:
    """A Pod with one core on n1, and a native job that starts there."""

    def __init__(self, site: Site) -> None:
        self.site = site
        site.world = World(numbers=True)
        self.uid, self.job_id = site.bound_job()
        self.slot = site.world.allocation_of(self.uid)
        site.binds(self.uid, self.slot.annotations())

    def starts_on(self, cores: str, gres: str = "") -> None:
        running = JobState("RUNNING")
        self.site.world.jobs[STARTS] = Job(STARTS, running, nodes=("n1",), cores=(cores,), gres=(gres,))

    def changes(self, **changes: Any) -> None:
        """Changes the Pod's job in Slurm."""
        jobs = self.site.world.jobs
        jobs[self.job_id] = replace(jobs[self.job_id], **changes)

    async def in_the_way(self) -> tuple[str, ...]:
        return await self.site.gate.in_the_way("n1", STARTS)


@pytest.fixture
def started(site: Site) -> Started:
    return Started(site)


async def test_a_job_on_other_cores_than_the_pods_starts(site: Site, started: Started) -> None:
    started.starts_on("100-107")
    assert await started.in_the_way() == ()
    assert site.read == [STARTS]


@pytest.mark.parametrize(
    "changes",
    [
        {"suspend_time": 1},
        {"cores": ("200",), "gres": ("gpu:1(IDX:200)",)},
        {"nodes": ("n2",)},
        {"admin_comment": key("elsewhere")},
    ],
    ids=["was suspended", "was started again on other cores", "runs elsewhere", "is another's"],
)
@pytest.mark.parametrize("on", ["cores", "devices"])
async def test_a_pod_on_the_cores_or_devices_of_a_job_that_starts_is_in_the_way(
    site: Site, started: Started, changes: dict[str, Any], on: str
) -> None:
    """The gate also reports the Pod's job, which the gate has read, to the ledger."""
    started.starts_on(
        started.slot.cores if on == "cores" else "100", "" if on == "cores" else started.slot.gres
    )
    started.changes(**changes)
    assert await started.in_the_way() == ("default/late",)
    assert site.reported == [(started.uid, site.world.jobs[started.job_id])]


async def test_cores_that_slurm_gives_to_both_jobs_are_shared(site: Site, started: Started) -> None:
    """The partition has OverSubscribe."""
    started.starts_on(started.slot.cores)
    assert await started.in_the_way() == ()
    assert site.read == [STARTS, started.job_id]


async def test_only_cores_that_slurm_gives_to_both_jobs_are_shared(site: Site, started: Started) -> None:
    """Slurm has started the Pod's job again, on only one of the Pod's two cores."""
    site.binds(started.uid, replace(started.slot, cores="1-2").annotations())
    started.starts_on("1-2")
    assert await started.in_the_way() == ("default/late",)
    started.changes(cores=("1-2",))
    assert await started.in_the_way() == ()


async def test_a_pod_to_be_bound_is_in_the_way_of_a_job_on_its_cores(site: Site) -> None:
    site.world = World(numbers=True)
    uid = site.world.settled_pod()
    started_on = site.world.allocation_of(uid)
    running = JobState("RUNNING")
    site.world.jobs[STARTS] = Job(STARTS, running, nodes=("n1",), cores=(started_on.cores,))
    job_id = site.world.job_id_of(uid)
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], suspend_time=1)
    assert await site.gate.in_the_way("n1", STARTS) == ("default/p1",)


async def test_all_nodes_of_a_job_that_starts_share_one_read(site: Site, started: Started) -> None:
    started.starts_on("100")
    await asyncio.gather(*(started.in_the_way() for _ in range(20)))
    await started.in_the_way()
    assert site.read.count(STARTS) == 1


async def test_a_job_that_slurm_did_not_know_is_read_again(site: Site, started: Started) -> None:
    assert await started.in_the_way() == ()
    await asyncio.sleep(0.01)
    started.starts_on(started.slot.cores)
    started.changes(suspend_time=1)
    assert await started.in_the_way() == ("default/late",)


@pytest.mark.parametrize("nodes", [(), ("n2",)], ids=str)
async def test_a_live_job_with_unknown_cores_waits_for_all_pods(
    site: Site, started: Started, nodes: tuple[str, ...]
) -> None:
    site.kubernetes.put("pods", pod_manifest("by-hand", uid="u9", node="n1", gates=()))
    site.world.jobs[STARTS] = Job(STARTS, JobState("RUNNING"), nodes=nodes)
    assert await started.in_the_way() == ("default/late",)
    site.world.jobs[STARTS] = Job(STARTS, JobState("CANCELLED"))
    await asyncio.sleep(0.01)
    assert await started.in_the_way() == ()


async def test_pod_to_be_bound_to_another_node_is_not_in_the_way(site: Site, started: Started) -> None:
    """The core numbers belong to another node."""
    uid = site.world.settled_pod()
    elsewhere = site.world.allocation_of(uid)
    assert elsewhere.node == "n2"
    job_id = site.world.job_id_of(uid)
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], suspend_time=1)
    started.starts_on(elsewhere.cores, elsewhere.gres)
    assert await started.in_the_way() == ()
    assert site.read == [STARTS]


async def test_a_job_that_starts_again_elsewhere_is_read_again(site: Site, started: Started) -> None:
    """The job started on another node a moment before."""
    running = JobState("RUNNING")
    site.kubernetes.put("pods", pod_manifest("other", uid="u9", node="n2", gates=()))
    site.world.jobs[STARTS] = Job(STARTS, running, nodes=("n2",), cores=("0",))
    assert await site.gate.in_the_way("n2", STARTS) == ()
    started.starts_on(started.slot.cores)
    started.changes(suspend_time=1)
    assert await started.in_the_way() == ("default/late",)


async def test_a_job_that_could_not_be_read_is_read_again(site: Site, started: Started) -> None:
    started.starts_on(started.slot.cores)
    started.changes(suspend_time=1)
    site.reading = Unreachable("slurmctld was not reached")
    with pytest.raises(Unreachable):
        await started.in_the_way()
    site.reading = None
    await asyncio.sleep(0.01)
    assert await started.in_the_way() == ("default/late",)


async def test_call_without_a_starting_job_finds_no_pod(site: Site, started: Started) -> None:
    started.starts_on(started.slot.cores)
    started.changes(suspend_time=1)
    assert await site.gate.in_the_way("n1") == ()
