"""Tests of the agent's socket for programs of the Node, on a real kernel."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from node_agent.app import local
from service.local_socket import LocalServer
from tests.eventually import until
from tests.node_agent.node import A

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from node_agent.agent import Agent
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real


@asynccontextmanager
async def served(agent: Agent, socket: Path) -> AsyncIterator[None]:
    server = LocalServer(local(agent), socket)
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield
    server.should_exit = True
    await serving


async def ask(socket: Path) -> str:
    argv = ["curl", "--silent", "--fail", "--unix-socket", str(socket), "http://agent/gate/v1/clear"]
    asking = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    said, _ = await asking.communicate()
    return said.decode()


async def test_socket_reports_removed_pods_with_processes_to_the_gate(
    node: Node, tmp_path: Path
) -> None:
    socket = tmp_path / "run/agent.sock"
    async with node.agent() as agent, served(agent, socket):
        one = node.begin(A, "gpu:1(IDX:0)")
        await until(lambda: node.has(one))
        assert await ask(socket) == "ask\n"
        with node.process(one):
            await node.delete(A)  # a deletion by force
            await until(agent.lingering)
            assert await ask(socket) == f"there ml/{A}\n"
        assert await ask(socket) == "ask\n"


async def test_only_the_agents_user_can_open_the_socket(node: Node, tmp_path: Path) -> None:
    socket = tmp_path / "agent.sock"
    socket.touch()  # the socket of a killed agent
    async with node.agent() as agent, served(agent, socket):
        assert socket.stat().st_mode & 0o777 == 0o600
