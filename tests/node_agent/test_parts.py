"""GPUs in parts (shard, mps), on a real kernel: several Pods have one, or one Pod has all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.eventually import until
from tests.node_agent.node import A, B, C, D

if TYPE_CHECKING:
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real


async def test_parts_of_a_gpu_are_several_pods_and_the_whole_of_it_waits_for_the_last(
    node: Node,
) -> None:
    node.print_devices("xyz", shards=4)
    node.bind(A, "shard:2(0/4,2/4,0/4)")
    node.bind(B, "shard:1(IDX:1)")
    one, other, third = (node.start(uid) for uid in (A, B, C))
    async with node.agent() as agent:
        await until(lambda: node.has(one) == node.has(other) == "y")
        assert node.has(third) == ""
        node.bind(D, "gpu:2(IDX:0-1)")
        whole = node.start(D)
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


async def test_the_next_agent_knows_who_has_parts(one_driver: Node) -> None:
    node = one_driver
    node.print_devices("xyz", shards=4)
    node.bind(A, "shard:2(2/4,0/4,0/4)")
    one, other = node.start(A), node.start(B)
    async with node.agent():
        await until(lambda: node.has(one) == "x")
    await node.delete(A)  # by force, while no agent runs
    with node.process(one):
        node.bind(B, "shard:2(2/4,0/4,0/4)")
        async with node.agent() as agent:
            await until(lambda: node.has(other) == "x")
            assert node.has(one) == "x"
            assert agent.problems == {}


async def test_a_part_waits_for_the_last_process_of_who_has_the_whole_gpu(one_driver: Node) -> None:
    node = one_driver
    node.print_devices("xyz", shards=4)
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")
        node.bind(B, "shard:4(4/4,0/4,0/4)")
        other = node.start(B)
        with node.process(one):
            await node.delete(A)
            await until(lambda: f"ml/{B}" in agent.problems)
            assert (node.has(one), node.has(other)) == ("x", "")
        await until(lambda: node.has(other) == "x")
