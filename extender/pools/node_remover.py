"""Removes a pool's nodes from Slurm after their Nodes are gone from Kubernetes. `removal` decides
whether a node is set DOWN or deleted."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import structlog

from extender.node_view.view_updater import ClusterViewUpdater
from extender.pools.removal import Removal, believed, decide, marked, silent
from extender.pools.reserved import Reservations, by_node
from service.health import Health
from slurm_client.errors import SlurmError
from slurm_client.model import Node as SlurmNode
from slurm_client.protocol import Slurm

PART = "Nodes of pools that are gone"

log = structlog.get_logger()


class NodeRemover:
    """Carries out removals. Measures how long each node has been silent and without a Node. A new leader
    starts this measurement at zero."""

    def __init__(
        self,
        slurm: Slurm,
        cluster: ClusterViewUpdater,
        health: Health,
        allowed: Callable[[], Awaitable[None]],
    ) -> None:
        self._slurm = slurm
        self._cluster = cluster
        self._health = health
        self._allowed = allowed
        self._since: dict[str, float] = {}

    async def look(self, nodes: Iterable[SlurmNode], reservations: Reservations) -> None:
        """Checks all of Slurm's nodes and reservations, and carries out the removals."""
        own, names = marked(nodes), self._cluster.view.names
        gone = [node for node in own if not names.naming(node.name)]
        now = asyncio.get_running_loop().time()
        self._since = {node.name: self._since.get(node.name, now) for node in gone if silent(node)}
        sure = believed(gone, len(own))
        problem: SlurmError | None = None
        for order in decide(sure, self._since, now, reservations):
            try:
                await self._act(order)
            except SlurmError as error:
                problem = error
        doubted = len(gone) - len(sure)
        words = f"{doubted} of {len(own)} nodes of pools have no Node: too many to set DOWN or delete"
        self._health.says(PART, words if doubted else problem, alarm=bool(doubted))

    async def _act(self, order: Removal) -> None:
        await self._allowed()
        node = await self._slurm.node(order.node)
        reservations = by_node(await self._slurm.reservations(), time.time())
        now = asyncio.get_running_loop().time()
        if node is None or order not in decide([node], self._since, now, reservations):
            return  # a job or a reservation has appeared, or slurmd answers again
        if order.reason:
            await self._slurm.down_node(order.node, order.reason)
        else:
            await self._slurm.delete_node(order.node)
        done = "DOWN" if order.reason else "DELETE"
        log.warning("a pool's Node is gone", slurm_node=order.node, done=done)
