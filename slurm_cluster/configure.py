"""`slurm-cluster configure`: assembles the sidecar of slurmctld, and runs the sidecar until
SIGTERM."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from kubernetes_client.errors import NoCredentials
from kubernetes_client.rest import KubernetesRest
from service import metrics, probes
from service.health import Health
from service.http.connections import Limits
from service.http.listener import Server
from slurm_cluster.configuration.configurer import Configurer, Outcome, Places, Verdict
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.notices import NO_POD, Notices, PodName, make_event
from slurm_cluster.programs import ProgramFailed

log = structlog.get_logger()

_BODY: Final = 4096
_PATIENCE_S: Final = 120.0
"""Longest time for which the sidecar waits for slurmctld before it applies a configuration."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the sidecar: interval of checks, time limit, port, and the Pod for Events."""

    look_s: float = 5.0
    within_s: float = 120.0
    """Time limit for slurmctld to serve again."""
    port: int = 8080
    pod: PodName = NO_POD


def print_plan(places: Places) -> tuple[list[str], int]:
    """Returns the lines of the plan, and the exit status: 0 if the plan would be carried out,
    otherwise 1. Raises OSError, ProgramFailed."""
    configurer = Configurer(places, Controller(0.0))
    planned, problems = configurer.plan()
    if problems:
        return [f"refused: {each}" for each in problems], 1
    if not configurer.has_run:
        return ["slurmctld would start with the wanted configuration"], 0
    return planned.lines(), 1 if planned.by_hand or planned.jobs else 0


def serve(places: Places, options: Options) -> int:
    """Manages slurmctld's configuration until SIGTERM. Returns the exit status."""
    asyncio.run(_Sidecar(places, options).run())
    return 0


class _Sidecar:
    def __init__(self, places: Places, options: Options) -> None:
        self._options = options
        self._health = Health()
        self._registry = CollectorRegistry()
        self._notices = Notices(self._registry)
        self._configurer = Configurer(places, Controller(options.within_s), self._notices.plan)
        self._kubernetes: KubernetesRest | None = None
        self._began = time.monotonic()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ended.set)
        async with self._events(), self._listening():
            await self._attempt(self._configurer.begin)
            while not self._ended.is_set():
                await self._attempt(self._look)
                await self._pause()

    def _look(self) -> Outcome:
        now = time.monotonic()
        return self._configurer.look(now, waited=now - self._began > _PATIENCE_S)

    async def _attempt(self, act: Callable[[], Outcome]) -> None:
        try:
            outcome = await asyncio.to_thread(act)
        except (OSError, ProgramFailed) as error:
            outcome = Outcome(Verdict.HELD, f"cannot read or write the configuration: {error}")
        self._health.ready = self._configurer.ready
        await self._tell_outcome(outcome)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), self._options.look_s)

    async def _tell_outcome(self, outcome: Outcome) -> None:
        refused = outcome.verdict is Verdict.REFUSED
        self._health.says("configuration", outcome.words if refused else None, alarm=True)
        pod = self._options.pod
        if self._notices.outcome(outcome) and self._kubernetes is not None and pod.name:
            await make_event(self._kubernetes, pod, outcome)

    @asynccontextmanager
    async def _events(self) -> AsyncIterator[None]:
        """Connects to kube-apiserver for Events. Without a service account, the sidecar creates no
        Events."""
        try:
            self._kubernetes = await KubernetesRest.connect(None)
        except NoCredentials as error:
            log.warning("no Events are created", error=str(error))
        try:
            yield
        finally:
            if self._kubernetes is not None:
                await self._kubernetes.aclose()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        routes = [*probes.application(self._health).routes, *metrics.application(self._registry).routes]
        limits = Limits(connections=64, body=lambda: _BODY)
        address = ("", self._options.port)
        server = Server(Starlette(routes=routes), address, limits, lambda _why: None, None)
        serving = asyncio.create_task(server.serve())
        try:
            yield
        finally:
            server.should_exit = True
            await serving
