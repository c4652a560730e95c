"""Tests of a server that never answers the end of TLS: the client does not wait for the server, and
leaves no socket open."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import closing, suppress

import httpx
import pytest
import trustme

from kubernetes_client.access import Access
from kubernetes_client.rest import KubernetesRest
from service.http import pool as http_pool
from service.http.pool import Endpoint, PooledTransport
from tests.slurm_client.peer import reply

WATCH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


class Server:
    """Answers one request on each connection, and then neither reads nor writes."""

    def __init__(self, listens: socket.socket) -> None:
        self.authority = trustme.CA()
        self.port: int = listens.getsockname()[1]
        self.says = b""
        self.asked = threading.Event()
        self._listens = listens
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(self._tls)

    def serve(self) -> None:
        held: list[ssl.SSLSocket] = []
        with suppress(OSError):  # at its end, the test closes the socket
            while True:
                held.append(self._tls.wrap_socket(self._listens.accept()[0], server_side=True))
                held[-1].recv(4096)
                held[-1].sendall(self.says)
                self.asked.set()
        for each in held:
            each.close()

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())

    def client(self, *, keeps: bool = True) -> httpx.AsyncClient:
        endpoint = Endpoint.parse(f"https://127.0.0.1:{self.port}", self.trusted)
        transport = PooledTransport(endpoint, 1, keeps=lambda _: keeps)
        return httpx.AsyncClient(transport=transport, base_url=endpoint.url)


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listens:
        served = Server(listens)
        thread = threading.Thread(target=served.serve)
        thread.start()
        yield served
        listens.shutdown(socket.SHUT_RDWR)
        thread.join()


def left_of(whole: Coroutine[None, None, None]) -> list[str]:
    """Runs a coroutine. Returns Python's warnings about open resources after the end of the event
    loop."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(whole)
        gc.collect()
    return [str(each.message) for each in warned]


def test_cancelled_call_leaves_no_socket(server: Server) -> None:
    async def call() -> None:
        client = server.client()
        exchange = asyncio.create_task(client.get("/"))
        await asyncio.to_thread(server.asked.wait, 10)
        exchange.cancel()
        await asyncio.wait([exchange])
        await client.aclose()

    assert left_of(call()) == []


@pytest.mark.parametrize("keeps", [True, False])
def test_closed_pool_leaves_no_socket(
    server: Server, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """In one case, the client keeps the connection for other calls. In the other case, the client has
    closed the connection after the reply."""
    monkeypatch.setattr(http_pool, "_CLOSED_WITHIN_S", 0.05)
    server.says = reply(200, b"fine")

    async def call() -> None:
        client = server.client(keeps=keeps)
        assert (await client.get("/")).content == b"fine"
        await client.aclose()

    assert left_of(call()) == []


def test_watch_that_ends_early_leaves_no_socket(server: Server) -> None:
    server.says = WATCH

    async def headers() -> dict[str, str]:
        return {}

    async def call() -> None:
        access = Access(f"https://127.0.0.1:{server.port}", server.trusted(), headers)
        kubernetes = KubernetesRest(access)
        async with kubernetes.watch("pods", None, "0", 10) as pieces:
            assert await anext(pieces) == b"{}\n"
        await kubernetes.aclose()

    assert left_of(call()) == []
