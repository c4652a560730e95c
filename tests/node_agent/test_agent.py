"""The agent on a real kernel: Pods come and go, and each has the devices of its job and no others."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent import agent as agent_module
from node_agent.agent import Agent, PodsWithLess
from node_agent.cgroups import PodCgroups
from node_agent.keeper import Keeper
from node_agent.kernel.device_guard import DeviceGuard
from tests.node_agent.cgroup_tree import Tree, make_devices, mounted
from wellknown.allocation import Allocation
from wellknown.names import GRANTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.real

A, B = "0f5cbb08-9b1c-4f33-a4a7-0c8e3f1f5d1a", "1e6b6a0e-0d52-4f8e-8a39-9b1a2c3d4e5f"
_SLEEPER = """
import os, sys, time
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
print("in", flush=True)
time.sleep(600)
"""


class Node:
    """A Node: its kernel, its kubelet's cgroups, its slurmd's list, and its Pods in kube-apiserver."""

    def __init__(self, tree: Tree, folder: Path, suffix: str) -> None:
        self.tree = tree
        self.kubernetes = InMemoryKubernetes()
        self.gres = folder / "gres"
        self._suffix = suffix
        self._files = make_devices(folder / "dev", "x", "y", "z")
        self.print_devices("xyz")
        tree.make(f"kubepods{suffix}", f"kubepods{suffix}/{self._class()}")

    def print_devices(self, names: str) -> None:
        """slurmd starts, and counts these, in this order."""
        files = {file[-1]: file for file in self._files}
        lines = (
            f"slurmd: Gres Name=gpu Type=(null) Count=1 ID=7 File={files[name]}\n" for name in names
        )
        self.gres.write_text("".join(lines))

    def _class(self) -> str:
        return "kubepods-burstable.slice" if self._suffix else "burstable"

    def cgroup(self, uid: str, *, guaranteed: bool = True) -> str:
        """Where a Pod's container is, by the names of the driver."""
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

    async def delete(self, uid: str) -> None:
        await self.kubernetes.delete_pod("ml", uid, {"uid": uid}, 0)

    def start(self, uid: str, **of: bool) -> str:
        cgroup = self.cgroup(uid, **of)
        self.tree.make(cgroup)
        return cgroup

    @contextmanager
    def process(self, cgroup: str) -> Iterator[None]:
        """A process of a container."""
        argv = [sys.executable, "-c", _SLEEPER, str(self.tree.root / cgroup / "cgroup.procs")]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            running.stdout.readline()
            try:
                yield
            finally:
                running.send_signal(signal.SIGKILL)

    def has(self, cgroup: str) -> str:
        return "".join(file[-1] for file in self._files if self.tree.opens(cgroup, file))

    @asynccontextmanager
    async def agent(self, *, ready: bool = True) -> AsyncIterator[Agent]:
        cgroups = PodCgroups(self.tree.root)
        keeper = Keeper(self.gres, cgroups, DeviceGuard(self.tree.bpf))
        agent = Agent(self.kubernetes, "n1", cgroups, keeper)
        running = asyncio.create_task(agent.run())
        if ready:
            await eventually(lambda: agent.health.ready)
        yield agent
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 -- the kernel tells nobody
            await asyncio.sleep(0.02)


@pytest.fixture(params=["", ".slice"], ids=["cgroupfs", "systemd"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    with mounted(tmp_path) as tree:
        yield Node(tree, tmp_path, request.param)


@pytest.fixture
def one_driver(tmp_path: Path) -> Iterator[Node]:
    with mounted(tmp_path) as tree:
        yield Node(tree, tmp_path, "")


async def test_a_pod_has_its_devices_whichever_comes_first_pod_or_cgroup(node: Node) -> None:
    async with node.agent():
        node.bind(A, "gpu:h100:2(IDX:0,2)")
        one = node.start(A)
        other = node.start(B, guaranteed=False)
        await eventually(lambda: node.has(one) == "xz")
        assert node.has(other) == ""
        node.bind(B, "gpu:h100:1(IDX:1)")
        await eventually(lambda: node.has(other) == "y")
        assert node.has(one) == "xz"


async def test_pods_of_no_job_have_none(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        metadata = {"uid": A, "namespace": "ml", "name": "p"}
        node.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
        none = node.start(A)
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B)
        await eventually(lambda: node.has(other) == "x")  # the agent has looked
        assert node.has(none) == ""


async def test_a_device_is_given_on_once_the_last_process_of_its_pod_is_gone(node: Node) -> None:
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await eventually(lambda: node.has(one) == "x")
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B, guaranteed=False)
        with node.process(one):
            await node.delete(A)  # by force
            await eventually(lambda: agent.problems.get(f"ml/{B}", "").startswith("processes of a Pod"))
            assert (node.has(one), node.has(other)) == ("x", "")
        await eventually(lambda: node.has(other) == "x")
        assert node.has(one) == ""
        assert agent.problems == {}


async def test_a_pod_that_has_ended_has_none(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        cgroup = node.start(A)
        await eventually(lambda: node.has(cgroup))
        await node.kubernetes.patch_pod_status("ml", A, {"status": {"phase": "Failed"}})
        await eventually(lambda: not node.has(cgroup))


async def test_while_no_agent_runs_everybody_keeps_what_they_have_and_nobody_gets_more(
    node: Node,
) -> None:
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await eventually(lambda: node.has(one) == "x")
    node.bind(B, "gpu:1(IDX:1)")
    other = node.start(B)
    assert (node.has(one), node.has(other)) == ("x", "")
    async with node.agent():
        await eventually(lambda: node.has(other) == "y")
        assert node.has(one) == "x"


async def test_while_kube_apiserver_is_away_an_agent_that_starts_takes_nothing_away(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        cgroup = node.start(A)
        await eventually(lambda: node.has(cgroup) == "x")
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False) as agent:
        await eventually(agent.health.troubles)
        await asyncio.sleep(0.3)
        assert (node.has(cgroup), agent.health.ready) == ("x", False)
        node.kubernetes.outage(None)
        await eventually(lambda: agent.health.ready)
        assert node.has(cgroup) == "x"


async def test_an_agent_without_slurmds_list_guards_what_was_guarded_and_says_why(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await eventually(lambda: node.has(one) == "x")
    node.gres.write_text("slurmd: fatal: Unable to determine this slurmd's NodeName\n")
    async with node.agent(ready=False) as agent:
        await eventually(lambda: "slurmd's list of devices" in agent.health.troubles())
        assert "fatal: Unable" in agent.health.troubles()["slurmd's list of devices"]
        other = node.start(B)
        assert (node.has(one), node.has(other)) == ("x", "")
        node.print_devices("xyz")
        node.bind(B, "gpu:1(IDX:2)")
        await eventually(lambda: agent.health.ready)
        await eventually(lambda: node.has(other) == "z")


async def test_a_list_that_changes_counts_from_then_on(one_driver: Node) -> None:
    node = one_driver
    node.print_devices("xy")
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        assert "z" in node.has(one)  # Slurm does not count it
        await eventually(lambda: node.has(one) == "xz")
        node.print_devices("zy")
        node.bind(A, "gpu:1(IDX:0)", news="1")
        await eventually(lambda: node.has(one) == "z")
        node.gres.write_text("")  # slurmd counts none: what was guarded stays so
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B)
        await eventually(lambda: f"ml/{B}" in agent.problems)
        assert node.has(other) == ""


async def test_a_pod_that_cannot_have_its_devices_is_told_of(one_driver: Node) -> None:
    node = one_driver
    async with node.agent() as agent:
        node.bind(A, "", **{GRANTED: '{"v":2}'})
        node.bind(B, "gpu:1(IDX:7)")
        cgroups = [node.start(A), node.start(B)]
        await eventually(lambda: len(agent.problems) == 2)
        assert agent.problems == {
            f"ml/{A}": "what Slurm granted it cannot be read",
            f"ml/{B}": "Slurm gave it gpu 7, and this machine has 3",
        }
        (metric,) = PodsWithLess(agent).collect()
        assert metric.samples[0].value == 2
        assert [node.has(cgroup) for cgroup in cgroups] == ["", ""]


async def test_pods_of_other_nodes_do_not_count(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)", node="n2")
        node.bind(B, "gpu:1(IDX:1)")
        foreign, own = node.start(A), node.start(B)
        await eventually(lambda: node.has(own) == "y")
        assert node.has(foreign) == ""


async def test_a_node_that_was_moved_to_another_driver_is_guarded_in_both_places(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.tree.make("kubepods.slice/kubepods-pod" + A.replace("-", "_") + ".slice/c")
        moved = "kubepods.slice/kubepods-pod" + A.replace("-", "_") + ".slice/c"
        node.bind(B, "gpu:1(IDX:1)")
        await eventually(lambda: node.has(moved) == "")
        node.bind(A, "gpu:1(IDX:0)")
        await eventually(lambda: node.has(moved) == "x")


async def test_a_kubelet_that_makes_its_cgroup_anew_is_guarded_anew(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        for name in ("burstable", ""):
            (node.tree.root / "kubepods" / name).rmdir()
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        await eventually(lambda: (node.has(one), node.has(other)) == ("x", ""))


async def test_without_inotify_it_looks_more_often(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(agent_module, "FolderWatch", none)
    node = one_driver
    async with node.agent() as agent:
        assert "inotify" in agent.health.troubles()
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await eventually(lambda: node.has(one) == "x")


async def test_a_machine_without_pods_cgroups_is_told_of(one_driver: Node) -> None:
    node = one_driver
    for name in ("burstable", ""):
        (node.tree.root / "kubepods" / name).rmdir()
    async with node.agent(ready=False) as agent:
        await eventually(lambda: "no cgroup" in agent.health.troubles().get("guard", ""))
        node.tree.make("kubepods")
        await eventually(lambda: agent.health.ready)
