"""While the extender reads many large reviews, the event loop also answers other calls."""

import asyncio
from time import process_time

import pytest

from extender.admission.review import _MOST_SEPARATORS, _ORDINARY_SEPARATORS, is_large
from tests.verbs.callers import Listeners, body
from tests.verbs.test_malformed import POD

AT_ONCE = 12
TICK_S = 0.005


def review(separators: int) -> bytes:
    """Returns a review of a Pod with very many values that the extender does not use."""
    values = b",".join([b"[]"] * ((separators - 20) // 2))
    return POD % (b'"managedFields": [' + values + b"]", b"")


LARGEST = review(_MOST_SEPARATORS)
LARGE = review(_MOST_SEPARATORS // 4)


class Crowd:
    """Callers that send the same review at the same time."""

    def __init__(self, verb: str, sent: bytes) -> None:
        self._verb = verb
        self._sent = sent
        self.listeners = Listeners()
        self.answered: list[int] = []

    async def comes(self) -> None:
        """Sends all reviews, and waits for all answers."""
        await asyncio.gather(*(self.asks(number) for number in range(AT_ONCE)))

    async def asks(self, number: int) -> None:
        answer = await self.listeners.post(self._verb, self._sent)
        assert answer.status_code == 200, answer.text
        self.answered.append(number)


@pytest.mark.alone
@pytest.mark.parametrize("verb", ["mutate", "validate/every-pod"])
async def test_only_one_large_review_at_a_time_blocks_the_event_loop(verb: str) -> None:
    """The test measures CPU time, so other programs on the machine do not matter."""
    crowd, late = Crowd(verb, LARGEST), [0.0]
    began = process_time()
    await crowd.asks(0)
    one = process_time() - began

    async def ticks() -> None:
        while True:
            before = process_time()
            await asyncio.sleep(TICK_S)
            late.append(process_time() - before)

    ticking = asyncio.ensure_future(ticks())
    await crowd.comes()
    await asyncio.sleep(2 * TICK_S)
    ticking.cancel()
    assert crowd.answered[1:] == [*range(AT_ONCE)]
    assert max(late) < 3 * one, f"held up for {max(late):.3f} s, and one of them takes {one:.3f} s"


async def test_small_reviews_are_answered_between_large_reviews() -> None:
    crowd, between = Crowd("mutate", LARGE), set[int]()

    async def small() -> None:
        while True:
            assert (await crowd.listeners.post("mutate", body("mutate"))).status_code == 200
            between.add(len(crowd.answered))
            await asyncio.sleep(TICK_S)

    asking = asyncio.ensure_future(small())
    await crowd.comes()
    asking.cancel()
    assert len(between) > AT_ONCE / 2, between


def test_number_of_separators_makes_a_review_large() -> None:
    assert not is_large(review(_ORDINARY_SEPARATORS))
    assert is_large(review(_ORDINARY_SEPARATORS + 50))
    assert not is_large(POD % (b'"name": "%s"' % (b"n" * 100_000), b""))
