"""Starts the extender: creates the clients of Slurm and Kubernetes from the settings, and connects all
parts of the program.

The program answers from the start. Placement starts after the first read of Slurm and Kubernetes."""

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
import uvloop

from extender.certificates import Certificate, Files, SelfSigned, Source
from extender.leader.leader import Leader
from extender.leader.replica import Replica
from extender.listeners import Listeners
from extender.policy.current import CurrentPolicy
from extender.pools.current import CurrentPools
from extender.settings import Settings
from extender.telemetry import Telemetry
from kubernetes_client.errors import NoCredentials
from kubernetes_client.protocol import Kubernetes
from kubernetes_client.rest import KubernetesRest
from service.http.listener import Server
from service.logging import configure_logging
from service.settings import from_environment, log_unknown_variables
from service.yaml_file import WrongFile
from slurm_client.rest.client import SlurmRest

log = structlog.get_logger()

# Thresholds of the garbage collector. Records live long, and with the default thresholds the collector
# visits all records too often. While very many records arrive, all new objects survive and reach the
# middle generation. With the second threshold of 4, this generation has some 20,000 objects, which the
# collector visits in 6 ms (100,000 objects in 35 ms).
_GC_THRESHOLDS = (5_000, 4, 2_000)
# Time after which another thread gives way to the event loop. The default is 5 ms, which is the whole
# time budget of /filter.
_GIVES_WAY_S = 0.0005

_OPEN_FILES = 16_384


class Extender:
    """The whole program."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.leader = Leader(replica)
        source = _certificate_source(replica.settings, replica.kubernetes)
        self.certificate = Certificate(source, replica.health) if source is not None else None
        if self.certificate is not None:
            replica.states.certificate = self.certificate.lifetime
        self._leadership: asyncio.Task[None] | None = None

    def servers(self) -> list[Server]:
        """Returns a server for each group of callers."""
        return Listeners(self.replica, self.leader, self.certificate).servers()

    async def run(self) -> None:
        """Follows Slurm and Kubernetes forever, and leads while this replica holds the Lease."""
        async with asyncio.TaskGroup() as tasks:
            if self.certificate is not None:
                tasks.create_task(self.certificate.follow())
                await self.certificate.usable()
            tasks.create_task(self.replica.run())
            leading = self.replica.lease.lead(self.leader.place, self.leader.stand_by)
            self._leadership = tasks.create_task(leading)

    async def drain(self, servers: Iterable[Server]) -> None:
        """Makes callers go to other replicas, while this replica continues to answer. A Service sends no
        calls to a replica that is not ready, and each open connection ends with the next reply."""
        self.replica.health.ready = False
        if self._leadership is not None:
            self._leadership.cancel()  # so that another replica can lead at once
        for server in servers:
            server.close_connections()
        await asyncio.sleep(self.replica.settings.drain_s)


def _certificate_source(settings: Settings, kubernetes: Kubernetes) -> Source | None:
    if settings.tls_cert_file is not None and settings.tls_key_file is not None:
        return Files(settings.tls_cert_file, settings.tls_key_file)
    if settings.tls_secret is None:
        return None
    return SelfSigned(
        kubernetes,
        settings.namespace,
        settings.tls_secret,
        settings.webhook_names,
        settings.webhook_configuration,
    )


async def serve(settings: Settings, policy: CurrentPolicy, pools: CurrentPools) -> None:
    """Runs until SIGTERM or SIGINT, or until a part of the program ends."""
    kubernetes = await KubernetesRest.connect(settings.kubeconfig)
    telemetry = Telemetry()
    slurm = SlurmRest(
        settings.slurmrestd_url,
        settings.slurm_token_file,
        timeout_s=settings.slurm_timeout_s,
        concurrency=settings.slurm_concurrency,
        heard=telemetry.slurm.asked,
        malformed=telemetry.slurm.malformed,
    )
    extender = Extender(Replica(settings, kubernetes, slurm, policy, telemetry, pools))
    servers = extender.servers()
    serving = [asyncio.ensure_future(server.serve()) for server in servers]
    placing = asyncio.ensure_future(extender.run())
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        parts: list[asyncio.Future[Any]] = [*serving, placing, stopping]
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()
        await extender.drain(servers)
    except Exception:
        log.critical("a part of the program failed: the program ends", exc_info=True)
        raise
    finally:
        for server in servers:
            server.should_exit = True  # requests in progress are answered first
        placing.cancel()
        stopping.cancel()
        await asyncio.gather(*serving, placing, stopping, return_exceptions=True)
        await slurm.aclose()
        await kubernetes.aclose()


def open_many_files() -> None:
    """Raises the limit on open files, so that the listeners' connections leave enough file descriptors
    for the connections to Slurm and Kubernetes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


@contextmanager
def _its_lines(setting: str) -> Iterator[None]:
    """If the file of a setting has errors, prints a line for each error, and ends the program."""
    try:
        yield
    except WrongFile as wrong:
        for line in wrong.lines:
            print(f"SLURM_EXTENDER_{setting}: {line}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None


def main() -> None:
    """Runs the program. The exit status is 2 for invalid settings."""
    settings = from_environment(Settings)
    with _its_lines("POLICY_FILE"):
        policy = CurrentPolicy(settings.policy_file, settings.policy or "restricted")
    with _its_lines("POOLS_FILE"):
        pools = CurrentPools(settings.pools_file)
    configure_logging(settings.log_level)
    log.info("starting", **settings.model_dump(mode="json"))
    log_unknown_variables(Settings)
    open_many_files()
    gc.freeze()  # imported objects stay, so the collector need not visit these objects
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_GIVES_WAY_S)
    try:
        uvloop.run(serve(settings, policy, pools))
    except NoCredentials as error:
        print(f"SLURM_EXTENDER_KUBECONFIG: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
