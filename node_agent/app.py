"""The composition root: settings become adapters, adapters become one running agent."""

import asyncio
import signal
import sys
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry

from kubernetes_client.errors import NoCredentials
from kubernetes_client.rest import KubernetesRest
from node_agent.agent import Agent, PodsWithLess
from node_agent.cgroups import PodCgroups
from node_agent.keeper import Keeper
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.settings import Settings, from_environment
from service import metrics, probes
from service.connections import Limits
from service.listener import Server
from service.logging import configure_logging

log = structlog.get_logger()

_BODY = 4096


def main() -> int:
    """Runs until SIGTERM or SIGINT. Returns the exit status: 2 where settings or credentials are
    wrong, or the kernel knows no such programs."""
    settings = from_environment()
    configure_logging(settings.log_level)
    log.info("starting", **settings.model_dump(mode="json"))
    cgroups = PodCgroups(settings.cgroups, settings.pods_cgroups)
    try:
        keeper = Keeper(settings.gres, cgroups, DeviceGuard(settings.bpf))
        asyncio.run(_serve(settings, cgroups, keeper))
    except (OSError, NoCredentials) as error:
        print(f"the agent cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def remove() -> int:
    """Takes the guard off this machine. Returns the exit status."""
    settings = from_environment()
    try:
        roots = PodCgroups(settings.cgroups, settings.pods_cgroups).roots()
        DeviceGuard(settings.bpf).remove(roots)
    except OSError as error:
        print(f"the guard could not be removed: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


async def _serve(settings: Settings, cgroups: PodCgroups, keeper: Keeper) -> None:
    """Any part that ends by itself ends the program."""
    kubernetes = await KubernetesRest.connect(settings.kubeconfig)
    agent = Agent(kubernetes, settings.node, cgroups, keeper)
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
        log.critical(
            "a part of the agent failed: it ends, and the kubelet starts it again", exc_info=True
        )
        raise
    finally:
        for server in servers:
            server.should_exit = True
        for part in parts[len(servers) :]:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        await kubernetes.aclose()


def _servers(settings: Settings, agent: Agent) -> list[Server]:
    registry = CollectorRegistry()
    registry.register(metrics.Troubles(agent.health))
    registry.register(PodsWithLess(agent))
    routers = {
        settings.metrics_port: metrics.router(registry),
        settings.health_port: probes.router(agent.health),
    }
    return [_server(settings.listen_address, port, router) for port, router in routers.items()]


def _server(address: str, port: int, router: APIRouter) -> Server:
    application = FastAPI(openapi_url=None)
    application.include_router(router)
    limits = Limits(connections=64, body=lambda: _BODY)
    return Server(application, (address, port), limits, lambda _why: None, None)
