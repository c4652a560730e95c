"""The listeners of a replica: ports, callers, and limits for callers.

Each group of callers has a separate listener: kube-scheduler's calls, admission, the pushes of Slurm's
scripts, metrics, probes."""

from collections.abc import Sequence

from starlette.applications import Starlette

from extender.admission import mutate, validate
from extender.admission.pod_groups import PodGroups
from extender.admission.review import is_large
from extender.bind import route as bind
from extender.bind.binder import Binder
from extender.bind.node_reservation import NodeReservation
from extender.certificates import Certificate, ListenerTls
from extender.execution.feasible_nodes_writer import is_annotated
from extender.filter import route as filter_nodes
from extender.hooks import route as hooks
from extender.leader.leader import Leader
from extender.leader.replica import Replica
from extender.placement.transitions.kept_back import may_be_given
from extender.pod_request.annotations import LARGEST_GANG
from extender.pod_request.pod import parse_pod
from extender.policy.rules import Policy, judged
from extender.preempt import route as preempt
from extender.prioritize import route as prioritize
from extender.routing import application
from kubernetes_client.protocol import Manifest
from service import metrics, probes
from service.http.connections import Limits
from service.http.listener import Server
from slurm_client.tokens import TokenFile
from wellknown.allocation import Allocation

# Limits on the bytes of a body. _SMALL: for a request that needs no body. _LARGE: for an object with its
# old version. _NODE: more bytes for each Node in a request.
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
        """Returns a server for each group of callers."""
        own, settings = self._replica, self._replica.settings
        translation, telemetry, measured = settings.translation, own.telemetry, own.telemetry.http
        binder = Binder(
            own.kubernetes,
            own.slurm,
            translation,
            own.view,
            NodeReservation(
                *(own.kubernetes, own.slurm, translation, own.capacity),
                *(self._leader.overlaps, self._leader.lingering),
            ),
            self._leader.ledger,
            ids=settings.placeholder_ids,
            report=self._leader.report,
        )
        scheduler = application(
            filter_nodes.router(translation, own.capacity, self._offered, own.view),
            prioritize.router(),
            bind.router(binder, own.health),
            preempt.router(translation, own.capacity),
            prefix="/scheduler",
        )
        measured.instrument_verbs(scheduler)
        servers = [
            self._server("scheduler", scheduler, self._scheduler_tls()),
            self._server(
                "metrics", metrics.application(telemetry.registry, telemetry.placement.count_pods)
            ),
            self._server("health", probes.application(own.health)),
        ]
        if self._certificate is not None:
            admission = application(
                mutate.router(own.translation, self._policy, PodGroups(own.kubernetes.read_pod_group)),
                validate.router(own.translation, self._policy),
                is_large=is_large,
            )
            measured.instrument_verbs(admission)
            tls = self._certificate.tls(settings.admission_client_ca_file)
            servers.append(self._server("admission", admission, tls))
        if settings.hooks_token_file is not None:
            tokens = TokenFile(settings.hooks_token_file)
            pushes = hooks.router(
                tokens, self._leader.poll_now, self._leader.gate, measured.gate_answered
            )
            calls = application(pushes)
            measured.instrument(calls)
            servers.append(self._server("hooks", calls))
        return servers

    def _offered(self, pod: Manifest, allocation: Allocation | None, nodes: Sequence[str]) -> None:
        """Passes the Nodes that kube-scheduler offers for a Pod to `FeasibleNodesWriter`, so that the
        leader can request another job. Passes nothing if Slurm would choose none of these Nodes in
        another attempt."""
        if is_annotated(pod, allocation):
            return  # kube-scheduler asks very often: avoids parsing the Pod each time
        if allocation is None:
            translation = self._replica.translation()
            asked = judged(parse_pod(pod, translation), self._replica.policy.policy, translation)
            if not may_be_given(asked.request, nodes, self._replica.cluster.view):
                return
        self._replica.feasible_nodes.tell(pod, allocation, nodes)

    def _policy(self) -> Policy:
        return self._replica.policy.policy

    def _scheduler_tls(self) -> ListenerTls | None:
        authorities = self._replica.settings.scheduler_client_ca_file
        if self._certificate is None or authorities is None:
            return None
        return self._certificate.tls(authorities)

    def _server(self, name: str, served: Starlette, tls: ListenerTls | None = None) -> Server:
        settings = self._replica.settings
        address = settings.scheduler_address if name == "scheduler" else settings.listen_address
        return Server(
            served,
            (address, getattr(settings, f"{name}_port")),
            self._limits(name),
            lambda why: self._replica.telemetry.http.rejected(name, why),
            (lambda: tls.context) if tls is not None else None,
        )

    def _limits(self, name: str) -> Limits:
        """Returns the limits of a listener. The limit for kube-scheduler leaves room for whole Nodes,
        and for the calls of a whole gang at the same time. kube-scheduler sends whole Nodes instead of
        names if its configuration lacks `nodeCacheCapable`, and the reply reports this mistake."""
        few = Limits(connections=64, body=lambda: _SMALL)
        return {
            "scheduler": Limits(
                2 * LARGEST_GANG, lambda: _LARGE + _NODE * len(self._replica.cluster.view.nodes)
            ),
            # Each of three kube-apiservers may have 1,000 reviews in progress (kube-apiserver's
            # limit on writes).
            "admission": Limits(4096, lambda: _LARGE),
            "hooks": Limits(4096, lambda: _SMALL),  # the gates of all nodes of a job ask at once
        }.get(name, few)
