"""Reads what Slurm's nodes have, when somebody is to be told of it: all of them are some MB."""

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
    """What was read counts for a minute; those who ask meanwhile share it."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._reading = asyncio.Lock()
        self._until = -inf
        self._known: Mapping[str, Equipment] = {}

    async def by_partition(self) -> Mapping[str, Equipment]:
        """Returns what nodes have, by partition; as it was before where Slurm does not tell."""
        clock = asyncio.get_running_loop().time
        async with self._reading:
            if clock() >= self._until:
                with suppress(SlurmError):
                    self._known = equipment(await self._slurm.nodes())
                self._until = clock() + _KEPT_S
        return self._known
