"""A Node for the agent: the kernel's cgroups and devices, slurmd's list, and Pods in kube-apiserver."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.agent import Agent
from node_agent.app import keeper_of
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.pods.cgroups import PodCgroups
from node_agent.reporting.node_condition import Condition
from node_agent.settings import Settings
from tests.cgroup_tree import Tree, make_devices
from tests.eventually import until
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

A, B = "0f5cbb08-9b1c-4f33-a4a7-0c8e3f1f5d1a", "1e6b6a0e-0d52-4f8e-8a39-9b1a2c3d4e5f"
C, D = "2c1d7b52-63a1-4b0f-9d3c-5a7e8f901234", "3d2e8c63-74b2-4c10-8e4d-6b8f90a12345"
with_each_driver = pytest.mark.parametrize(
    "node", ["", ".slice"], indirect=True, ids=["cgroupfs", "systemd"]
)
"""Runs a test on a Node with each cgroup driver of the kubelet."""
_SLEEPER = """
import os, sys, time
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
print("in", flush=True)
time.sleep(600)
"""


class Node:
    """A Node with a kernel, a kubelet, slurmd and Pods."""

    def __init__(self, tree: Tree, folder: Path, suffix: str) -> None:
        self.tree = tree
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
        self.own_pod = ""
        self.keeps_others_off = False
        self.ends_steps = True
        self.gres = folder / "gres"
        self.nri: Path | None = None
        self.device_plugins: Path | None = None
        self.job_mapping: Path | None = None
        self.slurmd_namespace = ""
        self.resources = {"example.com/gpu": "gpu"}
        self._suffix = suffix
        self._files = make_devices(folder / "dev", "x", "y", "z")
        self.print_devices("xyz")
        tree.make(f"kubepods{suffix}", f"kubepods{suffix}/{self._class()}")

    def print_devices(self, names: str, *, shards: int = 0) -> None:
        """Writes slurmd's list with these devices in this order, each with this number of parts."""
        files = {file[-1]: file for file in self._files}
        kinds = [("shard", shards, "SHARED")] if shards else []
        lines = (
            f"slurmd: Gres Name={name} Type=(null) Count={count} ID=7 File={files[each]} Flags={flags}\n"
            for each in names
            for name, count, flags in (*kinds, ("gpu", 1, "HAS_FILE"))
        )
        self.gres.write_text("".join(lines))

    def unload(self, name: str) -> Path:
        """Removes the file of a device, as a driver may do."""
        file = Path(next(file for file in self._files if file.endswith(name)))
        file.rename(file.with_suffix(".away"))
        return file

    def load(self, file: Path) -> None:
        """Creates the file again, as the driver may do."""
        file.with_suffix(".away").rename(file)

    def mode_of(self, name: str) -> int:
        """Returns the permissions of a device's file."""
        return next(Path(file).stat().st_mode & 0o777 for file in self._files if file.endswith(name))

    def _class(self) -> str:
        return "kubepods-burstable.slice" if self._suffix else "burstable"

    def cgroup(self, uid: str, *, guaranteed: bool = True) -> str:
        """Returns the cgroup of a Pod's container, by the names of the cgroup driver."""
        parent = f"kubepods{self._suffix}" + ("" if guaranteed else f"/{self._class()}")
        if not self._suffix:
            return f"{parent}/pod{uid}/c"
        prefix = "kubepods" if guaranteed else "kubepods-burstable"
        return f"{parent}/{prefix}-pod{uid.replace('-', '_')}.slice/cri-containerd-c.scope"

    def bind(self, uid: str, gres: str, *, node: str = "n1", **annotations: str) -> None:
        granted = Allocation(7, "n1", gres).annotations() | annotations
        metadata = {"uid": uid, "namespace": "ml", "name": uid, "annotations": granted}
        spec: dict[str, Any] = {"nodeName": node, "containers": []}
        self.kubernetes.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def bind_without_job(self, uid: str, namespace: str = "ml") -> None:
        metadata = {"uid": uid, "namespace": namespace, "name": "p"}
        self.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})

    async def delete(self, uid: str) -> None:
        await self.kubernetes.delete_pod("ml", uid, {"uid": uid}, 0)

    def start(self, uid: str, **of: bool) -> str:
        cgroup = self.cgroup(uid, **of)
        self.tree.make(cgroup)
        return cgroup

    def begin(self, uid: str, gres: str) -> str:
        """Binds and starts a Pod. Returns the Pod's cgroup."""
        self.bind(uid, gres)
        return self.start(uid)

    async def run_pod(self, uid: str, gres: str, devices: str) -> str:
        """Binds and starts a Pod. Waits until the Pod can open the devices. Returns the Pod's cgroup."""
        cgroup = self.begin(uid, gres)
        await until(lambda: self.has(cgroup) == devices)
        return cgroup

    @contextmanager
    def process(self, cgroup: str) -> Iterator[None]:
        """Runs a process in a container's cgroup."""
        argv = [sys.executable, "-c", _SLEEPER, str(self.tree.root / cgroup / "cgroup.procs")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            running.stdout.readline()
            try:
                yield
            finally:
                running.send_signal(signal.SIGKILL)

    def remove_pods_cgroup(self) -> None:
        """Removes the cgroup of all Pods, as on a machine without a kubelet."""
        for name in ("burstable", ""):
            (self.tree.root / "kubepods" / name).rmdir()

    def remove_guard(self) -> None:
        """Removes the guard, as `node-agent remove` does."""
        DeviceGuard(self.tree.bpf).remove(PodCgroups(self.tree.root).roots())

    def remove_files_of_guard(self, names: str) -> None:
        """Removes files of the guard from the BPF file system."""
        for file in self.tree.bpf.glob(names):
            file.unlink()

    def guard_is_kept(self) -> bool:
        kept = {file.name.partition("-")[0] for file in self.tree.bpf.glob("*")}
        return kept == {"guarded", "let_in", "program"}

    def has(self, cgroup: str) -> str:
        return "".join(file[-1] for file in self._files if self.tree.opens(cgroup, file))

    async def condition(self) -> Condition | None:
        return Condition.on(await self.kubernetes.read_node("n1"))

    async def reason(self) -> str:
        """Returns the reason of the agent's condition; "" without a condition."""
        condition = await self.condition()
        return condition.reason if condition else ""

    @asynccontextmanager
    async def agent(self, *, ready: bool = True) -> AsyncIterator[Agent]:
        settings = Settings(
            node="n1",
            pod_uid=self.own_pod,
            gres=self.gres,
            nri=self.nri,
            cdi=(),
            device_plugins=self.device_plugins,
            job_mapping=self.job_mapping,
            resources=self.resources,
            slurmd_namespace=self.slurmd_namespace,
            keep_others_off_cores=self.keeps_others_off,
            end_steps=self.ends_steps,
            bpf=self.tree.bpf,
        )
        cgroups = PodCgroups(self.tree.root)
        agent = Agent(self.kubernetes, cgroups, keeper_of(settings, cgroups), settings)
        running = asyncio.create_task(agent.run())
        try:
            if ready:
                await until(lambda: agent.health.ready)
            yield agent
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def until_equal(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    """Waits until the answer is equal to the expected answer."""
    what = f"an answer equal to {expected!r}"
    await until(ask, what, within_s=15, holds=lambda answer: answer == expected)
