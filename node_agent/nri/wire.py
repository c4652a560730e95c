"""Reads and writes messages of ttRPC on NRI's socket. The socket serves both directions.

A frame (containerd/nri, pkg/net/multiplex) has the number of a connection, a length, and bytes of the
connection. A message (containerd/ttrpc, PROTOCOL.md) has a header of ten bytes and a body. A message may
span several frames, and a frame may hold several messages.
"""

import asyncio
import struct
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple, Self

REQUEST: Final = 1
RESPONSE: Final = 2
_FRAME: Final = struct.Struct(">II")
_HEADER: Final = struct.Struct(">IIBB")
_LONGEST_FRAME: Final = 4096
"""Size of the other side's buffer for a frame. If a frame is longer, the other side fails."""
_LONGEST: Final = 4 << 20
"""Limit of a body, as in ttRPC."""


class Malformed(Exception):
    """The received bytes are not a message of this protocol."""


class Message(NamedTuple):
    """A message. Field `connection` is the multiplexer's number for the connection. Field `stream` is
    ttRPC's number for the call."""

    connection: int
    stream: int
    kind: int
    body: bytes


class Wire:
    """A socket to the container runtime."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._came = defaultdict[int, bytearray](bytearray)
        """Incomplete messages by connection."""

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Connects to the runtime's socket. Raises OSError."""
        return cls(*await asyncio.open_unix_connection(path))

    async def read(self) -> Message:
        """Returns the next message. Raises OSError and Malformed, and EOFError at the end of the
        connection."""
        while True:
            for connection, came in self._came.items():
                if (message := _take(connection, came)) is not None:
                    return message
            connection, length = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
            if length > _LONGEST + _HEADER.size:
                raise Malformed(f"a frame of {length} bytes")
            self._came[connection] += await self._reader.readexactly(length)

    async def write(self, message: Message) -> None:
        """Sends a message. Raises OSError."""
        header = _HEADER.pack(len(message.body), message.stream, message.kind, 0)
        data = header + message.body
        for begin in range(0, len(data), _LONGEST_FRAME):
            part = data[begin : begin + _LONGEST_FRAME]
            self._writer.write(_FRAME.pack(message.connection, len(part)) + part)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def _take(connection: int, came: bytearray) -> Message | None:
    """Takes the next complete message out of a buffer. Returns None if the message is not complete
    yet."""
    if len(came) < _HEADER.size:
        return None
    length, stream, kind, _ = _HEADER.unpack_from(came)
    if length > _LONGEST:
        raise Malformed(f"a message of {length} bytes")
    end = _HEADER.size + length
    if len(came) < end:
        return None
    body = bytes(came[_HEADER.size : end])
    del came[:end]
    return Message(connection, stream, kind, body)
