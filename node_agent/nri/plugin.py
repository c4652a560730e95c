"""The agent's plugin for the container runtime, by NRI, the Node Resource Interface (containerd 2,
CRI-O). The runtime asks the plugin before a Pod's container is made. The plugin adds devices to the
container, or rejects the container.

The runtime waits two seconds for a reply. Then the runtime continues without the plugin, unless the
runtime's configuration requires the plugin. So the plugin replies at once, in the order of the calls.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from node_agent.nri import api_pb2 as api
from node_agent.nri import ttrpc_pb2 as ttrpc
from node_agent.nri.wire import REQUEST, RESPONSE, Malformed, Message, Wire

log = structlog.get_logger()

NAME: Final = "slurm-extender"
"""Name of the plugin, for the runtime's configuration."""
_INDEX: Final = "50"
"""Position in the order of plugins, in two digits."""
_PLUGIN, _RUNTIME = 1, 2
"""Numbers of the multiplexer's connections. The first is for calls of the runtime, the second for calls
of the plugin."""
_SERVICE: Final = "nri.pkg.api.v1alpha1."
_UNKNOWN, _FAILED_PRECONDITION, _UNIMPLEMENTED = 2, 9, 12
"""Codes of gRPC. If the plugin answers the call of a method with UNIMPLEMENTED, the runtime calls
StateChange instead."""
_PAUSE_S: Final = 0.5
_EVENTS: Final = (
    api.RUN_POD_SANDBOX,
    api.STOP_POD_SANDBOX,
    api.CREATE_CONTAINER,
    api.UPDATE_CONTAINER,
    api.STOP_CONTAINER,
    api.REMOVE_CONTAINER,
)


class Refused(Exception):
    """Rejects a container or a Pod. `kubectl describe` shows the message. The kubelet tries again."""


class NotTaken(Exception):
    """The runtime rejects the plugin. The message is the runtime's."""


class Handler(Protocol):
    """Makes the decisions of the plugin. A method does all work before the method returns, and may raise
    Refused."""

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Iterable[api.ContainerUpdate]:
        """Takes the list of all existing Pods and containers, after the runtime has accepted the plugin.
        Returns changes of these containers."""
        ...

    def run_pod(self, pod: api.PodSandbox) -> None:
        """Handles a new Pod, with a cgroup and without containers."""

    def stop_pod(self, pod: api.PodSandbox) -> None:
        """Handles an ended Pod."""

    def create_container(self, pod: api.PodSandbox, container: api.Container) -> api.ContainerAdjustment:
        """Returns the additions to a container."""
        ...

    def update_container(
        self, pod: api.PodSandbox, container: api.Container, wanted: api.LinuxResources
    ) -> Iterable[api.ContainerUpdate]:
        """Handles a change of a container's resources. Returns the resources that override `wanted`. The
        rest of `wanted` comes into force."""
        ...

    def stop_container(self, pod: api.PodSandbox, container: api.Container) -> None:
        """Handles an ended or removed container. A call may come twice for the same container."""

    def validate(
        self, pod: api.PodSandbox, container: api.Container, adjust: api.ContainerAdjustment
    ) -> None:
        """Checks a container after all plugins have made their changes. Parameter `adjust` has all
        changes together."""


Report = Callable[[Exception | str | None], object]
_Method = Callable[[Any], ProtobufMessage | None]
"""Handles a message of the runtime, and returns the reply, or None for an empty reply."""


async def stay(path: Path, handler: Handler, report: Report) -> None:
    """Serves the runtime at a socket for ever, even if the runtime starts later. Calls `report` with
    None once the plugin is in force. If the plugin is not in force, calls `report` with the reason."""
    refusals = 0
    while True:
        problem: Exception | str = "it has closed the connection"
        # An old runtime closes the connection if the plugin asks for validation. But the runtime may
        # have closed the connection for another reason. So two of three tries ask for validation.
        validates = refusals % 3 != 2
        session = Session(handler, validates=validates, in_force=partial(report, None))
        try:
            await serve(path, session)
        except (OSError, DecodeError, Malformed, NotTaken) as error:
            problem = error
        refusals = refusals + 1 if session.refused else 0
        report(problem)
        await asyncio.sleep(_PAUSE_S)


async def serve(path: Path, session: "Session") -> None:
    """Serves the runtime until the runtime closes the connection. Raises OSError, DecodeError,
    Malformed, NotTaken."""
    wire = await Wire.connect(path)
    try:
        await wire.write(session.registration())
        while True:
            message = await wire.read()
            if message.connection == _PLUGIN and message.kind == REQUEST:
                await wire.write(session.answer(message))
            elif message.connection == _RUNTIME and message.kind == RESPONSE:
                status = ttrpc.Response.FromString(message.body).status
                if status.code:
                    raise NotTaken(status.message)
    except EOFError:
        return
    finally:
        wire.close()


class Session:
    """State of a connection. If `validates` is True, the runtime asks again about each finished
    container. NRI 0.10 (containerd 2.2) and later can do so."""

    def __init__(self, handler: Handler, *, validates: bool, in_force: Callable[[], object]) -> None:
        self._handler = handler
        self._validates = validates
        self._in_force = in_force
        self._asked = self._synchronized = False
        self._here = api.SynchronizeRequest()
        """Pods and containers in the parts of the list that have arrived."""
        self._methods: Mapping[str, tuple[type[ProtobufMessage], _Method]] = {
            "Configure": (api.ConfigureRequest, self._configure),
            "Synchronize": (api.SynchronizeRequest, self._synchronize),
            "RunPodSandbox": (api.PodEvent, lambda event: handler.run_pod(event.pod)),
            "StopPodSandbox": (api.PodEvent, lambda event: handler.stop_pod(event.pod)),
            "StateChange": (api.StateChangeEvent, self._change_state),
            "CreateContainer": (api.CreateContainerRequest, self._create_container),
            "UpdateContainer": (api.UpdateContainerRequest, self._update_container),
            "StopContainer": (api.ContainerEvent, self._stop_container),
            "RemoveContainer": (api.ContainerEvent, self._stop_container),
            "ValidateContainerAdjustment": (api.ValidateContainerAdjustmentRequest, self._validate),
            "Shutdown": (api.Empty, lambda _: None),
        }

    @property
    def refused(self) -> bool:
        """Returns True if the runtime closed the connection after the plugin had listed its calls. An
        old runtime knows fewer calls."""
        return self._asked and not self._synchronized

    def registration(self) -> Message:
        asked = api.RegisterPluginRequest(plugin_name=NAME, plugin_idx=_INDEX)
        request = ttrpc.Request(
            service=f"{_SERVICE}Runtime",
            method="RegisterPlugin",
            payload=asked.SerializeToString(),
        )
        return Message(_RUNTIME, 1, REQUEST, request.SerializeToString())

    def answer(self, message: Message) -> Message:
        """Answers a call of the runtime. Any error becomes an error reply, so that the runtime does not
        make the container."""
        response = ttrpc.Response()
        try:
            request = ttrpc.Request.FromString(message.body)
            if request.method not in self._methods or request.service != f"{_SERVICE}Plugin":
                response.status.code = _UNIMPLEMENTED
                response.status.message = f"{request.service}.{request.method} is not known here"
            else:
                kind, act = self._methods[request.method]
                reply = act(kind.FromString(request.payload))
                response.payload = b"" if reply is None else reply.SerializeToString()
        except Refused as refused:
            response.status.code, response.status.message = _FAILED_PRECONDITION, str(refused)
        except Exception as error:
            log.exception("a question of the container runtime could not be answered")
            response.status.code = _UNKNOWN
            response.status.message = f"the node agent failed: {type(error).__name__}: {error}"
        return Message(_PLUGIN, message.stream, RESPONSE, response.SerializeToString())

    def _configure(self, asked: api.ConfigureRequest) -> api.ConfigureResponse:
        self._asked = True
        log.info("the container runtime asks", name=asked.runtime_name, version=asked.runtime_version)
        events = [*_EVENTS, *([api.VALIDATE_CONTAINER_ADJUSTMENT] if self._validates else [])]
        return api.ConfigureResponse(events=sum(1 << (event - 1) for event in events))

    def _synchronize(self, part: api.SynchronizeRequest) -> api.SynchronizeResponse:
        """Collects the parts of a long list. Only the reply to the last part may contain updates."""
        self._here.MergeFrom(part)
        if part.more:
            return api.SynchronizeResponse(more=True)
        here, self._here = self._here, api.SynchronizeRequest()
        updates = self._handler.synchronize(here.pods, here.containers)
        self._synchronized = True
        if not self._validates:
            log.warning(
                "the container runtime asks once about each container: its NRI is older than 0.10"
            )
        self._in_force()
        return api.SynchronizeResponse(update=updates)

    def _change_state(self, change: api.StateChangeEvent) -> None:
        """Handles events that only inform the plugin. NRI before 0.12 reports these events in this
        form."""
        if change.event == api.RUN_POD_SANDBOX:
            self._handler.run_pod(change.pod)
        elif change.event == api.STOP_POD_SANDBOX:
            self._handler.stop_pod(change.pod)
        elif change.event == api.REMOVE_CONTAINER:
            self._handler.stop_container(change.pod, change.container)

    def _create_container(self, asked: api.CreateContainerRequest) -> api.CreateContainerResponse:
        adjust = self._handler.create_container(asked.pod, asked.container)
        return api.CreateContainerResponse(adjust=adjust)

    def _update_container(self, asked: api.UpdateContainerRequest) -> api.UpdateContainerResponse:
        updates = self._handler.update_container(asked.pod, asked.container, asked.linux_resources)
        return api.UpdateContainerResponse(update=updates)

    def _stop_container(self, event: api.ContainerEvent) -> None:
        self._handler.stop_container(event.pod, event.container)

    def _validate(
        self, asked: api.ValidateContainerAdjustmentRequest
    ) -> api.ValidateContainerAdjustmentResponse:
        try:
            self._handler.validate(asked.pod, asked.container, asked.adjust)
        except Refused as refused:
            return api.ValidateContainerAdjustmentResponse(reject=True, reason=str(refused))
        return api.ValidateContainerAdjustmentResponse()
