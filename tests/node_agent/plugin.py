"""A plugin of the container runtime for tests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from node_agent.nri import api_pb2 as api
from node_agent.nri.plugin import Refused, Session, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.node_agent.container_runtime import ContainerRuntime


class Plugin:
    """Records the runtime's calls, and returns configured replies."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.adjust = api.ContainerAdjustment()
        self.refuses: dict[str, str] = {}
        self.fails = False
        self.pod = api.PodSandbox()
        self.created = api.Container()
        self.updates: list[api.ContainerUpdate] = []
        self.there: tuple[list[str], list[str]] = ([], [])
        self.validated = api.Container(), api.ContainerAdjustment()

    def _hear(self, what: str, pod: api.PodSandbox) -> None:
        self.heard.append((what, pod.uid))
        if self.fails:
            raise ZeroDivisionError("a fault of its own")
        if what in self.refuses:
            raise Refused(self.refuses[what])

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> list[api.ContainerUpdate]:
        self.there = [pod.id for pod in pods], [container.id for container in containers]
        return self.updates

    def run_pod(self, pod: api.PodSandbox) -> None:
        self._hear("run", pod)
        self.pod = pod

    def stop_pod(self, pod: api.PodSandbox) -> None:
        self._hear("stop", pod)

    def create_container(self, pod: api.PodSandbox, container: api.Container) -> api.ContainerAdjustment:
        self._hear("create", pod)
        self.created = container
        return self.adjust

    def update_container(
        self, pod: api.PodSandbox, container: api.Container, wanted: api.LinuxResources
    ) -> list[api.ContainerUpdate]:
        self._hear(f"update {container.id} {wanted.cpu.cpus}", pod)
        return self.updates

    def stop_container(self, pod: api.PodSandbox, container: api.Container) -> None:
        self._hear(f"stop {container.id}", pod)

    def validate(
        self, pod: api.PodSandbox, container: api.Container, adjust: api.ContainerAdjustment
    ) -> None:
        self._hear("validate", pod)
        self.validated = container, adjust


@asynccontextmanager
async def connected(
    runtime: ContainerRuntime, handler: Plugin, *, validates: bool = False
) -> AsyncIterator[asyncio.Task[None]]:
    ready = asyncio.Event()
    session = Session(handler, validates=validates, in_force=ready.set)
    task = asyncio.create_task(serve(runtime.socket, session))
    await ready.wait()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
