"""The leader's loop for adopted Pods. An adopted Pod is a Pod that another scheduler bound to a node of
Slurm.

Each round of the loop reads the states of all adopted Pods' jobs in one call to Slurm. The round then
carries out the effects (calls to Slurm and Kubernetes) that `adoption` decides. A round begins soon
after an adopted Pod appears or disappears. Otherwise, a round begins about every second, or later after
a long round.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from extender.execution.dispatcher import Dispatcher
from extender.node_view.view import ClusterView
from extender.record.config import Context, PlacementConfig
from extender.record.events import Effect
from extender.unmanaged.adoption import Adoptions
from extender.unmanaged.free_capacity import FreeCapacity
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError
from slurm_client.protocol import Slurm

PART = "adoption"

_INTERVAL_S = 1.0
_SHARE = 10  # the pause after a long round is ten times as long as the round
_TOGETHER_S = 0.1  # changes of adopted Pods within this time share a round
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Adopter:
    """Requests, watches and ends the jobs of adopted Pods."""

    adoptions: Adoptions
    capacity: FreeCapacity
    slurm: Slurm
    health: Health
    config: PlacementConfig
    view: Callable[[], ClusterView]

    async def run(self, dispatcher: Dispatcher) -> None:
        """Runs rounds for ever."""
        began = 0.0

        async def go_round() -> None:
            nonlocal began
            self.capacity.adopted_pods_changed.clear()
            began = dispatcher.now()
            await self._go_round(dispatcher)

        async def pause() -> None:
            seconds = max(_INTERVAL_S, _SHARE * (dispatcher.now() - began))
            await asyncio.sleep(_TOGETHER_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.capacity.adopted_pods_changed.wait()

        report = partial(self.health.says, PART)
        await periodically(go_round, pause, outlives=SlurmError, report=report)

    async def _go_round(self, dispatcher: Dispatcher) -> None:
        adoptions, view = self.adoptions, self.view()
        adoptions.see(self.capacity.adopted_pods, view)
        asked = adoptions.job_ids
        if not asked:
            return
        states = await self.slurm.states(asked)
        effects = adoptions.round(states, Context(dispatcher.now(), self.config, view))
        left = iter(effects)
        await asyncio.gather(*(self._work(left, dispatcher) for _ in range(_WORKERS)))

    async def _work(self, left: Iterator[Effect], dispatcher: Dispatcher) -> None:
        for effect in left:
            outcome = await dispatcher.outcome_of(effect, self.adoptions.whose(effect))
            self.adoptions.apply(outcome, dispatcher.now())
