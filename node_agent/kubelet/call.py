"""Calls the kubelet by gRPC."""

import asyncio
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, StreamTerminatedError

_ANSWER_WITHIN_S: Final = 10.0
"""Time for an answer. A hanging kubelet accepts connections, but does not answer."""

_Answer = TypeVar("_Answer", bound=Message)


async def ask(socket: Path, method: str, asked: Message, answer: type[_Answer]) -> _Answer:
    """Calls a method of the kubelet by the method's path, and returns the answer. Raises OSError if the
    kubelet is missing, rejects the call, or does not answer in time."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S), Channel(path=str(socket)) as kubelet:
            return await UnaryUnaryMethod(kubelet, method, type(asked), answer)(asked)
    except GRPCError as error:
        raise OSError(f"the kubelet: {error.message or error.status.name}") from error
    except TimeoutError as error:
        raise OSError(f"the kubelet: {socket}: no answer within {_ANSWER_WITHIN_S:g} s") from error
    except OSError as error:
        raise OSError(f"the kubelet: {socket}: {error.strerror or error}") from error
    except StreamTerminatedError as error:
        raise OSError(f"the kubelet: {error}") from error
