"""Tests that the ConfigMap follows the labels of the Nodes. Heartbeats cause no writes, many new Nodes
cause few writes, and the program never overwrites a text that a person has written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory.kubernetes import InMemoryKubernetes
from slurm_cluster.topology import files
from slurm_cluster.topology.build import build
from slurm_cluster.topology.model import Kind
from slurm_cluster.topology.places import Reader
from slurm_cluster.topology.rules import Rules
from slurm_cluster.topology.running import SlurmFailed
from slurm_cluster.topology.watch import Follower, Pace, Target
from tests.eventually import until
from tests.slurm_cluster.topology.labels import LEAF, SPINE, TREE, node, racks

TARGET = Target("slurm", "slurm-topology", files.YAML)
QUICK = Pace(settle=0.02, longest=0.5)


@asynccontextmanager
async def following(
    kubernetes: InMemoryKubernetes, pace: Pace = QUICK, rules: Rules = TREE, target: Target = TARGET
) -> AsyncIterator[Follower]:
    follower = Follower(kubernetes, rules, Reader((SPINE, LEAF), {}), target, pace)
    task = asyncio.ensure_future(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def cluster(leaves: int = 2, size: int = 2) -> InMemoryKubernetes:
    kubernetes = InMemoryKubernetes()
    kubernetes.put("nodes", *manifests(leaves, size))
    return kubernetes


def manifests(leaves: int, size: int) -> list[dict[str, Any]]:
    each = racks(leaves, size)
    return [node(place.node, spine=str(place.path[0]), leaf=str(place.path[1])) for place in each]


def text(kubernetes: InMemoryKubernetes) -> str:
    data = kubernetes.read("configmaps", "slurm-topology", "slurm")["data"]
    return str(data.get(files.YAML, ""))


def has_text(kubernetes: InMemoryKubernetes, words: str) -> bool:
    maps = kubernetes.objects("configmaps")
    return any(words in each["data"].get(files.YAML, "") for each in maps)


@asynccontextmanager
async def written(pace: Pace = QUICK) -> AsyncIterator[tuple[InMemoryKubernetes, Follower]]:
    """Follows the labels of a cluster with two leaves. Yields after the first write of the ConfigMap."""
    kubernetes = cluster()
    async with following(kubernetes, pace) as follower:
        await kubernetes.until(lambda: has_text(kubernetes, "leaf-1"))
        yield kubernetes, follower


async def test_the_config_map_is_made_and_follows_the_labels() -> None:
    async with written() as (kubernetes, follower):
        assert text(kubernetes) == files.to_yaml(build(TREE, racks(2, 2)).topology)
        kubernetes.put("nodes", node("new", spine="spine-0", leaf="leaf-9"))
        await kubernetes.until(lambda: has_text(kubernetes, '"leaf-9", nodes: "new"'))
        kubernetes.remove("nodes", "new")
        await kubernetes.until(lambda: has_text(kubernetes, '{switch: "leaf-9"}'))
        await until(lambda: follower.health.ready, within_s=20)


async def test_heartbeats_and_labels_of_no_tier_write_nothing() -> None:
    async with written() as (kubernetes, follower):
        kubernetes.edit("nodes", "node-0", {"status": {"conditions": []}})
        kubernetes.edit("nodes", "node-0", {"metadata": {"labels": {"other": "x"}}})
        await kubernetes.all_sent()
        await asyncio.sleep(3 * QUICK.settle)
        assert follower.writes == 1
        assert kubernetes.calls.count("read_config_map") == 1


async def test_a_label_change_without_effect_writes_nothing() -> None:
    async with written() as (kubernetes, follower):
        kubernetes.edit("nodes", "node-0", {"metadata": {"labels": {SPINE: None}}})
        await until(lambda: kubernetes.calls.count("read_config_map") == 2, within_s=20)
        await asyncio.sleep(3 * QUICK.settle)
        assert follower.writes == 1
        assert (
            "write_config_map" not in kubernetes.calls[kubernetes.calls.index("write_config_map") + 1 :]
        )


async def test_a_write_waits_no_longer_than_the_longest_delay() -> None:
    async with written(Pace(settle=600, longest=0.05)) as (kubernetes, _):
        assert has_text(kubernetes, "leaf-1")


async def test_many_nodes_at_once_cause_one_write() -> None:
    async with written() as (kubernetes, follower):
        for manifest in manifests(50, 4):
            kubernetes.put("nodes", manifest)
            await asyncio.sleep(0)
        await kubernetes.until(lambda: has_text(kubernetes, "leaf-49"))
        assert follower.writes == 2


async def test_labels_that_change_constantly_are_still_written() -> None:
    async with written(Pace(settle=0.2, longest=0.3)) as (kubernetes, _):
        for index in range(200):
            kubernetes.put("nodes", node("moves", spine="spine-0", leaf=f"leaf-{index % 2 + 7}"))
            await asyncio.sleep(0.01)
            if has_text(kubernetes, "moves"):
                return
        raise AssertionError("nothing was written for 2 s")


async def test_a_config_map_written_by_hand_stays() -> None:
    kubernetes = cluster()
    own = {"metadata": {"namespace": "slurm", "name": "slurm-topology"}, "data": {files.YAML: "mine"}}
    kubernetes.put("configmaps", own)
    async with following(kubernetes) as follower:
        await until(lambda: "read_config_map" in kubernetes.calls, within_s=20)
        await asyncio.sleep(3 * QUICK.settle)
        assert text(kubernetes) == "mine"
        assert not follower.health.ready
        assert "the ConfigMap" in str(follower.health.for_strangers())


async def test_the_other_keys_of_the_config_map_stay() -> None:
    kubernetes = cluster()
    own = {"metadata": {"namespace": "slurm", "name": "slurm-topology"}, "data": {"other": "x"}}
    kubernetes.put("configmaps", own)
    async with following(kubernetes):
        await kubernetes.until(lambda: has_text(kubernetes, "leaf-1"))
        assert kubernetes.read("configmaps", "slurm-topology", "slurm")["data"]["other"] == "x"


async def test_after_a_restart_the_names_of_the_config_map_stay() -> None:
    kubernetes = cluster(leaves=3)
    async with following(kubernetes):
        await kubernetes.until(lambda: has_text(kubernetes, "leaf-2"))
    kubernetes.remove("nodes", "node-4")
    kubernetes.remove("nodes", "node-5")
    async with following(kubernetes):
        await kubernetes.until(lambda: has_text(kubernetes, '{switch: "leaf-2"}'))


async def test_no_file_of_blocks_is_written_without_labels() -> None:
    """slurmctld would not run with a topology without blocks."""
    kubernetes = InMemoryKubernetes()
    kubernetes.put("nodes", node("n1"))
    blocks = Rules(Kind.BLOCK, (SPINE, LEAF), (2,))
    async with following(kubernetes, rules=blocks):
        await until(lambda: "read_config_map" in kubernetes.calls, within_s=20)
        await asyncio.sleep(3 * QUICK.settle)
        assert not kubernetes.objects("configmaps")


async def test_a_node_that_joins_slurm_changes_the_config_map() -> None:
    kubernetes, has = cluster(leaves=1, size=3), {"node-0"}

    async def known() -> frozenset[str]:
        if not has:
            raise SlurmFailed("slurmctld is away")
        return frozenset(has)

    pace = replace(QUICK, poll=0.01)
    follower = Follower(kubernetes, TREE, Reader((SPINE, LEAF), {}), TARGET, pace, known)
    task = asyncio.ensure_future(follower.run())
    try:
        await kubernetes.until(lambda: has_text(kubernetes, 'nodes: "node-0"'))
        has.add("node-2")
        await kubernetes.until(lambda: has_text(kubernetes, 'nodes: "node-[0,2]"'))
        has.clear()
        await until(lambda: "Slurm" in str(follower.health.for_strangers()), within_s=20)
        assert has_text(kubernetes, 'nodes: "node-[0,2]"')
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_follower_is_not_ready_during_an_outage() -> None:
    kubernetes = cluster()
    kubernetes.outage(Unavailable(0, "down"), "pages nodes")
    async with following(kubernetes) as follower:
        await until(lambda: "pages nodes" in kubernetes.calls, within_s=20)
        await asyncio.sleep(0.01)
        assert not follower.health.ready
