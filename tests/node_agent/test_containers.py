"""Tests of the agent behind NRI, on a real kernel: a Pod has access to its devices before its first
container."""

from __future__ import annotations

import subprocess
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_client.errors import Unavailable
from node_agent.machine import names
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Answers
from node_agent.reporting import device_health
from tests.eventually import until
from tests.node_agent.container_runtime import RELEASES, ContainerRuntime
from tests.node_agent.node import A, B
from tests.node_agent.plugin import Plugin, connected
from tests.node_agent.test_gone_pods import HELD, make_pod
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import GRANTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from node_agent.agent import Agent
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real


def sandbox(uid: str, gres: str = "", *, cores: str = "", **annotations: str) -> dict[str, Any]:
    """Returns a Pod in the form in which the container runtime reports the Pod. Without GRES and cores,
    the Pod has no job."""
    granted = Allocation(7, "n1", gres, cores).annotations() if gres or cores else {}
    names = {"id": uid, "uid": uid, "name": uid, "namespace": "ml"}
    return {**names, "annotations": granted | annotations}


POD = sandbox(A, "gpu:1(IDX:0)")
RENUMBERED = "a job from before slurmd renumbered the devices may have a device"


@asynccontextmanager
async def running(
    node: Node, release: str = "0.12", *required: str
) -> AsyncIterator[tuple[ContainerRuntime, Agent]]:
    node.nri = node.gres.with_name("nri")
    async with ContainerRuntime.start(release, node.nri, *required) as runtime, node.agent() as agent:
        yield runtime, agent


async def begun(node: Node, runtime: ContainerRuntime, *pods: dict[str, Any]) -> None:
    """Creates Pods in kube-apiserver, and starts the Pods in the runtime if the agent allows the
    start."""
    for pod in pods:
        node.bind(pod["uid"], "", **pod["annotations"])
        node.start(pod["uid"])
        await known(runtime, pod)


async def known(runtime: ContainerRuntime, pod: dict[str, Any]) -> str:
    """Waits until the agent knows a Pod, and returns the agent's answer."""
    return str(await until(lambda: runtime.runs(pod), holds=lambda error: "not reported" not in error))


async def created(runtime: ContainerRuntime, pod: dict[str, Any], passes: str) -> str:
    """Tries to create a container until the error no longer contains `passes`. Returns the error."""
    answer = await until(lambda: runtime.creates(pod), holds=lambda made: passes not in made[1])
    return str(answer[1])


@pytest.mark.parametrize("release", RELEASES)
async def test_pod_has_access_before_its_containers_get_devices(release: str, node: Node) -> None:
    pod = sandbox(A, "gpu:2(IDX:0,2)")
    async with running(node, release) as (runtime, _):
        cgroup = node.start(A)
        assert node.has(cgroup) == ""
        node.bind(A, "gpu:2(IDX:0,2)")
        assert await known(runtime, pod) == ""
        assert node.has(cgroup) == "xz"
        adjust, error = await runtime.creates(pod)
    assert error == ""
    told = {device["path"][-1]: device for device in adjust["linux"]["devices"]}
    assert {name: device.get("minor", "0") for name, device in told.items()} == {"x": "0", "z": "2"}
    assert told["z"]["major"] == "60"
    assert told["z"]["fileMode"] == {"value": node.mode_of("z")}


async def test_container_with_an_mps_part_gets_gpu_and_percentage(node: Node) -> None:
    node.print_devices("xyz", shards=200)
    node.gres.write_text(node.gres.read_text().replace("shard", "mps"))
    pod = sandbox(A, "mps:50(0/200,50/200,0/200)")
    async with running(node) as (runtime, _):
        await begun(node, runtime, pod)
        adjust, error = await runtime.creates(pod)
    assert error == ""
    assert [device["path"][-1] for device in adjust["linux"]["devices"]] == ["y"]
    assert adjust["env"] == [{"key": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "25"}]


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (sandbox(A, **{GRANTED: '{"v":2}'}), "what Slurm granted it cannot be read"),
        (sandbox(A, "gpu:1(IDX:7)"), "Slurm gave it gpu 7, and this machine has 3"),
        (sandbox(A, "gpu(CNT:1)"), "Slurm does not say which gpu it has"),
    ],
)
async def test_pod_with_unknown_devices_does_not_run(
    pod: dict[str, Any], words: str, node: Node
) -> None:
    async with running(node) as (runtime, _):
        cgroup = node.start(A)
        node.bind(A, "", **pod["annotations"])
        assert words in await known(runtime, pod)
        assert words in (await runtime.creates(pod))[1]
        assert node.has(cgroup) == ""


async def test_pod_waits_for_the_last_process_with_its_device(node: Node) -> None:
    pod = sandbox(B, "gpu:1(IDX:0)")
    async with running(node) as (runtime, _):
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        assert await known(runtime, POD) == ""
        with node.process(one):
            await node.delete(A)
            node.bind(B, "gpu:1(IDX:0)")
            assert "processes of a Pod" in await known(runtime, pod)
            assert "processes of a Pod" in (await runtime.creates(pod))[1]
            assert node.has(other) == ""
        assert await runtime.runs(pod) == ""
        assert (node.has(one), node.has(other)) == ("", "x")


async def test_pod_waits_for_a_native_job_with_renumbered_devices(node: Node) -> None:
    job = "system.slice/n1_slurmstepd.scope/job_33/step_0"
    node.tree.make(job)
    async with running(node) as (runtime, _):
        with node.process(job):
            node.print_devices("yxz")
            node.bind(A, "gpu:1(IDX:0)")
            cgroup = node.start(A)
            assert RENUMBERED in await known(runtime, POD)
            assert RENUMBERED in (await runtime.creates(POD))[1]
            assert node.has(cgroup) == ""
        assert await runtime.runs(POD) == ""
        adjust, error = await runtime.creates(POD)
        assert (node.has(cgroup), error) == ("y", "")
        assert [device["path"][-1] for device in adjust["linux"]["devices"]] == ["y"]


@contextmanager
def pods_with_cores(node: Node, folder: Path, *uids: str) -> Iterator[Path]:
    """Makes cgroups of Pods as plain files, because this kernel has no cpuset controller. Yields the
    folder."""
    places = {uid: node.tree.root / f"kubepods/pod{uid}" for uid in uids}
    for uid, place in places.items():
        node.tree.make(f"kubepods/pod{uid}")
        subprocess.run(["mount", "--bind", make_pod(folder, uid, populated=False), place], check=True)
    try:
        yield folder
    finally:
        for place in places.values():
            subprocess.run(["umount", place], check=True)


async def test_pod_waits_for_the_last_process_on_its_cores(node: Node, tmp_path: Path) -> None:
    """The agent starts after the removal of Pod A, whose process still runs."""
    pod, cpus = sandbox(B, cores="0"), number_list.compress(Cpus.read().cores[0])
    with pods_with_cores(node, tmp_path, A, B) as folder:
        make_pod(folder, A, cpus)
        async with running(node) as (runtime, _):
            node.bind(B, "", **pod["annotations"])
            assert HELD in await known(runtime, pod)
            make_pod(folder, B, cpus)  # containerd has started the sandbox before the call
            assert HELD in await runtime.runs(pod)
            assert HELD in (await runtime.creates(pod))[1]
            make_pod(folder, A, cpus, populated=False)
            assert await runtime.runs(pod) == ""
            assert (await runtime.creates(pod))[1] == ""
            make_pod(folder, A, cpus)
            assert (await runtime.creates(pod))[1] == ""  # the agent lets a started Pod continue
            await runtime.stops(pod)
            assert HELD in await runtime.runs(pod)
            make_pod(folder, B, cpus, populated=False)


async def test_starting_agent_leaves_pods_with_containers_alone(node: Node, tmp_path: Path) -> None:
    """Processes of the removed Pod A run on the cores of Pod B, which has a container."""
    pod, cpus = sandbox(B, cores="0"), number_list.compress(Cpus.read().cores[0])
    node.nri = node.gres.with_name("nri")
    node.bind(B, "", **pod["annotations"])
    with pods_with_cores(node, tmp_path, A, B) as folder:
        make_pod(folder, A, cpus)
        async with ContainerRuntime.start("0.12", node.nri) as runtime:
            await runtime.has(pod, {"id": "c0", "state": "CONTAINER_RUNNING"})
            async with node.agent() as agent:
                assert (await runtime.creates(pod))[1] == ""
                assert agent.problems == {}


async def test_sandbox_of_a_pod_that_kubernetes_does_not_have_does_not_start(node: Node) -> None:
    """The kubelet starts the Pod late: kube-apiserver no longer has the Pod, and another Pod may have
    the device."""
    async with running(node) as (runtime, _):
        cgroup = node.start(A)
        assert "kube-apiserver no longer has the Pod, or has not reported" in await runtime.runs(POD)
        node.bind(A, "gpu:1(IDX:0)")
        assert await known(runtime, POD) == ""
        assert node.has(cgroup) == "x"
        await node.delete(A)
        await until(lambda: runtime.runs(POD), holds=lambda why: "no longer has the Pod" in why)
        assert "kube-apiserver no longer has the Pod" in (await runtime.creates(POD))[1]
        await until(lambda: node.has(cgroup) == "")  # no process is in the cgroup


async def test_pod_without_job_and_devices_runs_without_slurmds_list(node: Node) -> None:
    """Such a Pod may be slurmd's own Pod. Without slurmd, nothing writes the list, so the Pod must not
    wait for the list."""
    node.gres.unlink()
    node.nri = node.gres.with_name("nri")
    start = ContainerRuntime.start("0.12", node.nri, "slurm-extender")
    async with start as runtime, node.agent(ready=False):
        assert await created(runtime, sandbox(A), "required plugin") == ""
        assert await runtime.runs(sandbox(A)) == ""


async def test_no_pod_starts_before_the_agent_knows_the_pods(node: Node) -> None:
    node.kubernetes.outage(Unavailable(0, "no answer"))
    node.nri = node.gres.with_name("nri")
    start = ContainerRuntime.start("0.12", node.nri, "slurm-extender")
    async with start as runtime, node.agent(ready=False) as agent:
        node.start(A)
        node.bind(A, "gpu:1(IDX:0)")
        await until(agent.health.problems)
        assert "does not know the devices of" in await created(runtime, POD, "required plugin")
        assert "does not know the devices of" in await runtime.runs(POD)
        node.kubernetes.outage(None)
        await until(lambda: agent.health.ready)
        assert await runtime.runs(POD) == ""


async def test_pod_with_devices_waits_for_slurmds_list(node: Node) -> None:
    node.gres.unlink()
    node.slurmd_namespace = "slurm-nodes"
    async with running(node) as (runtime, _):
        node.start(A)
        node.bind(A, "gpu:1(IDX:0)")
        error = await created(runtime, POD, "the node agent yet")
        told = "slurmd's list of devices: slurmd has not reported its devices yet"
        assert f"the node agent does not know the devices of all Pods yet ({told}" in error
        node.print_devices("xyz")
        assert await runtime.runs(POD) == ""


async def test_container_with_a_device_of_another_plugin_is_rejected(node: Node) -> None:
    other = Plugin()
    other.adjust.linux.devices.add(path="/dev/y", type="c", major=60, minor=1)
    async with running(node) as (runtime, _), connected(runtime, other):
        node.start(A)
        words = "another plugin gives it /dev/y, which its Slurm job does not have"
        assert words in (await runtime.creates(sandbox(A)))[1]


async def test_privileged_container_of_no_job_starts_and_opens_no_device(node: Node) -> None:
    """The container runtime gives the container every device of the Node."""
    every = {"linux": {"devices": [{"path": "/dev/y", "type": "c", "major": 60, "minor": 1}]}}
    async with running(node) as (runtime, _):
        cgroup = node.start(A)
        assert await runtime.runs(sandbox(A)) == ""
        assert await runtime.creates(sandbox(A), every) == ({}, "")
        assert node.has(cgroup) == ""


async def test_agent_reconnects_to_a_restarted_container_runtime(node: Node) -> None:
    async with running(node) as (runtime, agent):
        runtime.kill()
        await until(lambda: "container runtime" in agent.health.problems())
        assert node.nri is not None
        async with ContainerRuntime.start("0.8", node.nri) as another:  # another release of NRI
            await until(lambda: "container runtime" not in agent.health.problems())
            cgroup = node.start(A)
            node.bind(A, "gpu:1(IDX:0)")
            assert await known(another, POD) == ""
            assert node.has(cgroup) == "x"


async def test_hanging_driver_delays_no_container(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime requires the agent's plugin."""
    goes_on = threading.Event()

    def hang() -> Answers:
        goes_on.wait()
        return Answers()

    monkeypatch.setattr(names, "ask_drivers", hang)
    monkeypatch.setattr(device_health, "_PATIENCE_S", 0.2)
    async with running(node, "0.12", "slurm-extender") as (runtime, agent):
        cgroup = node.begin(A, "gpu:1(IDX:0)")
        assert await known(runtime, POD) == ""
        adjust, error = await runtime.creates(POD)
        assert (error, node.has(cgroup)) == ("", "x")
        assert [device["path"][-1] for device in adjust["linux"]["devices"]] == ["x"]
        assert agent.health.problems()["names of devices"] == "a driver has not answered for 0.2 s"
        goes_on.set()
