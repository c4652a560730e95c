"""Compares the CPU time of a call by this client with the CPU time of a call by httpx, in the same
run."""

import asyncio
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from time import thread_time

import httpx
import pytest

from service.http.client import Client
from service.http.pool import Endpoint, PooledTransport

pytestmark = pytest.mark.alone
CALLS, ROUNDS = 300, 5
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000
Call = Callable[[], Awaitable[httpx.Response]]


async def _serve(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(REPLY)
    writer.close()


@pytest.fixture
def url() -> Iterator[str]:
    """A server that runs in another thread. So the CPU clock of the test's thread does not count the
    server."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(_serve, "127.0.0.1", 0), loop
    ).result()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _microseconds(calls: list[Call]) -> list[float]:
    """Returns, for each kind of call, the CPU time per call in the best of several rounds. In each
    round, the kinds take turns."""
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            began = thread_time()
            for _ in range(CALLS):
                await call()
            least[number] = min(least[number], (thread_time() - began) / CALLS * 1e6)
    return least


async def test_a_call_costs_much_less_than_calls_by_httpx(url: str) -> None:
    def pool() -> PooledTransport:
        return PooledTransport(Endpoint.parse(url, ssl.create_default_context), 1)

    headers = httpx.Headers({"X-SLURM-USER-TOKEN": "token"})
    async with (
        Client(url, pool(), timeout_s=5.0, connect_s=5.0) as client,
        httpx.AsyncClient(transport=pool(), headers=headers) as over_pool,
        httpx.AsyncClient(headers=headers) as plain,
    ):
        own, by_client, by_httpx = await _microseconds(
            [
                lambda: client.send(client.call("GET", "/slurm", headers)),
                lambda: over_pool.get(f"{url}/slurm"),
                lambda: plain.get(f"{url}/slurm"),
            ]
        )
    assert own < 0.6 * by_client
    assert own < 0.2 * by_httpx
