"""The composition root: settings become adapters, adapters become one running program.

Listeners stand apart by who may reach them: kube-scheduler's verbs, admission, Slurm's
pushes, metrics, probes. They answer from the first moment; placement starts when both systems have been
read.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog
import uvicorn
import uvloop
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from extender import health as probes
from extender import recovery
from extender.admission import mutate, validate
from extender.admission.review import is_large
from extender.adoption import PART as ADOPTION
from extender.adoption import Adopter
from extender.audit.patrol import Patrol
from extender.audit.reader import Reader
from extender.bind import route as bind
from extender.bind.binder import Binder
from extender.bind.room import Room
from extender.certificates import Certificate, Face, Files, SelfSigned, Source
from extender.claim_watch import PARTS as CLAIMS
from extender.claim_watch import ClaimWatch
from extender.cluster_view import ClusterViewKeeper, Untold
from extender.connections import Limits
from extender.cpu_check import CpuCheck
from extender.dispatcher import Dispatcher
from extender.failures import failure_of
from extender.filter import route as filter_nodes
from extender.gate import Gate
from extender.health import Health
from extender.hooks import route as hooks
from extender.job_watch import JobWatch
from extender.kubernetes_api import KubernetesApi, KubernetesError, NoCredentials
from extender.lease import Lease
from extender.listener import Server
from extender.node_keeper import PARTS, Leadership, NodeKeeper
from extender.occupancy_view import OccupancyView
from extender.placement.adoption import Adoptions
from extender.placement.breaker import Breaker
from extender.placement.cluster import ClusterView
from extender.placement.events import ClusterObserved
from extender.placement.kept_back import InVain, may_be_given
from extender.placement.ledger import Ledger
from extender.placement.placeholder import Placeholder
from extender.placement.policy import Policy, judged
from extender.placement.rules import Rules
from extender.placement.workload import Allocation, Dialect, parse_pod
from extender.pod_watch import PodWatch
from extender.policy.file import WrongPolicy
from extender.policy.keeper import PolicyKeeper
from extender.preempt import route as preempt
from extender.prioritize import route as prioritize
from extender.refusals import Refusals, is_told
from extender.seldom import Seldom
from extender.settings import Settings, from_environment
from extender.telemetry import Telemetry, configure_logging
from extender.wire import Verb, Verbs, reply, wrong_fields
from slurm_client.errors import NeedsOperator, SlurmError
from slurm_client.rest import SlurmRest
from slurm_client.tokens import TokenFile

log = structlog.get_logger()

IN_VAIN = "Pods that cannot be bound"
"""What health has of them."""
_RETRY_S = 2.0
_SIGNATURES = "AdminComment"
# Records live long: the default looks at all of them too often. While very many come, the middle
# generation is all of the last ones: 400,000 objects took 60 ms, in which nothing else runs.
_GC_THRESHOLDS = (20_000, 5, 400)
# What is done beside the event loop; by default after 5 ms, which is all that /filter has.
_GIVES_WAY_S = 0.0005

_OPEN_FILES = 16_384
# Bytes of a body: of what needs none, of one object and the one it is changed from, of a Node.
_SMALL = 1 << 10
_LARGE = 4 << 20
_NODE = 16 << 10

Result = TypeVar("Result")


class Extender:
    """The whole program."""

    def __init__(
        self,
        settings: Settings,
        kubernetes: KubernetesApi,
        slurm: SlurmRest,
        policy: PolicyKeeper,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._health = Health()
        self._telemetry = telemetry or Telemetry()
        self._telemetry.follow(self._health)
        self._dialect_now = settings.dialect
        self._jobs: JobWatch | None = None
        self._ledger: Ledger | None = None
        self._leadership: asyncio.Task[None] | None = None
        untold = Untold(
            settings.default_partition,
            settings.preempt_type,
            settings.kill_wait_s,
            settings.qos_grace,
            settings.max_job_count,
        )
        self._keeper = ClusterViewKeeper(
            kubernetes, slurm, self._health, settings.node_name_label, untold
        )
        self._lease = Lease(
            kubernetes,
            settings.namespace,
            settings.replica,
            settings.lease_duration_s,
            self._health,
        )
        self._gate = Gate(
            kubernetes,
            slurm,
            settings.dialect,
            lambda: self._keeper.view,
            self._leading_ledger,
            self._nudge,
        )
        self._refusals = Refusals(kubernetes)
        source = _certificate_source(settings, kubernetes)
        self._certificate = Certificate(source, self._health) if source is not None else None
        self._cpus = CpuCheck(slurm, self._health, lambda: self._keeper.view, settings.cpu_unit)
        self._occupancy = OccupancyView(
            kubernetes,
            slurm,
            settings.dialect,
            self._health,
            lambda: self._keeper.view,
            enabled=settings.unmanaged_pods != "ignore",
        )

    def servers(self) -> list[Server]:
        """Returns one server for each group of callers."""
        settings, dialect = self._settings, self._settings.dialect
        answered = self._telemetry.answered
        room = Room(self._kubernetes, self._slurm, dialect, self._occupancy)
        binder = Binder(
            self._kubernetes,
            self._slurm,
            dialect,
            lambda: self._keeper.view,
            room,
            self._leading_ledger,
            ids=settings.placeholder_ids,
        )
        scheduler = {
            "/scheduler/filter": filter_nodes.verb(dialect, self._occupancy, self._offered),
            "/scheduler/prioritize": prioritize.verb(),
            "/scheduler/bind": bind.verb(binder),
            "/scheduler/preempt": preempt.verb(),
        }
        servers = [
            self._server("scheduler", Verbs(scheduler, answered), self._face_for_schedulers()),
            self._server("metrics", _plain(self._telemetry.router())),
            self._server("health", _plain(probes.router(self._health))),
        ]
        if self._certificate is not None:
            webhook = dict(self._webhooks())
            face = self._certificate.face(settings.admission_client_ca_file)
            servers.append(self._server("admission", Verbs(webhook, answered, is_large), face))
        if settings.hooks_token_file is not None:
            pushes = hooks.router(TokenFile(settings.hooks_token_file), self._nudge, self._gate)
            application = _plain(pushes)
            application.add_exception_handler(RequestValidationError, _tells_malformed())
            self._telemetry.instrument(application)
            servers.append(self._server("hooks", application))
        return servers

    def _offered(
        self, pod: Mapping[str, Any], allocation: Allocation | None, nodes: Sequence[str]
    ) -> None:
        """Nodes of which Slurm would choose none are not worth another attempt."""
        if is_told(pod, allocation):
            return  # kube-scheduler asks very often: nothing is read of the Pod for that
        if allocation is None:
            dialect = self._dialect()
            asked = judged(parse_pod(pod, dialect), self._policy.policy, dialect)
            if not may_be_given(asked.request, nodes, self._keeper.view):
                return
        self._refusals.tell(pod, allocation, nodes)

    def _webhooks(self) -> Iterator[tuple[str, Verb]]:
        """The webhooks' configurations select the Namespaces of which every Pod becomes ours."""

        def policy() -> Policy:
            return self._policy.policy

        for name, verb in (("/mutate", mutate.verb), ("/validate", validate.verb)):
            yield name, verb(self._dialect, policy)
            yield f"{name}/every-pod", verb(self._dialect, policy, every_pod=True)

    async def run(self) -> None:
        """Follows both systems, and leads whenever this replica holds the Lease; for ever."""
        async with asyncio.TaskGroup() as tasks:
            if self._certificate is not None:
                tasks.create_task(self._certificate.follow())
                await self._certificate.usable()
            tasks.create_task(self._health.run())
            tasks.create_task(self._follow())
            tasks.create_task(self._occupancy.run())
            tasks.create_task(self._refusals.run())
            tasks.create_task(self._policy.run(self._health, self._telemetry.policy_read))
            self._leadership = tasks.create_task(self._lease.lead(self._place, self._stand_by))

    async def drain(self, servers: Iterable[uvicorn.Server]) -> None:
        """Sends callers elsewhere while it still answers: a Service forgets who is not ready, and
        connections end with their next reply."""
        self._health.ready = False
        if self._leadership is not None:
            self._leadership.cancel()  # another replica leads from now on
        close = (b"connection", b"close")
        for server in servers:
            server.config.encoded_headers.append(close)
            server.server_state.default_headers.append(close)
        await asyncio.sleep(self._settings.drain_s)

    async def _follow(self) -> None:
        """What every replica needs: without both systems' nodes no binding can be verified."""
        await self._insist("Slurm", self._keeper.load)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keeper.run())
            tasks.create_task(self._cpus.run())

    def _dialect(self) -> Dialect:
        """How Pods are read now: with Slurm's KillWait as it was last told. Always the same object while
        that does not change."""
        rule = self._dialect_now.grace
        if rule.kill_wait_s != self._keeper.kill_wait_s:
            rule = replace(rule, kill_wait_s=self._keeper.kill_wait_s)
            self._dialect_now = replace(self._dialect_now, grace=rule)
        return self._dialect_now

    def _stand_by(self) -> None:
        """Another replica leads: this one is ready as soon as it can verify bindings."""
        if self._keeper.loaded:
            self._health.ready = True

    async def _place(self) -> None:
        """Recovers, then places Pods for as long as this replica leads."""
        try:
            await self._lead()
        finally:  # what another replica has to do now is no trouble of this one
            own = ("Slurm", "recovery", "watch of Pods", "breaker", _SIGNATURES, IN_VAIN, ADOPTION)
            for part in (*own, *CLAIMS, *PARTS):
                self._health.says(part, None)
            self._jobs = self._ledger = None

    async def _lead(self) -> None:
        claims = ClaimWatch(self._kubernetes, self._health)
        pods = PodWatch(self._kubernetes, self._dialect, self._health, self._policy, claims)
        view = await self._insist("Slurm", self._keeper.load, pods)
        rules = await self._insist("Slurm", lambda: self._rules(view), pods)
        ledger = Ledger(rules, self._telemetry.observe, self._held_back, self._unsigned, self._in_vain)
        dispatcher = self._dispatcher(ledger)

        async def recover() -> Adoptions:
            found = await pods.list()
            dispatcher.feed(ClusterObserved(self._keeper.view))
            guests = await recovery.recover(
                found,
                self._slurm,
                self._kubernetes,
                rules,
                dispatcher,
                dialect=self._settings.dialect,
                guests=self._occupancy.guests,
            )
            return Adoptions(rules, guests, self._telemetry.adopted)

        adoptions = await self._insist("recovery", recover, pods)
        self._health.ready = True
        jobs = JobWatch(ledger, self._slurm, self._health, self._settings.poll_interval_s)
        self._jobs, self._ledger = jobs, ledger  # from now on pushes mean something
        nodes = self._node_keeper(ledger)
        with (
            self._telemetry.leading(
                lambda: ledger.placeholders, lambda: nodes.tally, lambda: adoptions.tally
            ),
            self._keeper.telling(lambda view: dispatcher.feed(ClusterObserved(view))),
        ):
            dispatcher.feed(ClusterObserved(self._keeper.view))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(dispatcher.run())
                tasks.create_task(pods.run(dispatcher))
                tasks.create_task(jobs.run(dispatcher))
                tasks.create_task(nodes.run())
                tasks.create_task(self._patrol(ledger, rules, adoptions).run(dispatcher))
                if self._settings.dialect.adopts:
                    tasks.create_task(self._adopter(adoptions, rules).run(dispatcher))

    def _adopter(self, adoptions: Adoptions, rules: Rules) -> Adopter:
        return Adopter(
            adoptions, self._occupancy, self._slurm, self._health, rules, lambda: self._keeper.view
        )

    def _patrol(self, ledger: Ledger, rules: Rules, adoptions: Adoptions) -> Patrol:
        return Patrol(
            Reader(self._slurm, self._kubernetes, rules, self._settings.dialect),
            ledger,
            lambda: self._keeper.view,
            self._telemetry.audited,
            self._settings.audit_interval_s,
            rules.confirmations,
            guests_jobs=lambda: adoptions.job_ids,
        )

    def _in_vain(self, pods: InVain) -> None:
        self._health.says(IN_VAIN, pods.words)

    def _held_back(self, breaker: Breaker, record: Placeholder | None) -> None:
        self._health.says("breaker", breaker.words, alarm=True)
        self._telemetry.held_back(breaker, record)

    def _unsigned(self, words: str | None) -> None:
        self._health.says(_SIGNATURES, words, alarm=True)

    def _leading_ledger(self) -> Ledger | None:
        """What the ledger knows counts only while no other replica can lead."""
        return self._ledger if self._lease.is_held else None

    def _nudge(self, job_id: int) -> None:
        """Passes a push on; a replica that does not lead drops it."""
        if self._jobs is not None:
            self._jobs.nudge(job_id)

    async def _insist(
        self, part: str, act: Callable[[], Awaitable[Result]], pods: PodWatch | None = None
    ) -> Result:
        """Repeats until it succeeds; meanwhile /readyz says why not, and so do `pods` that wait."""
        while True:
            try:
                result = await act()
            except (SlurmError, KubernetesError) as error:
                self._health.says(part, f"cannot start yet: {error}")
                if pods is not None:
                    await recovery.tell_those_who_wait(pods, self._kubernetes, failure_of(error))
                await asyncio.sleep(_RETRY_S)
            else:
                self._health.says(part, None)
                return result

    async def _rules(self, view: ClusterView) -> Rules:
        highest = (await self._slurm.configuration()).max_job_id
        if highest is not None and highest <= self._settings.job_id_first:
            raise NeedsOperator(
                f"Slurm's MaxJobId is {highest}: SLURM_EXTENDER_JOB_ID_FIRST must be below it"
            )
        return self._settings.rules(view.cluster, highest, self._keeper.kill_wait_s)

    def _dispatcher(self, ledger: Ledger) -> Dispatcher:
        return Dispatcher(
            ledger,
            self._slurm,
            self._kubernetes,
            self._telemetry,
            self._settings.slurm_concurrency,
            allowed=self._lease.held,
        )

    def _node_keeper(self, ledger: Ledger) -> NodeKeeper:
        return NodeKeeper(
            self._kubernetes,
            self._slurm,
            self._keeper,
            Leadership(ledger, self._lease.held, self._gate.in_the_way),
            self._health,
            wishes=self._settings.wishes,
        )

    def _face_for_schedulers(self) -> Face | None:
        authorities = self._settings.scheduler_client_ca_file
        if self._certificate is None or authorities is None:
            return None
        return self._certificate.face(authorities)

    def _server(self, name: str, application: Verbs | FastAPI, face: Face | None = None) -> Server:
        settings = self._settings
        address = settings.scheduler_address if name == "scheduler" else settings.listen_address
        return Server(
            application,
            (address, getattr(settings, f"{name}_port")),
            self._limits(name),
            lambda why: self._telemetry.refused(name, why),
            (lambda: face.context) if face is not None else None,
        )

    def _limits(self, name: str) -> Limits:
        """What callers may take of a listener. Whole Nodes come in where kube-scheduler's configuration
        lacks `nodeCacheCapable`, which they are told; names are much shorter."""
        few = Limits(connections=64, body=lambda: _SMALL)
        return {
            "scheduler": Limits(1024, lambda: _LARGE + _NODE * len(self._keeper.view.nodes)),
            # Each of three kube-apiservers may have 1,000 reviews under way (its limit on writes).
            "admission": Limits(4096, lambda: _LARGE),
            "hooks": Limits(4096, lambda: _SMALL),  # a job's gates ask from each of its nodes at once
        }.get(name, few)


def _certificate_source(settings: Settings, kubernetes: KubernetesApi) -> Source | None:
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


def _plain(router: APIRouter) -> FastAPI:
    application = FastAPI(openapi_url=None)
    application.include_router(router)
    return application


def _tells_malformed() -> Callable[[Request, Exception], Awaitable[Response]]:
    """Returns what says which field of a push is wrong, to whoever sent it."""
    malformed = Seldom("malformed request")

    async def tell(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        wrong = wrong_fields(error.errors())
        malformed.says(path=request.url.path, error=wrong)
        return reply({"Error": wrong}, 400)

    return tell


async def serve(settings: Settings, policy: PolicyKeeper) -> None:
    """Runs until SIGTERM or SIGINT. Any part that ends by itself ends the program."""
    kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
    kubernetes = await KubernetesApi.connect(kubeconfig)
    telemetry = Telemetry()
    slurm = SlurmRest(
        settings.slurmrestd_url,
        settings.slurm_token_file,
        timeout_s=settings.slurm_timeout_s,
        concurrency=settings.slurm_concurrency,
        heard=telemetry.asked_slurm,
        malformed=telemetry.malformed,
    )
    extender = Extender(settings, kubernetes, slurm, policy, telemetry)
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
        log.critical(
            "a part of the program failed: it ends, and whoever runs it starts it again", exc_info=True
        )
        raise
    finally:
        for server in servers:
            server.should_exit = True  # requests under way are answered first
        placing.cancel()
        stopping.cancel()
        await asyncio.gather(*serving, placing, stopping, return_exceptions=True)
        await slurm.aclose()
        await kubernetes.aclose()


def open_many_files() -> None:
    """Raises the limit on open files, so that the listeners' connections leave some for Slurm and
    Kubernetes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


def main() -> None:
    """The program's entry: exit status 2 where the settings are wrong."""
    settings = from_environment()
    try:
        policy = PolicyKeeper(settings.policy_file, settings.policy or "restricted")
    except WrongPolicy as wrong:
        for line in wrong.lines:
            print(f"SLURM_EXTENDER_POLICY_FILE: {line}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
    configure_logging(settings.log_level)
    log.info("starting", **settings.model_dump(mode="json"))
    open_many_files()
    gc.freeze()  # what is imported stays: no collection need look at it
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_GIVES_WAY_S)
    try:
        uvloop.run(serve(settings, policy))
    except NoCredentials as error:
        print(f"SLURM_EXTENDER_KUBECONFIG: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None
