"""Tests with 5,000 Nodes: the cost of a heartbeat, and the number of writes of the file while the Nodes
join."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kubernetes_client.in_memory.kubernetes import InMemoryKubernetes
from slurm_cluster.topology import files
from slurm_cluster.topology.build import build
from slurm_cluster.topology.drawing import draw
from slurm_cluster.topology.places import Reader
from slurm_cluster.topology.watch import Follower, Pace
from tests.eventually import until
from tests.slurm_cluster.topology.labels import LEAF, SPINE, TREE, racks
from tests.slurm_cluster.topology.test_watch import TARGET, manifests, text

pytestmark = pytest.mark.alone

NODES, RACK = 5_000, 18
PACE = Pace(settle=0.5, longest=5.0)


def large(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a Node of the usual size, about 10 kB."""
    images = [{"names": [f"example.com/image-{index}@sha256:{'0' * 64}"]} for index in range(70)]
    return {**manifest, "status": {"images": images, "conditions": []}}


def fleet() -> Iterator[dict[str, Any]]:
    for manifest in manifests(-(-NODES // RACK), RACK)[:NODES]:
        yield large(manifest)


async def test_5000_nodes_cause_few_writes_and_heartbeats_cause_none() -> None:
    kubernetes, everyone = InMemoryKubernetes(), list(fleet())
    follower = Follower(kubernetes, TREE, Reader((SPINE, LEAF), {}), TARGET, PACE)
    task = asyncio.ensure_future(follower.run())
    try:
        await until(lambda: follower.health.ready, within_s=20)
        began = time.monotonic()
        for index, manifest in enumerate(everyone):
            kubernetes.put("nodes", manifest)
            if index % 50 == 0:
                await asyncio.sleep(0.05)  # so the Nodes join over more than 5 s
        await until(lambda: listed(kubernetes) >= NODES, within_s=60)
        took, writes = time.monotonic() - began, follower.writes
        assert writes <= 3 + took / PACE.longest  # far fewer than 5,000
        await beaten(kubernetes, follower, writes)
        print(f"{NODES} Nodes came in {took:.1f} s: {writes} writes")  # noqa: T201 -- figures
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def listed(kubernetes: InMemoryKubernetes) -> int:
    """Returns the number of nodes in the file."""
    return sum(len(unit.nodes) for unit in files.read(text(kubernetes)).units)


async def beaten(kubernetes: InMemoryKubernetes, follower: Follower, writes: int) -> None:
    """Updates the status of 1,000 Nodes, as kubelets do at a heartbeat. Checks that these updates cause
    no write of the ConfigMap."""
    cpu = 0.0
    for index in range(1_000):
        change = {"status": {"conditions": [{"type": "Ready", "status": str(index)}]}}
        kubernetes.edit("nodes", f"node-{index}", change)
        if index % 100 == 99:
            before = time.process_time()
            await kubernetes.all_sent()
            cpu += time.process_time() - before
    await asyncio.sleep(2 * PACE.settle)
    assert follower.writes == writes
    print(f"a heartbeat: {cpu:.2f} ms of CPU with the stand-in for kube-apiserver")  # noqa: T201 -- figures


def test_a_file_and_a_picture_of_5000_nodes_are_made_quickly() -> None:
    found = racks(-(-NODES // RACK), RACK, spines=8)
    began = time.process_time()
    built = build(TREE, found)
    file = files.to_yaml(built.topology)
    again = build(TREE, found, files.read(file))
    made = time.process_time()
    picture = draw(built.topology)
    drawn = time.process_time()
    print(  # noqa: T201 -- figures
        f"built twice, read once: {made - began:.2f} s, {len(file) / 1024:.0f} KiB;"
        f" drawn: {drawn - made:.2f} s, {len(picture) / 1024:.0f} KiB"
    )
    assert again.topology == built.topology
    assert len(file) < 1 << 20  # the maximum size of a ConfigMap
    assert drawn - began < 5
