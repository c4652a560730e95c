"""Tests of the proxy process that stands for a Service and can simulate a failing network."""

import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from deploy.local.layout import CHECKOUT
from deploy.local.processes.ports import lease_ports
from deploy.local.processes.proxy import DROP, EMPTY, ERROR, GARBAGE, HEALTHY, REFUSE, SLOW, STALL


@contextmanager
def backend(port: int, name: bytes) -> Iterator[None]:
    """Answers each line with the backend's name."""

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for _ in self.rfile:
                self.wfile.write(name + b"\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Answer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield
        finally:
            server.shutdown()


@dataclass
class Network:
    """A link to two backends, and the link's control socket."""

    ports: dict[str, int]
    control: Path
    stack: ExitStack

    def connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.ports["link"]), timeout=5.0)
        return self.stack.enter_context(closing(link))

    def live(self, *backends: str) -> None:
        for name in backends:
            self.stack.enter_context(backend(self.ports[name], name.encode()))

    def fare(self, command: str) -> str:
        with closing(socket.socket(socket.AF_UNIX)) as control:
            control.connect(bytes(self.control))
            control.sendall(command.encode() + b"\n")
            return control.recv(4096).decode().strip()

    def fares(self, fault: str) -> None:
        assert self.fare(f"link {fault}") == "ok"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    control = tmp_path / "proxy.sock"
    with closing(lease_ports(["link", "one", "two"])) as lease, ExitStack() as stack:
        ports = lease.ports
        plan = {"link": {"port": ports["link"], "backends": [ports["one"], ports["two"]]}}
        argv = [sys.executable, "-m", "deploy.local.processes.proxy", json.dumps(plan), str(control)]
        process = stack.enter_context(subprocess.Popen(argv, cwd=CHECKOUT))
        stack.callback(process.kill)
        while not listens(control):
            assert process.poll() is None
            time.sleep(0.01)
        yield Network(ports, control, stack)


def listens(control: Path) -> bool:
    """Returns True if the control socket accepts connections. The socket's file exists a moment
    earlier."""
    with closing(socket.socket(socket.AF_UNIX)) as attempt:
        return attempt.connect_ex(bytes(control)) == 0


def ask(link: socket.socket, within_s: float = 5.0) -> str:
    link.settimeout(within_s)
    link.sendall(b"hello\n")
    return link.recv(100).decode().strip()


def test_connections_go_to_the_backends_in_turn(network: Network) -> None:
    network.live("one", "two")
    assert {ask(network.connect()) for _ in range(2)} == {"one", "two"}


def test_backend_that_refuses_is_skipped(network: Network) -> None:
    network.live("two")
    assert [ask(network.connect()) for _ in range(3)] == ["two"] * 3


def test_without_a_backend_a_connection_ends(network: Network) -> None:
    assert network.connect().recv(1) == b""


@pytest.mark.parametrize("fault", [DROP, REFUSE])
def test_fault_ends_open_connections(network: Network, fault: str) -> None:
    network.live("one", "two")
    link = network.connect()
    ask(link)
    network.fares(fault)
    assert link.recv(1) == b""


def test_a_link_that_refused_takes_connections_again_when_it_is_healthy(network: Network) -> None:
    network.live("one", "two")
    network.fares(REFUSE)
    with pytest.raises(ConnectionRefusedError):
        network.connect()
    network.fares(HEALTHY)
    assert ask(network.connect())


def test_stalled_link_passes_nothing_until_it_is_healthy(network: Network) -> None:
    network.live("one", "two")
    before = network.connect()
    ask(before)
    network.fares(STALL)
    after = network.connect()  # the proxy accepts in spite of the fault
    for link in (before, after):
        with pytest.raises(TimeoutError):
            ask(link, within_s=0.1)
    network.fares(HEALTHY)
    for link in (before, after):
        link.settimeout(5.0)
        assert link.recv(100)


def test_slow_link_delays_everything(network: Network) -> None:
    network.live("one", "two")
    link = network.connect()
    ask(link)
    network.fares(SLOW)
    begin = time.monotonic()
    ask(link)
    assert time.monotonic() - begin > 0.5


def test_garbage_fault_replaces_the_answer(network: Network) -> None:
    network.live("one", "two")
    link = network.connect()
    name = ask(link)
    network.fares(GARBAGE)
    link.sendall(b"hello\n")
    assert link.recv(100) != f"{name}\n".encode()
    network.fares(HEALTHY)
    assert ask(network.connect())


@pytest.mark.parametrize(("fault", "status"), [(ERROR, 500), (EMPTY, 200)])
def test_requests_can_be_answered_without_a_backend(network: Network, fault: str, status: int) -> None:
    network.live("one", "two")
    before = network.connect()
    ask(before)
    network.fares(fault)
    assert before.recv(1) == b""
    url = f"http://127.0.0.1:{network.ports['link']}"
    with httpx.Client() as client:
        assert [client.get(url).status_code for _ in range(2)] == [status] * 2
    network.fares(HEALTHY)
    assert ask(network.connect()) in ("one", "two")


def test_unknown_link_or_fault_is_refused_with_the_known_names(network: Network) -> None:
    assert "link" in network.fare(f"lnk {STALL}")
    assert STALL in network.fare("link stal")
