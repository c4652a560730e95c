"""Tests of calls that may never return."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress

import pytest

from node_agent.machine.hang_safe_call import HangSafeCall, Unanswered
from tests.eventually import until
from tests.node_agent.machines import Gpus

_END = """
import asyncio, time
from node_agent.machine import names
from node_agent.machine.hang_safe_call import HangSafeCall, Unanswered
from node_agent.machine.vendors.nvidia import NVIDIA
NVIDIA.buses = lambda *_: ["0000:19:00.0"]
async def main():
    try:
        await HangSafeCall(names.ask_drivers, "a driver", 0.2).result()
    except Unanswered as error:
        print(error, flush=True)
asyncio.run(main())
"""


async def test_call_runs_once_until_it_returns() -> None:
    answered, asked = threading.Event(), list[str]()

    def ask() -> int:
        asked.append(threading.current_thread().name)
        answered.wait()
        return len(asked)

    call = HangSafeCall(ask, "a driver", 0.05)
    for _ in range(3):
        with pytest.raises(Unanswered, match=r"^a driver has not answered for 0\.05 s$"):
            await call.result()
    assert len(asked) == 1
    answered.set()

    async def result() -> int:
        with suppress(Unanswered):
            return await call.result()
        return 0

    assert await until(result) == 1
    assert await call.result() == 2


async def test_error_of_a_call_is_raised_and_the_next_call_runs_again() -> None:
    answers = [0, 1]

    def ask() -> float:
        return 7 / answers.pop(0)

    call = HangSafeCall(ask, "a driver", 5)
    with pytest.raises(ZeroDivisionError):
        await call.result()
    assert await call.result() == 7


async def test_late_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    answered, threads = threading.Event(), list[threading.Thread]()

    def ask() -> float:
        threads.append(threading.current_thread())
        answered.wait()
        return 7 / 0

    call = HangSafeCall(ask, "a driver", 0.05)
    with pytest.raises(Unanswered):
        await call.result()
    answered.set()
    threads[0].join()
    await asyncio.sleep(0.01)  # the event loop gets the error
    del call
    gc.collect()
    assert not caplog.records


def test_process_ends_while_a_driver_hangs(gpus: Gpus) -> None:
    gpus.add()
    gpus.say("driver", hangs=1)
    done = gpus.run(_END, timeout=20)
    assert (done.returncode, done.stdout) == (0, "a driver has not answered for 0.2 s\n"), done.stderr
