"""Writes notes onto the Nodes about containers that may outlive their Pods.

A note must be on the Node before Slurm gives the Pod's cores to another job, and before another replica
binds a Pod there. So a new note does not wait for the notes of other Nodes, and waits for at most one
PATCH of its own Node.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from extender.node_view.lingering_notes import LingeringNotes
from extender.record.placeholder import Placeholder
from kubernetes_client.errors import KubernetesError, NotFound
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from wellknown.lingering import LingeringNote, text_of
from wellknown.names import LINGERING

_INTERVAL_S = 2.0
"""Interval at which the leader removes expired notes, and repeats failed PATCHes."""
_AT_A_TIME = 8
PART = "notes on Nodes"


class LingeringWriter:
    """Writes notes while this replica leads, with one PATCH at a time for each Node."""

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
        self._under_way = set[str]()
        """Nodes with a PATCH under way."""
        self._errors: dict[str, KubernetesError] = {}
        """The last error of each Node with outdated notes."""

    def lingers(self, record: Placeholder) -> None:
        """Adds notes about the containers of a record that may outlive their Pods."""
        now = asyncio.get_running_loop().time()
        for containers in record.lingering:
            slot, seconds = containers.slot, containers.until - now
            pod, uses = record.workload.full_name, (slot.cores, slot.gres)
            self._notes.add(slot.node, LingeringNote(slot.job_id, pod, seconds, *uses))
        self._woken.set()

    async def run(self) -> None:
        """Writes for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._woken.clear()
                outdated = self._notes.outdated()
                self._errors = {node: self._errors[node] for node in outdated if node in self._errors}
                self._report()
                for node in set(outdated) - self._under_way:
                    self._under_way.add(node)
                    tasks.create_task(self._write(node))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL_S):
                        await self._woken.wait()

    async def _write(self, node: str) -> None:
        """Corrects the notes on a Node. Notes that are added during the PATCH are written by the next
        PATCH."""
        try:
            async with self._slots:
                await self._allowed()
                await self._patch(node)
        except KubernetesError as error:
            self._errors[node] = error
        else:
            self._errors.pop(node, None)
            if self._notes.to_write(node) is not None:
                self._woken.set()
        finally:
            self._under_way.discard(node)
        self._report()

    async def _patch(self, node: str) -> None:
        """Writes the notes of a Node. Skips a deleted Node. If a new Node with this name appears, the
        watch shows the new Node without notes. Raises KubernetesError."""
        notes = self._notes.to_write(node)
        if notes is None:
            return
        patch = {"metadata": {"annotations": {LINGERING: text_of(notes)}}}
        with suppress(NotFound):
            await self._kubernetes.patch_node_status(node, patch)
        self._notes.note_written(node, notes)

    def _report(self) -> None:
        self._health.says(PART, next(iter(self._errors.values()), None))
