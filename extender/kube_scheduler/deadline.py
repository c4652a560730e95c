"""The deadline of kube-scheduler's calls: each verb answers before kube-scheduler cancels the call.

kube-scheduler reports a call without an answer as `Client.Timeout`, without a cause. So a verb asks
through `slurm_in_time` and `kubernetes_in_time`, and the error names the slow system."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from extender.kube_scheduler.configuration import HTTP_TIMEOUT_S
from kubernetes_client.errors import Unavailable
from slurm_client.errors import OutcomeUnknown

_ANSWER_S = 0.8 * HTTP_TIMEOUT_S
"""Seconds until a verb answers. The remaining time is for the connection and the event loop."""
_QUESTIONS_S = 0.7 * HTTP_TIMEOUT_S
"""Seconds until a verb's questions to Slurm and kube-apiserver must end. A Binding that follows the last
question has time until _ANSWER_S."""
_FAIR_SHARE: Final = 0.25
"""An error names a system only if the system had at least this share of _QUESTIONS_S to answer."""
_LATE: Final = "no answer in time for kube-scheduler"

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Deadline:
    at: float
    """End of questions, by the event loop's clock."""
    questions_s: float
    """Seconds for all questions."""
    slurm_s: float = 0.0
    """Seconds that questions to Slurm have taken."""


_deadline: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)
"""The deadline of the verb's questions. None outside of a verb."""


@contextmanager
def questions_in_time(more_s: float = 0.0) -> Iterator[None]:
    """Sets the deadline for the questions inside the block, and in tasks that the block starts. `more_s`
    is additional time, if kube-scheduler gives the verb more than HTTP_TIMEOUT_S."""
    questions_s = _QUESTIONS_S + more_s
    before = _deadline.set(_Deadline(asyncio.get_running_loop().time() + questions_s, questions_s))
    try:
        yield
    finally:
        _deadline.reset(before)


async def work_in_time(work: asyncio.Task[Answer], more_s: float = 0.0) -> Answer:
    """Returns the result of a verb's work. Raises TimeoutError at the deadline; the work continues."""
    async with asyncio.timeout(_ANSWER_S + more_s):
        return await asyncio.shield(work)


async def slurm_in_time(question: Awaitable[Answer]) -> Answer:
    """Returns Slurm's answer to a question. At the deadline, raises OutcomeUnknown, an error of Slurm.
    If kube-apiserver has left Slurm too little time, raises Unavailable instead, an error of
    kube-apiserver."""
    deadline = _deadline.get()
    if deadline is None:
        return await question
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(deadline.at):
            return await question
    except TimeoutError as error:
        slurm_s = deadline.slurm_s + deadline.at - began
        raise _late(of_slurm=slurm_s >= _FAIR_SHARE * deadline.questions_s) from error
    finally:
        deadline.slurm_s += asyncio.get_running_loop().time() - began


async def kubernetes_in_time(question: Awaitable[Answer]) -> Answer:
    """Returns kube-apiserver's answer to a question. At the deadline, raises Unavailable, an error of
    kube-apiserver. If Slurm has left kube-apiserver too little time, raises OutcomeUnknown instead, an
    error of Slurm."""
    deadline = _deadline.get()
    if deadline is None:
        return await question
    try:
        async with asyncio.timeout_at(deadline.at):
            return await question
    except TimeoutError as error:
        left_s = deadline.questions_s - deadline.slurm_s
        raise _late(of_slurm=left_s < _FAIR_SHARE * deadline.questions_s) from error


def _late(*, of_slurm: bool) -> Exception:
    return OutcomeUnknown(_LATE) if of_slurm else Unavailable(0, _LATE)
