"""Reads Slurm's nodes for all parts of the extender. The parts share each reading, because a reply of
Slurm has some MB."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from extender.node_view.node_hardware import NodeHardware, hardware
from slurm_client.errors import SlurmError
from slurm_client.model import Node
from slurm_client.protocol import Slurm

_SHARE = 10  # after a reading of one second, pauses are this many times as long as usual
_LONGEST_PAUSE_S = 15.0  # the next reading may be faster than a slow reading
_HARDWARE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one read: Slurm's nodes, the start of the read by the loop's clock, and the duration
    of the read."""

    nodes: tuple[Node, ...]
    began: float
    took: float

    def pause(self, interval: float) -> float:
        """Returns the pause after this reading, for a caller that reads every `interval` seconds."""
        return max(interval, min(_SHARE * interval * self.took, _LONGEST_PAUSE_S))


class SlurmNodes:
    """Reads Slurm's nodes, with one request at a time. Callers reuse recent readings."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._newest = Reading((), -inf, 0.0)
        self._under_way: asyncio.Task[None] | None = None

    @property
    def newest(self) -> Reading:
        """The newest reading. Before the first reading, this is a reading without nodes."""
        return self._newest

    async def read(self, interval: float = 0.0, since: float = -inf) -> Reading:
        """Returns a reading for a caller that reads every `interval` seconds. Returns the newest reading
        if it began less than half an interval ago and not before `since`. Otherwise waits for the next
        reading. Raises SlurmError."""
        now = asyncio.get_running_loop().time()
        since = min(now, max(since, now - interval / 2))
        while self._newest.began < since:
            if self._under_way is None:
                self._under_way = asyncio.ensure_future(self._read())
            await asyncio.shield(self._under_way)
        return self._newest

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            self._newest = Reading(await self._slurm.nodes(), began, clock() - began)
        finally:
            self._under_way = None


class HardwareOfNodes:
    """The hardware of Slurm's nodes for messages, computed at most once a minute."""

    def __init__(self, slurm_nodes: SlurmNodes) -> None:
        self._slurm_nodes = slurm_nodes
        self._reading = asyncio.Lock()
        self._until = -inf
        self._known: Mapping[str, NodeHardware] = {}

    async def by_partition(self) -> Mapping[str, NodeHardware]:
        """Returns the hardware of nodes by partition. If Slurm does not answer, returns the last known
        hardware."""
        clock = asyncio.get_running_loop().time
        async with self._reading:
            if clock() >= self._until:
                with suppress(SlurmError):
                    self._known = hardware((await self._slurm_nodes.read(_HARDWARE_S)).nodes)
                self._until = clock() + _HARDWARE_S
        return self._known
