"""Tests of the leader's rounds for adopted Pods: the end of adopted Pods, and outages."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.execution.dispatcher import Dispatcher
from extender.node_view.slurm_nodes import SlurmNodes
from extender.placement.ledger import Ledger
from extender.pod_request.translation import TranslationConfig
from extender.telemetry import Telemetry
from extender.telemetry.leader_states import Sources
from extender.unmanaged import adopter
from extender.unmanaged.adopter import Adopter
from extender.unmanaged.adoption import Adoptions, Stage
from extender.unmanaged.free_capacity import FreeCapacity
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from tests.builders import RULES, kube_node, unmanaged, view
from tests.eventually import until
from wellknown.names import ADOPTED

ADOPTS = TranslationConfig(adopts=True)
VIEW = view(kube_node("n1"))
WITHIN_S = 10.0


class Seen(InMemoryKubernetes):
    """Shows each change of a Pod to the watch at once."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Mapping[str, Any]:
        patched = await super().patch_pod(namespace, name, patch)
        self._world.occupancy.pod_seen(patched)
        return patched


class World:
    """An adopter, with a Slurm of one node with 8 CPUs."""

    def __init__(self) -> None:
        self.health = Health()
        self.slurm = InMemorySlurm(
            [node("n1", cpus=8)], [partition("main", "n1", default=True)], tick_s=0.01
        )
        self.kubernetes = Seen(self)
        nodes = SlurmNodes(self.slurm)
        self.occupancy = FreeCapacity(
            self.kubernetes, self.slurm, nodes, ADOPTS, self.health, lambda: VIEW
        )
        self.telemetry = Telemetry()
        self.adoptions = Adoptions(RULES, observer=self.telemetry.placement.adopted)
        self.adopter = Adopter(
            self.adoptions, self.occupancy, self.slurm, self.health, RULES, lambda: VIEW
        )
        self.dispatcher = Dispatcher(
            Ledger(RULES), self.slurm, self.kubernetes, self.telemetry.placement
        )

    def add(self, name: str, cpu: str = "1") -> None:
        pod = unmanaged(name, cpu=cpu, node="n1")
        self.kubernetes.put("pods", pod)
        self.occupancy.pod_seen(pod)

    def remove(self, name: str) -> None:
        uid = self.kubernetes.read("pods", name)["metadata"]["uid"]
        self.kubernetes.remove("pods", name)
        self.occupancy.pod_gone(uid)

    def noted(self, name: str) -> bool:
        return ADOPTED in (self.kubernetes.read("pods", name)["metadata"].get("annotations") or {})

    async def jobs(self) -> int:
        return sum(not state.ended for state in (await self.slurm.all_states()).values())

    async def has_jobs(self, count: int) -> None:
        await until(self.jobs, within_s=WITHIN_S, holds=lambda jobs: jobs == count)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.adopter.run(self.dispatcher))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopter, "_INTERVAL_S", 0.02)
    monkeypatch.setattr(adopter, "_TOGETHER_S", 0.001)


async def test_adopted_pods_have_jobs_until_the_pods_are_gone() -> None:
    world = World()
    world.add("a", cpu="3")
    async with world.running():
        world.add("b")
        await until(lambda: world.noted("a") and world.noted("b"), within_s=WITHIN_S)
        assert await world.jobs() == 2
        world.remove("a")
        await until(lambda: len(world.adoptions.job_ids) == 1, within_s=WITHIN_S)
        assert await world.jobs() == 1


async def test_new_or_deleted_adopted_pod_starts_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopter, "_INTERVAL_S", 1000.0)
    world = World()
    async with world.running():
        await asyncio.sleep(0.02)
        world.add("a")
        await world.has_jobs(1)
        world.remove("a")
        await world.has_jobs(0)


async def test_outage_is_reported_and_adoption_resumes_after_the_outage() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    world.add("a")
    async with world.running():
        await until(lambda: world.health.parts().get("Slurm"), within_s=WITHIN_S)
        world.slurm.outage(None)
        await until(lambda: world.noted("a"), within_s=WITHIN_S)
        assert world.health.parts() == {"Slurm": False}


async def test_failed_effect_is_logged_with_the_pod_and_its_job() -> None:
    world = World()
    world.add("a")
    world.slurm.lose_reply_of_next("submit")
    with capture_logs() as logs:
        async with world.running():
            await until(lambda: world.noted("a"), within_s=WITHIN_S)
    line = next(line for line in logs if line["event"] == "effect failed")
    (job_id,) = world.adoptions.job_ids
    assert (line["pod"], line["job"]) == ("default/a", job_id)


async def test_no_request_is_sent_to_slurm_without_adopted_pods() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    async with world.running():
        await asyncio.sleep(0.1)
    assert world.health.parts() == {}


def test_metric_counts_adopted_pods_by_stage() -> None:
    telemetry = Telemetry()
    metric = "slurm_extender_adopted", {"stage": "rejected_by_slurm"}
    with telemetry.placement.leading(Sources(adopted_pods=lambda: {Stage.REJECTED_BY_SLURM: 2})):
        assert telemetry.registry.get_sample_value(*metric) == 2.0
    assert telemetry.registry.get_sample_value(*metric) == 0.0
