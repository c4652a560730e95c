"""The picture of what unmanaged Pods may use: when it is renewed, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from extender import occupancy_view
from extender.health import Health
from extender.kubernetes_api import KubernetesApi, NotFound
from extender.occupancy_view import FULL, ROOM_SEEN, UNKNOWN, OccupancyView
from extender.placement.cluster import ClusterView
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from tests.builders import DIALECT, Manifest, pod_manifest
from tests.test_resource_watch import FakeApi, pod_event

WITHIN_S = 10.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy_view, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(occupancy_view, "_SHARE", 0)


class PatchedApi(FakeApi):
    """Remembers which Pods were touched."""

    def __init__(self, *script: Any, missing: frozenset[str] = frozenset()) -> None:
        super().__init__(*script)
        self.touched: list[str] = []
        self._missing = missing

    async def patch_pod(self, _namespace: str, name: str, patch: Manifest) -> Manifest:
        if name in self._missing:
            raise NotFound(404, f'pods "{name}" not found')
        assert ROOM_SEEN in patch["metadata"]["annotations"]
        self.touched.append(name)
        return {}


class CountingSlurm(InMemorySlurm):
    """Two nodes of 8 CPUs; counts how often they are asked for."""

    def __init__(self) -> None:
        names = ("n1", "n2")
        super().__init__(
            [node(name, cpus=8) for name in names], [partition("main", names, default=True)]
        )
        self.readings = 0

    async def nodes(self) -> Any:
        self.readings += 1
        return await super().nodes()


class World:
    def __init__(self, api: PatchedApi | None = None) -> None:
        self.api = api or PatchedApi([([], "1")])
        self.slurm = CountingSlurm()
        kubernetes = cast(KubernetesApi, self.api)
        self.view = OccupancyView(kubernetes, self.slurm, DIALECT, Health(), ClusterView)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.view.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def ask(self, name: str = "u", cpu: str = "8", **given: Any) -> dict[str, str]:
        return self.view.closed(unmanaged(name, cpu=cpu, **given), ["n1", "n2"])

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 -- it may depend on anything
                await asyncio.sleep(0.001)

    async def several_readings(self) -> None:
        then = self.slurm.readings + 3
        await self.until(lambda: self.slurm.readings >= then)


def unmanaged(name: str, **given: Any) -> Manifest:
    return pod_manifest(name, gates=(), schedulerName="default-scheduler", **given)


async def full(world: World) -> list[int]:
    """Native jobs, one on each node."""
    return [
        await world.slurm.allocate(
            JobSpec("native", cpus=8, memory_mb=1, required_nodes=(name,)), number
        )
        for number, name in enumerate(("n1", "n2"), 100)
    ]


async def test_slurm_is_asked_once_and_then_no_more_until_an_unmanaged_pod_is_there() -> None:
    world = World()
    async with world.running():
        await world.until(lambda: not world.view._asked.is_set())
        assert world.slurm.readings == 1
        assert world.ask() == {}
        await world.several_readings()
    assert world.api.touched == []


async def test_who_came_before_anything_was_known_learns_the_true_reason() -> None:
    world = World()
    await full(world)
    assert world.ask() == {"n1": UNKNOWN, "n2": UNKNOWN}
    async with world.running():
        await world.until(lambda: world.api.touched == ["u"])
        assert world.ask() == {"n1": FULL, "n2": FULL}


async def test_slurm_is_asked_no_more_once_nobody_asks_or_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy_view, "_IDLE_S", 0.05)
    monkeypatch.setattr(occupancy_view, "_ASKS_AGAIN_S", 0.3)
    world = World()
    await full(world)
    async with world.running():
        await world.until(lambda: world.ask() == {"n1": FULL, "n2": FULL})
        await asyncio.sleep(0.1)
        before = world.slurm.readings
        await world.several_readings()  # beyond _IDLE_S, for the Pod that waits
        await world.until(lambda: not world.view._asked.is_set())
        before = world.slurm.readings
        await asyncio.sleep(0.1)
        assert world.slurm.readings <= before + 1


async def test_a_refused_pod_is_touched_when_a_native_job_ends_and_not_before() -> None:
    world = World()
    jobs = await full(world)
    async with world.running():
        await world.until(lambda: world.ask() == {"n1": FULL, "n2": FULL})
        world.api.touched.clear()
        await world.several_readings()
        assert world.api.touched == []
        await world.slurm.cancel(jobs[1])
        await world.until(lambda: world.api.touched == ["u"])
        assert world.ask() == {"n1": FULL}
        await world.several_readings()
        assert world.api.touched == ["u"]


async def test_a_pod_that_is_gone_does_not_keep_others_from_being_touched() -> None:
    world = World(PatchedApi([([], "1")], missing=frozenset({"gone"})))
    jobs = await full(world)
    async with world.running():
        await world.until(lambda: world.ask("first") == {"n1": FULL, "n2": FULL})
        world.api.touched.clear()
        world.ask("gone", priority=5)
        await world.slurm.cancel(jobs[0])
        await world.until(lambda: world.api.touched == ["first"])


async def test_bound_pods_count_from_the_list_and_the_watch_until_they_are_gone() -> None:
    listed, seen = unmanaged("a", cpu="5", node="n1"), unmanaged("b", cpu="5", node="n2")
    stream = [pod_event("ADDED", seen), pod_event("DELETED", listed)]
    world = World(PatchedApi([([listed], "1")], stream))
    async with world.running():
        await world.api.idle.wait()
        await world.until(lambda: world.ask(cpu="4") == {"n2": FULL})
    others = "spec.nodeName!=,spec.schedulerName!=slurm-scheduler"
    assert {selector.startswith(others) for _, selector in world.api.selectors if selector} == {True}


async def test_who_waits_for_slurm_is_touched_when_it_answers_again() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    async with world.running():
        world.ask()
        await asyncio.sleep(0.1)
        assert world.api.touched == []
        world.slurm.outage(None)
        await world.until(lambda: world.api.touched == ["u"])
