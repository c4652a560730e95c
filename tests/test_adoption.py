"""The leader's rounds for guests: when they are gone, and what an outage does to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from extender import adoption
from extender.adoption import PART, Adopter
from extender.dispatcher import Dispatcher
from extender.health import Health
from extender.kubernetes_api import KubernetesApi
from extender.occupancy_view import OccupancyView
from extender.placement.adoption import Adoptions, Stage
from extender.placement.ledger import Ledger
from extender.placement.nodes import Tally
from extender.placement.workload import ADOPTED, Dialect
from extender.telemetry import Telemetry
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from tests.builders import RULES, Manifest, kube_node, pod_manifest, view

ADOPTS = Dialect(adopts=True)
VIEW = view(kube_node("n1"))
WITHIN_S = 10.0


class World:
    """A Slurm of one node of 8 CPUs. What is written to a Pod is seen by the watch at once."""

    def __init__(self) -> None:
        self.health = Health()
        self.slurm = InMemorySlurm(
            [node("n1", cpus=8)], [partition("main", "n1", default=True)], tick_s=0.01
        )
        kubernetes = cast(KubernetesApi, self)
        self.pods: dict[str, Manifest] = {}
        self.occupancy = OccupancyView(kubernetes, self.slurm, ADOPTS, self.health, lambda: VIEW)
        self.telemetry = Telemetry()
        self.adoptions = Adoptions(RULES, observer=self.telemetry.adopted)
        self.adopter = Adopter(
            self.adoptions, self.occupancy, self.slurm, self.health, RULES, lambda: VIEW
        )
        self.dispatcher = Dispatcher(Ledger(RULES), self.slurm, kubernetes, self.telemetry)

    async def patch_pod(self, _namespace: str, name: str, patch: Manifest) -> None:
        metadata = self.pods[name]["metadata"]
        annotations = (metadata.get("annotations") or {}) | patch["metadata"]["annotations"]
        metadata["annotations"] = {key: text for key, text in annotations.items() if text is not None}
        self.occupancy._take(self.pods[name])

    def add(self, name: str, cpu: str = "1") -> None:
        self.pods[name] = pod_manifest(
            name, cpu=cpu, gates=(), node="n1", schedulerName="default-scheduler"
        )
        self.occupancy._take(self.pods[name])

    def remove(self, name: str) -> None:
        self.occupancy._leave(self.pods.pop(name)["metadata"]["uid"])

    def noted(self, name: str) -> bool:
        return ADOPTED in (self.pods[name]["metadata"].get("annotations") or {})

    async def jobs(self) -> int:
        return sum(not state.ended for state in (await self.slurm.all_states()).values())

    async def has_jobs(self, count: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while await self.jobs() != count:  # noqa: ASYNC110 -- Slurm tells nobody
                await asyncio.sleep(0.001)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.adopter.run(self.dispatcher))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 -- it may depend on anything
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_INTERVAL_S", 0.02)
    monkeypatch.setattr(adoption, "_TOGETHER_S", 0.001)


async def test_guests_have_jobs_for_as_long_as_they_are_there() -> None:
    world = World()
    world.add("a", cpu="3")
    async with world.running():
        world.add("b")
        await until(lambda: world.noted("a") and world.noted("b"))
        assert await world.jobs() == 2
        world.remove("a")
        await until(lambda: len(world.adoptions.job_ids) == 1)
        assert await world.jobs() == 1


async def test_the_coming_and_going_of_a_guest_begins_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_INTERVAL_S", 1000.0)
    world = World()
    async with world.running():
        await asyncio.sleep(0.02)
        world.add("a")
        await world.has_jobs(1)
        world.remove("a")
        await world.has_jobs(0)


async def test_an_outage_is_told_and_holds_nothing_back_afterwards() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    world.add("a")
    async with world.running():
        await until(lambda: world.health.parts().get(PART))
        world.slurm.outage(None)
        await until(lambda: world.noted("a"))
        assert world.health.parts() == {PART: False}


async def test_without_guests_slurm_is_not_asked() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    async with world.running():
        await asyncio.sleep(0.1)
    assert world.health.parts() == {}


def test_the_metric_counts_guests_by_stage() -> None:
    telemetry = Telemetry()
    with telemetry.leading(tuple, Tally, lambda: {Stage.REFUSED: 2}):
        value = telemetry.registry.get_sample_value("slurm_extender_adopted", {"stage": "refused"})
        assert value == 2.0
    value = telemetry.registry.get_sample_value("slurm_extender_adopted", {"stage": "refused"})
    assert value == 0.0
