"""Tests of the agent's answers during an admission. A real kubelet is in tests/node."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import aio
from structlog.testing import capture_logs

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.kubelet import call
from node_agent.machine.devices import Names, Number
from node_agent.machine.numbered import Machine
from node_agent.pods.node_pods import NodePods
from node_agent.runtime import kubelet_devices
from node_agent.runtime.kubelet_devices import KubeletDevices
from tests.eventually import until
from tests.node_agent.kubelet import (
    RESOURCE,
    Kubelet,
    PodResources,
    options,
    plugged,
    preference,
    refusal,
)
from tests.node_agent.test_missing_devices import Known
from tests.node_agent.test_without_nri import GPUS
from wellknown.allocation import Allocation
from wellknown.names import ADOPTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ALL = ["GPU-a", "GPU-b", "GPU-c"]


class Whole(Known):
    """Three working GPUs."""

    def __init__(self) -> None:
        self.machine = Machine(GPUS, lambda gpu: (frozenset({Number(195, GPUS.index(gpu))}), ""))
        called = zip(GPUS, ALL, strict=True)
        self.names = {frozenset(gpu.files): Names(uuid, kubelet=uuid) for gpu, uuid in called}


class Site:
    """A Node's kubelet and agent."""

    def __init__(self, folder: Path) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubelet = Kubelet(folder)
        self.listed = PodResources(folder / "pod-resources.sock")
        self.pods = NodePods(self.kubernetes, "n1", lambda: None, lambda _: None)
        keeper = Whole()
        self.devices = KubeletDevices(keeper, self.pods, RESOURCE, "gpu", folder, self.listed.socket)
        self._folder = folder

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[aio.Channel]:
        following = asyncio.create_task(self.pods.follow())
        plugin = plugged(self._folder, self.devices.usable(), prefer=self.devices.prefer)
        try:
            async with self.kubelet.runs(), self.listed.runs(), plugin:
                await until(lambda: self.kubelet.registered and self.pods.claims is not None)
                async with self.kubelet.asks() as channel:
                    yield channel
        finally:
            following.cancel()

    async def create(
        self, name: str, *numbers: int, asks: int = 0, told: bool = True, adopted: bool = False
    ) -> None:
        """Creates a Pod whose job has these GPUs. Without GPUs, creates a Pod of no job that requests
        `asks` GPUs."""
        gres = f"gpu:h100:{len(numbers)}(IDX:{','.join(map(str, numbers))})"
        notes = Allocation(7, "n1", gres, "0", 512).annotations() if numbers else {}
        notes |= {ADOPTED: "7"} if adopted else {}
        metadata = {"uid": f"uid-{name}", "namespace": "ml", "name": name, "annotations": notes}
        wants = {"requests": {RESOURCE: str(asks or len(numbers))}}
        spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": wants}]}
        self.listed.pods[f"ml/{name}"] = []
        if told:
            self.kubernetes.put("pods", {"metadata": metadata, "spec": spec})
            await until(lambda: f"uid-{name}" in (self.pods.claims or {}))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name, seconds in (("PATIENCE_S", 5.0), ("_REPORT_WITHIN_S", 0.1), ("_LIST_S", 0.02)):
        monkeypatch.setattr(kubelet_devices, name, seconds)
    return Site(tmp_path)


@pytest.fixture
def impatient(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the time for which the agent of the site delays an answer to the kubelet."""
    monkeypatch.setattr(kubelet_devices, "PATIENCE_S", 0.3)


async def test_granted_devices_are_proposed(site: Site) -> None:
    async with site.runs() as plugin:
        assert (await options(plugin)).get_preferred_allocation_available
        await site.create("one", 2)
        with capture_logs() as logs:
            assert await preference(plugin, ALL, 1) == ["GPU-c"]
        (line,) = (line for line in logs if line["event"] == "devices preferred")
        assert (line["pod"], line["devices"]) == ("ml/one", ["GPU-c"])
        site.listed.pods["ml/one"] = ["GPU-c"]
        await site.create("two", 0, 1)
        assert await preference(plugin, ALL[:2], 2) == ["GPU-a", "GPU-b"]
    assert site.devices.chosen_by_kubelet == 0


async def test_answer_follows_kube_apiservers_report_of_the_pod(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may know a Pod before the agent knows the Pod. While the agent waits, the agent lists
    the kubelet's Pods only once."""
    monkeypatch.setattr(kubelet_devices, "_LIST_S", 60.0)
    async with site.runs() as plugin:
        await site.create("late", 1, told=False)
        asking = asyncio.ensure_future(preference(plugin, ALL, 1))
        await until(lambda: site.listed.calls)
        await site.create("late", 1)
        assert await asking == ["GPU-b"]
    assert site.listed.calls == 1


@pytest.mark.usefixtures("impatient")
async def test_agent_limits_its_calls_to_the_kubelet(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_devices, "_LIST_S", 0.1)
    async with site.runs() as plugin:
        assert await preference(plugin, ALL, 1) == []
    assert 1 <= site.listed.calls <= 4


async def test_agent_asks_again_if_the_kubelet_rejects_a_call(site: Site) -> None:
    async with site.runs() as plugin:
        await site.create("one", 1)
        site.listed.rejections = 2
        assert await preference(plugin, ALL, 1) == ["GPU-b"]
    assert site.devices.chosen_by_kubelet == 0


@pytest.mark.usefixtures("impatient")
async def test_reason_of_the_kubelets_choice_is_the_last_problem(site: Site) -> None:
    async with site.runs() as plugin:
        await site.create("one", 1)
        site.listed.rejections = 10_000
        with capture_logs() as logs:
            assert await preference(plugin, ALL, 1) == []
    assert [line["why"] for line in logs if "why" in line] == ["the kubelet: rejected by rate limit"]


async def test_pod_known_only_to_the_kubelet_delays_one_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a Pod is a static Pod, or a Pod deleted by force."""
    async with site.runs() as plugin:
        await site.create("static", told=False)
        await site.create("one", 0)
        assert await preference(plugin, ALL, 1) == ["GPU-a"]
        site.listed.pods["ml/one"] = ["GPU-a"]
        await site.create("two", 1)
        monkeypatch.setattr(kubelet_devices, "_REPORT_WITHIN_S", 60.0)
        assert await preference(plugin, ALL[1:], 1) == ["GPU-b"]


async def test_successor_of_a_pod_deleted_by_force_gets_granted_devices(site: Site) -> None:
    """The kubelet lists a Pod that was deleted by force and the next Pod with the same name."""
    async with site.runs() as plugin:
        site.listed.former["ml/one"] = ["GPU-b"]
        await site.create("one", 0)
        assert await preference(plugin, ALL, 1) == ["GPU-a"]
        await site.devices.compare()
    assert site.devices.differing == {}


@pytest.mark.usefixtures("impatient")
async def test_kubelet_chooses_if_the_pod_is_not_known(site: Site) -> None:
    async with site.runs() as plugin:
        assert await preference(plugin, ALL, 1) == []
        for name, number in (("one", 0), ("two", 1)):
            await site.create(name, number)
        assert await preference(plugin, ALL, 1) == []
    assert site.devices.chosen_by_kubelet == 2


@pytest.mark.usefixtures("impatient")
async def test_kubelet_chooses_without_pod_resources(site: Site) -> None:
    async with site.runs() as plugin:
        site.listed.socket.unlink()
        assert await preference(plugin, ALL, 1) == []
    assert site.devices.chosen_by_kubelet == 1


async def test_kubelet_chooses_instead_of_devices_that_are_not_free(site: Site) -> None:
    async with site.runs() as plugin:
        await site.create("one", 0, 1)
        assert await preference(plugin, ["GPU-b", "GPU-c"], 2) == ["GPU-b"]
    assert site.devices.chosen_by_kubelet == 1


@pytest.mark.parametrize("adopted", [False, True])
async def test_pod_that_no_job_placed_is_rejected(site: Site, adopted: bool) -> None:
    """The Pod is adopted after the admission, or before the admission if the kubelet was away. The
    kubelet has a GPU left for the Pod, because the job of the other Pod has more GPUs than that Pod
    requests."""
    async with site.runs() as plugin:
        await site.create("whole", 0, 1, asks=1)
        site.listed.pods["ml/whole"] = ["GPU-a"]
        await site.create("other", asks=1, adopted=adopted)
        code, words = await refusal(preference(plugin, ALL[1:], 1))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.startswith("no job of Slurm placed this Pod, and Slurm gives the nvidia.com/gpu")


@pytest.mark.usefixtures("impatient")
async def test_ended_pod_of_no_job_is_ignored_at_an_admission(site: Site) -> None:
    """Kubelets before 1.34 also list Pods that have ended."""
    async with site.runs() as plugin:
        await site.create("other", asks=1)
        site.kubernetes.edit("pods", "other", {"status": {"phase": "Failed"}}, "ml")
        await until(lambda: (site.pods.claims or {})["uid-other"].leaves)
        assert await preference(plugin, ALL, 1) == []


async def test_pods_with_other_devices_are_found(site: Site) -> None:
    async with site.runs():
        await site.create("one", 0)
        site.listed.pods["ml/one"] = ["GPU-b"]
        await site.devices.compare()
        assert site.devices.differing.keys() == {"ml/one"}
        site.listed.pods["ml/one"] = ["GPU-a"]
        await site.devices.compare()
        assert site.devices.differing == {}


async def test_hanging_kubelet_is_a_problem_of_one_comparison(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.runs():
        site.listed.hangs = True
        monkeypatch.setattr(call, "_ANSWER_WITHIN_S", 0.1)
        with pytest.raises(OSError, match=r"no answer within 0\.1 s"):
            await site.devices.compare()
        site.listed.hangs = False
        monkeypatch.setattr(call, "_ANSWER_WITHIN_S", 5.0)
        await site.devices.compare()


def test_devices_keep_the_names_of_an_earlier_agent_while_pods_have_them(site: Site) -> None:
    assert [*site.devices.units()] == ALL
    site.kubelet.counts("gpu-0", "gpu-1", "gpu-2", of_pods=["gpu-1"])
    assert [*site.devices.units()] == ["GPU-a", "gpu-1", "GPU-c"]
    site.kubelet.counts("GPU-a", "gpu-1", "GPU-c")
    assert [*site.devices.units()] == ALL


class Broken(Whole):
    """A keeper whose driver does not report the name of the last GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names = {**self.names, frozenset({"/dev/nvidia2"}): Names()}


def test_device_without_a_name_of_its_driver_is_not_usable(site: Site, tmp_path: Path) -> None:
    keeper: Any = Broken()
    devices = KubeletDevices(keeper, site.pods, RESOURCE, "gpu", tmp_path, None)
    assert devices.usable() == {"GPU-a": True, "GPU-b": True, "gpu-2": False}
