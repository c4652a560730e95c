"""The kubelet's plugin for a resource that Slurm counts: it tells the kubelet how many there are, and
which of them are of use, and gives nothing. Who has which is Slurm's to say.

The kubelet rejects a Pod that asks for more than is free by its own count: that has to be Slurm's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from node_agent.kubelet import device_plugin_pb2 as api

_KUBELET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"
_LOOK_S: Final = 1.0

Units = Mapping[str, bool]
"""Whether each is of use, by an identity that the kubelet keeps its books by."""
Report = Callable[[Exception | str | None], object]


async def stay(folder: Path, resource: str, units: Callable[[], Units], report: Report) -> None:
    """Is the plugin of a resource for ever. A kubelet that starts empties the folder: then it is
    registered anew. `report` is told when it is registered (None), and why it is not."""
    socket = folder / f"slurm-extender-{resource.replace('/', '-')}.sock"
    while True:
        socket.unlink(missing_ok=True)
        server = _server(units)
        try:
            server.add_insecure_port(f"unix:{socket}")
            await server.start()
            await _register(folder, socket.name, resource)
            report(None)
            while socket.exists():  # noqa: ASYNC110 -- the kubelet tells nobody
                await asyncio.sleep(_LOOK_S)
            report("the kubelet starts")
        except aio.AioRpcError as error:
            report(f"the kubelet: {error.details()}")
        except (OSError, RuntimeError) as error:  # gRPC's for a socket that it cannot make
            report(error)
        finally:
            await server.stop(None)
        await asyncio.sleep(_LOOK_S)


async def _register(folder: Path, endpoint: str, resource: str) -> None:
    asked = api.RegisterRequest(version=_VERSION, endpoint=endpoint, resource_name=resource)
    async with aio.insecure_channel(f"unix:{folder / _KUBELET}") as kubelet:
        register: Any = kubelet.unary_unary(
            f"/{_VERSION}.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        await register(asked)


def _server(units: Callable[[], Units]) -> aio.Server:
    async def options(_: api.Empty, __: Any) -> api.DevicePluginOptions:
        return api.DevicePluginOptions()

    async def watch(_: api.Empty, __: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        told: Units | None = None
        while True:
            now = dict(units())
            if now != told:
                told = now
                yield api.ListAndWatchResponse(devices=map(_device, now, now.values()))
            await asyncio.sleep(_LOOK_S)

    async def allocate(asked: api.AllocateRequest, _: Any) -> api.AllocateResponse:
        nothing = [api.ContainerAllocateResponse() for _ in asked.container_requests]
        return api.AllocateResponse(container_responses=nothing)

    server = aio.server()
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                f"{_VERSION}.DevicePlugin",
                {
                    "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                        options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString
                    ),
                    "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                        watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
                    ),
                    "Allocate": grpc.unary_unary_rpc_method_handler(
                        allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString
                    ),
                },
            )
        ]
    )
    return server


def _device(name: str, useful: bool) -> api.Device:
    return api.Device(ID=name, health=_HEALTHY if useful else _UNHEALTHY)
