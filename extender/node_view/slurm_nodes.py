"""Reads Slurm's nodes, some MB, for every part that needs all of them: readers share a reading."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from extender.node_view.node_hardware import NodeHardware, hardware
from slurm_client.errors import SlurmError
from slurm_client.model import Node
from slurm_client.protocol import Slurm

_SHARE = 10  # where a reading takes a second, the pauses of each reader are so many times as long
_LONGEST_PAUSE_S = 15.0  # it may have been slow because Slurm was, and not because it is large
_HARDWARE_S = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Slurm's nodes, when they were asked for (by the loop's clock), and how long the answer took."""

    nodes: tuple[Node, ...]
    began: float
    took: float

    def pause(self, interval: float) -> float:
        """Returns how long a reader that reads every `interval` seconds waits after this reading."""
        return max(interval, min(_SHARE * interval * self.took, _LONGEST_PAUSE_S))


class SlurmNodes:
    """Asks one question at a time, and no reader asks for what another one has read of late."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._newest = Reading((), -inf, 0.0)
        self._under_way: asyncio.Task[None] | None = None

    @property
    def newest(self) -> Reading:
        """Returns the newest reading; one without nodes before there is any."""
        return self._newest

    async def read(self, interval: float = 0.0, since: float = -inf) -> Reading:
        """Returns a reading for a reader that reads every `interval` seconds: the newest one if it began
        less than half of that ago and not before `since`, otherwise the next. Raises SlurmError."""
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
        """Returns the hardware of nodes by partition; the last known one if Slurm does not answer."""
        clock = asyncio.get_running_loop().time
        async with self._reading:
            if clock() >= self._until:
                with suppress(SlurmError):
                    self._known = hardware((await self._slurm_nodes.read(_HARDWARE_S)).nodes)
                self._until = clock() + _HARDWARE_S
        return self._known
