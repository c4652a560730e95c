"""The kubelet's plugin for a resource: it counts, and gives nothing. A real kubelet is in tests/node."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import aio

from node_agent.kubelet import device_plugin
from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.machine.devices import Device
from node_agent.machine.vendors import may_be
from tests.node_agent.node import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RESOURCE = "nvidia.com/gpu"


class Kubelet:
    """Takes plugins in a folder, and asks them as a kubelet does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.registered: list[tuple[str, str, str]] = []

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        async def register(asked: api.RegisterRequest, _: Any) -> api.Empty:
            self.registered.append((asked.version, asked.resource_name, asked.endpoint))
            return api.Empty()

        method = grpc.unary_unary_rpc_method_handler(
            register, api.RegisterRequest.FromString, api.Empty.SerializeToString
        )
        server = aio.server()
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})
        server.add_generic_rpc_handlers([handler])
        server.add_insecure_port(f"unix:{self._folder / 'kubelet.sock'}")
        await server.start()
        yield
        await server.stop(None)

    def empties(self) -> None:
        """As each does when it starts."""
        for file in self._folder.iterdir():
            file.unlink()

    @asynccontextmanager
    async def asks(self) -> AsyncIterator[aio.Channel]:
        _, _, endpoint = self.registered[-1]
        async with aio.insecure_channel(f"unix:{self._folder / endpoint}") as channel:
            yield channel


@asynccontextmanager
async def plugged(folder: Path, units: dict[str, bool]) -> AsyncIterator[list[object]]:
    reports: list[object] = []
    task = asyncio.create_task(device_plugin.stay(folder, RESOURCE, lambda: units, reports.append))
    yield reports
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plugin, "_LOOK_S", 0.02)


async def test_the_kubelet_hears_of_the_units_and_of_what_becomes_of_them(tmp_path: Path) -> None:
    kubelet, units = Kubelet(tmp_path), {"gpu-0": True, "gpu-1": False}
    async with kubelet.runs(), plugged(tmp_path, units) as reports:
        await eventually(lambda: None in reports)
        assert kubelet.registered == [("v1beta1", RESOURCE, "slurm-extender-nvidia.com-gpu.sock")]
        async with kubelet.asks() as plugin:
            watch: Any = plugin.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=api.Empty.SerializeToString,
                response_deserializer=api.ListAndWatchResponse.FromString,
            )
            told = aiter(watch(api.Empty()))
            first = await anext(told)
            assert [(unit.ID, unit.health) for unit in first.devices] == [
                ("gpu-0", "Healthy"),
                ("gpu-1", "Unhealthy"),
            ]
            units["gpu-1"] = True
            assert [unit.health for unit in (await anext(told)).devices] == ["Healthy", "Healthy"]


async def test_a_container_is_given_nothing_by_it(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with kubelet.runs(), plugged(tmp_path, {"gpu-0": True}) as reports:
        await eventually(lambda: None in reports)
        async with kubelet.asks() as plugin:
            allocate: Any = plugin.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=api.AllocateRequest.SerializeToString,
                response_deserializer=api.AllocateResponse.FromString,
            )
            asked = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest()] * 2)
            answer = await allocate(asked)
    assert answer == api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()] * 2)


async def test_a_kubelet_that_starts_later_or_anew_has_it_registered(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with plugged(tmp_path, {"gpu-0": True}) as reports:
        await eventually(lambda: reports and reports[0] is not None)
        for _ in range(2):
            kubelet.registered.clear()
            async with kubelet.runs():
                await eventually(lambda: kubelet.registered)
                kubelet.empties()


@pytest.mark.parametrize(
    ("resource", "file", "counts"),
    [
        ("nvidia.com/gpu", "/dev/nvidia0", True),
        ("nvidia.com/gpu", "/dev/dri/renderD128", False),
        ("amd.com/gpu", "/dev/dri/renderD128", True),
        ("amd.com/gpu", "/dev/nvidia0", False),
        ("example.com/gpu", "/dev/nvidia0", True),
    ],
)
def test_a_vendors_resource_is_of_the_vendors_devices(resource: str, file: str, counts: bool) -> None:
    assert may_be(resource, Device("gpu", "", (file,)).files) == counts
