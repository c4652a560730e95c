"""Writes notes about containers that may outlive their Pods onto the Nodes.

A note is to be on the Node before Slurm gives the cores of the Pod away and another replica binds a Pod
there: so a new note is written at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from extender.node_view.lingering_notes import LingeringNotes
from extender.record.placeholder import Placeholder
from kubernetes_client.errors import KubernetesError, NotFound
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from wellknown.lingering import LingeringContainers, text_of
from wellknown.names import LINGERING

_INTERVAL_S = 2.0
_AT_A_TIME = 8
PART = "notes on Nodes"


class LingeringWriter:
    """Writes while this replica leads."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        notes: LingeringNotes,
        allowed: Callable[[], Awaitable[None]],
        health: Health,
    ) -> None:
        """`allowed` returns while this replica may act, and waits otherwise."""
        self._kubernetes, self._notes = kubernetes, notes
        self._allowed, self._health = allowed, health
        self._woken = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def lingers(self, record: Placeholder) -> None:
        """Notes the containers of a record, which are written at once."""
        now = asyncio.get_running_loop().time()
        for slot, until in record.lingering:
            pod, uses = record.workload.full_name, (slot.cores, slot.gres)
            self._notes.add(slot.node, LingeringContainers(slot.job_id, pod, until - now, *uses))
        self._woken.set()

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            self._woken.clear()
            await self.turn()
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._woken.wait()

    async def turn(self) -> None:
        """Corrects the notes on all Nodes."""
        errors = await asyncio.gather(*(self._write(*each) for each in self._notes.to_write()))
        self._health.says(PART, next((error for error in errors if error is not None), None))

    async def _write(self, node: str, notes: tuple[LingeringContainers, ...]) -> KubernetesError | None:
        """Replaces the notes on a Node. Returns the error."""
        patch = {"metadata": {"annotations": {LINGERING: text_of(notes)}}}
        async with self._slots:
            await self._allowed()
            try:
                await self._kubernetes.patch_node_status(node, patch)
            except NotFound:
                return None
            except KubernetesError as error:
                return error
        return None
