"""Nodes and nodes kept of one mind, over a Slurm in memory and an API server that holds Nodes."""

from __future__ import annotations

import asyncio
from types import MappingProxyType
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from extender import node_keeper, turns
from extender.cluster_view import ClusterViewKeeper
from extender.gate import NotLeading
from extender.health import Health
from extender.kubernetes_api import Conflict, KubernetesApi, Rejected
from extender.node_keeper import PARTS, Leadership, NodeKeeper, pause_after
from extender.placement.cluster import ClusterView
from extender.placement.node_constraints import Node
from extender.placement.nodes import CONDITION, PREFIX, TAINT, Standing, Tally, Why, Wishes
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.protocol import Slurm
from tests.builders import Manifest, node_manifest
from tests.placement.ledger_world import World
from tests.placement.test_ledger import bound_pod, job_id_of
from tests.turns import turns_of_others

CORDONED = PREFIX + "cordoned in Kubernetes"
REFUSED = PREFIX + "the gate refused job 7: Pods default/p"
BY_HAND = "disk is to be replaced"
NAMES = tuple(f"n{number}" for number in range(1, 13))


class Site:
    """A cluster of twelve nodes, its leader's ledger, and what people do to both systems."""

    def __init__(self, wishes: Wishes) -> None:
        self.manifests: dict[str, Manifest] = {name: node_manifest(name) for name in NAMES}
        self.slurm = InMemorySlurm([node(name) for name in NAMES], [partition("main", NAMES)])
        self.world = World()
        self.health = Health()
        self.nodes_changed = asyncio.Event()
        self.kill_wait_s = 10**9
        self.errors: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.in_the_way: dict[str, tuple[str, ...]] = {}
        self.lagging: ClusterView | None = None
        """What the watch has told, where that is not all."""
        self.keeper = NodeKeeper(
            cast(KubernetesApi, self),
            cast(Slurm, self.slurm),
            cast(ClusterViewKeeper, self),
            Leadership(self.world.ledger, self._allowed, self._in_the_way),
            self.health,
            wishes=wishes,
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

    # What the cluster's watch knows

    @property
    def view(self) -> ClusterView:
        nodes = {name: self.read(manifest)[0] for name, manifest in self.manifests.items()}
        return self.lagging or ClusterView(nodes=nodes)

    @property
    def standings(self) -> dict[str, Standing]:
        return {name: self.read(manifest)[1] for name, manifest in self.manifests.items()}

    def read(self, manifest: Manifest) -> tuple[Node, Standing]:
        return Node.parse(manifest, "slurm"), Standing.parse(manifest)

    # kube-apiserver

    async def read_node(self, name: str) -> Manifest:
        self._did("read")
        return self.manifests[name]

    async def patch_node(self, name: str, patch: Manifest) -> None:
        self._did("patch")
        assert patch["metadata"]["resourceVersion"] == "1"
        self.manifests[name]["spec"] |= patch["spec"]

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        self._did("tell")
        conditions = self.conditions(name)
        for each in patch["status"]["conditions"]:
            conditions[each["type"]] = conditions.get(each["type"], {}) | each
        self.manifests[name]["status"] = {"conditions": list(conditions.values())}

    # People

    def conditions(self, name: str) -> dict[str, Any]:
        listed = self.manifests[name].get("status", {}).get("conditions", ())
        return {each["type"]: each for each in listed}

    def says(self, name: str = "n1") -> str | None:
        told = self.conditions(name).get(CONDITION)
        return told and told["reason"]

    def cordon(self, name: str = "n1", *, cordoned: bool = True) -> None:
        self.manifests[name] = self.manifests[name] | {"spec": {"unschedulable": cordoned}}

    def unready(self, *names: str) -> None:
        for name in names:
            self.manifests[name]["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}

    async def reason(self, name: str = "n1") -> str | None:
        """Of its drain; None where it is not drained."""
        seen = await self.slurm.node(name)
        assert seen is not None
        return seen.reason if "DRAIN" in seen.states else None

    def troubles(self) -> Any:
        return self.health.report()["troubles"]


@pytest.mark.parametrize(("took", "pause"), [(0.01, 2.0), (0.5, 10.0), (15.0, 15.0)])
def test_a_long_reading_is_followed_by_a_long_pause_within_bounds(took: float, pause: float) -> None:
    with pytest.MonkeyPatch.context() as original:
        original.setattr(node_keeper, "_INTERVAL_S", 2.0)
        original.setattr(node_keeper, "_SHARE", 20)
        assert pause_after(took) == pause


@pytest.fixture(autouse=True)
def _reads_at_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_keeper, "_INTERVAL_S", 0.0)
    monkeypatch.setattr(node_keeper, "_SHARE", 0)
    monkeypatch.setattr(node_keeper, "_FAILS_S", 0.0)


@pytest.fixture
def site() -> Site:
    return Site(Wishes())


async def test_a_cordoned_node_is_drained_and_told_and_resumed_and_told(site: Site) -> None:
    site.cordon()
    await site.keeper.turn()
    assert (await site.reason(), site.says()) == (CORDONED, "DrainedForKubernetes")
    site.cordon(cordoned=False)
    await site.keeper.turn()
    assert (await site.reason(), site.says()) == (None, "InService")


async def test_what_is_as_it_should_be_costs_no_call(site: Site) -> None:
    site.cordon()
    site.slurm.drain("n2", BY_HAND)
    await site.keeper.turn()
    site.calls.clear()
    await site.keeper.turn()
    assert site.calls == []
    assert site.keeper.tally == Tally(MappingProxyType({Why.CORDONED: 1}))


async def test_others_get_their_turns_while_very_many_nodes_are_looked_at(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 take 0.1 s, in which /filter waits."""
    monkeypatch.setattr(turns, "_TURN_S", 0.0)
    assert await turns_of_others(site.keeper.turn()) >= 2 * len(NAMES) - 2


async def test_since_when_a_node_is_out_of_service_is_told(site: Site) -> None:
    site.slurm.drain("n1", BY_HAND)
    await site.keeper.turn()
    site.conditions("n1")[CONDITION]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    site.slurm.fail_node("n1")
    await site.keeper.turn()
    assert site.says() == "DownInSlurm"
    assert site.conditions("n1")[CONDITION]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    site.slurm.resume_node("n1")
    await site.keeper.turn()
    assert site.says() == "InService"
    assert site.conditions("n1")[CONDITION]["lastTransitionTime"] > "2026-01-01T00:00:00Z"


async def test_nothing_is_done_before_this_replica_may(site: Site) -> None:
    site.cordon()
    site.errors["allowed"] = Conflict(409, "not now")
    await site.keeper.turn()
    assert await site.reason() is None


async def test_who_was_faster_than_we_keeps_the_last_word(site: Site) -> None:
    """By the watch the Node is cordoned; it is not any more."""
    site.cordon()
    site.lagging = site.view
    site.cordon(cordoned=False)
    await site.keeper.turn()
    assert await site.reason() is None


async def test_a_node_that_is_gone_on_either_side_is_no_cause(site: Site) -> None:
    await site.slurm.drain_node("n2", CORDONED)
    del site.manifests["n2"]
    site.manifests["elsewhere"] = node_manifest("elsewhere", unschedulable=True)
    await site.keeper.turn()
    assert await site.reason("n2") == CORDONED
    assert site.calls == []
    assert site.troubles() == {}


async def test_while_slurm_does_not_answer_nothing_is_done_and_health_says_so(site: Site) -> None:
    site.cordon()
    site.slurm.outage(Unreachable("slurmctld is down"))
    with capture_logs() as logs:
        await site.keeper.turn()
        await site.keeper.turn()
    assert [(line["event"], line["error"]) for line in logs] == [("trouble", "slurmctld is down")]
    assert site.troubles() == {PARTS[0]: "slurmctld is down"}
    assert site.calls == []
    site.slurm.outage(None)
    await site.keeper.turn()
    assert await site.reason() is None  # what the ledger knows may be from before
    await site.keeper.turn()
    assert site.troubles() == {}
    assert await site.reason() == CORDONED


@pytest.mark.parametrize("outage", [True, False])
async def test_a_drain_that_slurm_lost_in_an_outage_is_made_again(site: Site, outage: bool) -> None:
    """Without one it is a person who took it back."""
    site.cordon()
    await site.keeper.turn()
    site.conditions("n1")[CONDITION]["lastTransitionTime"] = "2026-11-21T00:00:00Z"
    site.slurm.outage(Unreachable("slurmctld is down") if outage else None)
    await site.keeper.turn()
    site.slurm.outage(None)
    site.slurm.resume_node("n1")
    for _ in range(3):
        await site.keeper.turn()
    assert await site.reason() == (CORDONED if outage else None)
    assert site.says() == ("DrainedForKubernetes" if outage else "ResumedByHand")


async def test_a_node_is_not_drained_while_slurm_has_to_start_a_lost_job_there_again(site: Site) -> None:
    """The job of a Pod that runs would wait for the node, and the Pod be evicted for that."""
    job_id = job_id_of(site.world, bound_pod(site.world))
    job = site.world.jobs.pop(job_id)
    site.world.ask()
    site.world.answer()
    site.cordon()
    await site.keeper.turn()
    assert await site.reason() is None
    site.world.jobs[job_id] = job
    site.world.ask()
    site.world.answer()
    await site.keeper.turn()
    assert await site.reason() == CORDONED


async def test_what_kubernetes_forbids_is_said_and_keeps_nothing_else_up(site: Site) -> None:
    site.errors["tell"] = Rejected(403, "nodes/status is forbidden")
    site.cordon("n1")
    site.cordon("n2")
    await site.keeper.turn()
    assert [await site.reason(name) for name in ("n1", "n2")] == [CORDONED] * 2
    assert "nodes/status is forbidden" in site.troubles()[PARTS[0]]
    site.cordon("n1", cordoned=False)
    await site.keeper.turn()
    assert [await site.reason(name) for name in ("n1", "n2")] == [None, CORDONED]
    del site.errors["tell"]
    await site.keeper.turn()
    assert site.troubles() == {}
    assert [site.says(name) for name in ("n1", "n2")] == [None, "DrainedForKubernetes"]


async def test_a_resume_that_failed_is_tried_again(site: Site) -> None:
    site.cordon()
    await site.keeper.turn()
    site.cordon(cordoned=False)
    site.errors["tell"] = Rejected(403, "nodes/status is forbidden")
    await site.keeper.turn()
    assert await site.reason() == CORDONED  # nobody could tell it from a person's resume
    del site.errors["tell"]
    await site.keeper.turn()
    assert await site.reason() is None


async def test_when_very_many_are_not_ready_it_is_said_and_nothing_done(site: Site) -> None:
    site.unready(*NAMES[:6])
    await site.keeper.turn()
    assert await site.reason() is None
    assert "6 of 12 Nodes are not ready" in site.troubles()[PARTS[1]]
    assert site.keeper.tally.spared == 6
    site.manifests["n6"]["status"] = {}
    await site.keeper.turn()
    assert site.troubles() == {}
    assert await site.reason() == PREFIX + "not ready in Kubernetes"


async def test_a_pod_that_outstays_its_job_drains_its_node_until_it_is_gone(site: Site) -> None:
    job_id = job_id_of(site.world, bound_pod(site.world))
    site.world.disturb(job_id, "CANCELLED")
    site.world.ask()
    site.world.answer()
    await site.keeper.turn()
    assert await site.reason() is None
    site.kill_wait_s = 0
    await site.keeper.turn()
    assert await site.reason() == PREFIX + "Pod default/p1 is still there though its job has ended"
    site.kill_wait_s = 10**9
    await site.keeper.turn()
    assert await site.reason() is not None
    site.world.settle()
    await site.keeper.turn()
    assert await site.reason() is None


async def test_a_node_that_its_gate_drained_is_resumed_when_nobody_is_in_the_way(site: Site) -> None:
    """A Pod is one that nothing here knows a time for: it was bound by hand, say."""
    site.in_the_way["n1"] = ("default/p",)
    await site.slurm.drain_node("n1", REFUSED)
    await site.keeper.turn()
    assert (await site.reason(), site.says()) == (REFUSED, "DrainedForKubernetes")
    assert site.keeper.tally == Tally(MappingProxyType({Why.REFUSED: 1}))
    site.in_the_way.clear()
    await site.keeper.turn()
    assert (await site.reason(), site.says()) == (None, "InService")


@pytest.mark.parametrize("trouble", [Unreachable("slurmctld is down"), NotLeading()])
async def test_while_nobody_knows_who_is_in_the_way_the_node_stays_drained(
    site: Site, trouble: Exception
) -> None:
    site.errors["gate"] = trouble
    await site.slurm.drain_node("n1", REFUSED)
    await site.keeper.turn()
    assert await site.reason() == REFUSED
    assert site.troubles() == {}


async def test_a_node_where_slurm_has_to_start_a_lost_job_again_is_resumed_for_that(site: Site) -> None:
    """Drained it would wait for that job, and the job for the node."""
    site.in_the_way["n1"] = ("default/p1",)
    site.world.jobs.pop(job_id_of(site.world, bound_pod(site.world)))
    site.world.ask()
    site.world.answer()
    await site.slurm.drain_node("n1", REFUSED)
    await site.keeper.turn()
    assert await site.reason() is None


async def test_a_node_whose_gate_refuses_jobs_while_a_lost_job_waits_rests_longer_every_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs have the lost one's place, and those that come into what is left there are refused."""
    now = 1000.0
    monkeypatch.setattr(node_keeper, "_FAILS_S", 5.0)
    monkeypatch.setattr(node_keeper, "_now", lambda: now)

    async def rests() -> float:
        """How long the node stays drained once its gate refuses a job."""
        nonlocal now
        await site.slurm.drain_node("n1", REFUSED)
        since = now
        await site.keeper.turn()
        while await site.reason() is not None:
            now += 1.0
            await site.keeper.turn()
        return now - since

    job_id = job_id_of(site.world, bound_pod(site.world))
    job = site.world.jobs.pop(job_id)
    site.world.ask()
    site.world.answer()
    rested = []
    for _ in range(8):
        rested.append(await rests())
        now += 45.0
        await site.keeper.turn()
    assert rested == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    now += 300.0
    await site.keeper.turn()
    assert [await rests(), await rests()] == [5.0, 10.0]
    site.world.jobs[job_id] = job
    site.world.ask()
    site.world.answer()
    await site.keeper.turn()
    site.world.jobs.pop(job_id)
    site.world.ask()
    site.world.answer()
    assert await rests() == 5.0


async def test_a_drain_of_a_gate_is_not_taken_back_before_slurm_has_made_its_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_keeper, "_FAILS_S", 3600.0)
    await site.slurm.drain_node("n1", REFUSED)
    await site.keeper.turn()
    await site.keeper.turn()
    assert await site.reason() == REFUSED
    assert "gate" not in site.calls


@pytest.mark.parametrize("reason", ["Prolog error", BY_HAND])
async def test_a_drain_that_is_none_of_the_gates_is_nothing_to_it(site: Site, reason: str) -> None:
    site.slurm.drain("n1", reason)
    await site.keeper.turn()
    assert await site.reason() == reason
    assert "gate" not in site.calls


async def test_a_node_drained_by_hand_is_tainted_where_that_is_wished() -> None:
    site = Site(Wishes(taint=True))
    site.slurm.drain("n1", BY_HAND)
    await site.keeper.turn()
    (taint,) = site.view.nodes["n1"].taints
    assert taint == TAINT
    await site.keeper.turn()
    assert await site.reason() == BY_HAND
    site.slurm.resume_node("n1")
    await site.keeper.turn()
    assert site.view.nodes["n1"].taints == ()


async def test_a_node_that_changes_this_moment_is_no_trouble() -> None:
    site = Site(Wishes(taint=True))
    site.slurm.drain("n1", BY_HAND)
    site.errors["patch"] = Conflict(409, "the object has been modified")
    await site.keeper.turn()
    assert site.troubles() == {}
    del site.errors["patch"]
    await site.keeper.turn()
    assert site.view.nodes["n1"].taints == (TAINT,)


async def test_a_change_of_a_node_is_acted_upon_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_keeper, "_INTERVAL_S", 3600.0)
    turns = 0
    turn = site.keeper.turn

    async def counted() -> None:
        nonlocal turns
        turns += 1
        await turn()
        if turns == 1:
            site.cordon()
            site.nodes_changed.set()
        else:
            running.cancel()

    monkeypatch.setattr(site.keeper, "turn", counted)
    running = asyncio.ensure_future(site.keeper.run())
    await asyncio.wait([running], timeout=30)
    assert running.cancelled()
    assert await site.reason() == CORDONED
