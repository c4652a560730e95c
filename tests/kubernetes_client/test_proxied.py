"""Tests of calls to kube-apiserver through a proxy that forwards TLS (CONNECT)."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import trustme

from kubernetes_client.access import Access
from kubernetes_client.rest import KubernetesRest
from tests.kubernetes_client.accesses import nobody

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Route:
    """A kube-apiserver with TLS, and a proxy in front of it. Records the first line of each request that
    the proxy or the server gets."""

    server: str
    proxy: str

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.to_proxy: list[str] = []
        self.to_server: list[str] = []
        self.ended = asyncio.Semaphore(0)
        """Released each time that a connection of the server or of the proxy ends."""

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.to_server.append(head.decode().splitlines()[0])
                writer.write(HEAD)
        await self._end(writer)

    async def carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.to_proxy.append(head.splitlines()[0])
        there, away = await asyncio.open_connection(*head.split()[1].split(":"))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, away), _copy(there, writer))
        await self._end(writer, away)

    async def _end(self, *writers: StreamWriter) -> None:
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        self.ended.release()

    def tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        return context


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
    target.close()


@pytest.fixture
async def route() -> AsyncIterator[Route]:
    made = Route()
    async with AsyncExitStack() as stack:
        tls = made.tls()
        server = await stack.enter_async_context(
            await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
        )
        proxy = await stack.enter_async_context(await asyncio.start_server(made.carry, "127.0.0.1", 0))
        made.server = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made.proxy = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        yield made
        async with asyncio.timeout(5):
            for _ in range(2):
                await made.ended.acquire()


async def test_client_connects_to_the_server_through_the_proxy(route: Route) -> None:
    trusting = ssl.create_default_context(cadata=route.authority.cert_pem.bytes().decode())
    api = KubernetesRest(Access(f"{route.server}/prefix", trusting, nobody, route.proxy))
    for name in ("a/b", ".."):
        await api.read_pod("default", name)
    await api.aclose()
    assert route.to_proxy == [f"CONNECT {route.server.removeprefix('https://')} HTTP/1.1"]
    pods = "/prefix/api/v1/namespaces/default/pods"
    assert route.to_server == [f"GET {pods}/a%2Fb HTTP/1.1", f"GET {pods}/%2E%2E HTTP/1.1"]
