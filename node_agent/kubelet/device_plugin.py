"""The kubelet's plugin for a resource that Slurm counts: it tells the kubelet how many there are, and
which of them are of use. Who has which is Slurm's to say: by itself it gives nothing.

The kubelet rejects a Pod that asks for more than is free by its own count: that has to be Slurm's.

grpclib speaks gRPC in Python, on the event loop: grpcio takes 12 MB of memory more, and eight threads.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Server, Stream

from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.kubelet.checkpoint import Checkpoint

_KUBELET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"
_LOOK_S: Final = 1.0
_SETTLES_S: Final = 5.0
"""The kubelet has written down within this time what a plugin that was registered told it."""
_AGAIN_S: Final = 10.0
"""Before a plugin whose place was taken is registered again. Some kubelets end the newest connection
when they notice that an older one has ended: that is not to be the new one."""
_SHOWN_S: Final = 300.0
_TAKEN: Final = "took this one's place at the kubelet: turn the vendor's off"

Units = Mapping[str, bool]
"""Whether each is of use, by an identity that the kubelet keeps its books by."""
Report = Callable[[Exception | str | None], object]
Give = Callable[[Collection[str]], api.ContainerAllocateResponse]
"""Returns what a container gets that is to have these devices, by the kubelet's choice. Raises
ValueError with words for the Pod's author where it gets nothing, and its Pod is not to be."""


async def stay(
    folder: Path, resource: str, units: Callable[[], Units], report: Report, give: Give | None = None
) -> None:
    """Is the plugin of a resource for ever. A kubelet that starts empties the folder: then it is
    registered anew, and so it is where another plugin has taken its place. `report` is told when it is
    registered (None), and why it is not. `give` decides what a container gets; without it: nothing."""
    socket = folder / f"slurm-extender-{resource.replace('/', '-')}.sock"
    shown = _Shown(f"another plugin for {resource} {_TAKEN}", report)
    while True:
        plugin, pause = _Plugin(units, give), _LOOK_S
        server = Server([plugin])
        try:
            await server.start(path=str(socket))
            await _register(folder, socket.name, resource)
            shown.registered()
            if await _is_lost(_Place(folder, socket, resource, plugin), shown):
                shown.begins()
                pause = _AGAIN_S
            else:
                report("the kubelet starts")
        except _NotRegistered as error:
            report(f"the kubelet: {error}")
        except OSError as error:
            report(error)
        finally:
            await plugin.leave()
            with suppress(RuntimeError):  # it was not started
                server.close()
            socket.unlink(missing_ok=True)
        await asyncio.sleep(pause)


class _Shown:
    """Trouble that people have time to see, although it is put right at once."""

    def __init__(self, words: str, report: Report) -> None:
        self._words = words
        self._report = report
        self._ends = 0.0
        """By the monotonic clock; 0 where there is no trouble to be seen."""

    def begins(self) -> None:
        self._ends = time.monotonic() + _SHOWN_S
        self._report(self._words)

    def registered(self) -> None:
        self._report(self._words if self._ends else None)

    def look(self) -> None:
        if self._ends and time.monotonic() >= self._ends:
            self._ends = 0.0
            self._report(None)


class _Place:
    """The plugin's place at the kubelet, which tells nobody when it gives it to another one.

    Up to 1.37 it goes on listening to the plugin before (pkg/kubelet/cm/devicemanager): the last to tell
    of its devices is counted, and the last that was registered is asked. In 1.31 it ends the newest
    connection when an older one ends. A kubelet that ends, ends it, too: the next one removes the socket
    of the plugin before it listens."""

    def __init__(self, folder: Path, socket: Path, resource: str, plugin: "_Plugin") -> None:
        self._kubelet = folder / _KUBELET
        self._socket = socket
        self._resource = resource
        self._plugin = plugin
        self._checkpoint = Checkpoint(folder)
        self._settles = time.monotonic() + _SETTLES_S
        self._times = 0
        """How often in a row it has looked like another's."""

    def is_there(self) -> bool:
        """Tells whether the kubelet is the same as before."""
        return self._socket.exists()

    async def is_taken(self) -> bool:
        """Looks. One look alone may be in the midst of the kubelet's end."""
        self._times = self._times + 1 if self._plugin.left or self._is_foreign() else 0
        return self._times > 1 and await _listens(self._kubelet) and self.is_there()

    def _is_foreign(self) -> bool:
        """Tells whether the kubelet counts devices that are none of this plugin's."""
        counted, own = self._checkpoint.of(self._resource), self._plugin.names
        foreign = bool(counted and own) and own.isdisjoint(counted)
        return foreign and time.monotonic() >= self._settles


async def _is_lost(place: _Place, shown: _Shown) -> bool:
    """Waits while all is well. Tells whether another plugin has the place; else the kubelet starts."""
    while place.is_there():
        shown.look()
        if await place.is_taken():
            return True
        await asyncio.sleep(_LOOK_S)
    return False


async def _listens(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True


class _NotRegistered(Exception):
    """The kubelet is not there, or does not take the plugin; the message says why."""


async def _register(folder: Path, endpoint: str, resource: str) -> None:
    asked = api.RegisterRequest(version=_VERSION, endpoint=endpoint, resource_name=resource)
    method, socket = f"/{_VERSION}.Registration/Register", folder / _KUBELET
    try:
        async with Channel(path=str(socket)) as kubelet:
            await UnaryUnaryMethod(kubelet, method, api.RegisterRequest, api.Empty)(asked)
    except GRPCError as error:
        raise _NotRegistered(error.message or error.status.name) from error
    except OSError as error:
        raise _NotRegistered(f"{socket}: {error.strerror or error}") from error
    except StreamTerminatedError as error:
        raise _NotRegistered(str(error)) from error


class _Plugin:
    """What the kubelet asks."""

    def __init__(self, units: Callable[[], Units], give: Give | None) -> None:
        self._units = units
        self._give = give
        self._listened_to = set[asyncio.Task[None]]()
        self._leaves = asyncio.Event()
        self.left = False
        """Whether the kubelet has listened, and does so no more."""

    @property
    def names(self) -> AbstractSet[str]:
        """Returns the names of the devices."""
        return self._units().keys()

    def __mapping__(self) -> Mapping[str, Handler]:
        """The methods of the service by their paths, as grpclib asks for them."""
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        methods = {
            "GetDevicePluginOptions": Handler(self._options, one, api.Empty, api.DevicePluginOptions),
            "ListAndWatch": Handler(self._watch, many, api.Empty, api.ListAndWatchResponse),
            "Allocate": Handler(self._allocate, one, api.AllocateRequest, api.AllocateResponse),
        }
        return {f"/{_VERSION}.DevicePlugin/{name}": method for name, method in methods.items()}

    async def leave(self) -> None:
        """Has the kubelet hear that the plugin ends. It ends the connection then: grpclib does not."""
        self._leaves.set()
        if self._listened_to:
            await asyncio.wait(self._listened_to, timeout=_LOOK_S)

    async def _options(self, stream: Stream[api.Empty, api.DevicePluginOptions]) -> None:
        await stream.recv_message()
        await stream.send_message(api.DevicePluginOptions())

    async def _watch(self, stream: Stream[api.Empty, api.ListAndWatchResponse]) -> None:
        await stream.recv_message()
        told: Units | None = None
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._listened_to.add(task)
        self.left = False
        try:
            while not self._leaves.is_set():
                now = dict(self._units())
                if now != told:
                    told = now
                    answer = api.ListAndWatchResponse(devices=map(_device, now, now.values()))
                    await stream.send_message(answer)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._leaves.wait()
        finally:
            self._listened_to.discard(task)
            self.left = not self._listened_to

    async def _allocate(self, stream: Stream[api.AllocateRequest, api.AllocateResponse]) -> None:
        asked = await stream.recv_message()
        try:
            given = [self._gives(each) for each in asked.container_requests] if asked else []
        except ValueError as error:  # the kubelet rejects the Pod with these words
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        await stream.send_message(api.AllocateResponse(container_responses=given))

    def _gives(self, asked: api.ContainerAllocateRequest) -> api.ContainerAllocateResponse:
        return self._give(asked.devices_ids) if self._give else api.ContainerAllocateResponse()


def _device(name: str, useful: bool) -> api.Device:
    return api.Device(ID=name, health=_HEALTHY if useful else _UNHEALTHY)
