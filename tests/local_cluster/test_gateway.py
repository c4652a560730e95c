"""Tests of the gateway on the host, which lets the guest call out by a proxy, and which replaces a
Service."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.local.guest.inside import runner

GATEWAY = Path(runner.__file__).with_name("gateway.py")


class Loud(socketserver.StreamRequestHandler):
    """Answers each line with the same line in capitals."""

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line.upper())


@pytest.fixture
def backend() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Loud) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def ports(backend: int) -> Iterator[tuple[int, int]]:
    """Starts a gateway. Yields the port of the gateway's proxy, and a port that leads to the backend."""
    proxy, forwarded = free_port(), free_port()
    argv = [sys.executable, str(GATEWAY), str(proxy), "", f"127.0.0.1:{forwarded}=127.0.0.1:{backend}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "the gateway serves\n"
        yield proxy, forwarded
        gateway.kill()


def said(port: int, *words: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        for each in words:
            link.sendall(each)
        link.shutdown(socket.SHUT_WR)
        return link.makefile("rb").read()


def test_gateway_forwards_an_address_to_its_backend(ports: tuple[int, int]) -> None:
    assert said(ports[1], b"hello\n", b"there\n") == b"HELLO\nTHERE\n"


def test_proxy_connects_a_client_to_the_named_address(ports: tuple[int, int], backend: int) -> None:
    asked = f"CONNECT 127.0.0.1:{backend} HTTP/1.1\r\nHost: there\r\n\r\n".encode()
    assert said(ports[0], asked, b"hello\n") == b"HTTP/1.1 200 OK\r\n\r\nHELLO\n"


def test_proxy_answers_502_if_no_program_listens(ports: tuple[int, int]) -> None:
    asked = f"CONNECT 127.0.0.1:{free_port()} HTTP/1.1\r\n\r\n".encode()
    assert said(ports[0], asked).startswith(b"HTTP/1.1 502 ")


def test_proxy_rejects_requests_other_than_connect(ports: tuple[int, int]) -> None:
    assert said(ports[0], b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
