"""The listeners: their ports, their callers, and how much a caller may use.

There is one listener for each group of callers: kube-scheduler's verbs, admission, Slurm's pushes,
metrics, probes.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette

from extender.admission import mutate, validate
from extender.admission.review import is_large
from extender.bind import route as bind
from extender.bind.binder import Binder
from extender.bind.node_reservation import NodeReservation
from extender.certificates import Certificate, ListenerTls
from extender.control.feasible_nodes_writer import is_told
from extender.filter import route as filter_nodes
from extender.hooks import route as hooks
from extender.leader.leader import Leader
from extender.leader.replica import Replica
from extender.placement.kept_back import may_be_given
from extender.policy.rules import Policy, judged
from extender.preempt import route as preempt
from extender.prioritize import route as prioritize
from extender.request.pod import parse_pod
from kubernetes_client.protocol import Manifest
from service import metrics, probes
from service.connections import Limits
from service.http_server import Verb, Verbs, reply, wrong_fields
from service.listener import Server
from service.rate_limited_log import RateLimitedLog
from slurm_client.tokens import TokenFile
from wellknown.allocation import Allocation

# Bytes of a body: of a request without one, of an object with its old version, of a Node.
_SMALL = 1 << 10
_LARGE = 4 << 20
_NODE = 16 << 10


class Listeners:
    """The ports of one replica."""

    def __init__(self, replica: Replica, leader: Leader, certificate: Certificate | None) -> None:
        self._replica = replica
        self._leader = leader
        self._certificate = certificate

    def servers(self) -> list[Server]:
        """Returns one server for each group of callers."""
        own, settings = self._replica, self._replica.settings
        translation, answered = settings.translation, own.telemetry.http.answered
        binder = Binder(
            own.kubernetes,
            own.slurm,
            translation,
            own.view,
            NodeReservation(own.kubernetes, own.slurm, translation, own.capacity),
            self._leader.ledger,
            ids=settings.placeholder_ids,
        )
        scheduler = {
            "/scheduler/filter": filter_nodes.verb(translation, own.capacity, self._offered),
            "/scheduler/prioritize": prioritize.verb(),
            "/scheduler/bind": bind.verb(binder, own.health),
            "/scheduler/preempt": preempt.verb(translation, own.capacity),
        }
        servers = [
            self._server("scheduler", Verbs(scheduler, answered), self._scheduler_tls()),
            self._server("metrics", metrics.application(own.telemetry.registry)),
            self._server("health", probes.application(own.health)),
        ]
        if self._certificate is not None:
            webhook = dict(self._webhooks())
            tls = self._certificate.tls(settings.admission_client_ca_file)
            servers.append(self._server("admission", Verbs(webhook, answered, is_large), tls))
        if settings.hooks_token_file is not None:
            tokens = TokenFile(settings.hooks_token_file)
            application = FastAPI(openapi_url=None)
            gate, told = self._leader.gate, own.telemetry.http.gate_answered
            application.include_router(hooks.router(tokens, self._leader.poll_now, gate, told))
            application.add_exception_handler(RequestValidationError, _tells_malformed())
            own.telemetry.http.instrument(application)
            servers.append(self._server("hooks", application))
        return servers

    def _offered(self, pod: Manifest, allocation: Allocation | None, nodes: Sequence[str]) -> None:
        """Passes on the Nodes that kube-scheduler offers. Nodes of which Slurm would choose none are
        not worth another attempt."""
        if is_told(pod, allocation):
            return  # kube-scheduler asks very often: nothing is read of the Pod for that
        if allocation is None:
            translation = self._replica.translation()
            asked = judged(parse_pod(pod, translation), self._replica.policy.policy, translation)
            if not may_be_given(asked.request, nodes, self._replica.cluster.view):
                return
        self._replica.feasible_nodes.tell(pod, allocation, nodes)

    def _webhooks(self) -> Iterator[tuple[str, Verb]]:
        """Yields the admission verbs with their paths. The webhooks' configurations select the
        Namespaces of which every Pod becomes managed."""

        def policy() -> Policy:
            return self._replica.policy.policy

        for name, verb in (("/mutate", mutate.verb), ("/validate", validate.verb)):
            yield name, verb(self._replica.translation, policy)
            yield f"{name}/every-pod", verb(self._replica.translation, policy, every_pod=True)

    def _scheduler_tls(self) -> ListenerTls | None:
        authorities = self._replica.settings.scheduler_client_ca_file
        if self._certificate is None or authorities is None:
            return None
        return self._certificate.tls(authorities)

    def _server(
        self, name: str, application: Verbs | Starlette, tls: ListenerTls | None = None
    ) -> Server:
        settings = self._replica.settings
        address = settings.scheduler_address if name == "scheduler" else settings.listen_address
        return Server(
            application,
            (address, getattr(settings, f"{name}_port")),
            self._limits(name),
            lambda why: self._replica.telemetry.http.rejected(name, why),
            (lambda: tls.context) if tls is not None else None,
        )

    def _limits(self, name: str) -> Limits:
        """Returns the limits of a listener. Whole Nodes come in where kube-scheduler's configuration
        lacks `nodeCacheCapable`, and the reply says so; names are much shorter."""
        few = Limits(connections=64, body=lambda: _SMALL)
        return {
            "scheduler": Limits(1024, lambda: _LARGE + _NODE * len(self._replica.cluster.view.nodes)),
            # Each of three kube-apiservers may have 1,000 reviews under way (its limit on writes).
            "admission": Limits(4096, lambda: _LARGE),
            "hooks": Limits(4096, lambda: _SMALL),  # a job's gates ask from each of its nodes at once
        }.get(name, few)


def _tells_malformed() -> Callable[[Request, Exception], Awaitable[Response]]:
    """Returns the reply that tells the sender of a push which field is wrong."""
    malformed = RateLimitedLog("malformed request")

    async def tell(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        wrong = wrong_fields(error.errors())
        malformed.says(path=request.url.path, error=wrong)
        return reply({"Error": wrong}, 400)

    return tell
