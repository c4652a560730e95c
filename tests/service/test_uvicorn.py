"""Tests of the undocumented parts of uvicorn in the extender's listener. Further tests check the number
of writes for a reply."""

import asyncio
from hashlib import sha256
from inspect import getsource

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from service.http.listener import WholeReplies

UNDOCUMENTED = {
    httptools_impl.HttpToolsProtocol: "18fdf324b11bf160",
    httptools_impl.RequestResponseCycle: "e67d470d435dcc1c",
    FlowControl: "126debcdaa894c83",
    ServerState: "f2260fbf10154746",
    uvicorn.Server: "06e799f7c58f8be6",
}
"""By class that the listener overrides or changes: the beginning of the SHA-256 of the class's
source."""


@pytest.mark.parametrize("used", UNDOCUMENTED, ids=lambda used: used.__name__)
def test_uvicorn_has_the_classes_that_the_listener_changes(used: type) -> None:
    """If this test fails, compare the listener with the new source of the class. Then write the new
    digest into UNDOCUMENTED."""
    assert sha256(getsource(used).encode()).hexdigest()[:16] == UNDOCUMENTED[used]


LENGTH_AND_BODY = b'content-length: 12\r\n\r\n{"number":2}'


class Recorded(asyncio.Transport):
    """A connection that records each write, and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.written = asyncio.Event()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.written.set()

    def close(self) -> None:
        self._closed = True

    def is_closing(self) -> bool:
        return self._closed


async def _said(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await Response("said")(scope, receive, send)


def serving() -> tuple[WholeReplies, Recorded]:
    """Returns uvicorn's protocol object of a connection, and the connection."""
    connection, configuration = Recorded(), uvicorn.Config(_said, log_config=None)
    configuration.load()
    protocol = WholeReplies(configuration, ServerState(), {})
    protocol.connection_made(connection)
    return protocol, connection


@pytest.mark.parametrize("header", [b"", b"connection: close\r\n"])
async def test_reply_is_one_write(header: bytes) -> None:
    protocol, connection = serving()
    protocol.data_received(b"POST /double HTTP/1.1\r\n" + header + LENGTH_AND_BODY)
    async with asyncio.timeout(5):
        await connection.written.wait()
    (reply,) = connection.writes
    assert reply.startswith(b"HTTP/1.1 200 OK")
    assert reply.endswith(b"said")
    assert connection.is_closing() is bool(header)


async def test_a_whole_reply_does_not_wait_for_the_event_loop() -> None:
    protocol, connection = serving()
    protocol.transport.write(b"head, ")
    protocol.transport.write(b"body")
    protocol.on_response_complete()
    assert connection.writes == [b"head, body"]


async def test_continue_status_does_not_wait_for_the_reply() -> None:
    protocol, connection = serving()
    protocol.data_received(
        b"POST /double HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 12\r\n\r\n"
    )
    async with asyncio.timeout(5):
        await connection.written.wait()
    assert connection.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]


async def test_closed_connection_gets_no_reply() -> None:
    protocol, connection = serving()
    protocol.transport.write(b"HTTP/1.1 200 OK")
    connection.close()
    await asyncio.sleep(0)
    assert connection.writes == []
