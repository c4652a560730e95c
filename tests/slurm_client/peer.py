"""A scripted slurmrestd for replies that a real slurmrestd never gives.

Each request takes the next act of the script. Only the two requests with which a client connects
(OpenAPI and ping) take no act.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

OPENAPI = {
    "paths": {"/slurm/v0.0.45/job/submit": {}},
    "components": {
        "schemas": {
            "v0.0.45_job_desc_msg": {"properties": {"flags": {"items": {"enum": ["EXTERNAL_JOB"]}}}}
        }
    },
}
PING = {
    "pings": [{"responding": True}],
    "meta": {"slurm": {"release": "26.05.5", "cluster": "scripted"}},
    "errors": [],
}


@dataclass(frozen=True)
class Act:
    """What the peer does with one request: waits for the event `after`, sends bytes, and closes the
    connection if `closes` is True."""

    sends: bytes = b""
    closes: bool = False
    after: asyncio.Event | None = None


def reply(status: int, content: bytes | dict[str, Any], *, times: int = 1) -> bytes:
    """Returns an HTTP reply, repeated `times` times. A JSON reply has "meta", as all replies of
    slurmrestd have."""
    body = content if isinstance(content, bytes) else orjson.dumps({"meta": {}} | content)
    kind = "text/plain" if isinstance(content, bytes) else "application/json"
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nContent-Type: {kind}\r\n\r\n"
    return (head.encode() + body) * times


def slurm_error(number: int, words: str = "said by Slurm", **also: Any) -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": words, "description": "call"}], **also}


def lost() -> Act:
    """Returns an act that closes the connection without a reply."""
    return Act(closes=True)


@dataclass
class Peer:
    """The script and the answer to ping, and a record of the requests that the peer has received."""

    script: list[Act]
    url: str = ""
    seen: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ping: dict[str, Any] = field(default_factory=lambda: PING)
    most_at_once: int = 0
    connections: int = 0
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    _open: int = 0
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def until_open(self, count: int) -> None:
        """Returns as soon as exactly `count` requests wait for their replies."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: self._open == count)

    async def aclose(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                while await self._answer(reader, writer):
                    pass
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line, token = await _request(reader)
        act = self._act(line, token)
        if act.after:
            await self._count(+1)
            await act.after.wait()
            await self._count(-1)
        writer.write(act.sends)
        await writer.drain()
        return not act.closes

    async def _count(self, step: int) -> None:
        async with self.arrived:
            self._open += step
            self.most_at_once = max(self.most_at_once, self._open)
            self.arrived.notify_all()

    def _act(self, line: str, token: str) -> Act:
        if "/openapi/" in line:
            return Act(reply(200, OPENAPI))
        if "/ping/" in line:
            return Act(reply(200, self.ping))
        self.seen.append(line)
        self.tokens.append(token)
        return self.script.pop(0)


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Returns the method and path as one text, and the token."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in head[1:])}
    await reader.readexactly(int(headers.get("content-length", "0")))
    return head[0].removesuffix(" HTTP/1.1"), headers.get("x-slurm-user-token", "")


@contextlib.asynccontextmanager
async def peer(*script: Act | Sequence[Act]) -> AsyncIterator[Peer]:
    """Serves a script on a free port."""
    scripted = Peer([act for part in script for act in ([part] if isinstance(part, Act) else part)])
    server = await asyncio.start_server(scripted.accept, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield scripted
    finally:
        server.close()
        await scripted.aclose()
