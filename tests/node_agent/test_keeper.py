"""Tests of a Pod's cgroup after changes of the Pod's annotations."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.agent import Agent
from node_agent.enforcement.keeper import Keeper
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import PodCgroup, PodCgroups
from node_agent.pods.claims import Claim
from node_agent.settings import Settings
from tests.eventually import until
from wellknown.slurmd_pod import pod_name

if TYPE_CHECKING:
    from pathlib import Path


class Kept(Keeper):
    """Keeps a machine of four cores with two threads each, one Pod, and no devices."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, says in (("cpuset.cpus", ""), ("memory.max", "max"), ("memory.swap.max", "max")):
            (place / name).write_text(says)
        cgroup = PodCgroup("u1", 7, populated=True, place=place)
        cgroups: Any = SimpleNamespace(pods=lambda: [cgroup], roots=list)
        guard: Any = SimpleNamespace(known=tuple, change=lambda *_: None)
        super().__init__(place / "gres", cgroups, guard)
        self.cores = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
        self.read_cpus()

    def says(self, name: str) -> str:
        return (self.place / name).read_text()


def test_changed_grant_is_no_repair(tmp_path: Path) -> None:
    keeper = Kept(tmp_path)
    for cores, cpus in (((0,), "0,4"), ((2, 3), "2-3,6-7")):
        keeper.keep({"u1": Claim("u1", "ml/one", cores=cores, memory_mb=1, job=7)})
        assert keeper.says("cpuset.cpus") == cpus
        assert keeper.limits.repaired == 0
    (tmp_path / "cpuset.cpus").write_text("0-7")
    keeper.keep({"u1": Claim("u1", "ml/one", cores=(2, 3), memory_mb=1, job=7)})
    assert keeper.says("cpuset.cpus") == "2-3,6-7"
    assert keeper.limits.repaired == 1


def test_memory_request_limits_a_pod_once_the_pod_uses_less(tmp_path: Path) -> None:
    keeper = Kept(tmp_path)
    claims = {"u1": Claim("u1", "ml/one", requested_mb=1, job=7)}
    for used, memory, swap in ((2 << 20, "max", "max"), (1 << 20, str(1 << 20), "0")):
        (tmp_path / "memory.current").write_text(str(used))
        keeper.keep(claims)
        assert (keeper.says("memory.max"), keeper.says("memory.swap.max")) == (memory, swap)
        assert keeper.limits.repaired == 0


async def test_agent_answers_while_the_kernel_frees_memory(tmp_path: Path) -> None:
    """A file lease delays the writer of memory.max, as the kernel does before Linux 6.16."""
    keeper = Kept(tmp_path)
    used, limit = tmp_path / "memory.current", tmp_path / "memory.max"
    used.write_text(str(1 << 50))
    settings = Settings(node="n1", gres=tmp_path / "gres", nri=None, slurmd_namespace="slurm-nodes")
    kubernetes = InMemoryKubernetes()
    kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
    metadata = {"uid": "u1", "namespace": "slurm-nodes", "name": pod_name("n1")}
    kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    agent = Agent(kubernetes, PodCgroups(tmp_path / "cgroup"), keeper, settings)
    writes = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGIO, writes.set)
    lease = os.open(limit, os.O_RDONLY)
    fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    running = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            await writes.wait()
        for _ in range(3):
            await asyncio.sleep(0.05)
        assert agent.looked_at
        assert keeper.says("memory.max") == "max"
        os.close(lease)
        step = (1 << 50) - (256 << 20)
        await until(lambda: keeper.says("memory.max") == str(step))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
