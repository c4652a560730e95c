"""Reads the equipment of Slurm's nodes when a message needs it: the reply for all nodes is some MB."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from math import inf

from extender.cluster.equipment import Equipment, equipment
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm

_KEPT_S = 60.0


class NodeEquipment:
    """Keeps the equipment for a minute; all callers share it."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._reading = asyncio.Lock()
        self._until = -inf
        self._known: Mapping[str, Equipment] = {}

    async def by_partition(self) -> Mapping[str, Equipment]:
        """Returns the equipment of nodes, by partition; the last known one where Slurm does not
        answer."""
        clock = asyncio.get_running_loop().time
        async with self._reading:
            if clock() >= self._until:
                with suppress(SlurmError):
                    self._known = equipment(await self._slurm.nodes())
                self._until = clock() + _KEPT_S
        return self._known
