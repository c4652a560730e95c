"""The deadline of kube-scheduler's calls: each verb answers before kube-scheduler gives the call up.

kube-scheduler reports a call without an answer as `Client.Timeout`, which names no cause. A verb asks
Slurm and kube-apiserver through `slurm_in_time` and `kubernetes_in_time`, so that the error names the
system without an answer.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from extender.kube_scheduler.configuration import HTTP_TIMEOUT_S
from kubernetes_client.errors import Unavailable
from slurm_client.errors import OutcomeUnknown

_ANSWER_S = 0.8 * HTTP_TIMEOUT_S
"""Seconds until a verb answers. The rest is for the connection and the event loop."""
_QUESTIONS_S = 0.7 * HTTP_TIMEOUT_S
"""Seconds until questions end. A Binding that follows the last question has time until _ANSWER_S."""
_LATE: Final = "no answer in time for kube-scheduler"

Answer = TypeVar("Answer")

_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)
"""Time of the event loop's clock at which questions end. None outside of a verb."""


@contextmanager
def questions_in_time() -> Iterator[None]:
    """Sets the deadline for the questions inside the block, and in tasks that the block starts."""
    before = _deadline.set(asyncio.get_running_loop().time() + _QUESTIONS_S)
    try:
        yield
    finally:
        _deadline.reset(before)


async def work_in_time(work: asyncio.Task[Answer]) -> Answer:
    """Returns the result of a verb's work. Raises TimeoutError if the verb has to answer before the
    end of the work; the work continues."""
    async with asyncio.timeout(_ANSWER_S):
        return await asyncio.shield(work)


async def slurm_in_time(question: Awaitable[Answer]) -> Answer:
    """Returns Slurm's answer to a question. Raises OutcomeUnknown at the deadline."""
    try:
        async with asyncio.timeout_at(_deadline.get()):
            return await question
    except TimeoutError as error:
        raise OutcomeUnknown(_LATE) from error


async def kubernetes_in_time(question: Awaitable[Answer]) -> Answer:
    """Returns kube-apiserver's answer to a question. Raises Unavailable at the deadline."""
    try:
        async with asyncio.timeout_at(_deadline.get()):
            return await question
    except TimeoutError as error:
        raise Unavailable(0, _LATE) from error
