"""Tests of the cores, memory and devices that the slurmd Pod has beside Pods of jobs, and of the agent's
wait for slurmd's list of devices."""

from __future__ import annotations

import asyncio
import os
import time
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
from tests.node_agent.node import A, B, C, until_equal
from wellknown.conditions import timestamp
from wellknown.names import ON_HOST, SLURMD, SLURMD_LABEL, SLURMD_PROBLEM
from wellknown.slurmd_pod import Assignment, pod_name

if TYPE_CHECKING:
    from tests.node_agent.node import Node


def assign(node: Node) -> None:
    """Assigns a slurmd Pod to the Node, as the extender does."""
    annotations = Assignment("gpu", "gpu-1").annotations()
    node.slurmd_namespace = "slurm-nodes"
    node.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": annotations}})


def start_slurmd(node: Node) -> str:
    """Starts the assigned slurmd Pod. Returns the Pod's cgroup."""
    assign(node)
    labels = {"slurm-extender.io/pool": "gpu", "slurm-extender.io/revision": "gpu-1"}
    metadata = {"uid": B, "namespace": "slurm-nodes", "name": pod_name("n1"), "labels": labels}
    node.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    return node.start(B, guaranteed=False)


def begins(node: Node, at: datetime) -> None:
    """Reports the start time of slurmd's container, as the kubelet does."""
    pod = node.kubernetes.read("pods", pod_name("n1"), "slurm-nodes")
    running = {"name": "slurmd", "state": {"running": {"startedAt": timestamp(at)}}}
    node.kubernetes.put("pods", pod | {"status": {"containerStatuses": [running]}})


@pytest.mark.real
async def test_slurmd_has_every_device_that_no_pod_of_a_job_has(node: Node) -> None:
    slurmds = start_slurmd(node)
    async with node.agent() as agent:
        await until(lambda: node.has(slurmds) == "xyz")
        pods = await node.run_pod(A, "gpu:1(IDX:1)", "y")
        assert node.has(slurmds) == "xz"
        with node.process(pods):
            await node.delete(A)  # a deletion by force: the Pod's process still has the device
            await until(agent.lingering)
            assert (node.has(pods), node.has(slurmds)) == ("y", "xz")
        await until(lambda: not agent.lingering())
        assert node.has(slurmds) == "xyz"  # so the gate lets the next job start
        node.bind(A, "gpu:1(IDX:1)")
        await until(lambda: node.has(pods) == "y")
        with node.process(pods):
            await node.delete(A)
            await asyncio.sleep(0.5)  # the agent has looked, and looks again only after 10 s
        await until(lambda: node.has(slurmds) == "xyz")  # also without a call of the gate


@pytest.mark.real
async def test_node_gives_no_device_before_slurmd_starts(node: Node) -> None:
    """The first slurmd Pod needs the agent, and brings slurmd's list of devices."""
    node.gres.unlink()
    node.slurmd_namespace = "slurm-nodes"
    async with node.agent() as agent:
        await until_equal(node.condition, Condition.of({}, []))
        assert not agent.health.problems()
        pods = node.begin(A, "gpu:1(IDX:1)")
        node.print_devices("xyz")
        slurmds = start_slurmd(node)
        await until(lambda: (node.has(pods), node.has(slurmds)) == ("y", "xz"))
        node.gres.unlink()
        await until(lambda: "slurmd's list of devices" in agent.health.problems())


@pytest.mark.real
async def test_slurmd_pod_that_never_lists_its_devices_is_a_problem(node: Node) -> None:
    """For example, the template has its own command for slurmd, and the command writes no list."""
    node.gres.unlink()
    start_slurmd(node)
    async with node.agent() as agent:
        await until_equal(node.condition, Condition.of({}, []))
        begins(node, datetime.now(UTC) - timedelta(minutes=10))
        await until(lambda: "slurmd's list of devices" in agent.health.problems())
        await until_equal(node.reason, "ListUnreadable")
        node.print_devices("xyz")
        await node.run_pod(A, "gpu:1(IDX:1)", "y")


@pytest.mark.real
async def test_no_pod_gets_devices_by_the_list_of_an_earlier_slurmd(node: Node) -> None:
    start_slurmd(node)
    async with node.agent() as agent:
        one = await node.run_pod(A, "gpu:1(IDX:1)", "y")
        begins(node, datetime.now(UTC) + timedelta(seconds=60))  # scripts run, slurmd not yet
        other = node.begin(C, "gpu:1(IDX:0)")
        await until(lambda: "since its last start" in agent.problems.get(f"ml/{C}", ""))
        assert (node.has(one), node.has(other)) == ("y", "")
        assert not agent.health.problems()
        node.print_devices("zyx")
        listed_at = time.time() + 61
        os.utime(node.gres, (listed_at, listed_at))
        await until(lambda: (node.has(one), node.has(other)) == ("y", "z"))
        assert not agent.problems


@pytest.mark.real
async def test_the_list_of_an_earlier_slurmd_is_a_problem_after_five_minutes(node: Node) -> None:
    start_slurmd(node)
    os.utime(node.gres, (0, time.time() - 3600))
    begins(node, datetime.now(UTC) - timedelta(minutes=10))
    async with node.agent(ready=False) as agent:
        await until(
            lambda: (
                "older than slurmd's container"
                in agent.health.problems().get("slurmd's list of devices", "")
            )
        )
        await until_equal(node.reason, "ListUnreadable")
        node.print_devices("xyz")
        await node.run_pod(A, "gpu:1(IDX:1)", "y")


@pytest.mark.real
async def test_missing_list_of_slurmd_on_the_host_is_a_problem(node: Node) -> None:
    node.gres.unlink()
    node.slurmd_namespace = "slurm-nodes"
    node.kubernetes.edit("nodes", "n1", {"metadata": {"labels": {SLURMD_LABEL: ON_HOST}}})
    async with node.agent(ready=False) as agent:
        node.bind(A, "")  # the agent looks
        await asyncio.sleep(0.3)
        node.bind(A, "", news="1")
        await until(lambda: "slurmd's list of devices" in agent.health.problems())


@pytest.mark.real
async def test_slurmd_pod_waits_for_drivers(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "without_driver", lambda _: ["0000:19:00.0"])
    assign(node)
    revision = {"metadata": {"name": "gpu-1", "namespace": "slurm-nodes"}, "data": {"slurm": {}}}
    await node.kubernetes.create_revision("slurm-nodes", revision)

    async def told() -> bool:
        conditions = (await node.kubernetes.read_node("n1"))["status"].get("conditions") or ()
        messages = {each["type"]: each["message"] for each in conditions}
        return "no driver reports the GPU at 0000:19:00.0" in messages.get(SLURMD_PROBLEM, "")

    async with node.agent():
        await until_equal(told, expected=True)


@pytest.mark.real
async def test_agent_without_a_list_leaves_pods_their_devices(node: Node) -> None:
    node.bind(A, "gpu:1(IDX:1)")
    pods, slurmds = node.start(A), start_slurmd(node)
    async with node.agent():
        await until(lambda: (node.has(pods), node.has(slurmds)) == ("y", "xz"))
    node.gres.unlink()
    async with node.agent(ready=False):
        await asyncio.sleep(0.5)
        assert (node.has(pods), node.has(slurmds)) == ("y", "xz")


@pytest.mark.real
async def test_remaining_processes_of_a_slurmd_pod_keep_their_devices(node: Node) -> None:
    """A job may continue after the slurmd Pod was deleted by force."""
    slurmds = start_slurmd(node)
    async with node.agent() as agent:
        await until(lambda: node.has(slurmds) == "xyz")
        with node.process(slurmds):
            node.kubernetes.edit("nodes", "n1", {"metadata": {"annotations": {SLURMD: None}}})
            node.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")
            pods = node.begin(A, "gpu:1(IDX:1)")
            await until(lambda: f"ml/{A}" in agent.problems)
            assert node.has(pods) == ""
        await until(lambda: node.has(pods) == "y")


@pytest.mark.real
@pytest.mark.parametrize("agent_was_away", [False, True])
async def test_slurmd_pod_is_made_after_last_process_of_the_earlier_pod(
    node: Node, *, agent_was_away: bool
) -> None:
    """The Pod is deleted by force, and the Pod's jobs continue."""
    slurmds = start_slurmd(node)
    job = f"{slurmds}/system.slice/n1_slurmstepd.scope/job_7/step_0"
    node.tree.make(job)
    template = {"spec": {"containers": [{"name": "slurmd", "image": "i"}]}}
    data = {"controllers": ["a"], "slurm": {"gres": "gpu:3"}, "template": template}
    revision = {"metadata": {"name": "gpu-1", "namespace": "slurm-nodes"}, "data": data}
    await node.kubernetes.create_revision("slurm-nodes", revision)
    node.kubernetes.edit("nodes", "n1", {"metadata": {"uid": "u-n1"}})

    def pod() -> bool:
        listed = node.kubernetes.objects("pods")
        return any(each["metadata"]["name"] == pod_name("n1") for each in listed)

    async def told() -> bool:
        conditions = (await node.kubernetes.read_node("n1"))["status"].get("conditions") or ()
        messages = {each["type"]: each["message"] for each in conditions}
        return f"still run on this Node (uid {B})" in messages.get(SLURMD_PROBLEM, "")

    with node.process(job):
        if agent_was_away:
            node.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")
        async with node.agent():
            if not agent_was_away:
                await until(lambda: node.has(slurmds) == "xyz")
                node.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")
            await until_equal(told, expected=True)
            assert not pod()
    async with node.agent():
        await until(pod)


@pytest.mark.real
async def test_node_reports_devices_that_the_next_slurmd_pod_lacks(node: Node) -> None:
    """A user, and not the agent, creates the next slurmd Pod while processes of the earlier Pod run."""
    slurmds = start_slurmd(node)
    async with node.agent():
        await until(lambda: node.has(slurmds) == "xyz")
        pods = await node.run_pod(A, "gpu:1(IDX:1)", "y")
        with node.process(slurmds), node.process(pods):
            await node.delete(A)  # also by force: the gate waits for the Pod's process
            node.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")
            metadata = {"uid": C, "namespace": "slurm-nodes", "name": pod_name("n1")}
            spec = {"nodeName": "n1", "containers": []}
            node.kubernetes.put("pods", {"metadata": metadata, "spec": spec})
            following = node.start(C)
            await until_equal(node.reason, "DevicesHeld")
            condition = await node.condition()
            assert condition is not None
            assert condition.message.endswith("processes of an earlier Pod have: gpu 0, gpu 2")
            assert node.has(following) == ""
        await until(lambda: node.has(following) == "xyz")
        await until_equal(node.reason, "DevicesUsable")


def test_native_jobs_may_use_other_parts_of_a_shared_gpu() -> None:
    x, y, z = (Number(1, minor) for minor in range(3))
    others = [Entry(1, x), Entry(2, y, in_part=True), Entry(3, y, in_part=True)]
    assert slurmd_share.entries({9}, {x, y, z}, others) == {Entry(9, y, in_part=True), Entry(9, z)}


CPUS = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
OWN = Claim(B, "slurm-nodes/slurmd-n1", slurmd=True)
POD = Claim(A, "ml/p", cores=(1, 2), memory_mb=1000, job=7)


def test_slurmd_gets_cores_and_memory_that_pods_of_jobs_leave() -> None:
    shares = with_share({A: POD, B: OWN}, CPUS, 4000)
    assert shares[A] == POD
    assert (shares[B].cores, shares[B].memory_mb) == ((0, 3), 3000)
    now = {"cpuset.cpus": "", "memory.max": "max", "memory.swap.max": "max"}
    limits = limits_of(shares[B], CPUS)
    written = limits.corrections(now)
    assert (written, limits.reduction(now)) == ({"cpuset.cpus": "0,3-4,7"}, 3000 << 20)
    alone = limits_of(with_share({B: OWN}, CPUS, 4000)[B], CPUS)
    now |= {**written, "memory.max": str(3000 << 20)}
    assert alone.corrections(now) == {"cpuset.cpus": "0-7", "memory.max": str(4000 << 20)}
    assert not alone.reduction(now)
    assert with_share({A: POD}, CPUS, 4000) == {A: POD}


def test_slurmd_keeps_memory_that_pods_only_request() -> None:
    """Native jobs use memory that Slurm does not count. The jobs may use more memory than the Pods'
    requests leave."""
    pod = Claim(A, "ml/p", requested_mb=1000, job=7)
    assert with_share({A: pod, B: OWN}, None, 4000)[B].memory_mb == 4000


def test_slurmd_keeps_the_cores_of_placeholders_that_it_starts() -> None:
    share = with_share({A: POD, B: OWN}, CPUS, 4000, every_core=True)[B]
    assert (share.cores, share.memory_mb) == ((0, 1, 2, 3), 3000)
