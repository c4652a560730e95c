"""Tells the dispatcher what became of its jobs: one batched question about their states, repeated.

Only jobs of ours are asked about, so that the cost does not grow with what else is in Slurm.
"""

from __future__ import annotations

import asyncio

import structlog

from extender.dispatcher import Dispatcher
from extender.health import Health
from extender.placement.events import JobsPolled
from extender.placement.ledger import Ledger
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm

_QUIET = 4  # while nothing waits, only endings are news: asked less often

log = structlog.get_logger()


class JobWatch:
    """Polls every `interval` seconds while a job waits, else at a quarter of that pace."""

    def __init__(self, ledger: Ledger, slurm: Slurm, health: Health, interval: float) -> None:
        self._ledger = ledger
        self._slurm = slurm
        self._health = health
        self._interval = interval

    async def run(self, dispatcher: Dispatcher) -> None:
        """Polls for ever."""
        while True:
            await asyncio.sleep(self._interval * (1 if self._ledger.waits() else _QUIET))
            trouble = await self._poll(dispatcher)
            if self._health.says("Slurm", trouble):
                log.warning(
                    "Slurm answers again" if trouble is None else "Slurm does not answer", error=trouble
                )

    async def _poll(self, dispatcher: Dispatcher) -> str | None:
        asked, asked_at = self._ledger.watched_jobs(), dispatcher.now()
        try:
            if not asked:
                await self._slurm.ping()
                return None
            states = await self._slurm.states(asked)
        except SlurmError as error:
            return str(error)
        dispatcher.feed(JobsPolled(asked, states, asked_at))
        return None
