"""The kubelet's side of device plugins (pkg/kubelet/cm/devicemanager), with grpcio."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from node_agent.kubelet import device_plugin, pod_resources_pb2
from node_agent.kubelet import device_plugin_pb2 as api
from tests.eventually import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

RESOURCE = "nvidia.com/gpu"
_SOCKETS = Path("/proc/net/unix")


class Kubelet:
    """Registers plugins in a folder, and calls the plugins as a kubelet does. With `listens`, the
    kubelet watches the plugins' devices by itself."""

    def __init__(self, folder: Path, *, listens: bool = False) -> None:
        self._folder = folder
        self._listens = listens
        self.registered: list[tuple[str, str, str]] = []
        self._listening: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        async def register(asked: api.RegisterRequest, _: Any) -> api.Empty:
            self.registered.append((asked.version, asked.resource_name, asked.endpoint))
            if self._listens:
                self._listening.append(asyncio.create_task(self._listen()))
            return api.Empty()

        method = grpc.unary_unary_rpc_method_handler(
            register, api.RegisterRequest.FromString, api.Empty.SerializeToString
        )
        server = aio.server()
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})
        server.add_generic_rpc_handlers([handler])
        server.add_insecure_port(f"unix:{self._folder / 'kubelet.sock'}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)
            await self.hangs_up()

    def sockets(self) -> list[str]:
        """Returns the names of all sockets in the folder, including old sockets."""
        return [file.name for file in self._folder.iterdir() if file.is_socket()]

    def empties(self) -> None:
        """Removes the sockets from the folder, as a starting kubelet does."""
        for name in self.sockets():
            (self._folder / name).unlink()

    async def hangs_up(self) -> None:
        """Ends the connections to the plugins."""
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        self._listening.clear()

    def counts(self, *devices: str, of_pods: Sequence[str] = ()) -> None:
        """Writes a checkpoint with these devices from a plugin. Pods have the devices in `of_pods`."""
        entry = {"PodUID": "u", "ResourceName": RESOURCE, "DeviceIDs": {"-1": list(of_pods)}}
        entries = [entry, entry | {"ResourceName": "other", "DeviceIDs": {"0": ["other"]}}]
        told = {
            "Data": {
                "PodDeviceEntries": entries if of_pods else None,
                "RegisteredDevices": {RESOURCE: devices},
            }
        }
        new = self._folder / "new"
        new.write_text(json.dumps(told | {"Checksum": 7}))
        new.rename(self.checkpoint)

    @property
    def checkpoint(self) -> Path:
        return self._folder / "kubelet_internal_checkpoint"

    @property
    def is_listening(self) -> bool:
        return any(not task.done() for task in self._listening)

    async def _listen(self) -> None:
        async with self.asks() as plugin:
            with suppress(aio.AioRpcError):  # the plugin has ended
                async for told in list_and_watch(plugin):
                    self.counts(*(device.ID for device in told.devices))

    @asynccontextmanager
    async def asks(self) -> AsyncIterator[aio.Channel]:
        _, _, endpoint = self.registered[-1]
        async with aio.insecure_channel(f"unix:{self._folder / endpoint}") as channel:
            yield channel


def list_and_watch(plugin: aio.Channel) -> Any:
    watch: Any = plugin.unary_stream(
        "/v1beta1.DevicePlugin/ListAndWatch",
        request_serializer=api.Empty.SerializeToString,
        response_deserializer=api.ListAndWatchResponse.FromString,
    )
    return watch(api.Empty())


async def allocate(plugin: aio.Channel, *containers: list[str]) -> Any:
    """Returns the plugin's response for containers with these devices. Raises AioRpcError."""
    ask: Any = plugin.unary_unary(
        "/v1beta1.DevicePlugin/Allocate",
        request_serializer=api.AllocateRequest.SerializeToString,
        response_deserializer=api.AllocateResponse.FromString,
    )
    asked = [api.ContainerAllocateRequest(devices_ids=devices) for devices in containers]
    return await ask(api.AllocateRequest(container_requests=asked))


async def preference(
    plugin: aio.Channel, available: list[str], size: int, must_include: tuple[str, ...] = ()
) -> list[str]:
    """Returns the devices that the plugin prefers for a container. Raises AioRpcError."""
    ask: Any = plugin.unary_unary(
        "/v1beta1.DevicePlugin/GetPreferredAllocation",
        request_serializer=api.PreferredAllocationRequest.SerializeToString,
        response_deserializer=api.PreferredAllocationResponse.FromString,
    )
    asked = api.ContainerPreferredAllocationRequest(
        available=available, must_include=must_include, size=size
    )
    answer = await ask(api.PreferredAllocationRequest(container_requests=[asked]))
    return list(answer.container_responses[0].devices)


async def options(plugin: aio.Channel) -> Any:
    """Returns the plugin's options."""
    ask: Any = plugin.unary_unary(
        "/v1beta1.DevicePlugin/GetDevicePluginOptions",
        request_serializer=api.Empty.SerializeToString,
        response_deserializer=api.DevicePluginOptions.FromString,
    )
    return await ask(api.Empty())


class PodResources:
    """The kubelet's PodResources: the devices of each Pod by namespace and name."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: dict[str, list[str]] = {}
        self.former: dict[str, list[str]] = {}
        """Devices of Pods deleted by force, while the kubelet still ends the Pods."""
        self.calls = 0
        self.rejections = 0
        """Number of the next calls to reject, as if other programs called too often."""
        self.hangs = False

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[PodResources]:
        async def told(_: Any, call: Any) -> pod_resources_pb2.ListPodResourcesResponse:
            self.calls += 1
            if self.hangs:
                await asyncio.Event().wait()
            if self.rejections:
                self.rejections -= 1
                await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            answer = pod_resources_pb2.ListPodResourcesResponse()
            for pod, devices in (*self.pods.items(), *self.former.items()):
                namespace, name = pod.split("/")
                listed = answer.pod_resources.add(name=name, namespace=namespace)
                of = listed.containers.add()
                of.devices.add(resource_name="example.com/other", device_ids=["other"])
                if devices:
                    of.devices.add(resource_name=RESOURCE, device_ids=devices)
            return answer

        method = grpc.unary_unary_rpc_method_handler(
            told,
            pod_resources_pb2.ListPodResourcesRequest.FromString,
            pod_resources_pb2.ListPodResourcesResponse.SerializeToString,
        )
        server = aio.server()
        handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
        server.add_generic_rpc_handlers([handler])
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)


async def refusal(asking: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Returns the code and the text of the plugin's refusal, and not the error: the error object would
    keep the connection open."""
    try:
        await asking
    except aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the plugin gives something")


@asynccontextmanager
async def plugged(
    folder: Path,
    units: dict[str, bool],
    give: device_plugin.Give | None = None,
    prefer: device_plugin.Prefer | None = None,
) -> AsyncIterator[list[object]]:
    reports: list[object] = []
    staying = device_plugin.stay(folder, RESOURCE, lambda: units, reports.append, give, prefer)
    task = asyncio.create_task(staying)
    try:
        yield reports
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await connections_are_closed(folder)


async def connections_are_closed(folder: Path) -> None:
    """Waits until the connections to the plugins in a folder are closed. A plugin closes a connection
    only after the kubelet's side is closed. Reference cycles of a call keep the kubelet's side open, and
    grpclib does not close the kubelet's side of a connection without calls. So the function first runs
    the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    await until(lambda: f"{folder}/slurm-extender-" not in _SOCKETS.read_text())
