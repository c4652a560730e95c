"""Tests of shared calls: all callers that ask before a call starts share the result of this call."""

import asyncio

import pytest

from service.shared import Shared


class Call:
    """Counts the starts of a call. Each started call ends when the test releases `may_end`."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.begun += 1
        await self.may_end.acquire()
        if self.error is not None:
            raise self.error


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def asked(shared: Shared, times: int = 1) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(shared()) for _ in range(times)]
    await settle()
    return tasks


async def test_concurrent_callers_share_a_call_and_later_callers_get_the_next() -> None:
    call = Call()
    shared = Shared(call)
    first = await asked(shared)
    later = await asked(shared, 3)
    assert call.begun == 1, "those who came later wait for the next"
    call.may_end.release()
    await asyncio.gather(*first)
    await settle()
    assert (call.begun, [task.done() for task in later]) == (2, [False] * 3)
    call.may_end.release()
    await asyncio.gather(*later)
    assert call.begun == 2


async def test_callers_of_a_shared_call_get_its_error_and_later_callers_do_not() -> None:
    call = Call()
    shared = Shared(call)
    call.error = ValueError("no")
    first = await asked(shared, 2)
    call.may_end.release()
    for task in first:
        with pytest.raises(ValueError, match="no"):
            await task
    call.error = None
    call.may_end.release()
    await shared()
    assert call.begun == 2


async def test_cancelled_caller_does_not_end_the_shared_call() -> None:
    call = Call()
    shared = Shared(call)
    impatient, patient = await asked(shared, 2)
    impatient.cancel()
    await settle()
    call.may_end.release()
    await patient
    assert (call.begun, impatient.cancelled()) == (1, True)
