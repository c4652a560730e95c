"""Connections that are kept: who gets one, and when one is not to be used again."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from service import http_pool
from service.http_pool import Busy, Connection, Endpoint, Lost, NoConnection, Pool, Silent
from tests.slurm_client.peer import Act, lost, peer, reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.slurm_client.peer import Peer

FINE = Act(reply(200, b"fine"))


@contextlib.asynccontextmanager
async def pool_of(served: Peer, **how: Any) -> AsyncIterator[Pool]:
    """One of a single connection."""
    endpoint = Endpoint.parse(served.url, ssl.create_default_context)
    pool = Pool(endpoint, 1, **{"timeout_s": 5.0, "connect_s": 1.0} | how)
    yield pool
    await pool.aclose()


async def ask(pool: Pool, what: str = "a") -> str:
    _, body = await pool.exchange(pool.endpoint.request("GET", f"/{what}", {}, None))
    return body.decode()


async def test_a_connection_is_used_again() -> None:
    async with peer(FINE, FINE) as served, pool_of(served) as pool:
        assert [await ask(pool), await ask(pool)] == ["fine", "fine"]
        assert served.connections == 1


async def test_who_waits_longest_is_next() -> None:
    """Not whoever gave the connection back and asks again at once."""
    gate = asyncio.Event()
    order: list[str] = []

    async def ask_often(who: str, times: int) -> None:
        for _ in range(times):
            await ask(pool, who)
            order.append(who)

    async with peer(Act(reply(200, b""), after=gate), [FINE] * 3) as served, pool_of(served) as pool:
        busy = asyncio.create_task(ask_often("busy", 3))
        await served.until_open(1)
        patient = asyncio.create_task(ask_often("patient", 1))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(busy, patient)
    assert order == ["busy", "patient", "busy", "busy"]


async def test_one_too_many_is_told_so() -> None:
    gate = asyncio.Event()
    slow = Act(reply(200, b"slow"), after=gate)
    async with peer(slow, FINE) as served, pool_of(served) as pool:
        first = asyncio.create_task(ask(pool))
        await served.until_open(1)
        pool.timeout_s = 0.02
        with pytest.raises(Busy, match=r"busy for 0\.02 s"):
            await ask(pool)
        gate.set()
        assert await first == "slow"
        assert await ask(pool) == "fine"


async def test_a_call_that_is_cancelled_as_its_reply_comes_leaves_no_connection_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes after that reply, as slurmrestd's second copy of an error, is for nobody."""
    complete = Connection.on_message_complete

    def cancelled_meanwhile(connection: Connection) -> None:
        complete(connection)
        call.cancel()

    async with peer(Act(reply(500, b"no")), FINE) as served, pool_of(served) as pool:
        monkeypatch.setattr(Connection, "on_message_complete", cancelled_meanwhile)
        call = asyncio.create_task(ask(pool))
        with pytest.raises(asyncio.CancelledError):
            await call
        monkeypatch.undo()
        assert await ask(pool) == "fine"
        assert served.connections == 2


async def test_a_connection_that_nobody_used_for_long_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with peer(FINE, FINE) as served, pool_of(served) as pool:
        await ask(pool)
        monkeypatch.setattr(http_pool, "_IDLE_S", 0.0)
        await ask(pool)
        assert served.connections == 2


async def test_a_reply_that_says_to_wait_is_not_the_reply() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with peer(Act(hint + reply(200, b"fine"))) as served, pool_of(served) as pool:
        assert await ask(pool) == "fine"


async def test_some_replies_are_the_last_of_their_connection() -> None:
    script = [Act(reply(422, b"no")), FINE]
    async with peer(script) as served, pool_of(served, keeps=lambda status: status < 400) as pool:
        assert [await ask(pool), await ask(pool)] == ["no", "fine"]
        assert served.connections == 2


async def test_what_can_go_wrong_has_a_name_each() -> None:
    never = Act(after=asyncio.Event(), closes=True)
    async with peer(lost(), never) as served, pool_of(served, timeout_s=0.05) as pool:
        with pytest.raises(Lost):
            await ask(pool)
        with pytest.raises(Silent, match=r"within 0\.05 s"):
            await ask(pool)
    async with pool_of(served) as pool:
        with pytest.raises(NoConnection):
            await ask(pool)


def test_what_cannot_be_in_a_header_is_not_sent() -> None:
    endpoint = Endpoint.parse("http://user:secret@host:1/prefix/", ssl.create_default_context)
    sent = endpoint.request("PUT", "/x", {"Token": "a\r\nHost: other"}, b"{}")
    assert sent == (
        b"PUT /prefix/x HTTP/1.1\r\nHost: host:1\r\nToken: a??Host: other\r\nContent-Length: 2\r\n\r\n{}"
    )


async def test_no_connection_is_left_of_a_pool_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that ends with one half closed would warn of it."""
    made: list[Connection] = []

    class Noted(Connection):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(http_pool, "Connection", Noted)
    async with peer(FINE) as served, pool_of(served) as pool:
        await ask(pool)
        (connection,) = made
        assert not connection.ended.done()
        await pool.aclose()
        assert connection.ended.done()
