"""Tests of Pods that have all devices of a Node. Without NRI, the kubelet gives a container all devices,
or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import grpc
import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.kubelet import device_plugin
from node_agent.machine.devices import Device, Names, Number
from node_agent.machine.numbered import Machine
from node_agent.pods.node_pods import NodePods
from node_agent.runtime import kubelet_devices
from node_agent.runtime.kubelet_devices import KubeletDevices
from tests.eventually import until
from tests.node_agent.kubelet import RESOURCE, Kubelet, allocate, plugged, refusal
from tests.node_agent.test_missing_devices import Known

if TYPE_CHECKING:
    from tests.node_agent.node import Node

GPUS = tuple(Device("gpu", "h100", (f"/dev/nvidia{n}",)) for n in range(3))
BROKEN = GPUS[2]


class Three(Known):
    """A keeper of three GPUs with a number of parts each. The last GPU is not usable."""

    def __init__(self, *names: Names, **shared: int) -> None:
        self.machine = Machine([replace(gpu, shared=shared) for gpu in GPUS], self._look)
        called = zip(GPUS, names, strict=False)
        self.names = {frozenset(device.files): name for device, name in called}

    def _look(self, device: Device) -> tuple[frozenset[Number], str]:
        number = frozenset({Number(195, int(device.files[0][-1]))})
        return (frozenset(), "no such file") if device.files == BROKEN.files else (number, "")


BY_UUID = Three(Names("GPU-a", kubelet="GPU-a"), Names("GPU-b", kubelet="GPU-b"))


def devices_of(keeper: Known, resource: str = RESOURCE, gres: str = "gpu") -> KubeletDevices:
    pods = NodePods(InMemoryKubernetes(), "n1", lambda: None, lambda _: None)
    return KubeletDevices(keeper, pods, resource, gres, Path("/nowhere"), None)


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Node with one of the files that NVIDIA's devices share."""

    def look(file: str) -> SimpleNamespace:
        return SimpleNamespace(exists=lambda: file == "/dev/nvidiactl")

    monkeypatch.setattr(kubelet_devices, "Path", look)


@pytest.mark.usefixtures("common")
def test_request_for_all_devices_gets_files_and_variables() -> None:
    given = devices_of(BY_UUID).whole_node(["GPU-b", "GPU-a"])
    files = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]
    assert [(each.host_path, each.container_path) for each in given.devices] == [(f, f) for f in files]
    assert {each.permissions for each in given.devices} == {"rw"}
    uuids = "GPU-a,GPU-b"
    assert given.envs == {"CUDA_VISIBLE_DEVICES": uuids, "NVIDIA_VISIBLE_DEVICES": uuids}
    assert not given.cdi_devices


def test_devices_with_a_cdi_specification_are_given_by_cdi() -> None:
    by_cdi = [
        Names(uuid, f"nvidia.com/gpu={n}", kubelet=uuid) for n, uuid in enumerate(("GPU-a", "GPU-b"))
    ]
    given = devices_of(Three(*by_cdi)).whole_node(["GPU-a", "GPU-b"])
    assert [each.name for each in given.cdi_devices] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    assert not given.devices
    assert given.envs["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("asked", [["GPU-a"], ["GPU-b"], ["GPU-a", "GPU-b", "gpu-2"], []])
def test_request_for_other_devices_is_rejected(asked: list[str]) -> None:
    words = f"it asks for {len(asked)} of the 2 {RESOURCE} that are of use"
    with pytest.raises(ValueError, match=words):
        devices_of(BY_UUID).whole_node(asked)


@pytest.mark.usefixtures("common")
def test_request_for_all_usable_parts_gets_their_gpus() -> None:
    keeper = Three(Names("GPU-a", kubelet="GPU-a"), Names("GPU-b", kubelet="GPU-b"), mps=2)
    devices = devices_of(keeper, "example.com/mps", "mps")
    parts = [f"GPU-{gpu}::{n}" for gpu in ("a", "b") for n in (0, 1)]
    given = devices.whole_node(parts)
    assert [each.host_path[-1] for each in given.devices] == ["0", "1", "l"]
    assert given.envs["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert given.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "200"
    with pytest.raises(ValueError, match="it asks for 2 of the 4 "):
        devices.whole_node(parts[:2])


def test_device_with_a_problem_of_its_driver_is_not_usable() -> None:
    broken = Names("GPU-b", problem="its driver complains: XID 79", kubelet="GPU-b")
    devices = devices_of(Three(Names("GPU-a", kubelet="GPU-a"), broken))
    assert devices.usable() == {"GPU-a": True, "GPU-b": False, "gpu-2": False}
    given = devices.whole_node(["GPU-a"])
    assert given.envs["CUDA_VISIBLE_DEVICES"] == "GPU-a"


def test_gpu_without_a_uuid_is_not_given() -> None:
    keeper = Three(Names("GPU-a", kubelet="GPU-a"), Names(kubelet="GPU-b"))
    with pytest.raises(ValueError, match="does not report the UUID of /dev/nvidia1"):
        devices_of(keeper).whole_node(["GPU-a", "GPU-b"])


@pytest.mark.usefixtures("common")
async def test_kubelet_gets_the_reason_of_a_rejected_partial_request(tmp_path: Path) -> None:
    kubelet, devices = Kubelet(tmp_path), devices_of(BY_UUID)
    async with kubelet.runs(), plugged(tmp_path, devices.usable(), devices.whole_node):
        await until(lambda: kubelet.registered)
        async with kubelet.asks() as plugin:
            code, words = await refusal(allocate(plugin, ["GPU-a"]))
            given = await allocate(plugin, ["GPU-a", "GPU-b"])
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert words.endswith("on a Node without NRI (NODE_AGENT_NRI) a container has all of them, or none")
    assert len(given.container_responses[0].devices) == 3


@pytest.mark.real
@pytest.mark.parametrize("with_nri", [True, False])
async def test_kubelet_gives_devices_only_without_nri(
    with_nri: bool, node: Node, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    monkeypatch.setattr(device_plugin, "_LOOK_S", 0.05)
    node.device_plugins = short_folder
    node.nri = node.gres.with_name("nri") if with_nri else None
    kubelet = Kubelet(node.device_plugins)
    async with kubelet.runs(), node.agent(ready=False):
        await until(lambda: kubelet.registered)
        async with kubelet.asks() as plugin:
            whole = await allocate(plugin, ["gpu-0", "gpu-1", "gpu-2"])
            files = [each.host_path[-1] for each in whole.container_responses[0].devices]
            assert files == ([] if with_nri else ["x", "y", "z"])
            if not with_nri:
                await refusal(allocate(plugin, ["gpu-0"]))
