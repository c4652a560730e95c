"""What a Node's slurmd Pod has beside Pods of jobs, and when its slurmd has told its devices."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from node_agent.enforcement import slurmd_share
from node_agent.enforcement.decision import Entry
from node_agent.enforcement.limits import limits_of
from node_agent.enforcement.slurmd_share import with_share
from node_agent.machine import names
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Number
from node_agent.pods.claims import Claim
from node_agent.reporting.node_condition import Condition
from tests.eventually import until
from tests.node_agent.node import A, B, until_equal
from wellknown.conditions import timestamp
from wellknown.names import ON_HOST, SLURMD, SLURMD_LABEL, SLURMD_PROBLEM
from wellknown.slurmd_pod import Assignment, pod_name

if TYPE_CHECKING:
    from tests.node_agent.node import Node


def start_slurmd(node: Node) -> str:
    """The Node's slurmd Pod, as it was assigned. Returns its cgroup."""
    node.slurmd_namespace = "slurm-nodes"
    node.kubernetes.edit(
        "nodes", "n1", {"metadata": {"annotations": Assignment("gpu", "gpu-1").annotations()}}
    )
    labels = {"slurm-extender.io/pool": "gpu", "slurm-extender.io/revision": "gpu-1"}
    metadata = {"uid": B, "namespace": "slurm-nodes", "name": pod_name("n1"), "labels": labels}
    node.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    return node.start(B, guaranteed=False)


@pytest.mark.real
async def test_slurmd_has_every_device_that_no_pod_of_a_job_has(one_driver: Node) -> None:
    node = one_driver
    slurmds = start_slurmd(node)
    async with node.agent() as agent:
        await until(lambda: node.has(slurmds) == "xyz")
        node.bind(A, "gpu:1(IDX:1)")
        pods = node.start(A)
        await until(lambda: node.has(pods) == "y")
        assert node.has(slurmds) == "xz"
        with node.process(pods):
            await node.delete(A)  # by force: its process has the device yet
            await until(lambda: agent.clear().word == "there")
            assert (node.has(pods), node.has(slurmds)) == ("y", "xz")
        await until(lambda: agent.clear().word == "clear")
        assert node.has(slurmds) == "xyz"  # the job that was told so begins now
        node.bind(A, "gpu:1(IDX:1)")
        await until(lambda: node.has(pods) == "y")
        with node.process(pods):
            await node.delete(A)
            await asyncio.sleep(0.5)  # the agent has looked, and would do so again in 10 s
        await until(lambda: node.has(slurmds) == "xyz")  # without a question, too


@pytest.mark.real
async def test_a_node_whose_slurmd_has_not_started_yet_is_fine_and_gives_no_device(
    one_driver: Node,
) -> None:
    """Its first slurmd Pod needs the agent, and brings slurmd's list of devices."""
    node = one_driver
    node.gres.unlink()
    node.slurmd_namespace = "slurm-nodes"
    async with node.agent() as agent:
        await until_equal(node.condition, Condition.of({}, []))
        assert not agent.health.troubles()
        node.bind(A, "gpu:1(IDX:1)")
        pods = node.start(A)
        node.print_devices("xyz")
        slurmds = start_slurmd(node)
        await until(lambda: (node.has(pods), node.has(slurmds)) == ("y", "xz"))
        node.gres.unlink()
        await until(lambda: "slurmd's list of devices" in agent.health.troubles())


@pytest.mark.real
async def test_a_slurmd_pod_that_never_tells_its_devices_is_a_problem(one_driver: Node) -> None:
    """A command of the template's does not write the list, say."""
    node = one_driver
    node.gres.unlink()
    start_slurmd(node)
    pod = node.kubernetes.read("pods", pod_name("n1"), "slurm-nodes")
    async with node.agent() as agent:
        await until_equal(node.condition, Condition.of({}, []))
        began = datetime.now(UTC) - timedelta(minutes=10)
        running = {"name": "slurmd", "state": {"running": {"startedAt": timestamp(began)}}}
        node.kubernetes.put("pods", pod | {"status": {"containerStatuses": [running]}})
        await until(lambda: "slurmd's list of devices" in agent.health.troubles())
        await until_equal(lambda: _reason(node), "ListUnreadable")
        node.print_devices("xyz")
        node.bind(A, "gpu:1(IDX:1)")
        pods = node.start(A)
        await until(lambda: node.has(pods) == "y")


@pytest.mark.real
async def test_slurmd_on_the_host_has_told_its_devices(one_driver: Node) -> None:
    node = one_driver
    node.gres.unlink()
    node.slurmd_namespace = "slurm-nodes"
    node.kubernetes.edit("nodes", "n1", {"metadata": {"labels": {SLURMD_LABEL: ON_HOST}}})
    async with node.agent(ready=False) as agent:
        node.bind(A, "")  # the agent looks
        await asyncio.sleep(0.3)
        node.bind(A, "", news="1")
        await until(lambda: "slurmd's list of devices" in agent.health.troubles())


async def _reason(node: Node) -> str:
    condition = await node.condition()
    return condition.reason if condition is not None else ""


@pytest.mark.real
async def test_an_agent_makes_no_slurmd_pod_before_a_driver_tells_of_the_gpus(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = one_driver
    monkeypatch.setattr(names, "untold", lambda _: ["0000:19:00.0"])
    node.slurmd_namespace = "slurm-nodes"
    annotations = Assignment("gpu", "gpu-1").annotations()
    node.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": annotations}})
    revision = {"metadata": {"name": "gpu-1", "namespace": "slurm-nodes"}, "data": {"slurm": {}}}
    await node.kubernetes.create_revision("slurm-nodes", revision)

    async def told() -> bool:
        conditions = (await node.kubernetes.read_node("n1"))["status"].get("conditions") or ()
        messages = {each["type"]: each["message"] for each in conditions}
        return "no driver tells of the GPU at 0000:19:00.0" in messages.get(SLURMD_PROBLEM, "")

    async with node.agent():
        await until_equal(told, expected=True)


@pytest.mark.real
async def test_an_agent_that_finds_no_list_leaves_pods_what_they_have(one_driver: Node) -> None:
    node = one_driver
    node.bind(A, "gpu:1(IDX:1)")
    pods, slurmds = node.start(A), start_slurmd(node)
    async with node.agent():
        await until(lambda: (node.has(pods), node.has(slurmds)) == ("y", "xz"))
    node.gres.unlink()
    async with node.agent(ready=False):
        await asyncio.sleep(0.5)
        assert (node.has(pods), node.has(slurmds)) == ("y", "xz")


@pytest.mark.real
async def test_processes_that_a_slurmd_pod_has_left_keep_devices_from_others(one_driver: Node) -> None:
    """A job may compute on after slurmd's Pod was deleted by force."""
    node = one_driver
    slurmds = start_slurmd(node)
    async with node.agent() as agent:
        await until(lambda: node.has(slurmds) == "xyz")
        with node.process(slurmds):
            node.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": {SLURMD: None}}})
            node.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")
            node.bind(A, "gpu:1(IDX:1)")
            pods = node.start(A)
            await until(lambda: f"ml/{A}" in agent.problems)
            assert node.has(pods) == ""
        await until(lambda: node.has(pods) == "y")


def test_of_a_gpu_in_parts_native_jobs_may_have_others() -> None:
    x, y, z = (Number(1, minor) for minor in range(3))
    others = [Entry(1, x), Entry(2, y, in_part=True), Entry(3, y, in_part=True)]
    assert slurmd_share.entries({9}, {x, y, z}, others) == {Entry(9, y, in_part=True), Entry(9, z)}


def test_its_share_of_cores_and_memory_is_what_pods_of_jobs_leave() -> None:
    cpus = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
    slurmd = Claim(B, "slurm-nodes/slurmd-n1", slurmd=True)
    pod = Claim(A, "ml/p", cores=(1, 2), memory_mb=1000, of_job=True)
    shares = with_share({A: pod, B: slurmd}, cpus, 4000)
    assert shares[A] == pod
    assert (shares[B].cores, shares[B].memory_mb) == ((0, 3), 3000)
    now = {"cpuset.cpus": "", "memory.max": "max", "memory.swap.max": "max"}
    written = limits_of(shares[B], cpus).corrections(now)
    assert written == {"cpuset.cpus": "0,3-4,7", "memory.max": str(3000 << 20)}
    alone = limits_of(with_share({B: slurmd}, cpus, 4000)[B], cpus)
    assert alone.corrections(now | written) == {"cpuset.cpus": "0-7", "memory.max": str(4000 << 20)}
    assert with_share({A: pod}, cpus, 4000) == {A: pod}


def test_slurmd_keeps_memory_that_pods_only_request() -> None:
    """Native jobs use memory that Slurm does not count: their use may exceed what requests leave."""
    slurmd = Claim(B, "slurm-nodes/slurmd-n1", slurmd=True)
    pod = Claim(A, "ml/p", requested_mb=1000, of_job=True)
    assert with_share({A: pod, B: slurmd}, None, 4000)[B].memory_mb == 4000


def test_where_slurmd_starts_placeholders_it_keeps_their_cores() -> None:
    cpus = Cpus(((0,), (1,), (2,)))
    slurmd = Claim(B, "slurm-nodes/slurmd-n1", slurmd=True)
    pod = Claim(A, "ml/p", cores=(1,), memory_mb=1000, of_job=True)
    share = with_share({A: pod, B: slurmd}, cpus, 4000, every_core=True)[B]
    assert (share.cores, share.memory_mb) == ((0, 1, 2), 3000)
