"""Compares a call by this client with a call by httpx: the number of functions that Python calls. Times
would also contain the system calls, whose share differs between machines."""

import asyncio
import ssl
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import httpx
import pytest

from service.http.client import Client
from service.http.pool import Endpoint, PooledTransport

ROUNDS = 10
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000
Call = Callable[[], Awaitable[httpx.Response]]


async def _serve(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(REPLY)
    writer.close()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _functions(call: Call) -> float:
    """Returns the number of function calls for one request over an open connection. The few functions
    of the server are among them."""
    await call()
    events: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _arg: events.update([event]))
    for _ in range(ROUNDS):
        await call()
    sys.setprofile(before)
    return (events["call"] + events["c_call"]) / ROUNDS


async def test_a_call_takes_much_fewer_functions_than_calls_by_httpx(url: str) -> None:
    def pool() -> PooledTransport:
        return PooledTransport(Endpoint.parse(url, ssl.create_default_context), 1)

    headers = httpx.Headers({"X-SLURM-USER-TOKEN": "token"})
    async with (
        Client(url, pool(), timeout_s=5.0, connect_s=5.0) as client,
        httpx.AsyncClient(transport=pool(), headers=headers) as over_pool,
        httpx.AsyncClient(headers=headers) as plain,
    ):
        own = await _functions(lambda: client.send(client.call("GET", "/slurm", headers)))
        by_client = await _functions(lambda: over_pool.get(f"{url}/slurm"))
        by_httpx = await _functions(lambda: plain.get(f"{url}/slurm"))
    assert own < 0.5 * by_client
    assert own < 0.15 * by_httpx
