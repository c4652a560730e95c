"""Tests of a listener's limits for strangers, with real sockets.

Strangers send bodies and heads that are too large or never end, read no replies, or connect and send
nothing. Meanwhile, the listener serves well-behaved callers such as kube-scheduler.
"""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import ssl
import tracemalloc
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import generate_latest

from extender.app import Extender, open_many_files
from extender.leader.replica import Replica
from extender.policy.current import CurrentPolicy
from extender.routing import VerbRoute, application, reply
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from service.http.connections import Limits
from service.http.listener import Server
from slurm_client.protocol import Slurm
from tests.eventually import until
from tests.verbs.callers import FakeSlurm

MOST = 1000
MB = 1 << 20
CLOSED = b""


class Site:
    """A listener with three verbs: /length returns the length of the body, /slow waits for `go_on`
    before the same reply, and /large returns 8 MB."""

    def __init__(self) -> None:
        self.rejected: list[str] = []
        self.go_on = asyncio.Event()
        self.under_way = 0
        self.port = 0
        self.server: Server
        self.peers: list[Peer] = []

    @property
    def application(self) -> FastAPI:
        routes = APIRouter(route_class=VerbRoute)

        @routes.post("/length")
        async def length(request: Request) -> Response:
            return reply(len(await request.body()))

        @routes.post("/slow")
        async def slow(request: Request) -> Response:
            self.under_way += 1
            await self.go_on.wait()
            return reply(len(await request.body()))

        @routes.post("/large")
        async def large(_: Request) -> Response:
            return reply("x" * (8 * MB))

        return application(routes)

    async def opens(self, tls: ssl.SSLContext | None = None) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))
        self.peers.append(peer)
        return peer

    async def is_answered(self) -> bool:
        """Uses a new connection, as the kubelet's probes do."""
        peer = await self.opens()
        try:
            return await peer.asks(b"ten bytes.") == (200, b"10")
        except (IncompleteReadError, ConnectionError):
            return False
        finally:
            await peer.leaves()


class Peer:
    """The other side of a connection."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def sends(self, *pieces: bytes) -> None:
        self._writer.write(b"".join(pieces))

    def reads_no_more(self) -> None:
        cast(asyncio.Transport, self._writer.transport).pause_reading()

    async def pours(self, piece: bytes, times: int) -> None:
        """Sends a piece several times, while the listener reads."""
        with suppress(ConnectionError):
            for _ in range(times):
                self._writer.write(piece)
                await self._writer.drain()

    async def asks(self, body: bytes, path: str = "/length") -> tuple[int, bytes]:
        self.sends(head(path, length=len(body)), body)
        return await self.reply()

    async def reply(self) -> tuple[int, bytes]:
        """Returns the status and the body."""
        async with asyncio.timeout(5):
            start = await self._reader.readuntil(b"\r\n\r\n")
            length = int(start.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            return int(start.split()[1]), await self._reader.readexactly(length)

    async def all_of_it(self) -> bytes:
        """Returns all bytes until the end of the connection."""
        async with asyncio.timeout(5):
            try:
                return await self._reader.read()
            except ConnectionError:
                return CLOSED

    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._reader.exception() is not None

    async def leaves(self) -> None:
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


def head(path: str = "/length", *, length: int | None = None, more: bytes = b"") -> bytes:
    said = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n%s\r\n" % (path.encode(), said, more)


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


LIMITS = Limits(connections=50, body=lambda: MOST, owes_s=0.3, rests_s=30.0)


@asynccontextmanager
async def site(
    served: Any = None, *, server: Server | None = None, tls: Any = None, **given: Any
) -> AsyncIterator[Site]:
    own = Site()
    served = served or own.application
    limits = replace(LIMITS, **given)
    server = server or Server(served, ("127.0.0.1", 0), limits, own.rejected.append, tls)
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started or serving.done())
    own.server = server
    own.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield own
    finally:
        own.go_on.set()
        for peer in own.peers:
            await peer.leaves()
        server.should_exit = True
        await serving


# Bodies


async def test_body_of_the_maximum_length_is_read() -> None:
    async with site() as there:
        peer = await there.opens()
        assert await peer.asks(b"x" * MOST) == (200, b"1000")
        peer.sends(head(), chunk(b"x" * 999), chunk(b"x"), chunk(b""))
        assert await peer.reply() == (200, b"1000")
        assert there.rejected == []


async def test_body_announced_as_too_long_is_refused_before_it_is_sent() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head(length=MOST + 1, more=b"Expect: 100-continue\r\n"))
        status, said = await peer.reply()
        assert (status, said) == (413, b'{"Error":"body too large"}')
        assert await peer.all_of_it() == CLOSED
        assert there.rejected[0] == "body too large"


async def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_long() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head(), chunk(b"x" * MOST), chunk(b"x"))
        assert (await peer.reply())[0] == 413
        assert await there.is_answered()


async def test_caller_can_read_the_refusal_while_it_sends() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head(length=4 * MB), b"x" * (4 * MB))
        assert (await peer.reply())[0] == 413


@pytest.mark.parametrize("piece", [b"x" * 65536, chunk(b"x" * 65536), chunk(b"x")])
async def test_memory_is_bounded_while_a_large_body_arrives(piece: bytes) -> None:
    """Sends 150 MB, or less if the listener stops reading."""
    async with site(body=lambda: 4 * MB) as there:
        peer = await there.opens()
        chunked = piece[:1] != b"x"
        tracemalloc.start()
        try:
            peer.sends(head(length=None if chunked else 150 * MB))
            await peer.pours(piece, min(150 * MB // len(piece), 100_000))
            assert tracemalloc.get_traced_memory()[1] < 16 * MB
        finally:
            tracemalloc.stop()
        await peer.leaves()
        assert await there.is_answered()


async def test_body_after_the_reply_is_bounded() -> None:
    """FastAPI's routes answer before the end of the body."""
    application = FastAPI()

    @application.get("/")
    async def root() -> None:
        pass

    async with site(application) as there:
        peer = await there.opens()
        peer.sends(b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await peer.reply())[0] == 200
        peer.sends(*[chunk(b"x" * 100)] * 11)
        assert await peer.all_of_it() == CLOSED
        assert there.rejected[0] == "body too large"


async def test_waiting_large_body_is_dropped_when_its_sender_disconnects() -> None:
    began, go_on = list[int](), asyncio.Event()
    routes = APIRouter(route_class=VerbRoute)

    @routes.post("/slow")
    async def slow(request: Request) -> Response:
        began.append(len(await request.body()))
        await go_on.wait()
        return reply(began[-1])

    served = application(routes, is_large=lambda _: True)
    async with site(served, body=lambda: 4 * MB) as there:
        first, second = await there.opens(), await there.opens()
        first.sends(head("/slow", length=MB), b"x" * MB)
        await until(lambda: began == [MB])
        second.sends(head("/slow", length=2 * MB), b"x" * 2 * MB)
        await until(lambda: served.state.turns.waiting_bytes == 3 * MB)
        await second.leaves()
        await until(lambda: served.state.turns.waiting_bytes == MB)
        go_on.set()
        assert await first.reply() == (200, b"%d" % MB)
        assert await first.asks(b"x", "/slow") == (200, b"1")
        assert began == [MB, 1]


async def test_unfinished_bodies_share_a_limit_and_the_oldest_is_closed() -> None:
    async with site(bodies=3000, owes_s=30.0) as there:
        peers = []
        for _ in range(6):  # four fit: 3000 bytes and one body
            peers.append(await there.opens())
            peers[-1].sends(head(length=MOST), b"x" * 990)
            await asyncio.sleep(0.02)
        await until(lambda: len(there.rejected) == 2)
        assert [peer.is_closed() for peer in peers] == [True, True, False, False, False, False]
        assert await there.is_answered()
        peers[2].sends(b"x" * 10)
        assert await peers[2].reply() == (200, b"1000")


# One request at a time


def many_at_once(first: bytes) -> bytes:
    return first + (head(length=0) + head(length=3) + b"abc") * 2000


async def test_pipelined_requests_are_refused_after_the_first_reply() -> None:
    """The listener answers the first request, and then closes the connection."""
    async with site() as there:
        peer = await there.opens()
        peer.sends(many_at_once(head(length=2) + b"ab"))
        assert await peer.reply() == (200, b"2")
        assert await peer.all_of_it() == CLOSED
        assert there.rejected == ["malformed"]
        assert there.server.server_state.total_requests == 1


async def test_memory_is_bounded_while_pipelined_requests_arrive() -> None:
    async with site(connections=1) as there:
        peer = await there.opens()
        peer.sends(head("/slow", length=1), b"x")
        await until(lambda: there.under_way == 1)
        tracemalloc.start()
        try:
            peer.sends(many_at_once(b""))
            await until(lambda: there.rejected)
            await peer.pours(b"x" * 65536, 100)
            assert tracemalloc.get_traced_memory()[1] < 4 * MB
        finally:
            tracemalloc.stop()
        there.go_on.set()
        assert await peer.reply() == (200, b"1")
        assert there.rejected == ["malformed"]


async def test_connection_with_pipelined_requests_is_closed_for_a_new_connection() -> None:
    async with site(connections=1) as there:
        peer = await there.opens()
        peer.sends(many_at_once(head("/slow", length=0)))
        await until(lambda: there.under_way == 1)
        assert await there.is_answered()
        assert await peer.all_of_it() == CLOSED
        assert there.rejected == ["malformed", "too many connections"]


ASKED = {
    "scheduler": head("/scheduler/preempt", length=2) + b"{}",
    "metrics": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "health": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "hooks": b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("listener", ASKED)
async def test_caller_may_send_a_request_at_once_after_the_reply(listener: str) -> None:
    """The caller's thread may see a reply, and send the next request, before the next turn of the
    listener's event loop."""

    def asks(port: int, asked: bytes) -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            replies = peer.makefile("rb")
            for number in range(300):
                peer.sendall(asked)
                if not replies.readline():
                    return number
                length = 0
                while (line := replies.readline().lower()) != b"\r\n":
                    length += int(line.partition(b"content-length: ")[2] or 0)
                replies.read(length)
        return 300

    _, servers = extender()
    async with site(server=servers[list(ASKED).index(listener)]) as there:
        assert await asyncio.to_thread(asks, there.port, ASKED[listener]) == 300


# Heads


@pytest.mark.parametrize("sent", [b"A: " + b"x" * 100_000, b"A: x\r\n" * 20_000])
async def test_request_head_is_bounded(sent: bytes) -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head(length=0)[:-2], sent)
        assert (await peer.reply())[0] == 431
        await peer.leaves()
        assert there.rejected[0] == "head too large"


async def test_trailers_after_the_last_chunk_are_bounded() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head(), b"0\r\n", b"A: x\r\n" * 20_000)
        assert (await peer.reply())[0] == 431


async def test_request_that_is_not_http_is_refused_as_malformed() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100)
        assert await peer.reply() == (400, b'{"Error":"malformed"}')
        assert await peer.all_of_it() == CLOSED
        assert there.rejected[0] == "malformed"


# Time


SLOW = {
    "an empty line": (b"\r\n", b""),
    "a head by bytes": (b"POST /length HTTP/1.1\r\n", b"A"),
    "a body by bytes": (head(length=MOST), b"x"),
    "chunks by bytes": (head(), chunk(b"x")),
}


@pytest.mark.parametrize(("first", "then"), SLOW.values(), ids=SLOW)
async def test_slow_request_is_closed_after_the_time_limit(first: bytes, then: bytes) -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(first)
        for _ in range(100):
            if peer.is_closed():
                break
            peer.sends(then)
            await asyncio.sleep(0.02)
        assert await peer.all_of_it() == CLOSED
        assert there.rejected == ["too slow"]


async def test_slow_second_request_is_closed_after_the_time_limit() -> None:
    async with site() as there:
        peer = await there.opens()
        assert (await peer.asks(b"x"))[0] == 200
        await asyncio.sleep(0.5)  # an idle connection is allowed
        assert (await peer.asks(b"x"))[0] == 200
        peer.sends(b"POST")
        assert await peer.all_of_it() == CLOSED
        assert there.rejected == ["too slow"]


async def test_connection_with_an_unread_reply_is_closed() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.reads_no_more()
        peer.sends(head("/large", length=0))
        await until(lambda: there.rejected == ["too slow"])


async def test_slow_reply_of_the_extender_is_allowed() -> None:
    async with site() as there:
        peer = await there.opens()
        peer.sends(head("/slow", length=1), b"x")
        await asyncio.sleep(0.6)
        there.go_on.set()
        assert await peer.reply() == (200, b"1")
        assert there.rejected == []


async def test_new_connection_without_a_request_is_closed_after_the_idle_time() -> None:
    """Go's clients keep open connections without a request."""
    async with site(rests_s=1.6) as there:
        peers = [await there.opens() for _ in range(2)]
        await asyncio.sleep(0.8)
        assert (await peers[0].asks(b"x"))[0] == 200
        assert await peers[1].all_of_it() == CLOSED
        assert (await peers[0].asks(b"x"))[0] == 200
        assert there.rejected == []


async def test_used_connection_is_not_idle() -> None:
    async with site(rests_s=0.8) as there:
        peer = await there.opens()
        for _ in range(6):
            assert (await peer.asks(b"x"))[0] == 200
            await asyncio.sleep(0.2)
        peer.sends(head("/slow", length=1), b"x")
        await asyncio.sleep(1.2)
        there.go_on.set()
        assert await peer.reply() == (200, b"1")


@pytest.mark.parametrize("between", [b"", b"\r\n"])
async def test_idle_connection_is_closed_after_the_idle_time(between: bytes) -> None:
    async with site(rests_s=0.3) as there:
        peer = await there.opens()
        assert (await peer.asks(b"x"))[0] == 200
        peer.sends(between)
        assert await peer.all_of_it() == CLOSED
        assert there.rejected == []


# Numbers


async def test_caller_with_too_many_connections_does_not_block_other_callers() -> None:
    async with site(connections=20, owes_s=30.0) as there:
        regular = await there.opens()
        assert (await regular.asks(b"x"))[0] == 200
        strangers = [await there.opens() for _ in range(60)]
        await until(lambda: len(there.rejected) == 41)
        assert await there.is_answered()
        assert (await regular.asks(b"x"))[0] == 200
        assert [peer.is_closed() for peer in strangers] == [True] * 42 + [False] * 18


async def test_idle_connection_is_closed_for_a_new_connection() -> None:
    async with site(connections=4, owes_s=30.0) as there:
        busy = [await there.opens() for _ in range(2)]
        for peer in busy:
            peer.sends(head("/slow", length=1), b"x")
        await until(lambda: there.under_way == 2)
        resting = [await there.opens() for _ in range(2)]
        for peer in resting:
            assert (await peer.asks(b"x"))[0] == 200
        assert await there.is_answered()
        assert [peer.is_closed() for peer in resting] == [True, False]
        there.go_on.set()
        assert [await peer.reply() for peer in busy] == [(200, b"1")] * 2


async def test_new_connection_is_closed_if_all_connections_are_busy() -> None:
    async with site(connections=2) as there:
        busy = [await there.opens() for _ in range(2)]
        for peer in busy:
            peer.sends(head("/slow", length=1), b"x")
        await until(lambda: there.under_way == 2)
        assert not await there.is_answered()
        there.go_on.set()
        assert [await peer.reply() for peer in busy] == [(200, b"1")] * 2
        assert await there.is_answered()


async def test_closed_connections_do_not_count() -> None:
    async with site(connections=2) as there:
        for _ in range(10):
            assert await there.is_answered()
        assert there.rejected == []


PIECES = (
    head(length=5) + b"abcde",
    head("/slow", length=1) + b"x",
    head(length=MOST + 1),
    head(length=MOST) + b"x" * 500,
    head("/none", length=0),
    head(),
    chunk(b"x" * 600),
    b"0\r\n\r\n",
    b"GET /length HTTP/1.0\r\n\r\n",
    b"POST /length HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    head(length=2, more=b"Expect: 100-continue\r\n"),
    b"\r\n",
    b"A: " + b"x" * 9000,
    b"\x00",
)


@pytest.mark.parametrize("seed", range(4))
async def test_random_input_leaves_no_open_connection_and_no_exception(seed: int) -> None:
    chance, unforeseen = random.Random(seed), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context))
    async with site(connections=30, bodies=5000) as there:
        for _ in range(100):
            peer = await there.opens()
            sent = b"".join(chance.choices(PIECES, k=chance.randint(1, 6)))
            cut = chance.randrange(len(sent))
            peer.sends(sent[:cut])
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01)))
            peer.sends(sent[cut:])
            if chance.random() < 0.3:
                await peer.leaves()
            if chance.random() < 0.1:
                there.go_on.set()
        there.go_on.set()
        assert await there.is_answered()
        for peer in there.peers:
            await peer.leaves()
        connections = there.server._connections
        await until(lambda: not connections._open)
        assert (connections._held, [*filter(None, connections._waiting)]) == (0, [])
    assert unforeseen == []


# Listeners of the program


def test_limit_of_open_files_is_raised() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        open_many_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert (soft, hard) == (min(before[1], 16_384), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def extender(nodes: int = 0) -> tuple[Extender, list[Server]]:
    settings = Settings(
        slurm_token_file=Path("token"),
        policy="open",
        hooks_token_file=Path("token"),
        listen_address="127.0.0.1",
    )
    kubernetes, slurm = InMemoryKubernetes(), cast(Slurm, FakeSlurm())
    program = Extender(Replica(settings, kubernetes, slurm, CurrentPolicy(None, "open")))
    program.replica.cluster.view = cast(Any, SimpleNamespace(nodes=dict.fromkeys(range(nodes))))
    servers = program.servers()
    for server in servers:
        server.config.port = 0
    return program, servers


@pytest.mark.parametrize("number", range(4))
async def test_each_listener_has_limits(number: int) -> None:
    program, servers = extender()
    async with site(server=servers[number]) as there:
        peer = await there.opens()
        peer.sends(head("/scheduler/filter", length=150 * MB))
        assert (await peer.reply())[0] == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    shown = generate_latest(program.replica.telemetry.registry)
    assert b'slurm_extender_listener_rejections_total{listener="' in shown


async def test_filter_request_with_whole_nodes_is_read_and_explained() -> None:
    """The request has 5,000 Nodes of 12 kB, as from a kube-scheduler without `nodeCacheCapable`."""
    _, servers = extender(nodes=5000)
    async with site(server=servers[0]) as there:
        peer = await there.opens()
        nodes = b",".join([b'{"metadata": {"name": "%s"}}' % (b"x" * 12_000)] * 5000)
        sent = b'{"Pod": {"metadata": {}, "spec": {}}, "Nodes": {"items": [' + nodes + b"]}}"
        status, said = await peer.asks(sent, "/scheduler/filter")
        assert (status, b"nodeCacheCapable" in said) == (200, True)
