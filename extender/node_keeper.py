"""Keeps nodes and Nodes of one mind about what is out of service: what `placement.nodes` decides.

The leader alone does it. Slurm's nodes are read every few seconds, Nodes come by `cluster_view`'s watch;
whatever is not as it should be is looked at once more, in both systems, and then put right. What failed
is tried again after the next reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

import structlog

from extender.cluster_view import ClusterViewKeeper
from extender.gate import NotLeading
from extender.health import Health
from extender.kubernetes_api import Conflict, KubernetesApi, KubernetesError, Manifest, NotFound
from extender.placement.ledger import Ledger
from extender.placement.nodes import (
    CONDITION,
    Case,
    Circumstances,
    Drain,
    Notice,
    Standing,
    Stay,
    Tally,
    Undrain,
    Wishes,
    alarm,
    notice,
    order,
    stays,
    taints_wrong,
    wants_taint,
    with_taint,
)
from extender.turns import by_turns
from slurm_client.errors import SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm

_INTERVAL_S = 2.0
_SHARE = 20  # a reading of all nodes that takes long is followed by twenty times as long a pause
_LONGEST_PAUSE_S = 15.0  # it may have been slow because Slurm was, and not because it is large
_AT_A_TIME = 8
_MARGIN_S = 2.0  # after KillWait, which a Pod's grace ends well before
_TRUSTED = 2  # readings after an outage: the ledger is to learn first which jobs Slurm has lost
_STEADY = 3
_FAILS_S = 5.0  # a gate drains first and then fails, and Slurm drains again what is not drained then
_PATIENCE_S = 300.0  # of nodes resumed for lost jobs: the longest pause, and how long proves them calm
_ACTING, _TOO_MANY = "nodes", "nodes out of service"
PARTS = (_ACTING, _TOO_MANY)
"""What health has of this."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the leader alone has."""

    ledger: Ledger
    allowed: Callable[[], Awaitable[None]]
    """Returns while this replica may act, and waits otherwise."""
    in_the_way: Callable[[str], Awaitable[tuple[str, ...]]]
    """Returns the Pods for which a node's gate would hold a job. Raises NotLeading and both systems'
    errors."""


class NodeKeeper:
    """Works for as long as this replica leads."""

    def __init__(
        self,
        kubernetes: KubernetesApi,
        slurm: Slurm,
        cluster: ClusterViewKeeper,
        leadership: Leadership,
        health: Health,
        *,
        wishes: Wishes,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._cluster = cluster
        self._leadership = leadership
        self._ledger = leadership.ledger
        self._health = health
        self._wishes = wishes
        self._nodes: dict[str, SlurmNode] = {}
        """As last read, by Slurm's names."""
        self._stays: Mapping[str, tuple[Stay, ...]] = {}
        self._refused: dict[str, float] = {}
        """Since when nodes were seen drained by their gates."""
        self._pauses: dict[str, tuple[float, float]] = {}
        """How long nodes that were resumed for a lost job stay drained if a gate refuses a job there
        once more, and when they were resumed."""
        self._readings = _STEADY
        """That succeeded since the last that did not."""
        self._read_again = 0.0
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self.tally = Tally()

    async def run(self) -> None:
        """Works for ever."""
        while True:
            await self.turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._cluster.nodes_changed.wait()

    async def turn(self) -> None:
        """Looks whether anything is news, and puts right what is wrong."""
        changed = self._cluster.nodes_changed.is_set()
        self._cluster.nodes_changed.clear()
        before = self._stays
        overdue = _now() - self._cluster.kill_wait_s - _MARGIN_S
        self._stays = stays(self._ledger.evicting, overdue)
        if _now() >= self._read_again:
            changed = await self._read()
        if self._readings >= _TRUSTED and (changed or before != self._stays):
            await self._attend_to_all()

    async def _read(self) -> bool:
        """Reads Slurm's nodes; tells whether it could."""
        start = _now()
        self._read_again = start + _INTERVAL_S
        try:
            nodes = await self._slurm.nodes()
        except SlurmError as error:
            self._health.says(_ACTING, str(error))
            self._readings = 0
            return False
        self._nodes = {node.name: node for node in nodes}
        self._readings += 1
        self._read_again = start + pause_after(_now() - start)
        return True

    async def _attend_to_all(self) -> None:
        cases = []
        async for node in by_turns(tuple(self._nodes.values())):
            case = self._case(node)
            if case is not None:
                cases.append(await self._with_gate(case))
        steady = self._readings >= _STEADY
        at = Circumstances.of(cases, _clock(), self._wishes, steady=steady)
        self.tally = Tally.of(cases, at)
        self._health.says(_TOO_MANY, alarm(cases, at))
        wrong = [case async for case in by_turns(cases) if _is_wrong(case, at)]
        troubles = await asyncio.gather(*(self._attend(case, at) for case in wrong))
        self._health.says(_ACTING, next(filter(None, troubles), None))

    def _case(self, slurm: SlurmNode) -> Case | None:
        """A node for which no Node stands is no reason for anything."""
        node = self._cluster.view.node_of(slurm.name)
        if node is None:
            return None
        standing = self._cluster.standings.get(node.name, Standing())
        return Case(node, standing, slurm, self._stays.get(node.name, ()))

    async def _with_gate(self, case: Case) -> Case:
        """Returns a case with what its gate has to say of it."""
        if case.drained_by_its_gate:
            return replace(case, blocked=await self._is_blocked(case))
        self._note_resumed(case)
        return case

    async def _is_blocked(self, case: Case) -> bool:
        """A node where Slurm has to start a lost job again is not: that job comes before those that
        its Pod is in the way of. While others have its place those are refused all the same, and so
        the node rests longer from one to the next."""
        name, lost = case.slurm.name, self._has_lost_jobs(case.node.name)
        since = self._refused.setdefault(name, _now())
        if _now() - since < (self._pause(name) if lost else _FAILS_S):
            return True
        if lost:
            return False
        try:
            return bool(await self._leadership.in_the_way(name))
        except (NotLeading, SlurmError, KubernetesError):  # nobody knows
            return True

    def _pause(self, name: str) -> float:
        return self._pauses.get(name, (_FAILS_S, 0.0))[0]

    def _note_resumed(self, case: Case) -> None:
        name = case.slurm.name
        if self._refused.pop(name, None) is not None:
            self._pauses[name] = min(2 * self._pause(name), _PATIENCE_S), _now()
        if name in self._pauses:
            calm = _now() - self._pauses[name][1] >= _PATIENCE_S
            if calm or not self._has_lost_jobs(case.node.name):
                del self._pauses[name]

    def _has_lost_jobs(self, node: str) -> bool:
        held = self._ledger.holding(node)
        return any(each.misses or each.forgotten or each.doubted not in (None, inf) for each in held)

    async def _attend(self, case: Case, at: Circumstances) -> str | None:
        """Puts one node right. Returns what is in the way of that."""
        async with self._slots:
            try:
                await self._put_right(case, at)
            except (Conflict, NotFound):  # it changes this moment, and the watch will tell
                return None
            except (SlurmError, KubernetesError) as error:
                return f"{case.slurm.name}: {error}"
        return None

    async def _put_right(self, case: Case, at: Circumstances) -> None:
        """A drain is made before the Node is told of it, and taken back after: whatever a crash leaves
        half done, the next leader can tell it from what a person did."""
        await self._leadership.allowed()
        seen = await self._look(case)
        if seen is None:
            return
        todo, name = order(seen, at), seen.slurm.name
        if isinstance(todo, Drain):
            await self._slurm.drain_node(name, todo.reason)
            log.warning("drained", slurm_node=name, node=seen.node.name, reason=todo.reason)
        if isinstance(todo, Undrain):
            if seen.told_of_our_drain:
                await self._tell(seen, at)
            await self._slurm.undrain_node(name)
            log.warning("drain taken back", slurm_node=name, node=seen.node.name)
        seen = await self._look(case) if todo is not None else seen
        if seen is not None:
            await self._tell(seen, at)

    async def _look(self, case: Case) -> Case | None:
        """Returns a node as both systems have it now: a person may have been faster. None where it is
        not there any more."""
        slurm = await self._slurm.node(case.slurm.name)
        if slurm is None:
            self._nodes.pop(case.slurm.name, None)
            return None
        self._nodes[slurm.name] = slurm
        manifest = await self._kubernetes.read_node(case.node.name)
        node, standing = self._cluster.read(manifest)
        if node.slurm_name != slurm.name:
            return None
        unsettled = self._has_lost_jobs(node.name)
        seen = replace(case, node=node, standing=standing, slurm=slurm, unsettled=unsettled)
        return await self._with_gate(seen)

    async def _tell(self, case: Case, at: Circumstances) -> None:
        told, name = notice(case, at), case.node.name
        if told is not None and told != case.standing.notice:
            patch = _condition(told, case.standing.notice, at.now)
            await self._kubernetes.patch_node_status(name, patch)
        if taints_wrong(case, at):
            manifest = await self._kubernetes.read_node(name)
            taints = (manifest.get("spec") or {}).get("taints") or ()
            wanted = with_taint(taints, wanted=wants_taint(case, at))
            version = manifest["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
            await self._kubernetes.patch_node(name, patch)


def pause_after(seconds: float) -> float:
    """Returns how long nodes are not read again after the beginning of a reading that took so long."""
    return max(_INTERVAL_S, min(_SHARE * seconds, _LONGEST_PAUSE_S))


def _is_wrong(case: Case, at: Circumstances) -> bool:
    """Tells whether there is something to be done in either system."""
    untold = notice(case, at) not in (None, case.standing.notice)
    return untold or order(case, at) is not None or taints_wrong(case, at)


def _condition(told: Notice, before: Notice | None, now: float) -> Manifest:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": CONDITION,
        "status": "True" if told.out else "False",
        "reason": told.reason,
        "message": told.message,
        "lastHeartbeatTime": stamp,
    }
    if before is None or before.out != told.out:
        condition["lastTransitionTime"] = stamp
    return {"status": {"conditions": [condition]}}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _clock() -> float:
    return datetime.now(UTC).timestamp()
