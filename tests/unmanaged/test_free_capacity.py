"""Tests of the free capacity for unmanaged Pods: the times of the readings, and the woken Pods."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.pod_request.scope import Scope
from extender.pod_request.translation import TranslationConfig
from extender.unmanaged import free_capacity
from extender.unmanaged.free_capacity import FULL, UNCOUNTED, UNKNOWN, FreeCapacity
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.errors import Unreachable
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from tests.builders import TRANSLATION, Manifest, container, kube_node, pod_manifest, unmanaged, view
from tests.eventually import until
from wellknown.names import CAPACITY_FREED

WITHIN_S = 10.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "_INTERVAL_S", 0.01)


class Touched(InMemoryKubernetes):
    """Remembers the touched Pods and the field selectors of lists."""

    def __init__(self, *pods: Manifest) -> None:
        super().__init__(*pods)
        self.touched: list[str] = []
        self.selectors = set[str | None]()

    async def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any]) -> Mapping[str, Any]:
        assert CAPACITY_FREED in patch["metadata"]["annotations"]
        patched = await super().patch_pod(namespace, name, patch)
        self.touched.append(name)
        return patched

    def pages(self, kind: str, field_selector: str | None) -> AsyncIterator[Mapping[str, Any]]:
        self.selectors.add(field_selector)
        return super().pages(kind, field_selector)


class World:
    def __init__(
        self,
        *pods: Manifest,
        nodes: Callable[[], ClusterView] = ClusterView,
        translation: TranslationConfig = TRANSLATION,
    ) -> None:
        self.kubernetes = Touched(*pods)
        nodes_of_slurm = [node(name, cpus=8) for name in ("n1", "n2")]
        self.slurm = InMemorySlurm(nodes_of_slurm, [partition("main", ("n1", "n2"), default=True)])
        self.health = Health()
        self.view = FreeCapacity(
            self.kubernetes, self.slurm, SlurmNodes(self.slurm), translation, self.health, nodes
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.view.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def ask(self, name: str = "u", cpu: str = "8", **given: Any) -> dict[str, str]:
        pod = unmanaged(name, cpu=cpu, **given)
        self.kubernetes.put("pods", pod)
        return self.view.closed(pod, ["n1", "n2"])

    async def until(self, holds: Callable[[], object]) -> None:
        await until(holds, within_s=WITHIN_S)

    async def several_readings(self) -> None:
        then = self.slurm.reads["nodes"] + 3
        await self.until(lambda: self.slurm.reads["nodes"] >= then)


async def full(world: World) -> list[int]:
    """Starts a native job on each node, and returns the ids of the jobs."""
    return [
        await world.slurm.allocate(JobSpec("native", 8, 1, required_nodes=(name,)), number)
        for number, name in enumerate(("n1", "n2"), 100)
    ]


async def test_slurm_nodes_are_read_once_without_unmanaged_pods() -> None:
    world = World()
    async with world.running():
        await world.until(lambda: world.view.stale)
        assert world.slurm.reads["nodes"] == 1
        assert world.ask() == {}
        await world.several_readings()
    assert world.kubernetes.touched == []


async def test_pod_refused_before_the_first_reading_gets_the_real_reason() -> None:
    world = World()
    await full(world)
    assert world.ask() == {"n1": UNKNOWN, "n2": UNKNOWN}
    async with world.running():
        await world.until(lambda: world.kubernetes.touched == ["u"])
        assert world.ask() == {"n1": FULL, "n2": FULL}


async def test_wake_touches_no_pod_outside_of_the_namespaces_in_scope() -> None:
    """The chart's Roles do not allow changes of Pods in other namespaces."""
    world = World(translation=replace(TRANSLATION, scope=Scope.of(["team-a"])))
    jobs = await full(world)
    async with world.running():
        await world.until(lambda: world.view.known)
        for namespace in ("team-a", "team-b"):
            assert world.ask(f"of-{namespace}", namespace=namespace) == {"n1": FULL, "n2": FULL}
        await world.slurm.cancel(jobs[0], "native")
        await world.until(lambda: world.kubernetes.touched)
        await world.several_readings()
    assert world.kubernetes.touched == ["of-team-a"]


async def test_nodes_of_the_same_slurm_node_share_its_free_capacity() -> None:
    """The extender does not know on which of the two Nodes the Slurm node runs."""
    both = view(kube_node("n1", {"slurm": "n2"}), kube_node("n2"))
    world = World(nodes=lambda: both)
    await full(world)
    async with world.running():
        await world.until(lambda: world.ask() == {"n1": FULL, "n2": FULL})


async def test_readings_stop_if_no_pod_asks_or_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "_IDLE_S", 0.05)
    monkeypatch.setattr(free_capacity, "_ASKS_AGAIN_S", 0.3)
    world = World()
    await full(world)
    async with world.running():
        await world.until(lambda: world.ask() == {"n1": FULL, "n2": FULL})
        await asyncio.sleep(0.1)
        before = world.slurm.reads["nodes"]
        await world.several_readings()  # longer than _IDLE_S, because a Pod waits
        await world.until(lambda: world.view.stale)
        before = world.slurm.reads["nodes"]
        await asyncio.sleep(0.1)
        assert world.slurm.reads["nodes"] <= before + 1


async def test_end_of_an_outage_is_noticed_without_new_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "_IDLE_S", 0.0)
    world = World()
    world.slurm.outage(Unreachable("slurmctld is down"))
    async with world.running():
        await world.until(lambda: world.health.parts() == {"Slurm": True})
        await world.several_readings()
        world.slurm.outage(None)
        await world.until(lambda: world.health.parts() == {"Slurm": False})
        await world.until(lambda: world.view.stale)


async def test_stale_reading_preempts_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "_IDLE_S", 0.0)
    world = World(unmanaged("low", cpu="5", node="n1"))
    asked = unmanaged("u", cpu="8"), {"n1": ["uid-low"]}
    async with world.running():
        assert await world.view.open_without(*asked) == []
        await world.until(lambda: world.view.known and world.view.stale)
        assert await world.view.open_without(*asked) == ["n1"]
        await world.until(lambda: world.view.stale)
        await full(world)
        assert await world.view.open_without(*asked) == []


async def test_a_refused_pod_is_touched_when_a_native_job_ends_and_not_before() -> None:
    world = World()
    jobs = await full(world)
    async with world.running():
        await world.until(lambda: world.ask() == {"n1": FULL, "n2": FULL})
        await world.several_readings()  # the first reading wakes the Pod once
        world.kubernetes.touched.clear()
        await world.several_readings()
        assert world.kubernetes.touched == []
        await world.slurm.cancel(jobs[1])
        await world.until(lambda: world.kubernetes.touched == ["u"])
        assert world.ask() == {"n1": FULL}
        await world.several_readings()
        assert world.kubernetes.touched == ["u"]


async def test_deleted_pod_does_not_block_the_touch_of_other_pods() -> None:
    world = World()
    jobs = await full(world)
    async with world.running():
        await world.until(lambda: world.ask("first") == {"n1": FULL, "n2": FULL})
        await world.several_readings()
        world.kubernetes.touched.clear()
        world.ask("gone", priority=5)
        world.kubernetes.remove("pods", "gone")
        await world.slurm.cancel(jobs[0])
        await world.until(lambda: world.kubernetes.touched == ["first"])


async def test_listed_and_watched_pods_use_capacity_until_they_are_gone() -> None:
    listed, seen = unmanaged("a", cpu="5", node="n1"), unmanaged("b", cpu="5", node="n2")
    world = World(listed)
    async with world.running():
        world.kubernetes.put("pods", seen)
        world.kubernetes.remove("pods", "a")
        await world.kubernetes.all_sent()
        await world.until(lambda: world.ask(cpu="4") == {"n2": FULL})
    (selector,) = world.kubernetes.selectors
    assert (selector or "").startswith("spec.nodeName!=,spec.schedulerName!=slurm-scheduler")


async def test_pod_refused_during_an_outage_is_touched_after_the_outage() -> None:
    world = World()
    world.slurm.outage(Unreachable("slurmctld was not reached"))
    async with world.running():
        world.ask()
        await asyncio.sleep(0.1)
        assert world.kubernetes.touched == []
        world.slurm.outage(None)
        await world.until(lambda: world.kubernetes.touched == ["u"])


@pytest.mark.parametrize(
    ("setting", "closes"), [("isolate", True), ("node-agent", True), ("allow", False)]
)
async def test_a_gpu_that_slurm_does_not_count_closes_slurms_nodes(setting: Any, closes: bool) -> None:
    """Slurm does not count the GPU, so a native job may use the same GPU."""
    world = World(translation=replace(TRANSLATION, shared_gpus=setting))
    asks = [container({"cpu": "1"}, limits={"nvidia.com/gpu.shared": "1"})]
    pod = pod_manifest(schedulerName="default-scheduler", containers=asks)
    async with world.running():
        await world.until(lambda: world.view.known)
        closed = world.view.closed(pod, ["n1", "n2", "elsewhere"])
        assert closed == (dict.fromkeys(["n1", "n2"], UNCOUNTED) if closes else {})
        daemon = pod | {"spec": pod["spec"] | {"priority": 2_000_000_000}}
        assert world.view.closed(daemon, ["n1"]) == {}
