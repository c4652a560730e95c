"""TCP links with faults on command: `python -m deploy.local.processes.proxy LINKS SOCKET`.

The proxy represents a Kubernetes Service (a link with several backends), or an unreliable network
between two components in tests. Each new connection goes to the next backend in turn. If a backend
refuses the connection, the proxy tries the backend after it. LINKS is JSON: {name: {"port": ..,
"backends": [..]}}. Clients set a link's fault on a UNIX socket, see `Links`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

HEALTHY: Final = "healthy"
REFUSE: Final = "refuse"
"""Connections are closed, and new connections refused."""
STALL: Final = "stall"
"""Half-open: connections are accepted and kept, and no data passes. Data sent during the fault
arrives after the fault, as with TCP's retransmissions."""
SLOW: Final = "slow"
"""Every piece of data arrives late."""
DROP: Final = "drop"
"""Connections are closed once. The link stays as healthy as before."""
GARBAGE: Final = "garbage"
"""Answers of the backends arrive as random bytes."""
ERROR: Final = "error"
"""Every HTTP request is answered with 500, and reaches no backend."""
EMPTY: Final = "empty"
"""Every HTTP request is answered with 200 and an empty object."""
FAULTS: Final = (HEALTHY, REFUSE, STALL, SLOW, DROP, GARBAGE, ERROR, EMPTY)

_PIECE: Final = 1 << 16
_SLOWNESS_S: Final = 0.3
_REPLY: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}".format
)
_OOPS: Final = "<html>Internal Server Error</html>"
_REPLIES: Final = {
    ERROR: _REPLY(status="500 Internal Server Error", kind="text/html", length=len(_OOPS), body=_OOPS),
    EMPTY: _REPLY(status="200 OK", kind="application/json", length=2, body="{}"),
}


class Link:
    """A listening port of 127.0.0.1, forwarded to the ports of its backends."""

    def __init__(self, port: int, backends: Sequence[int]) -> None:
        self._port = port
        self._backends = list(backends)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._delay_s = 0.0
        self._noise = False
        self._reply: bytes | None = None
        """Answer to every request instead of a backend's answer. None: the backend answers."""

    async def serve(self) -> None:
        """Starts to listen, unless the link already listens."""
        if self._server is None:
            self._server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)

    async def fare(self, fault: str) -> None:
        """Sets the link's fault, one of FAULTS."""
        before, self._reply = self._reply, _REPLIES[fault].encode() if fault in _REPLIES else None
        if fault in (DROP, REFUSE) or self._reply != before:
            self._close()
        if fault == DROP:
            return
        self._delay_s = _SLOWNESS_S if fault == SLOW else 0.0
        self._noise = fault == GARBAGE
        (self._passing.clear if fault == STALL else self._passing.set)()
        if fault != REFUSE:
            await self.serve()
        elif self._server is not None:
            self._server.close()
            self._server = None

    def _close(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._passing.wait()
            if self._reply is not None:
                await self._answer(reader, writer, self._reply)
            elif there := await self._connect():
                await self._join(reader, writer, *there)
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: bytes
    ) -> None:
        """Answers each piece of data with `reply`, as if every piece were a whole request."""
        while await reader.read(_PIECE):
            writer.write(reply)
            await writer.drain()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._backends:
            self._backends.append(port := self._backends.pop(0))
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        return None

    async def _join(
        self,
        here_reader: asyncio.StreamReader,
        here_writer: asyncio.StreamWriter,
        there_reader: asyncio.StreamReader,
        there_writer: asyncio.StreamWriter,
    ) -> None:
        """Carries data in both directions until both directions have ended. An error in one direction
        ends both."""
        self._open.add(there_writer)
        try:
            with suppress(ExceptionGroup):
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(self._pump(here_reader, there_writer))
                    directions.create_task(self._pump(there_reader, here_writer, answers=True))
        finally:
            self._open.discard(there_writer)
            there_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        while piece := await reader.read(_PIECE):
            await asyncio.sleep(self._delay_s)
            await self._passing.wait()
            writer.write(os.urandom(len(piece)) if answers and self._noise else piece)
            await writer.drain()
        await self._passing.wait()
        writer.write_eof() if writer.can_write_eof() else writer.close()


@dataclass(frozen=True, slots=True)
class Links:
    """The links by name. A line "NAME FAULT" on the socket is answered with "ok" or an error."""

    links: Mapping[str, Link] = field(default_factory=dict)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(f"{await self._obey(line.decode().split())}\n".encode())
        writer.close()

    async def _obey(self, words: Sequence[str]) -> str:
        match words:
            case [name, fault] if name in self.links and fault in FAULTS:
                await self.links[name].fare(fault)
                return "ok"
        return f"usage: NAME FAULT; names: {', '.join(self.links)}; faults: {', '.join(FAULTS)}"


async def _main(plan: str, control: str) -> None:
    links = {name: Link(**link) for name, link in json.loads(plan).items()}
    for link in links.values():
        await link.serve()
    server = await asyncio.start_unix_server(Links(links).answer, control)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
