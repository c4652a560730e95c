"""Tests of GPUs in parts (shard, mps), on a real kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.eventually import until
from tests.node_agent.node import A, B, C, D, with_each_driver

if TYPE_CHECKING:
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real


@with_each_driver
async def test_whole_gpu_waits_for_all_pods_with_parts(node: Node) -> None:
    node.print_devices("xyz", shards=4)
    node.bind(A, "shard:2(0/4,2/4,0/4)")
    node.bind(B, "shard:1(IDX:1)")
    one, other, third = (node.start(uid) for uid in (A, B, C))
    async with node.agent() as agent:
        await until(lambda: node.has(one) == node.has(other) == "y")
        assert node.has(third) == ""
        whole = node.begin(D, "gpu:2(IDX:0-1)")
        with node.process(other):
            with node.process(one):
                await node.delete(A)
                await node.delete(B)
                await until(lambda: f"ml/{D}" in agent.problems)
                assert (node.has(one), node.has(other), node.has(whole)) == ("y", "y", "")
            await until(lambda: node.has(one) == "")
            assert (node.has(other), node.has(whole)) == ("y", "")
        await until(lambda: node.has(whole) == "xy")
        assert node.has(other) == ""


async def test_next_agent_knows_the_pods_with_parts(node: Node) -> None:
    node.print_devices("xyz", shards=4)
    node.bind(A, "shard:2(2/4,0/4,0/4)")
    one, other = node.start(A), node.start(B)
    async with node.agent():
        await until(lambda: node.has(one) == "x")
    await node.delete(A)  # a deletion by force while no agent runs
    with node.process(one):
        node.bind(B, "shard:2(2/4,0/4,0/4)")
        async with node.agent() as agent:
            await until(lambda: node.has(other) == "x")
            assert node.has(one) == "x"
            assert agent.problems == {}
