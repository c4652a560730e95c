"""What programs of the Node may ask its agent, on a real kernel."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from node_agent.app import local
from service.local_socket import LocalServer
from tests.eventually import until
from tests.node_agent.node import A, B

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


async def test_the_gate_is_answered_by_who_is_really_here(one_driver: Node, tmp_path: Path) -> None:
    node, socket = one_driver, tmp_path / "run/agent.sock"
    async with node.agent() as agent, served(agent, socket):
        assert await ask(socket) == "clear\n"
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one))
        assert await ask(socket) == "ask\n"
        with node.process(one):
            await node.delete(A)  # by force
            await until(lambda: agent.clear().word != "ask")
            assert await ask(socket) == f"there ml/{A}\n"
        assert await ask(socket) == "clear\n"


async def test_processes_of_a_pod_that_nobody_knows_are_not_clear(
    one_driver: Node, tmp_path: Path
) -> None:
    """It was deleted by force while no agent ran."""
    node, socket = one_driver, tmp_path / "agent.sock"
    other = node.start(B)
    async with node.agent() as agent, served(agent, socket):
        with node.process(other):
            assert await ask(socket) == "ask\n"
        assert await ask(socket) == "clear\n"


async def test_only_the_agents_user_may_ask(one_driver: Node, tmp_path: Path) -> None:
    socket = tmp_path / "agent.sock"
    socket.touch()  # what a killed agent has left
    async with one_driver.agent() as agent, served(agent, socket):
        assert socket.stat().st_mode & 0o777 == 0o600
