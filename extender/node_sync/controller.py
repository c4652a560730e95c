"""Makes Slurm and Kubernetes agree about the nodes that are in service. `drain_decision` decides about
each node.

Only the leader runs this controller. If the state of a node is wrong, the controller reads the node
again in both systems, and corrects the state. A failed correction is repeated after the next reading."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

import structlog

from extender.execution.pod_patches import node_event
from extender.explain.sentences import sentence
from extender.jobs.phase import Phase
from extender.node_sync.drain_decision import (
    DrainContext,
    DrainSettings,
    ObservedNode,
    OutstayingPod,
    Tally,
    condition_of,
    order,
    outstaying_pods,
    rejections_of,
    taints_wrong,
    wants_taint,
    with_taint,
)
from extender.node_sync.drains import TAKE_BACK
from extender.node_sync.prolog_gate import NotLeading, NotOurs
from extender.node_view.node_conditions import NodeStatus
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view_updater import ClusterViewUpdater
from extender.placement.ledger import Ledger
from extender.placement.nodes.rejecting_nodes import Closure
from kubernetes_client.errors import Conflict, KubernetesError, NotFound
from kubernetes_client.protocol import Kubernetes, Manifest
from service.cooperative import yielding
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm
from wellknown.conditions import condition, timestamp
from wellknown.names import PODS_REJECTED, SLURM_OUT_OF_SERVICE

_INTERVAL_S = 2.0
_AT_A_TIME = 8
_MARGIN_S = 2.0  # a Pod that stays for KillWait and this time is overdue; its grace period ends before
_TRUSTED = 2  # readings after an outage before a correction; the ledger first learns of lost jobs
_STEADY = 3
_CLOCKS_S = 5.0  # the clocks of two machines differ by less than this
_FAILS_S = 5.0  # a gate drains the node, and fails soon; if the drain is missing then, Slurm drains
_PATIENCE_S = 300.0  # longest pause of a resumed node; after this time, the next pause is short again
_ACTING, _TOO_MANY = "nodes", "nodes out of service"
PARTS = (_ACTING, _TOO_MANY)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Leadership:
    """The parts of the controller that only the leader has."""

    ledger: Ledger
    allowed: Callable[[], Awaitable[None]]
    """Returns while this replica may act, and waits otherwise."""
    in_the_way: Callable[[str], Awaitable[tuple[str, ...]]]
    """Returns the Pods that a node's gate waits for. Raises NotLeading, NotOurs, and the errors of Slurm
    and Kubernetes."""


class NodeController:
    """The controller of nodes; it runs while this replica leads."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        slurm_nodes: SlurmNodes,
        cluster: ClusterViewUpdater,
        leadership: Leadership,
        health: Health,
        *,
        drain_settings: DrainSettings,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._slurm_nodes = slurm_nodes
        self._cluster = cluster
        self._leadership = leadership
        self._ledger = leadership.ledger
        self._health = health
        self._drain_settings = drain_settings
        self._nodes: dict[str, SlurmNode] = {}
        """The nodes as last read, by Slurm's names."""
        self._outstaying_pods: Mapping[str, tuple[OutstayingPod, ...]] = {}
        self._drain_seen: dict[str, float] = {}
        """Last time at which each node had a drain of the extender, in UNIX seconds."""
        self._prolog_refused: dict[str, float] = {}
        """For each node that its gate has drained, the time since which this controller knows the
        drain."""
        self._pauses: dict[str, tuple[float, float]] = {}
        """For each node that was resumed for a lost job: the pause after the gate's next rejection, and
        the time of the resume."""
        self._readings = _STEADY
        """Number of successful readings since the last failure."""
        self._read_again = 0.0
        self._looked_until = 0.0
        """Time of the last corrections. The next reading must begin after this time, because earlier
        readings do not show these corrections."""
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self.tally = Tally()
        self._closures: tuple[Closure, ...] = ()
        """The Nodes that the extender had closed at the last turn, because the kubelets of these Nodes
        reject Pods."""

    async def run(self) -> None:
        await periodically(self.turn, self._until_a_node_changes)

    async def _until_a_node_changes(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_INTERVAL_S):
                await self._cluster.nodes_changed.wait()

    async def turn(self) -> None:
        """Checks whether anything has changed, and corrects the nodes that are wrong."""
        changed = self._cluster.nodes_changed.is_set()
        self._cluster.nodes_changed.clear()
        before = self._outstaying_pods
        changed |= await self._closures_changed()
        overdue = _now() - self._cluster.kill_wait_s - _MARGIN_S
        self._outstaying_pods = outstaying_pods(self._ledger.evicting, overdue)
        if _now() >= self._read_again:
            changed = await self._read()
        if self._readings >= _TRUSTED and (changed or before != self._outstaying_pods):
            await self._attend_to_all()

    async def _closures_changed(self) -> bool:
        """Reports the Nodes that were closed since the last turn. Returns True if any Node was closed or
        opened."""
        before, self._closures = self._closures, self._ledger.rejecting_nodes.closures
        for closure in self._closures:
            if closure not in before:
                log.warning("kubelet rejects Pods", node=closure.node, reason=sentence(closure.cause))
                await self._tell_of(closure)
        return before != self._closures

    async def _tell_of(self, closure: Closure) -> None:
        """Creates an Event about a closed Node. The Event is only for people, so an error is only
        logged."""
        event = node_event(closure.node, closure.cause, datetime.now(UTC), action="Placing")
        try:
            await self._kubernetes.create_event(event["metadata"]["namespace"], event)
        except KubernetesError as error:
            log.info("an Event was not made", node=closure.node, error=str(error))

    async def _read(self) -> bool:
        """Reads Slurm's nodes. Returns False after an error of Slurm."""
        start = _now()
        self._read_again = start + _INTERVAL_S
        try:
            reading = await self._slurm_nodes.read(_INTERVAL_S, self._looked_until)
        except SlurmError as error:
            self._health.says(_ACTING, error)
            self._readings = 0
            return False
        self._nodes = {node.name: node for node in reading.nodes}
        self._readings += 1
        self._read_again = start + reading.pause(_INTERVAL_S)
        return True

    async def _attend_to_all(self) -> None:
        nodes = []
        async for node in yielding(tuple(self._nodes.values())):
            observed = self._observed(node)
            if observed is not None:
                nodes.append(await self._with_gate(observed))
        steady = self._readings >= _STEADY
        at = DrainContext.of(nodes, _unix_now(), self._drain_settings, steady=steady)
        self.tally = Tally.of(nodes, at)
        self._health.says(_TOO_MANY, "; ".join(at.ignored.values()) or None)
        wrong = [each async for each in yielding(nodes) if _is_wrong(each, at)]
        errors = await asyncio.gather(*(self._attend(each, at) for each in wrong))
        results = zip(wrong, errors, strict=True)
        failed = ((f"{each.slurm.name}: {error}", error) for each, error in results if error is not None)
        words, first = next(failed, (None, None))
        self._health.says(_ACTING, words, because=first)
        self._looked_until = _now()

    def _observed(self, slurm: SlurmNode) -> ObservedNode | None:
        """Returns a Slurm node together with its Node. Returns None if no Node stands for the Slurm
        node."""
        node = self._cluster.view.node_of(slurm.name)
        if node is None:
            return None
        node_status = self._cluster.node_statuses.get(node.name, NodeStatus())
        closed = (each for each in self._closures if each.to_all and each.node == node.name)
        outstaying = self._outstaying_pods.get(node.name, ())
        rejects = "".join(sentence(each.cause) for each in islice(closed, 1))
        return ObservedNode(node, node_status, slurm, outstaying, rejects=rejects)

    async def _with_gate(self, observed: ObservedNode) -> ObservedNode:
        if observed.drained_by_us:
            self._drain_seen[observed.slurm.name] = _unix_now()
        if observed.drained_by_its_gate:
            return replace(observed, blocked=await self._is_blocked(observed))
        self._note_resumed(observed)
        return observed

    async def _is_blocked(self, observed: ObservedNode) -> bool:
        """Takes a node that its gate has drained. Returns True if the gate would also reject the next
        job. If Slurm has to start a lost job again on the node, returns False after a pause, so that the
        lost job can start. If other jobs take the place of the lost job, the gate rejects the other
        jobs. After each such rejection, the pause is longer."""
        name, lost = observed.slurm.name, self._has_lost_jobs(observed.node.name)
        since = self._prolog_refused.setdefault(name, _now())
        if _now() - since < (self._pause(name) if lost else _FAILS_S):
            return True
        if lost:
            return False
        try:
            return bool(await self._leadership.in_the_way(name))
        except (NotLeading, NotOurs, SlurmError, KubernetesError):  # not known
            return True

    def _pause(self, name: str) -> float:
        return self._pauses.get(name, (_FAILS_S, 0.0))[0]

    def _note_resumed(self, observed: ObservedNode) -> None:
        name = observed.slurm.name
        if self._prolog_refused.pop(name, None) is not None:
            self._pauses[name] = min(2 * self._pause(name), _PATIENCE_S), _now()
        if name in self._pauses:
            calm = _now() - self._pauses[name][1] >= _PATIENCE_S
            if calm or not self._has_lost_jobs(observed.node.name):
                del self._pauses[name]

    def _has_lost_jobs(self, node: str) -> bool:
        held = self._ledger.holding(node)
        return any(each.misses_job or each.job.phase is Phase.SUSPECT for each in held)

    async def _attend(self, observed: ObservedNode, at: DrainContext) -> Exception | None:
        """Corrects one node. Returns the error of a failed correction."""
        async with self._slots:
            try:
                await self._put_right(observed, at)
            except (Conflict, NotFound):  # the Node has just changed, and the watch reports the change
                return None
            except (SlurmError, KubernetesError) as error:
                return error
        return None

    async def _put_right(self, observed: ObservedNode, at: DrainContext) -> None:
        """Drains or resumes a node. The extender first makes a drain, and then writes the Node's
        condition. To take a drain back, the extender first writes the condition. So the next leader can
        distinguish a person's change from a change that a crash interrupted."""
        await self._leadership.allowed()
        seen = await self._look(observed)
        if seen is None:
            return
        if seen.shows_our_drain and not seen.out:  # a person took the drain back, or Slurm lost it
            at = replace(at, steady=at.steady and not await self._may_be_lost(seen))
        todo, name = order(seen, at), seen.slurm.name
        if todo == TAKE_BACK:
            await self._take_back(seen, at)
        elif todo is not None:
            await self._slurm.drain_node(name, todo)
            log.warning("drained", slurm_node=name, node=seen.node.name, reason=todo)
        seen = await self._look(observed) if todo is not None else seen
        if seen is not None:
            await self._tell(seen, at)

    async def _may_be_lost(self, observed: ObservedNode) -> bool:
        """Returns True if slurmctld has started since a drain was last seen, and may have lost the
        drain."""
        shown = observed.node_status.condition
        seen = self._drain_seen.get(observed.slurm.name, shown.since if shown else 0.0)
        booted = (await self._slurm.configuration()).boot_time
        return booted is not None and seen <= booted + _CLOCKS_S

    async def _take_back(self, observed: ObservedNode, at: DrainContext) -> None:
        """Takes a drain back, unless the reason in Slurm has changed."""
        if observed.shows_our_drain:
            await self._tell(observed, at)
        slurm = await self._slurm.node(observed.slurm.name)
        if slurm is not None and order(replace(observed, slurm=slurm), at) == TAKE_BACK:
            await self._slurm.undrain_node(slurm.name)
            log.warning("drain taken back", slurm_node=slurm.name, node=observed.node.name)

    async def _look(self, observed: ObservedNode) -> ObservedNode | None:
        """Reads a node again in both systems, because a person may have changed the node. Returns None
        if Slurm has no such node, or if the Node now names another Slurm node."""
        slurm = await self._slurm.node(observed.slurm.name)
        if slurm is None:
            self._nodes.pop(observed.slurm.name, None)
            return None
        self._nodes[slurm.name] = slurm
        manifest = await self._kubernetes.read_node(observed.node.name)
        node, node_status = self._cluster.read(manifest)
        if node.slurm_name != slurm.name:
            return None
        unsettled = self._has_lost_jobs(node.name)
        seen = replace(observed, node=node, node_status=node_status, slurm=slurm, unsettled=unsettled)
        return await self._with_gate(seen)

    async def _tell(self, observed: ObservedNode, at: DrainContext) -> None:
        name = observed.node.name
        for patch in _patches(observed, at):
            await self._kubernetes.patch_node_status(name, patch)
        if taints_wrong(observed, at):
            manifest = await self._kubernetes.read_node(name)
            taints = (manifest.get("spec") or {}).get("taints") or ()
            wanted = with_taint(taints, wanted=wants_taint(observed, at))
            version = manifest["metadata"]["resourceVersion"]
            held = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
            await self._kubernetes.patch_node(name, held)


def _is_wrong(observed: ObservedNode, at: DrainContext) -> bool:
    """Returns True if a node needs a correction in either system."""
    outdated = any(_patches(observed, at))
    return outdated or order(observed, at) is not None or taints_wrong(observed, at)


def _patches(observed: ObservedNode, at: DrainContext) -> Iterator[Manifest]:
    """Yields a patch of the Node's status for each condition that is out of date."""
    now, status = datetime.fromtimestamp(at.now, UTC), observed.node_status
    for kind, state, before in (
        (SLURM_OUT_OF_SERVICE, condition_of(observed, at), status.condition),
        (PODS_REJECTED, rejections_of(observed), status.rejections),
    ):
        if state is not None and state != before:
            changed = before is None or before.out != state.out
            written = condition(kind, state.reason, state.message, now, holds=state.out, changed=changed)
            yield {"status": {"conditions": [written | {"lastHeartbeatTime": timestamp(now)}]}}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unix_now() -> float:
    return datetime.now(UTC).timestamp()
