"""The agent's device plugin, for a resource that Slurm counts. The plugin reports to the kubelet which
devices the Node has, and which devices are usable. The plugin gives no devices by itself, because Slurm
decides about devices.

The kubelet rejects a Pod that requests more devices than the kubelet counts as free. So the kubelet and
Slurm must count the same.

The module uses grpclib, which is written in Python and runs on the event loop. grpcio would take 12 MB
of memory more, and eight threads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from node_agent.kubelet import device_plugin_pb2 as api
from node_agent.kubelet.call import ask
from node_agent.kubelet.checkpoint import Checkpoint

_KUBELET: Final = "kubelet.sock"
_VERSION: Final = "v1beta1"
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"
_LOOK_S: Final = 1.0
_SETTLES_S: Final = 5.0
"""Time until the kubelet has written the devices of a registered plugin into its checkpoint."""
_AGAIN_S: Final = 10.0
"""Pause before a plugin registers again after another plugin has replaced it. Some kubelets close the
newest connection at the end of an older connection. The pause protects the new connection."""
_SHOWN_S: Final = 300.0
_TAKEN: Final = "took this one's place at the kubelet: turn the vendor's off"

Units = Mapping[str, bool]
"""For each device, by the kubelet's name: True if the device is usable."""
Report = Callable[[Exception | str | None], object]
Give = Callable[[Collection[str]], api.ContainerAllocateResponse]
"""Returns the devices that the kubelet has chosen for a container. Raises ValueError with a message for
the Pod's author if the kubelet must reject the Pod."""

Prefer = Callable[[api.ContainerPreferredAllocationRequest], Awaitable[Sequence[str]]]
"""Returns the devices to prefer for a container, or [] if the kubelet must choose by itself. Raises
ValueError in the same case as `Give`."""


async def stay(
    folder: Path,
    resource: str,
    units: Callable[[], Units],
    report: Report,
    give: Give | None = None,
    prefer: Prefer | None = None,
) -> None:
    """Serves the kubelet as the plugin of a resource for ever. Registers the plugin again after a start
    of the kubelet, which empties the folder. Also registers again after another plugin has replaced this
    plugin. Calls `report` with each problem, and with None after a registration. Without `give`,
    containers get no devices. Without `prefer`, the kubelet chooses."""
    socket = folder / f"slurm-extender-{resource.replace('/', '-')}.sock"
    shown = _Shown(f"another plugin for {resource} {_TAKEN}", report)
    while True:
        plugin, pause = _Plugin(units, give, prefer), _LOOK_S
        server = Server([plugin])
        starts = asyncio.ensure_future(server.start(path=str(socket)))
        try:
            # A start that is cancelled half-way would leave its socket open.
            await asyncio.shield(starts)
            await _register(folder, socket.name, resource)
            shown.registered()
            if await _is_lost(_Place(folder, socket, resource, plugin), shown):
                shown.begins()
                pause = _AGAIN_S
            else:
                report("the kubelet starts")
        except OSError as error:
            report(str(error))
        finally:
            if not starts.done():
                await asyncio.wait([starts])
            try:
                await plugin.leave()
            finally:
                if starts.exception() is None:
                    server.close()
            socket.unlink(missing_ok=True)
        await asyncio.sleep(pause)


class _Shown:
    """Reports a problem long enough for people to see, although the agent fixes the problem at once."""

    def __init__(self, words: str, report: Report) -> None:
        self._words = words
        self._report = report
        self._ends = 0.0
        """Time until which the problem is shown, by the monotonic clock. Without a problem, the time is
        0."""

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
    """Finds out whether the kubelet still uses this plugin. The kubelet does not report a change of
    plugins.

    After another plugin has registered, a kubelet until 1.37 still listens to the former plugin, too
    (pkg/kubelet/cm/devicemanager). The kubelet then counts the devices in the last report of either
    plugin, and calls the plugin that registered last. In 1.31, the kubelet closes the newest connection
    at the end of an older connection.

    A stopping kubelet also closes the connection. The next kubelet removes the plugin's socket before
    listening.
    """

    def __init__(self, folder: Path, socket: Path, resource: str, plugin: "_Plugin") -> None:
        self._kubelet = folder / _KUBELET
        self._socket = socket
        self._resource = resource
        self._plugin = plugin
        self._checkpoint = Checkpoint(folder)
        self._settles = time.monotonic() + _SETTLES_S
        self._times = 0
        """Number of consecutive checks that found another plugin."""

    def is_there(self) -> bool:
        """Returns True if the kubelet is still the same process. A new kubelet removes the socket."""
        return self._socket.exists()

    async def is_taken(self) -> bool:
        """Checks once. Returns True if this check and the last check found another plugin, because a
        single check may find another state while the kubelet is ending."""
        self._times = self._times + 1 if self._plugin.left or self._is_foreign() else 0
        return self._times > 1 and await _listens(self._kubelet) and self.is_there()

    def _is_foreign(self) -> bool:
        """Returns True if the kubelet counts the devices of another plugin."""
        counted, own = self._checkpoint.of(self._resource), self._plugin.names
        foreign = bool(counted and own) and own.isdisjoint(counted)
        return foreign and time.monotonic() >= self._settles


async def _is_lost(place: _Place, shown: _Shown) -> bool:
    """Waits until the kubelet no longer uses the plugin. Returns True if another plugin has replaced
    this plugin. Returns False if the kubelet starts again."""
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


async def _register(folder: Path, endpoint: str, resource: str) -> None:
    """Registers the plugin. Raises OSError if the kubelet is missing, or rejects the plugin."""
    asked = api.RegisterRequest(version=_VERSION, endpoint=endpoint, resource_name=resource)
    await ask(folder / _KUBELET, f"/{_VERSION}.Registration/Register", asked, api.Empty)


class _Plugin:
    """Answers the kubelet's calls."""

    def __init__(self, units: Callable[[], Units], give: Give | None, prefer: Prefer | None) -> None:
        self._units = units
        self._give = give
        self._prefer = prefer
        self._listened_to = set[asyncio.Task[None]]()
        self._leaves = asyncio.Event()
        self.left = False
        """True if the kubelet has listened to the plugin's reports, and no longer listens."""

    @property
    def names(self) -> AbstractSet[str]:
        """Returns the names of the devices."""
        return self._units().keys()

    def __mapping__(self) -> Mapping[str, Handler]:
        """Returns the methods of the service by their paths, for grpclib."""
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        methods = {
            "GetDevicePluginOptions": Handler(self._options, one, api.Empty, api.DevicePluginOptions),
            "ListAndWatch": Handler(self._watch, many, api.Empty, api.ListAndWatchResponse),
            "GetPreferredAllocation": Handler(
                self._preferred, one, api.PreferredAllocationRequest, api.PreferredAllocationResponse
            ),
            "Allocate": Handler(self._allocate, one, api.AllocateRequest, api.AllocateResponse),
        }
        return {f"/{_VERSION}.DevicePlugin/{name}": method for name, method in methods.items()}

    async def leave(self) -> None:
        """Ends the plugin's streams. So the kubelet notices the end, and closes the connection. grpclib
        itself does not close the connection."""
        self._leaves.set()
        if self._listened_to:
            await asyncio.wait(self._listened_to, timeout=_LOOK_S)

    async def _options(self, stream: Stream[api.Empty, api.DevicePluginOptions]) -> None:
        await stream.recv_message()
        prefers = self._prefer is not None
        await stream.send_message(api.DevicePluginOptions(get_preferred_allocation_available=prefers))

    async def _preferred(
        self, stream: Stream[api.PreferredAllocationRequest, api.PreferredAllocationResponse]
    ) -> None:
        request, prefer = await stream.recv_message(), self._prefer
        answer = api.PreferredAllocationResponse()
        for each in request.container_requests if request else ():
            try:
                devices = await prefer(each) if prefer else ()
            except ValueError as error:  # the kubelet rejects the Pod with this message
                raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
            answer.container_responses.add(devices=devices)
        await stream.send_message(answer)

    async def _watch(self, stream: Stream[api.Empty, api.ListAndWatchResponse]) -> None:
        await stream.recv_message()
        reported: Units | None = None
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._listened_to.add(task)
        self.left = False
        try:
            while not self._leaves.is_set():
                now = dict(self._units())
                if now != reported:
                    reported = now
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
        except ValueError as error:  # the kubelet rejects the Pod with this message
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        await stream.send_message(api.AllocateResponse(container_responses=given))

    def _gives(self, asked: api.ContainerAllocateRequest) -> api.ContainerAllocateResponse:
        return self._give(asked.devices_ids) if self._give else api.ContainerAllocateResponse()


def _device(name: str, useful: bool) -> api.Device:
    return api.Device(ID=name, health=_HEALTHY if useful else _UNHEALTHY)
