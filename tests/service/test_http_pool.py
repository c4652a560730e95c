"""Tests of a pool of connections: the order of calls, the end of connections, and the replies."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.http import pool as http_pool
from service.http.client import Client
from service.http.pool import LOST, Connection, Endpoint, PooledTransport
from tests.slurm_client.peer import Act, Peer, lost, peer, reply

FINE = Act(reply(200, b"fine"))


@contextlib.asynccontextmanager
async def client_of(served: Peer, timeout_s: float = 5.0, **how: Any) -> AsyncIterator[Client]:
    """Yields a client whose pool has a single connection."""
    endpoint = Endpoint.parse(served.url, ssl.create_default_context)
    transport = PooledTransport(endpoint, 1, **how)
    async with Client(served.url, transport, timeout_s=timeout_s, connect_s=timeout_s) as client:
        yield client


async def ask(client: Client, what: str = "a") -> str:
    return (await client.send(client.call("GET", f"/{what}", httpx.Headers()))).text


async def test_connection_is_reused() -> None:
    async with peer(FINE, FINE) as served, client_of(served) as client:
        assert [await ask(client), await ask(client)] == ["fine", "fine"]
        assert served.connections == 1


async def test_call_with_the_longest_wait_is_next() -> None:
    """Otherwise the caller with the connection could use the connection again at once, before an earlier
    waiting caller."""
    gate = asyncio.Event()
    order: list[str] = []

    async def ask_often(who: str, times: int) -> None:
        for _ in range(times):
            await ask(client, who)
            order.append(who)

    async with peer(Act(reply(200, b""), after=gate), [FINE] * 3) as served, client_of(served) as client:
        busy = asyncio.create_task(ask_often("busy", 3))
        await served.until_open(1)
        patient = asyncio.create_task(ask_often("patient", 1))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(busy, patient)
    assert order == ["busy", "patient", "busy", "busy"]


async def test_call_without_a_free_connection_times_out() -> None:
    gate = asyncio.Event()
    slow = Act(reply(200, b"slow"), after=gate)
    async with peer(slow, FINE) as served, client_of(served) as client:
        first = asyncio.create_task(ask(client))
        await served.until_open(1)
        client.timeout = httpx.Timeout(0.02)
        with pytest.raises(httpx.PoolTimeout, match=r"busy for 0\.02 s"):
            await ask(client)
        gate.set()
        assert await first == "slow"
        assert await ask(client) == "fine"


async def test_call_cancelled_during_its_reply_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data after this reply must not reach the next call. For example, slurmrestd sends some errors
    twice."""
    complete = Connection.on_message_complete

    def cancelled_meanwhile(connection: Connection) -> None:
        complete(connection)
        call.cancel()

    async with peer(Act(reply(500, b"no")), FINE) as served, client_of(served) as client:
        monkeypatch.setattr(Connection, "on_message_complete", cancelled_meanwhile)
        call = asyncio.create_task(ask(client))
        with pytest.raises(asyncio.CancelledError):
            await call
        monkeypatch.undo()
        assert await ask(client) == "fine"
        assert served.connections == 2


async def test_connection_idle_for_long_is_not_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with peer(FINE, FINE) as served, client_of(served) as client:
        await ask(client)
        monkeypatch.setattr(http_pool, "_IDLE_S", 0.0)
        await ask(client)
        assert served.connections == 2


async def test_informational_reply_is_skipped() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with peer(Act(hint + reply(200, b"fine"))) as served, client_of(served) as client:
        assert await ask(client) == "fine"


async def test_connection_closes_after_a_reply_that_does_not_keep_it() -> None:
    script = [Act(reply(422, b"no")), FINE]
    async with peer(script) as served, client_of(served, keeps=lambda status: status < 400) as client:
        assert [await ask(client), await ask(client)] == ["no", "fine"]
        assert served.connections == 2


async def test_each_failure_has_an_exception_of_its_own() -> None:
    never = Act(after=asyncio.Event(), closes=True)
    async with peer(lost(), never) as served, client_of(served, timeout_s=0.05) as client:
        with pytest.raises(LOST):
            await ask(client)
        with pytest.raises(httpx.ReadTimeout, match=r"within 0\.05 s"):
            await ask(client)
    async with client_of(served) as client:
        with pytest.raises(httpx.ConnectError):
            await ask(client)


async def test_invalid_characters_of_a_header_are_replaced() -> None:
    headers = httpx.Headers({"X-SLURM-USER-TOKEN": "a\r\nHost: other\u20ac"}, encoding="utf-8")
    async with peer(FINE) as served, client_of(served) as client:
        await client.send(client.call("GET", "/x", headers))
        assert served.tokens == ["a??Host: other???"]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://user:secret@host:1/prefix/", "http://host:1/prefix"),
        ("https://host", "https://host"),
        ("unix:///run/slurmrestd", "http://localhost"),
    ],
)
def test_url_of_an_endpoint_has_no_secrets(url: str, base: str) -> None:
    assert Endpoint.parse(url, ssl.create_default_context).url == base


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"


async def test_a_body_is_read_as_it_arrives() -> None:
    """The client must not wait for the end of a body: the body of a watch has no end."""
    async with (
        peer(Act(CHUNKED)) as served,
        client_of(served) as client,
        client.stream("GET", f"{served.url}/a") as response,
    ):
        assert await anext(response.aiter_raw()) == b"one"
        with pytest.raises(httpx.PoolTimeout):
            await client.get(f"{served.url}/b", timeout=0.01)


async def test_unread_body_closes_its_connection() -> None:
    async with peer(Act(CHUNKED), FINE) as served, client_of(served) as client:
        async with client.stream("GET", f"{served.url}/a") as response:
            assert response.status_code == 200
        assert await ask(client) == "fine"
        assert served.connections == 2


@pytest.mark.parametrize(
    ("closes", "timeout_s", "error"), [(False, 0.2, (httpx.ReadTimeout,)), (True, 5.0, LOST)]
)
async def test_body_without_an_end_is_an_error_of_one_call(
    closes: bool, timeout_s: float, error: tuple[type[Exception], ...]
) -> None:
    script = [Act(CHUNKED, closes=closes), FINE]
    async with peer(script) as served, client_of(served, timeout_s) as client:
        with pytest.raises(error):
            await ask(client)
        assert await ask(client) == "fine"


async def test_call_cancelled_within_the_body_frees_its_connection() -> None:
    async with peer(Act(CHUNKED), FINE) as served, client_of(served) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ask(client)
        assert await ask(client) == "fine"


async def test_a_server_waits_for_the_reader_of_a_long_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pool, "_MAX_UNREAD_BYTES", 1 << 10)
    read: list[int] = []

    class Counting(Connection):
        def data_received(self, data: bytes) -> None:
            read.append(len(data))
            super().data_received(data)

    monkeypatch.setattr(http_pool, "Connection", Counting)
    long = 16 << 20
    async with (
        peer(Act(reply(200, b"x" * long))) as served,
        client_of(served) as client,
        client.stream("GET", f"{served.url}/a") as response,
    ):
        await asyncio.sleep(0.1)
        assert sum(read) < long / 2
        assert len(await response.aread()) == long


async def test_closed_pool_has_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns if a connection is not fully closed at the end of the event loop."""
    made: list[Connection] = []

    class Noted(Connection):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(http_pool, "Connection", Noted)
    async with peer(FINE) as served, client_of(served) as client:
        await ask(client)
        (connection,) = made
        assert not connection.ended.done()
        await client.aclose()
        assert connection.ended.done()
