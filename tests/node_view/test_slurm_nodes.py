"""Readers of Slurm's nodes share each reading. No reader gets a reading that is older than the reader
accepts."""

import asyncio
from typing import Any

import pytest

from extender.node_view.slurm_nodes import Reading, SlurmNodes
from slurm_client.errors import RetryLater, SlurmError
from slurm_client.in_memory import InMemorySlurm, node, partition


class HeldSlurm(InMemorySlurm):
    """A Slurm with one node. Replies only while `answers` is set."""

    def __init__(self) -> None:
        super().__init__([node("n1")], [partition("main", "n1", default=True)])
        self.answers = asyncio.Event()
        self.answers.set()

    async def nodes(self) -> Any:
        found = await super().nodes()
        await self.answers.wait()
        return found


@pytest.mark.parametrize(
    ("took", "interval", "pause"),
    [(0.01, 2.0, 2.0), (0.5, 1.0, 5.0), (0.5, 2.0, 10.0), (0.5, 60.0, 60.0), (15.0, 2.0, 15.0)],
)
def test_long_reading_is_followed_by_a_long_pause(took: float, interval: float, pause: float) -> None:
    assert Reading((), 0.0, took).pause(interval) == pause


async def test_a_reading_is_new_for_half_of_the_readers_interval() -> None:
    nodes = SlurmNodes(slurm := HeldSlurm())
    first = await nodes.read(0.1)
    assert await nodes.read(60.0) is first
    assert slurm.reads["nodes"] == 1
    await asyncio.sleep(0.06)
    assert await nodes.read(60.0) is first
    assert await nodes.read(0.1) is not first
    assert slurm.reads["nodes"] == 2


async def test_reading_older_than_the_given_time_is_repeated() -> None:
    nodes = SlurmNodes(slurm := HeldSlurm())
    first = await nodes.read(60.0)
    slurm.drain("n1", "disk")
    again = await nodes.read(60.0, asyncio.get_running_loop().time())
    assert [node.reason for reading in (first, again) for node in reading.nodes] == ["", "disk"]


async def test_readers_share_the_current_or_the_next_request() -> None:
    nodes = SlurmNodes(slurm := HeldSlurm())
    slurm.answers.clear()
    sharing = [asyncio.ensure_future(nodes.read(60.0)) for _ in range(3)]
    await asyncio.sleep(0.001)
    slurm.drain("n1", "disk")
    fresh = [asyncio.ensure_future(nodes.read()) for _ in range(3)]
    await asyncio.sleep(0)
    slurm.answers.set()
    told = [reading.nodes[0].reason for reading in await asyncio.gather(*sharing, *fresh)]
    assert told == ["", "", "", "disk", "disk", "disk"]
    assert slurm.reads["nodes"] == 2


async def test_failure_or_cancelled_reader_does_not_affect_other_readers() -> None:
    nodes = SlurmNodes(slurm := HeldSlurm())
    slurm.outage(RetryLater("down"))
    with pytest.raises(SlurmError):
        await nodes.read(60.0)
    slurm.outage(None)
    slurm.answers.clear()
    leaves, stays = (asyncio.ensure_future(nodes.read(60.0)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    slurm.answers.set()
    assert (await stays).nodes
