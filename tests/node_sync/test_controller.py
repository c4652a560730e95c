"""Tests of the controller of drains, with Slurm and kube-apiserver in memory."""

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from extender.node_sync import controller
from extender.node_sync.controller import PARTS, Leadership, NodeController
from extender.node_sync.drain_decision import TAINT, DrainSettings
from extender.node_sync.drains import PREFIX, DrainCause
from extender.node_sync.prolog_gate import NotLeading
from extender.node_view.node_conditions import NodeStatus
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.pod import Life, Pod
from kubernetes_client.errors import Conflict, Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from service import cooperative
from service.health import Health
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.protocol import Slurm
from tests.builders import Manifest, node_manifest
from tests.eventually import until
from tests.placement.ledger_world import World, of_user, view_of
from tests.service.turns import turns_of_others
from wellknown.names import PODS_REJECTED, SLURM_OUT_OF_SERVICE

CORDONED = PREFIX + "cordoned in Kubernetes"
REFUSED = PREFIX + "the gate refused job 7: Pods default/p"
BY_HAND = "disk is to be replaced"
NAMES = tuple(f"n{number}" for number in range(1, 13))


class Site:
    """A cluster of twelve nodes with the leader's ledger. Its methods change objects as users and
    programs do."""

    def __init__(self, drain_settings: DrainSettings) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", *map(node_manifest, NAMES))
        nodes, hour_ago = [node(name) for name in NAMES], time.time() - 3600
        self.slurm = InMemorySlurm(nodes, [partition("main", NAMES)], clock=lambda: hour_ago)
        self.world = World()
        self.health = Health()
        self.nodes_changed = asyncio.Event()
        self.kill_wait_s = 10**9
        self.errors: dict[str, Exception] = {}
        self.calls = self.kubernetes.calls
        self.in_the_way: dict[str, tuple[str, ...]] = {}
        self.lagging: ClusterView | None = None
        """State that a late watch has reported; None if the watch is up to date."""
        self.controller = NodeController(
            self.kubernetes,
            cast(Slurm, self.slurm),
            SlurmNodes(self.slurm),
            cast(ClusterViewUpdater, self),
            Leadership(self.world.ledger, self._allowed, self._in_the_way),
            self.health,
            drain_settings=drain_settings,
        )

    async def _allowed(self) -> None:
        self._did("allowed")

    async def _in_the_way(self, name: str) -> tuple[str, ...]:
        self._did("gate")
        return self.in_the_way.get(name, ())

    def _did(self, call: str) -> None:
        self.calls.append(call)
        if call in self.errors:
            raise self.errors[call]

    # State that the cluster's watch reports

    @property
    def view(self) -> ClusterView:
        nodes = (self.read(manifest)[0] for manifest in self.kubernetes.objects("nodes"))
        return self.lagging or ClusterView(nodes={node.name: node for node in nodes})

    @property
    def node_statuses(self) -> dict[str, NodeStatus]:
        manifests = self.kubernetes.objects("nodes")
        return {manifest["metadata"]["name"]: self.read(manifest)[1] for manifest in manifests}

    def read(self, manifest: Manifest) -> tuple[Node, NodeStatus]:
        return Node.parse(manifest, "slurm"), NodeStatus.parse(manifest)

    # Actions of users and programs

    def conditions(self, name: str) -> dict[str, Any]:
        listed = self.kubernetes.read("nodes", name).get("status", {}).get("conditions", ())
        return {each["type"]: each for each in listed}

    def says(self, name: str = "n1") -> str | None:
        told = self.conditions(name).get(SLURM_OUT_OF_SERVICE)
        return told and told["reason"]

    def cordon(self, name: str = "n1", *, cordoned: bool = True) -> None:
        self.kubernetes.edit("nodes", name, {"spec": {"unschedulable": cordoned}})

    def says_of(self, kind: str, *names: str, **condition: str) -> None:
        """Writes a condition onto Nodes, as another program does."""
        for name in names:
            patch = {"status": {"conditions": [{"type": kind, **condition}]}}
            self.kubernetes.edit("nodes", name, patch)

    async def reason(self, name: str = "n1") -> str | None:
        """Returns the reason of a node's drain; None without a drain."""
        seen = await self.slurm.node(name)
        assert seen is not None
        return seen.reason if "DRAIN" in seen.states else None

    def problems(self) -> Any:
        return self.health.problems()

    def bound_job(self) -> int:
        """Binds a Pod to n1. Returns the id of its job."""
        return self.world.job_id_of(self.world.bound_pod())

    def poll(self) -> None:
        """Lets the ledger poll the states of jobs."""
        self.world.ask()
        self.world.answer()

    async def turn(self) -> str | None:
        """Runs one turn of the controller. Returns the reason of n1's drain; None without a drain."""
        await self.controller.turn()
        return await self.reason()


@pytest.fixture(autouse=True)
def _reads_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(controller, "_FAILS_S", 0.0)


@pytest.fixture
def site() -> Site:
    return Site(DrainSettings())


async def test_drain_and_resume_of_a_cordoned_node_set_its_condition(site: Site) -> None:
    site.cordon()
    assert (await site.turn(), site.says()) == (CORDONED, "DrainedForKubernetes")
    site.cordon(cordoned=False)
    assert (await site.turn(), site.says()) == (None, "InService")


async def test_turn_without_changes_makes_no_calls(site: Site) -> None:
    site.cordon()
    site.slurm.drain("n2", BY_HAND)
    await site.controller.turn()
    site.calls.clear()
    await site.controller.turn()
    assert site.calls == []
    assert site.controller.tally.drained == {DrainCause.CORDONED: 1}


async def test_turn_lets_other_tasks_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn over 5,000 Nodes takes 0.1 s. Without turns for other tasks, /filter would wait for this
    time."""
    monkeypatch.setattr(cooperative, "_TURN_S", 0.0)
    assert await turns_of_others(site.controller.turn()) >= 2 * len(NAMES) - 2


async def test_condition_has_the_time_when_the_node_left_service(site: Site) -> None:
    site.slurm.drain("n1", BY_HAND)
    await site.controller.turn()
    site.says_of(SLURM_OUT_OF_SERVICE, "n1", lastTransitionTime="2026-01-01T00:00:00Z")
    site.slurm.fail_node("n1")
    await site.controller.turn()
    assert site.says() == "DownInSlurm"
    assert site.conditions("n1")[SLURM_OUT_OF_SERVICE]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    site.slurm.resume_node("n1")
    await site.controller.turn()
    assert site.says() == "InService"
    assert site.conditions("n1")[SLURM_OUT_OF_SERVICE]["lastTransitionTime"] > "2026-01-01T00:00:00Z"


async def test_nothing_is_done_until_the_replica_may_act(site: Site) -> None:
    site.cordon()
    site.errors["allowed"] = Conflict(409, "not now")
    assert await site.turn() is None


async def test_late_watch_does_not_drain_an_uncordoned_node(site: Site) -> None:
    """The watch is late: the Node is not cordoned any more."""
    site.cordon()
    site.lagging = site.view
    site.cordon(cordoned=False)
    assert await site.turn() is None


async def test_node_missing_in_either_system_is_left_alone(site: Site) -> None:
    await site.slurm.drain_node("n2", CORDONED)
    site.kubernetes.remove("nodes", "n2")
    site.kubernetes.put("nodes", node_manifest("elsewhere", unschedulable=True))
    await site.controller.turn()
    assert await site.reason("n2") == CORDONED
    assert site.calls == []
    assert site.problems() == {}


async def test_outage_of_slurm_is_reported_and_stops_all_changes(site: Site) -> None:
    site.cordon()
    site.slurm.outage(Unreachable("slurmctld is down"))
    with capture_logs() as logs:
        await site.controller.turn()
        await site.controller.turn()
    assert [(line["event"], line["error"]) for line in logs] == [("problem", "slurmctld is down")]
    assert site.problems() == {"Slurm": "slurmctld is down"}
    assert site.calls == []
    site.slurm.outage(None)
    assert await site.turn() is None  # the ledger may know only the state before the outage
    await site.controller.turn()
    assert site.problems() == {}
    assert await site.reason() == CORDONED


@pytest.mark.parametrize("outage", [True, False])
async def test_drain_that_slurm_lost_in_an_outage_is_repeated(site: Site, outage: bool) -> None:
    """Without an outage, a resume of the node is a user's decision."""
    site.cordon()
    await site.controller.turn()
    site.says_of(SLURM_OUT_OF_SERVICE, "n1", lastTransitionTime="2026-11-21T00:00:00Z")
    site.slurm.outage(Unreachable("slurmctld is down") if outage else None)
    await site.controller.turn()
    site.slurm.outage(None)
    site.slurm.resume_node("n1")
    for _ in range(3):
        await site.controller.turn()
    assert await site.reason() == (CORDONED if outage else None)
    assert site.says() == ("DrainedForKubernetes" if outage else "ResumedByHand")


@pytest.mark.parametrize(("started_s_ago", "taken_back"), [(0, False), (3600, True)])
async def test_drain_is_repeated_after_a_start_of_slurmctld(
    site: Site, monkeypatch: pytest.MonkeyPatch, started_s_ago: int, taken_back: bool
) -> None:
    """The extender did not notice the restart."""
    site.cordon()
    await site.controller.turn()
    site.says_of(SLURM_OUT_OF_SERVICE, "n1", lastTransitionTime="2026-11-21T00:00:00Z")
    site.slurm.resume_node("n1")
    started = replace(await site.slurm.configuration(), boot_time=int(time.time()) - started_s_ago)
    monkeypatch.setattr(site.slurm, "configuration", AsyncMock(return_value=started))
    assert await site.turn() == (None if taken_back else CORDONED)
    assert site.says() == ("ResumedByHand" if taken_back else "DrainedForKubernetes")


async def test_node_with_a_lost_job_is_not_drained(site: Site) -> None:
    """On the drained node, the next job of the running Pod would wait, and the extender would evict the
    Pod."""
    job_id = site.bound_job()
    job = site.world.jobs.pop(job_id)
    site.poll()
    site.cordon()
    assert await site.turn() is None
    site.world.jobs[job_id] = job
    site.poll()
    assert await site.turn() == CORDONED


async def test_forbidden_patch_is_reported_and_delays_no_other_node(site: Site) -> None:
    site.kubernetes.outage(Rejected(403, "nodes/status is forbidden"), "patch_node_status")
    site.cordon("n1")
    site.cordon("n2")
    await site.controller.turn()
    assert [await site.reason(name) for name in ("n1", "n2")] == [CORDONED] * 2
    assert "nodes/status is forbidden" in site.problems()[PARTS[0]]
    site.cordon("n1", cordoned=False)
    await site.controller.turn()
    assert [await site.reason(name) for name in ("n1", "n2")] == [None, CORDONED]
    site.kubernetes.outage(None)
    await site.controller.turn()
    assert site.problems() == {}
    assert [site.says(name) for name in ("n1", "n2")] == [None, "DrainedForKubernetes"]


async def test_a_resume_that_failed_is_tried_again(site: Site) -> None:
    site.cordon()
    await site.controller.turn()
    site.cordon(cordoned=False)
    site.kubernetes.outage(Rejected(403, "nodes/status is forbidden"), "patch_node_status")
    assert await site.turn() == CORDONED  # no resume before the condition is written
    site.kubernetes.outage(None)
    assert await site.turn() is None


KILL_FAILED = "Kill task failed (JobId=7 StepId=batch)"


async def test_drain_by_slurm_during_a_resume_is_kept(site: Site) -> None:
    site.cordon()
    await site.controller.turn()
    site.cordon(cordoned=False)
    site.kubernetes.before_next("patch_node_status", lambda: site.slurm.drain("n1", KILL_FAILED))
    assert (await site.turn(), site.says()) == (KILL_FAILED, "DrainedInSlurm")


async def test_node_is_resumed_after_its_completing_jobs_have_ended(site: Site) -> None:
    site.slurm.completing("n1")
    site.cordon()
    await site.controller.turn()
    site.cordon(cordoned=False)
    for _ in range(2):
        assert (await site.turn(), site.says()) == (CORDONED, "Resuming")
    site.slurm.completing("n1", lasts=False)
    assert (await site.turn(), site.says()) == (None, "InService")


async def test_too_many_unready_nodes_are_reported_and_not_drained(site: Site) -> None:
    site.says_of("Ready", *NAMES[:6], status="Unknown")
    assert await site.turn() is None
    assert "6 of 12 Nodes are not ready" in site.problems()[PARTS[1]]
    assert site.controller.tally.suppressed == 6
    site.says_of("Ready", "n6", status="True")
    await site.controller.turn()
    assert site.problems() == {}
    assert await site.reason() == PREFIX + "not ready in Kubernetes"


async def test_a_pod_that_outstays_its_job_drains_its_node_until_it_is_gone(site: Site) -> None:
    job_id = site.bound_job()
    site.world.disturb(job_id, "CANCELLED")
    site.poll()
    assert await site.turn() is None
    site.kill_wait_s = 0
    assert await site.turn() == PREFIX + "Pod default/p1 is still there though its job has ended"
    site.kill_wait_s = 10**9
    assert await site.turn() is not None
    site.world.settle()
    assert await site.turn() is None


async def test_node_drained_by_its_gate_is_resumed_when_no_pod_is_in_the_way(site: Site) -> None:
    """For example, the Pod was bound by hand, so the ledger does not know when the Pod will be gone."""
    site.in_the_way["n1"] = ("default/p",)
    await site.slurm.drain_node("n1", REFUSED)
    assert (await site.turn(), site.says()) == (REFUSED, "DrainedForKubernetes")
    assert site.controller.tally.drained == {DrainCause.PROLOG_REFUSED: 1}
    site.in_the_way.clear()
    assert (await site.turn(), site.says()) == (None, "InService")


@pytest.mark.parametrize("problem", [Unreachable("slurmctld is down"), NotLeading()])
async def test_drain_of_the_gate_stays_during_an_outage(site: Site, problem: Exception) -> None:
    site.errors["gate"] = problem
    await site.slurm.drain_node("n1", REFUSED)
    assert await site.turn() == REFUSED
    assert site.problems() == {}


async def test_node_with_a_lost_job_is_resumed(site: Site) -> None:
    """If the node stayed drained, the drain would wait for the lost job to return, and the job would
    wait for the node."""
    site.in_the_way["n1"] = ("default/p1",)
    site.world.jobs.pop(site.bound_job())
    site.poll()
    await site.slurm.drain_node("n1", REFUSED)
    assert await site.turn() is None


async def test_drain_lasts_longer_each_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm starts other jobs in the place of the lost job. The gate rejects each of these jobs, and
    Slurm drains the node each time."""
    now = 1000.0
    monkeypatch.setattr(controller, "_FAILS_S", 5.0)
    monkeypatch.setattr(controller, "_now", lambda: now)

    async def rests() -> float:
        """Returns the time that the node stays drained after its gate has rejected a job."""
        nonlocal now
        await site.slurm.drain_node("n1", REFUSED)
        since = now
        await site.controller.turn()
        while await site.reason() is not None:
            now += 1.0
            await site.controller.turn()
        return now - since

    job_id = site.bound_job()
    job = site.world.jobs.pop(job_id)
    site.poll()
    rested = []
    for _ in range(8):
        rested.append(await rests())
        now += 45.0
        await site.controller.turn()
    assert rested == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    now += 300.0
    await site.controller.turn()
    assert [await rests(), await rests()] == [5.0, 10.0]
    site.world.jobs[job_id] = job
    site.poll()
    await site.controller.turn()
    site.world.jobs.pop(job_id)
    site.poll()
    assert await rests() == 5.0


async def test_drain_of_the_gate_stays_at_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm itself also drains the node for the failed Prolog, a moment after the gate."""
    monkeypatch.setattr(controller, "_FAILS_S", 3600.0)
    await site.slurm.drain_node("n1", REFUSED)
    await site.controller.turn()
    assert await site.turn() == REFUSED
    assert "gate" not in site.calls


@pytest.mark.parametrize("reason", ["Prolog error", BY_HAND])
async def test_gate_is_not_called_for_other_drains(site: Site, reason: str) -> None:
    site.slurm.drain("n1", reason)
    assert await site.turn() == reason
    assert "gate" not in site.calls


async def test_node_drained_by_hand_is_tainted_if_configured() -> None:
    site = Site(DrainSettings(taint=True))
    site.slurm.drain("n1", BY_HAND)
    await site.controller.turn()
    (taint,) = site.view.nodes["n1"].taints
    assert taint == TAINT
    assert await site.turn() == BY_HAND
    site.slurm.resume_node("n1")
    await site.controller.turn()
    assert site.view.nodes["n1"].taints == ()


async def test_concurrent_change_of_a_node_is_no_problem() -> None:
    site = Site(DrainSettings(taint=True))
    site.slurm.drain("n1", BY_HAND)
    site.kubernetes.before_next("patch_node", lambda: site.says_of("Ready", "n1", status="True"))
    await site.controller.turn()
    assert (site.problems(), site.calls.count("patch_node")) == ({}, 1)
    await site.controller.turn()
    assert (site.view.nodes["n1"].taints, site.calls.count("patch_node")) == ((TAINT,), 2)


async def test_change_of_a_node_starts_a_turn(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_INTERVAL_S", 3600.0)
    running = asyncio.ensure_future(site.controller.run())
    for name in ("n1", "n2"):
        site.cordon(name)
        site.nodes_changed.set()
        await until(partial(site.reason, name), within_s=30)
    running.cancel()


def a_kubelet_rejects_pods(site: Site, node: str = "n1", *, of_two: bool = True) -> None:
    """Lets the kubelet reject three Pods: of different users with `of_two`, or of the same user."""
    for number in range(3):
        asked = of_user(number if of_two else 0)
        life = Life(kubelet_rejection="OutOfcpu: too few")
        pod = Pod("u", "default", "serve-1", "1", asked, life)
        site.world.ledger.rejecting_nodes.rejected(pod, node, view_of(NAMES), site.world.now)


async def test_a_node_whose_kubelet_rejects_pods_gets_an_event_and_a_condition(site: Site) -> None:
    a_kubelet_rejects_pods(site)
    await site.controller.turn()
    told = site.conditions("n1")[PODS_REJECTED]
    assert (told["status"], told["reason"]) == ("True", "KubeletRejectsPods")
    assert "the last of them default/serve-1: OutOfcpu: too few" in told["message"]
    (event,) = site.kubernetes.objects("events")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert (event["type"], event["message"]) == ("Warning", told["message"])
    assert await site.reason() is None  # the setting does not list the condition
    site.calls.clear()
    await site.controller.turn()
    assert site.calls == []


async def test_node_closed_to_similar_pods_gets_no_condition(site: Site) -> None:
    a_kubelet_rejects_pods(site, of_two=False)
    await site.controller.turn()
    assert PODS_REJECTED not in site.conditions("n1")
    (event,) = site.kubernetes.objects("events")
    assert "The extender places no Pods like default/serve-1 here for 60 s" in event["message"]


async def test_an_event_that_cannot_be_made_delays_no_condition(site: Site) -> None:
    a_kubelet_rejects_pods(site)
    refused = AsyncMock(side_effect=Rejected(403, "no"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site.kubernetes, "create_event", refused)
        await site.controller.turn()
    assert refused.await_count == 1
    assert site.conditions("n1")[PODS_REJECTED]["status"] == "True"


async def test_listed_condition_drains_until_the_pause_ends() -> None:
    site = Site(DrainSettings(conditions=frozenset({PODS_REJECTED})))
    a_kubelet_rejects_pods(site)
    await site.controller.turn()
    await site.controller.turn()
    reason = await site.reason()
    assert reason is not None
    assert reason.startswith(f"{PREFIX}condition {PODS_REJECTED}: the kubelet rejected 3 Pods")
    site.world.pass_time(61.0)
    await site.controller.turn()
    await site.controller.turn()
    assert site.conditions("n1")[PODS_REJECTED]["reason"] == "PodsAdmitted"
    assert await site.reason() is None


async def test_a_condition_of_an_earlier_leader_ends_at_once(site: Site) -> None:
    """The new leader does not know the counts of the earlier leader."""
    site.says_of(PODS_REJECTED, "n1", status="True", reason="KubeletRejectsPods")
    await site.controller.turn()
    assert site.conditions("n1")[PODS_REJECTED]["status"] == "False"
