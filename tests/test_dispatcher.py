"""The dispatcher under the event loop that production uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
import uvloop

from extender.dispatcher import Dispatcher, failure_of
from extender.kubernetes_api import Conflict, KubernetesApi, NotFound, Rejected, Unavailable
from extender.placement.events import CancelJob, Effect, Event, Outcome, Remedy, Tick
from extender.placement.ledger import Ledger
from extender.telemetry import Telemetry
from slurm_client import errors
from slurm_client.protocol import Slurm


class Script:
    """A ledger that answers from a script and keeps what it was told."""

    def __init__(self, wakes: Iterator[float], effects: tuple[Effect, ...] = ()) -> None:
        self.told: list[Event] = []
        self._wakes = wakes
        self._effects = effects
        self._news = asyncio.Event()

    def apply(self, event: Event, _now: float) -> tuple[Effect, ...]:
        self.told.append(event)
        self._news.set()
        effects, self._effects = self._effects, ()
        return effects

    def next_wake(self) -> float:
        return next(self._wakes, float("inf"))

    async def was_told(self, times: int) -> None:
        async with asyncio.timeout(5):
            while len(self.told) < times:
                self._news.clear()
                await self._news.wait()


class BrokenSlurm:
    async def cancel(self, _job_id: int) -> None:
        raise ZeroDivisionError


def dispatcher(ledger: Script) -> Dispatcher:
    slurm, kubernetes = cast("Slurm", BrokenSlurm()), cast("KubernetesApi", None)
    return Dispatcher(cast("Ledger", ledger), slurm, kubernetes, Telemetry(), workers=1)


def in_uvloop(work: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def test_a_wake_that_is_overdue_rings_at_once_however_often_it_is_set() -> None:
    ledger = Script(iter([0.0, 0.0, float("inf")]))

    async def feed_twice() -> None:
        subject = dispatcher(ledger)
        subject.feed(Tick())
        subject.feed(Tick())
        await ledger.was_told(3)

    in_uvloop(feed_twice())


def test_an_earlier_wake_replaces_a_later_one() -> None:
    ledger = Script(iter([float(1 << 40), 0.0]))

    async def feed_twice() -> None:
        subject = dispatcher(ledger)
        subject.feed(Tick())
        subject.feed(Tick())
        await ledger.was_told(3)

    in_uvloop(feed_twice())


def test_a_defect_in_an_effect_is_an_outcome_and_not_the_end() -> None:
    effect = CancelJob("u1", 7)
    ledger = Script(iter(()), (effect,))

    async def carry_out() -> None:
        subject = dispatcher(ledger)
        working = asyncio.ensure_future(subject.run())
        subject.feed(Tick())
        await ledger.was_told(2)
        assert not working.done()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    in_uvloop(carry_out())
    outcome = ledger.told[1]
    assert isinstance(outcome, Outcome)
    assert outcome.effect == effect
    assert outcome.result.remedy is Remedy.AGAIN


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.NoRoomNow("x"), Remedy.NO_ROOM),
        (errors.JobIdTaken("x"), Remedy.ID_TAKEN),
        (errors.InvalidRequest("x"), Remedy.CHANGE),
        (errors.NeedsOperator("x"), Remedy.OPERATOR),
        (errors.Unreachable("x"), Remedy.AGAIN),
        (errors.RetryLater("x"), Remedy.LATER),
        (errors.OutcomeUnknown("x"), Remedy.AGAIN),
        (Conflict(409, "x"), Remedy.FRESHER),
        (NotFound(404, "x"), Remedy.GONE),
        (Unavailable(0, "x"), Remedy.AGAIN),
        (Rejected(403, "x"), Remedy.OPERATOR),
    ],
)
def test_every_error_has_its_remedy(error: Exception, remedy: Remedy) -> None:
    assert failure_of(error).remedy is remedy
