"""Builds the running agent: creates the parts of the agent from the settings, connects the parts, and
runs them."""

import asyncio
import signal
import sys
from contextlib import aclosing, suppress
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kubernetes_client.errors import KubernetesError, NoCredentials
from kubernetes_client.rest import KubernetesRest
from node_agent.agent import Agent
from node_agent.enforcement.keeper import Keeper
from node_agent.enforcement.numbering import FILE
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.metrics import registry_of
from node_agent.pods.cgroups import PodCgroups
from node_agent.reporting.job_files import JobFiles
from node_agent.reporting.node_condition import WITHDRAWN
from node_agent.settings import Settings
from service import metrics, probes
from service.http.connections import Limits
from service.http.listener import ProgramServer, Server
from service.local_socket import LocalServer
from service.logging import configure_logging
from service.settings import from_environment, log_unknown_variables

log = structlog.get_logger()

_BODY = 4096
_UNKNOWN = "unknown"
"""Name in the answer to the gate if the agent cannot read the cgroups of Pods."""


def main() -> int:
    """Runs until SIGTERM or SIGINT. Returns the exit status. The status is 2 if settings or credentials
    are wrong, or if the kernel has no device programs."""
    settings = from_environment(Settings)
    configure_logging(settings.log_level)
    log.info("starting", **settings.model_dump(mode="json"))
    log_unknown_variables(Settings)
    cgroups = PodCgroups(settings.cgroups, settings.pods_cgroups)
    try:
        asyncio.run(_serve(settings, cgroups, keeper_of(settings, cgroups)))
    except (OSError, NoCredentials) as error:
        print(f"the agent cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def remove() -> int:
    """Removes the guard from this machine, then the agent's condition and annotation from the Node, and
    at last the agent's lines from the job files. The condition goes after the guard, because the
    extender assumes that an agent runs as long as the Node has the condition. Returns the exit
    status."""
    settings = from_environment(Settings)
    try:
        roots = PodCgroups(settings.cgroups, settings.pods_cgroups).roots()
        DeviceGuard(settings.bpf).remove(roots)
    except OSError as error:
        print(f"the guard could not be removed: {error}", file=sys.stderr)  # noqa: T201
        return 2
    with suppress(OSError):  # the next boot removes the file anyway
        settings.gres.with_name(FILE).unlink()
    try:
        asyncio.run(_withdraw(settings))
    except (KubernetesError, NoCredentials) as error:
        words = f"the guard is removed, but the agent's reports on Node {settings.node} are not: {error}"
        print(words, file=sys.stderr)  # noqa: T201
        return 2
    try:
        if settings.job_mapping is not None:
            JobFiles(settings.job_mapping).write({}, ())
    except (OSError, ValueError) as error:
        words = f"all is removed except the lines in {settings.job_mapping}: {error}"
        print(words, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def show(*, as_json: bool) -> int:
    """Prints the resources of each Pod and job of this Node. Returns the exit status."""
    from node_agent import status  # noqa: PLC0415 -- tables take memory

    try:
        status.main(from_environment(Settings), as_json=as_json)
    except (OSError, ValueError, KubernetesError, NoCredentials) as error:
        print(f"the Node could not be read: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def keeper_of(settings: Settings, cgroups: PodCgroups) -> Keeper:
    """Returns the keeper for these settings. Raises OSError."""
    guard, off = DeviceGuard(settings.bpf), settings.keep_others_off_cores
    return Keeper(settings.gres, cgroups, guard, settings.pod_uid, keeps_others_off=off)


async def _withdraw(settings: Settings) -> None:
    async with aclosing(await KubernetesRest.connect(settings.kubeconfig)) as kubernetes:
        await kubernetes.patch_node_status(settings.node, WITHDRAWN)


async def _serve(settings: Settings, cgroups: PodCgroups, keeper: Keeper) -> None:
    """Serves until the process gets a signal, or until a part of the program ends."""
    kubernetes = await KubernetesRest.connect(settings.kubeconfig)
    agent = Agent(kubernetes, cgroups, keeper, settings)
    servers = _servers(settings, agent)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parts: list[asyncio.Future[Any]] = [
        *(asyncio.ensure_future(server.serve()) for server in servers),
        asyncio.ensure_future(agent.run()),
        asyncio.ensure_future(stop.wait()),
    ]
    try:
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
    except Exception:
        log.critical("a part of the agent failed: the kubelet restarts the agent", exc_info=True)
        raise
    finally:
        for server in servers:
            server.should_exit = True
        for part in parts[len(servers) :]:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        await kubernetes.aclose()


def _servers(settings: Settings, agent: Agent) -> list[ProgramServer]:
    applications = {
        settings.metrics_port: metrics.application(registry_of(agent)),
        settings.health_port: probes.application(agent.health),
    }
    servers = [_server(settings.listen_address, *each) for each in applications.items()]
    return [*servers, *([LocalServer(local(agent), settings.socket)] if settings.socket else [])]


def local(agent: Agent) -> Starlette:
    """Returns the HTTP application for programs of this machine that run as root."""

    async def clear(_: Request) -> Response:
        """Answers the gate in one line. If Pods linger, the line is "there" and the names of the Pods.
        Otherwise the line is "ask", so that the gate asks the extender. If the agent cannot read the
        cgroups, any Pod may linger, so the line is "there unknown"."""
        try:
            pods = agent.lingering()
        except OSError as error:
            log.warning("the gate waits: the cgroups of Pods cannot be read", error=str(error))
            pods = (_UNKNOWN,)
        return PlainTextResponse(" ".join(("there", *pods) if pods else ("ask",)) + "\n")

    return Starlette(routes=[Route("/gate/v1/clear", clear)])


def _server(address: str, port: int, application: Starlette) -> Server:
    limits = Limits(connections=64, body=lambda: _BODY)
    return Server(application, (address, port), limits, lambda _why: None, None)
