"""A plugin of the container runtime, by NRI (containerd 2, CRI-O): it is asked before a Pod's containers
are made, what each of them shall have, and can refuse it.

The runtime waits two seconds for an answer, and then goes on without the plugin, unless its
configuration requires it. Answers are found at once, and so given in the order of the questions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from node_agent.nri import api_pb2 as api
from node_agent.nri import ttrpc_pb2 as ttrpc
from node_agent.nri.wire import REQUEST, RESPONSE, Malformed, Message, Wire

log = structlog.get_logger()

NAME: Final = "slurm-extender"
"""By which the runtime's configuration requires the plugin."""
_INDEX: Final = "50"
"""Plugins are asked in this order, two digits each."""
_PLUGIN, _RUNTIME = 1, 2
"""The multiplexer's connections: the runtime asks the plugin, the plugin asks the runtime."""
_SERVICE: Final = "nri.pkg.api.v1alpha1."
_UNKNOWN, _FAILED_PRECONDITION, _UNIMPLEMENTED = 2, 9, 12
"""gRPC's codes. A method that is not there the runtime tries once more as a StateChange."""
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
    """The container or Pod is not to be made; the message is what `kubectl describe` shows. The kubelet
    tries it again."""


class NotTaken(Exception):
    """The runtime does not take the plugin; the message is its own."""


class Handler(Protocol):
    """What the plugin decides. All of it is done when a method returns; each may raise Refused."""

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Iterable[api.ContainerUpdate]:
        """The runtime has taken the plugin, and tells of all that there are already. Returns what is to
        be changed of these containers."""
        ...

    def run_pod(self, pod: api.PodSandbox) -> None:
        """A Pod begins: it has its cgroup, and no container yet."""

    def stop_pod(self, pod: api.PodSandbox) -> None:
        """A Pod has ended."""

    def create_container(self, pod: api.PodSandbox, container: api.Container) -> api.ContainerAdjustment:
        """Returns what the container is given beside what it asks for."""
        ...

    def update_container(
        self, pod: api.PodSandbox, container: api.Container, wanted: api.LinuxResources
    ) -> Iterable[api.ContainerUpdate]:
        """Somebody changes what a container may use. Returns what is to be so instead; the rest of
        `wanted` comes to be."""
        ...

    def stop_container(self, pod: api.PodSandbox, container: api.Container) -> None:
        """A container ends, or is gone. It may be told of twice."""

    def validate(
        self, pod: api.PodSandbox, container: api.Container, adjust: api.ContainerAdjustment
    ) -> None:
        """Refuses a container as all plugins together have made it."""


Report = Callable[[Exception | str | None], object]


async def stay(path: Path, handler: Handler, report: Report) -> None:
    """Serves the runtime at a socket for ever, also one that starts later, or anew. `report` is told
    when the plugin is in force (None), and why it is not."""
    refusals = 0
    while True:
        trouble: Exception | str = "it has closed the connection"
        # It may have ended just then for another reason, so it is asked twice for what it may lack.
        validates = refusals % 3 != 2
        session = Session(handler, validates=validates, in_force=partial(report, None))
        try:
            await serve(path, session)
        except (OSError, Malformed, NotTaken) as error:
            trouble = error
        refusals = refusals + 1 if session.refused else 0
        report(trouble)
        await asyncio.sleep(_PAUSE_S)


async def serve(path: Path, session: "Session") -> None:
    """Serves until the runtime closes the connection. Raises OSError, Malformed, NotTaken."""
    wire = await Wire.connect(path)
    try:
        await wire.write(session.registration())
        while True:
            message = await wire.read()
            if message.connection == _PLUGIN and message.kind == REQUEST:
                await wire.write(session.answer(message))
            elif message.connection == _RUNTIME and message.kind == RESPONSE:
                _require_taken(message)
    except EOFError:
        return
    finally:
        wire.close()


def _require_taken(answer: Message) -> None:
    """Raises NotTaken, Malformed."""
    try:
        response = ttrpc.Response.FromString(answer.body)
    except DecodeError as error:
        raise Malformed(str(error)) from error
    if response.status.code:
        raise NotTaken(response.status.message)


class Session:
    """What is said on one connection. With `validates` the runtime asks about each container once more
    before it makes it; NRI 0.10 (containerd 2.2) is the first to know that."""

    def __init__(self, handler: Handler, *, validates: bool, in_force: Callable[[], object]) -> None:
        self._handler = handler
        self._validates = validates
        self._in_force = in_force
        self._asked = self._told = False
        self._here = api.SynchronizeRequest()
        """What was told so far of the Pods and containers that there are."""
        self._methods: Mapping[str, Callable[[bytes], ProtobufMessage]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "RunPodSandbox": lambda body: self._run_pod(api.PodEvent.FromString(body).pod),
            "StopPodSandbox": lambda body: self._stop_pod(api.PodEvent.FromString(body).pod),
            "StateChange": self._change_state,
            "CreateContainer": self._create_container,
            "UpdateContainer": self._update_container,
            "StopContainer": self._stop_container,
            "RemoveContainer": self._stop_container,
            "ValidateContainerAdjustment": self._validate,
            "Shutdown": lambda _: api.Empty(),
        }

    @property
    def refused(self) -> bool:
        """Tells whether the runtime took leave when it heard what it is to ask: it knows less."""
        return self._asked and not self._told

    def registration(self) -> Message:
        asked = api.RegisterPluginRequest(plugin_name=NAME, plugin_idx=_INDEX)
        request = ttrpc.Request(
            service=f"{_SERVICE}Runtime",
            method="RegisterPlugin",
            payload=asked.SerializeToString(),
        )
        return Message(_RUNTIME, 1, REQUEST, request.SerializeToString())

    def answer(self, message: Message) -> Message:
        """Whatever goes wrong here is an answer, too: then the container is not made."""
        response = ttrpc.Response()
        try:
            request = ttrpc.Request.FromString(message.body)
            method = self._methods.get(request.method)
            if method is None or request.service != f"{_SERVICE}Plugin":
                response.status.code = _UNIMPLEMENTED
                response.status.message = f"{request.service}.{request.method} is not known here"
            else:
                response.payload = method(request.payload).SerializeToString()
        except Refused as refused:
            response.status.code, response.status.message = _FAILED_PRECONDITION, str(refused)
        except Exception as error:
            log.exception("a question of the container runtime could not be answered")
            response.status.code = _UNKNOWN
            response.status.message = f"the node agent failed: {type(error).__name__}: {error}"
        return Message(_PLUGIN, message.stream, RESPONSE, response.SerializeToString())

    def _configure(self, body: bytes) -> ProtobufMessage:
        asked = api.ConfigureRequest.FromString(body)
        self._asked = True
        log.info("the container runtime asks", name=asked.runtime_name, version=asked.runtime_version)
        events = [*_EVENTS, *([api.VALIDATE_CONTAINER_ADJUSTMENT] if self._validates else [])]
        return api.ConfigureResponse(events=sum(1 << (event - 1) for event in events))

    def _synchronize(self, body: bytes) -> ProtobufMessage:
        """A long list comes in parts. Before the last one nothing may be asked for."""
        told = api.SynchronizeRequest.FromString(body)
        self._here.MergeFrom(told)
        if told.more:
            return api.SynchronizeResponse(more=True)
        here, self._here = self._here, api.SynchronizeRequest()
        updates = self._handler.synchronize(here.pods, here.containers)
        self._told = True
        if not self._validates:
            log.warning(
                "the container runtime asks once about each container: its NRI is older than 0.10"
            )
        self._in_force()
        return api.SynchronizeResponse(update=updates)

    def _run_pod(self, pod: api.PodSandbox) -> ProtobufMessage:
        self._handler.run_pod(pod)
        return api.Empty()

    def _stop_pod(self, pod: api.PodSandbox) -> ProtobufMessage:
        self._handler.stop_pod(pod)
        return api.Empty()

    def _change_state(self, body: bytes) -> ProtobufMessage:
        """Before NRI 0.12 all that is only told comes so."""
        change = api.StateChangeEvent.FromString(body)
        if change.event == api.RUN_POD_SANDBOX:
            self._handler.run_pod(change.pod)
        elif change.event == api.STOP_POD_SANDBOX:
            self._handler.stop_pod(change.pod)
        elif change.event == api.REMOVE_CONTAINER:
            self._handler.stop_container(change.pod, change.container)
        return api.Empty()

    def _create_container(self, body: bytes) -> ProtobufMessage:
        asked = api.CreateContainerRequest.FromString(body)
        adjust = self._handler.create_container(asked.pod, asked.container)
        return api.CreateContainerResponse(adjust=adjust)

    def _update_container(self, body: bytes) -> ProtobufMessage:
        asked = api.UpdateContainerRequest.FromString(body)
        updates = self._handler.update_container(asked.pod, asked.container, asked.linux_resources)
        return api.UpdateContainerResponse(update=updates)

    def _stop_container(self, body: bytes) -> ProtobufMessage:
        told = api.ContainerEvent.FromString(body)
        self._handler.stop_container(told.pod, told.container)
        return api.Empty()

    def _validate(self, body: bytes) -> ProtobufMessage:
        asked = api.ValidateContainerAdjustmentRequest.FromString(body)
        try:
            self._handler.validate(asked.pod, asked.container, asked.adjust)
        except Refused as refused:
            return api.ValidateContainerAdjustmentResponse(reject=True, reason=str(refused))
        return api.ValidateContainerAdjustmentResponse()
