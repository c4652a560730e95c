"""The leader's controller of pools. The controller follows Nodes, Pods and Slurm's nodes, and carries
out the actions that `roll_out` decides.

The controller's data may be some seconds old. So the controller reads a node from Slurm again
before the Node loses slurmd, and before a drain is set or cleared. If the node has changed, the
controller does nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import structlog

from extender.node_sync.drain_decision import ObservedNode
from extender.node_sync.drains import TAKE_BACK
from extender.node_view.node_conditions import NodeStatus
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.node_view.view_updater import ClusterViewUpdater
from extender.pod_request.constraints.node_constraints import Node
from extender.pools.member import Member, SlurmdPod
from extender.pools.node_remover import PART as GONE
from extender.pools.node_remover import NodeRemover
from extender.pools.pool import Pool
from extender.pools.removal import marked
from extender.pools.reserved import Reservations, by_node, lacking
from extender.pools.roll_out import Action, Assign, Decision, Delete, Drain, PoolState, decide
from extender.pools.template_uses import config_map
from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Rejected
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from service.cooperative import yielding
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm
from wellknown.names import ON_HOST, POOL, SLURMD, SLURMD_LABEL
from wellknown.quoting import quoted
from wellknown.slurmd_pod import TEMPLATES, Assignment, pod_name

_INTERVAL_S = 2.0
_SOON_S = 0.3
"""Pause after a turn with actions. The next turn mostly finds the next action."""
_SHARE = 5  # after actions, the pause is at least this many times as long as the reading of nodes
_AT_A_TIME = 8
_PUBLISHED_S = 60.0  # between two checks of the ConfigMap of the admission policy
_KEPT_REVISIONS = 10
"""Number of unused revisions kept for each pool, for a return to an old template (like a
DaemonSet's revisionHistoryLimit)."""
_ACTING, _STOPPED, _WATCH = "pools", "roll-outs", "watch of slurmd Pods"
PARTS = (_ACTING, _STOPPED, _WATCH, GONE)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Leadership:
    """The settings and functions that the leading replica gives to the controller."""

    pools: Callable[[], Sequence[Pool]]
    namespace: str
    """The namespace of slurmd Pods and revisions."""
    allowed: Callable[[], Awaitable[None]]
    """Waits until this replica may act as the leader."""
    placeholder_cpus: Callable[[str, SlurmNode], int]
    """Returns the number of a node's CPUs that belong to placeholders. Counts only placeholders that
    lose nothing if slurmd restarts."""
    cause: Callable[[ObservedNode], str]
    """Returns the reason to drain a node for its Node's state; "" without a reason."""


class PoolController:
    """The controller of pools. Runs while this replica leads."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        slurm_nodes: SlurmNodes,
        cluster: ClusterViewUpdater,
        leadership: Leadership,
        health: Health,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._slurm_nodes = slurm_nodes
        self._cluster = cluster
        self._health = health
        self._leads = leadership
        self._gone = NodeRemover(slurm, cluster, health, leadership.allowed)
        inside, report = f"metadata.namespace={leadership.namespace}", partial(health.says, _WATCH)
        self._watch = ResourceWatch(kubernetes, "pods", inside, report)
        self._pods: dict[str, tuple[str, SlurmdPod]] = {}
        """The slurmd Pods and their Nodes, by the Pod's name."""
        self._listed = asyncio.Event()
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self._acted_at, self._next_in = -inf, _INTERVAL_S
        self._made: set[str] = set()
        """Names of the revisions that this replica has created or found in kube-apiserver."""
        self._revising = asyncio.Lock()
        self._published_at = -inf
        """Time of the last check, or write, of the ConfigMap for the admission policy."""
        self._reserved: frozenset[str] = frozenset()
        """The Nodes that waited for the end of a reservation at the last turn."""
        self.states: Mapping[str, PoolState] = {}
        """State of each pool, by the pool's name."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            await self._listed.wait()
            tasks.create_task(periodically(self.turn, self._pause))

    async def _follow(self) -> None:
        for manifest in await self._list():
            self._note(manifest, gone=False)
        self._listed.set()
        async for change in self._watch.changes():
            self._note(change.manifest, change.gone)
            self._news.set()

    async def _list(self) -> Sequence[Manifest]:
        while True:
            try:
                return await self._watch.list()
            except KubernetesError as error:
                self._health.says(_WATCH, error)
                await asyncio.sleep(_INTERVAL_S)

    def _note(self, manifest: Manifest, gone: bool) -> None:
        name = manifest["metadata"]["name"]
        node = (manifest.get("spec") or {}).get("nodeName") or ""
        pod = None if gone or name != pod_name(node) else SlurmdPod.parse(manifest)
        if pod is None:
            self._pods.pop(name, None)
        else:
            self._pods[name] = node, pod

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._next_in):
                await self._news.wait()
        self._news.clear()

    async def turn(self) -> None:
        """Decides about each pool, and carries out the actions."""
        try:
            reading = await self._slurm_nodes.read(_INTERVAL_S, self._acted_at)
            reservations = await self._reservations(reading.nodes)
        except (SlurmError, KubernetesError) as error:
            self._health.says(_ACTING, error)
            return
        errors = await self._try_to_publish()
        view = self._cluster.view  # one view for the whole turn: Nodes may disappear during the turn
        members = await self._members(view, {node.name: node for node in reading.nodes}, reservations)
        pools, states = self._all_pools(members), dict[str, PoolState]()
        taken, acts, reserved = set[str](), 0, set[str]()
        for pool in pools:
            own, matching = _of(pool, members, view, taken)
            decision = decide(pool, own, matching)
            states[pool.name] = decision.state
            reserved |= self._tell_reserved(pool, decision)
            results = await asyncio.gather(*(self._act(pool, action) for action in decision.actions))
            errors += [f"{pool.name}: {error}" for error in results if error is not None]
            acts += results.count(None)  # a failed action does not shorten the pause
        await self._gone.look(reading.nodes, reservations)
        self._reserved = frozenset(reserved)
        self._next_in = max(_SOON_S, _SHARE * reading.took) if acts else reading.pause(_INTERVAL_S)
        self._acted_at = asyncio.get_running_loop().time() if acts else self._acted_at
        self.states = {pool.name: states[pool.name] for pool in pools if pool.name in states}
        texts = ((name, words) for name, each in states.items() for words in (each.stopped, each.keeps))
        stopped = "; ".join(f"{name}: {words}" for name, words in texts if words)
        self._health.says(_STOPPED, stopped or None, alarm=True)
        self._health.says(_ACTING, next(iter([*errors, *_not_understood(members)]), None))

    async def _reservations(self, nodes: Iterable[SlurmNode]) -> Reservations:
        """Returns the reservations by node. Slurm adds a newly registered node to a reservation with
        Nodes=ALL only at Slurm's next check of all reservations. If such a reservation lacks a node,
        makes Slurm do this check."""
        listed = await self._slurm.reservations()
        node = lacking(listed, marked(nodes))
        if node is not None:
            await self._leads.allowed()
            await self._slurm.validate_reservations(node)
        return by_node(listed, time.time())

    def _tell_reserved(self, pool: Pool, decision: Decision) -> set[str]:
        """Returns the Nodes that wait for the end of a reservation. Logs each such Node once."""
        for each in decision.reserved:
            if each.node not in self._reserved:
                names = [reservation.name for reservation in each.reservations]
                about = {"pool": pool.name, "node": each.node, "slurm_node": each.slurm_name}
                log.info("waits for the end of a reservation", **about, reservations=names)
        return {each.node for each in decision.reserved}

    async def _members(
        self, view: ClusterView, slurm: Mapping[str, SlurmNode], reservations: Reservations
    ) -> list[Member]:
        """Returns all Nodes that represent a Slurm node, with their current state in both systems."""
        pods = dict(self._pods.values())
        return [
            replace(
                self._member(node, slurm.get(node.slurm_name), pods.get(node.name)),
                reservations=reservations.get(node.slurm_name, ()),
            )
            async for node in yielding(view.nodes.values())
            if view.node_of(node.slurm_name) is node
        ]

    def _member(self, node: Node, slurm: SlurmNode | None, pod: SlurmdPod | None) -> Member:
        status = self._cluster.node_statuses.get(node.name, NodeStatus())
        return Member(
            node.name,
            node.slurm_name,
            assigned=status.assigned,
            pod=pod,
            slurm=slurm,
            cordoned=node.unschedulable,
            ready=status.ready,
            has_agent=node.has_agent,
            problem=status.slurmd_problem,
            placeholder_cpus=self._leads.placeholder_cpus(node.name, slurm) if slurm is not None else 0,
            label=node.labels.get(SLURMD_LABEL),
            cause=self._leads.cause(ObservedNode(node, status, slurm)) if slurm is not None else "",
            slurmd_timeout_s=self._cluster.slurmd_timeout_s,
            now=time.time(),
        )

    def _all_pools(self, members: Iterable[Member]) -> list[Pool]:
        """Returns the pools of the file, and deleted pools that still have Nodes. A deleted pool
        wants no Nodes."""
        pools = list(self._leads.pools())
        known = {pool.name for pool in pools}
        left = {name for name in map(_pool_of, members) if name is not None} - known
        return [*pools, *(Pool(name, {}, 0, in_file=False) for name in sorted(left))]

    async def _act(self, pool: Pool, action: Action) -> Exception | None:
        async with self._slots:
            try:
                await self._leads.allowed()
                await self._carry_out(pool, action)
            except (Conflict, NotFound):  # the object has just changed; the watch delivers the change
                return None
            except (SlurmError, KubernetesError) as error:
                return error
        return None

    async def _carry_out(self, pool: Pool, action: Action) -> None:
        member = action.member
        if not _is_as(await self._slurm.node(member.slurm_name), member):
            self._news.set()
            return
        about = {"pool": pool.name, "node": member.node, "slurm_node": member.slurm_name}
        match action:
            case Assign(_, assignment):
                if assignment is not None and assignment.revision == pool.assignment.revision:
                    await self._make_revision(pool)
                await self._assign(member, assignment)
                _tell_assigned(about, assignment)
            case Drain(_, reason) if reason != TAKE_BACK:
                await self._slurm.drain_node(member.slurm_name, reason)
                log.info("drained", **about, reason=reason)
            case Drain():
                await self._slurm.undrain_node(member.slurm_name)
                log.info("drain taken back", **about)
            case Delete():
                reservations = (await self._reservations(())).get(member.slurm_name, ())
                if replace(member, reservations=reservations).reserved:
                    self._news.set()
                    return
                await self._slurm.delete_node(member.slurm_name)
                log.info("deleted in Slurm", **about)

    async def _assign(self, member: Member, assignment: Assignment | None) -> None:
        manifest = await self._kubernetes.read_node(member.node)
        metadata = manifest["metadata"]
        if Assignment.on(metadata.get("annotations") or {}) != member.assigned:
            return
        annotations: Mapping[str, str | None] = (
            assignment.annotations() if assignment else {SLURMD: None}
        )
        held = {"resourceVersion": metadata["resourceVersion"], "annotations": annotations}
        await self._kubernetes.patch_node(member.node, {"metadata": held})

    async def _try_to_publish(self) -> list[str]:
        """Publishes the ConfigMap with the uses of templates (`template_uses`), and returns the error,
        if any. Running slurmd Pods do not need the ConfigMap."""
        try:
            await self._publish()
        except KubernetesError as error:
            return [f"ConfigMap {TEMPLATES}: {error}"]
        return []

    async def _publish(self) -> None:
        """Writes the ConfigMap for the admission policy of slurmd Pods. The ConfigMap has the uses of
        the templates of all revisions: images, Secrets, host paths and so on. Checks the ConfigMap once
        a minute."""
        if time.monotonic() < self._published_at + _PUBLISHED_S:
            return
        namespace = self._leads.namespace
        wanted = config_map(namespace, await self._kubernetes.revisions(namespace))
        known = await self._kubernetes.read_config_map(namespace, wanted["metadata"]["name"]) or {}
        if (known.get("data") or {}) != wanted["data"]:
            if known:
                wanted["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            await self._leads.allowed()
            await self._kubernetes.write_config_map(wanted)
        self._published_at = time.monotonic()

    async def _make_revision(self, pool: Pool) -> None:
        async with self._revising:
            await self._revise(pool)

    async def _revise(self, pool: Pool) -> None:
        name = pool.assignment.revision
        if name in self._made:
            return
        manifest: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": name, "namespace": self._leads.namespace, "labels": {POOL: pool.name}},
            "revision": 1,
            "data": pool.data,
        }
        try:
            await self._kubernetes.create_revision(self._leads.namespace, manifest)
        except NotFound as error:
            words = f"there is no namespace {self._leads.namespace} for slurmd Pods: {error.message}"
            raise Rejected(error.status, words) from error
        self._published_at = -inf
        await self._forget_old(pool)
        await self._publish()
        self._made.add(name)

    async def _forget_old(self, pool: Pool) -> None:
        """Deletes the oldest of a pool's unused revisions. A revision is unused if it is on no Node."""
        listed = await self._kubernetes.revisions(self._leads.namespace)
        used = {each.revision for _, each in self._pods.values()} | {pool.assignment.revision}
        used |= {
            name
            for status in self._cluster.node_statuses.values()
            if status.assigned is not None
            for name in (status.assigned.revision, status.assigned.before)
        }
        old = sorted(
            (
                (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"])
                for each in listed
                if (each["metadata"].get("labels") or {}).get(POOL) == pool.name
            ),
            reverse=True,
        )
        for _, name in [each for each in old if each[1] not in used][_KEPT_REVISIONS:]:
            await self._kubernetes.delete_revision(self._leads.namespace, name)
            self._made.discard(name)


def _tell_assigned(about: Mapping[str, str], assignment: Assignment | None) -> None:
    log.info("assigned", **about, revision=assignment.revision if assignment else None)
    if assignment is not None and assignment.failed:
        log.warning("rolled back", **about, revision=assignment.failed, error=assignment.why)


def _of(
    pool: Pool, members: Iterable[Member], view: ClusterView, taken: set[str]
) -> tuple[list[Member], frozenset[str]]:
    """Returns the Nodes that are in a pool or match the pool, and the names of the matching Nodes. If a
    Node matches several pools, the first pool gets the Node."""
    own, matching = list[Member](), set[str]()
    for each in members:
        inside = _pool_of(each) == pool.name
        labels = view.nodes[each.node].labels
        if pool.replicas != 0 and each.node not in taken and pool.selects(labels) and not each.on_host:
            taken.add(each.node)
            if inside or _pool_of(each) is None:
                matching.add(each.node)
        if inside or each.node in matching:
            own.append(each)
    return own, frozenset(matching)


def _not_understood(members: Iterable[Member]) -> list[str]:
    """Returns an error message for each Node with an invalid value of the label SLURMD_LABEL."""
    return [
        f"Node {each.node}: the label {SLURMD_LABEL} may only have the value {quoted(ON_HOST)}, not"
        f" {quoted(each.label)}"
        for each in members
        if each.label is not None and not each.on_host
    ]


def _pool_of(member: Member) -> str | None:
    if member.assigned is not None:
        return member.assigned.pool
    return member.pod.pool if member.pod is not None else member.lost_by


def _is_as(now: SlurmNode | None, member: Member) -> bool:
    """Returns True if a node in Slurm still has the state that led to the decision."""
    return _matters(replace(member, slurm=now)) == _matters(member)


def _matters(member: Member) -> tuple[object, ...]:
    """Returns the facts from Slurm on which a decision depends."""
    return (
        *(member.slurm is None, member.allocated, member.busy, member.drained, member.reason),
        *(member.asleep, member.waited_for, member.down, member.reserved),
    )
