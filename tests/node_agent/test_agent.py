"""Tests of the agent on a real kernel: each Pod opens the devices of its job, and no other devices."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from structlog.testing import capture_logs

from kubernetes_client.errors import Unavailable
from kubernetes_client.watch import Change, ResourceWatch
from node_agent import agent as agent_module
from node_agent.enforcement import lasting
from node_agent.kernel.inotify import FolderWatch
from node_agent.machine import names
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Answers
from node_agent.metrics import METRICS, registry_of
from node_agent.pods.cgroups import EVENTS, has_processes
from node_agent.pods.node_pods import NodePods
from node_agent.reporting import node_devices
from node_agent.reporting.node_condition import Condition
from service import probes
from tests.eventually import until
from tests.node_agent.node import A, B, C, D, until_equal, with_each_driver
from tests.node_agent.test_native_jobs import make_job
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import GRANTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from node_agent.agent import Agent
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real

_DEVICES = "slurmd's list of devices"


@with_each_driver
async def test_pod_opens_its_devices_whether_pod_or_cgroup_comes_first(node: Node) -> None:
    async with node.agent():
        one = node.begin(A, "gpu:h100:2(IDX:0,2)")
        other = node.start(B, guaranteed=False)
        await until(lambda: node.has(one) == "xz")
        assert node.has(other) == ""
        node.bind(B, "gpu:h100:1(IDX:1)")
        await until(lambda: node.has(other) == "y")
        assert node.has(one) == "xz"


@with_each_driver
async def test_next_pod_gets_device_after_last_process_of_removed_pod(node: Node) -> None:
    async with node.agent() as agent:
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B, guaranteed=False)
        with node.process(one):
            await node.delete(A)  # a deletion by force
            await until(lambda: agent.problems.get(f"ml/{B}", "").startswith("processes of a Pod"))
            assert (node.has(one), node.has(other)) == ("x", "")
        await until(lambda: node.has(other) == "x")
        assert node.has(one) == ""
        assert agent.problems == {}


async def test_ended_pod_loses_its_devices(node: Node) -> None:
    async with node.agent():
        cgroup = node.begin(A, "gpu:1(IDX:0)")
        await until(lambda: node.has(cgroup))
        await node.kubernetes.patch_pod_status("ml", A, {"status": {"phase": "Failed"}})
        await until(lambda: not node.has(cgroup))


@with_each_driver
async def test_access_stays_the_same_while_no_agent_runs(node: Node) -> None:
    async with node.agent():
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
    other = node.begin(B, "gpu:1(IDX:1)")
    assert (node.has(one), node.has(other)) == ("x", "")
    async with node.agent():
        await until(lambda: node.has(other) == "y")
        assert node.has(one) == "x"


async def test_starting_agent_removes_no_access_during_an_outage(node: Node) -> None:
    async with node.agent():
        cgroup = await node.run_pod(A, "gpu:1(IDX:0)", "x")
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False) as agent:
        await until(agent.health.problems)
        await asyncio.sleep(0.3)
        assert (node.has(cgroup), agent.health.ready) == ("x", False)
        node.kubernetes.outage(None)
        await until(lambda: agent.health.ready)
        assert node.has(cgroup) == "x"


async def test_first_agent_guards_devices_during_an_outage(node: Node) -> None:
    cgroup = node.begin(A, "gpu:1(IDX:0)")
    assert node.has(cgroup) == "xyz"
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False):
        await until(lambda: not node.has(cgroup))
        node.kubernetes.outage(None)
        await until(lambda: node.has(cgroup) == "x")


async def test_device_is_guarded_and_counted_when_its_file_appears(node: Node) -> None:
    late, of = node.unload("y"), {"gres": "gpu", "type": ""}
    async with node.agent(ready=False) as agent:
        await until(lambda: f"{late}: No such file" in agent.health.problems().get(_DEVICES, ""))
        assert figure(agent, "node_agent_devices", **of) == 3
        assert figure(agent, "node_agent_devices_failed", **of) == 1
        node.load(late)
        node.bind(A, "gpu:1(IDX:1)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("y", ""))
        assert _DEVICES not in agent.health.problems()


async def test_guard_stays_and_node_reports_an_unreadable_list(node: Node) -> None:
    async with node.agent():
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
    node.gres.write_text("slurmd: fatal: Unable to determine this slurmd's NodeName\n")
    async with node.agent(ready=False) as agent:
        await until(lambda: _DEVICES in agent.health.problems())
        assert "fatal: Unable" in agent.health.problems()[_DEVICES]
        await until_equal(node.reason, "ListUnreadable")
        other = node.start(B)
        assert (node.has(one), node.has(other)) == ("x", "")
        node.print_devices("xyz")
        node.bind(B, "gpu:1(IDX:2)")
        await until(lambda: agent.health.ready)
        await until(lambda: node.has(other) == "z")
        await until_equal(node.reason, "DevicesUsable")


async def test_changed_device_list_takes_effect_at_once(node: Node) -> None:
    node.print_devices("xy")
    async with node.agent() as agent:
        one = node.begin(A, "gpu:1(IDX:0)")
        assert "z" in node.has(one)  # Slurm does not count z
        await until(lambda: node.has(one) == "xz")
        node.print_devices("zy")
        node.bind(A, "gpu:1(IDX:0)", news="1")
        await until(lambda: node.has(one) == "z")
        node.gres.write_text("")  # the guard stays even without devices in the list
        other = node.begin(B, "gpu:1(IDX:0)")
        await until(lambda: f"ml/{B}" in agent.problems)
        assert node.has(other) == ""


async def test_renumbered_devices_stay_with_their_holders(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    job = "system.slice/n1_slurmstepd.scope/job_33/step_batch/user"
    node.tree.make(job)
    async with node.agent():
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
    with node.process(one):
        with node.process(job):
            node.print_devices("yxz")
            async with node.agent() as agent:
                await until_equal(node.reason, "Renumbered")
                after_native = node.begin(B, "gpu:1(IDX:0)")
                after_pod = node.begin(C, "gpu:1(IDX:1)")
                other = await node.run_pod(D, "gpu:1(IDX:2)", "z")
                await until(lambda: agent.problems.keys() == {f"ml/{uid}" for uid in (A, B, C)})
                assert [node.has(each) for each in (one, after_native, after_pod)] == ["x", "", ""]
        async with node.agent() as agent:
            await until(lambda: node.has(after_native) == "y")
            await until_equal(node.reason, "Renumbered")
            assert [node.has(each) for each in (one, after_pod, other)] == ["x", "", "z"]
            await node.delete(A)
            await asyncio.sleep(0.3)
            assert (node.has(one), node.has(after_pod)) == ("x", "")
    async with node.agent():
        await until(lambda: node.has(after_pod) == "x")
        await until_equal(node.reason, "DevicesUsable")


async def test_pod_that_cannot_get_its_devices_is_reported(node: Node) -> None:
    async with node.agent() as agent:
        node.bind(A, "", **{GRANTED: '{"v":2}'})
        node.bind(B, "gpu:1(IDX:7)")
        cgroups = [node.start(A), node.start(B)]
        await until(lambda: len(agent.problems) == 2)
        assert agent.problems == {
            f"ml/{A}": "what Slurm granted it cannot be read",
            f"ml/{B}": "Slurm gave it gpu 7, and this machine has 3",
        }
        assert figure(agent, "node_agent_pods_with_less_than_their_jobs") == 2
        assert [node.has(cgroup) for cgroup in cgroups] == ["", ""]


async def test_device_holders_and_job_file_errors_are_reported(node: Node) -> None:
    node.job_mapping = node.gres / "below-a-file"
    async with node.agent() as agent:
        await node.run_pod(A, "gpu:1(IDX:1)", "y")
        of = dict.fromkeys(("UUID", "gpu", "GPU_I_ID"), "") | {"gres": "gpu", "index": "1"}
        of |= {"pod_namespace": "ml", "pod_name": A, "job_id": "7"}
        assert figure(agent, "node_agent_device_holder", **of) == 1
        await until(lambda: "job files" in agent.health.problems())


def figure(agent: Agent, name: str, **labels: str) -> float:
    value = registry_of(agent).get_sample_value(name, labels)
    assert value is not None, f"{name} {labels}"
    return value


async def test_agent_exports_exactly_the_declared_metrics(node: Node) -> None:
    async with node.agent() as agent:
        told = {family.name: family.type for family in registry_of(agent).collect()}
        own = {name: kind for name, kind in told.items() if not name.startswith("process_")}
        assert own == {each.name.removesuffix("_total"): each.kind for each in METRICS}
        assert figure(agent, "node_agent_ready") == 1
        assert abs(figure(agent, "node_agent_last_look_timestamp_seconds") - time.time()) < 60
        assert figure(agent, "node_agent_gres_mismatches") == 0


async def test_pods_without_a_job_on_the_node_open_no_device(node: Node) -> None:
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)", node="n2")
        node.bind_without_job(C)
        node.bind(B, "gpu:1(IDX:1)")
        foreign, none, own = node.start(A), node.start(C), node.start(B)
        await until(lambda: node.has(own) == "y")
        assert (node.has(foreign), node.has(none)) == ("", "")


async def test_node_is_guarded_after_a_change_of_the_cgroup_driver(node: Node) -> None:
    async with node.agent():
        moved = "kubepods.slice/kubepods-pod" + A.replace("-", "_") + ".slice/c"
        node.tree.make(moved)
        node.bind(B, "gpu:1(IDX:1)")
        await until(lambda: node.has(moved) == "")
        node.bind(A, "gpu:1(IDX:0)")
        await until(lambda: node.has(moved) == "x")


async def test_recreated_cgroup_of_all_pods_is_guarded(node: Node) -> None:
    async with node.agent():
        node.remove_pods_cgroup()
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("x", ""))


@with_each_driver
async def test_removed_guard_is_attached_again(node: Node) -> None:
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("x", ""))
        node.remove_guard()
        assert node.has(other) == "xyz"
        node.bind(B, "gpu:1(IDX:1)")  # a change, so that the agent checks the Pods
        await until(lambda: (node.has(one), node.has(other)) == ("x", "y"))


@with_each_driver
@pytest.mark.parametrize("what", ["guarded", "let_in", "program-*", "*"])
async def test_removed_file_of_the_guard_is_pinned_again(what: str, node: Node) -> None:
    """The agent restores all entries of the guard. So a device of a removed Pod's process stays closed
    to other Pods."""
    node.tree.make("kubepods", "kubepods.slice")  # both cgroup drivers have been in use
    async with node.agent() as agent:
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
        with node.process(one):
            await node.delete(A)
            other = node.begin(B, "gpu:2(IDX:0,1)")
            await until(lambda: f"ml/{B}" in agent.problems)
            node.remove_files_of_guard(what)
            node.bind("u3", "")  # a change, so that the agent checks the Pods
            await until(node.guard_is_kept)
            await until(lambda: f"ml/{B}" in agent.problems)
            assert (node.has(one), node.has(other)) == ("x", "")
        await until(lambda: node.has(other) == "xy")
        assert "other device programs" not in agent.health.problems()


async def test_device_program_without_pinned_files_is_reported(node: Node) -> None:
    async with node.agent() as agent:
        assert "other device programs" not in agent.health.problems()
    node.remove_files_of_guard("*")
    async with node.agent() as agent:
        assert "until the Node is booted" in agent.health.problems()["other device programs"]


async def test_doubt_replaces_a_dead_watch_of_pods(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = NodePods(node.kubernetes, "n1", lambda: None, lambda _: None)

    async def deaf(_: ResourceWatch) -> AsyncIterator[Change]:
        await asyncio.sleep(600)
        yield Change({})

    monkeypatch.setattr(ResourceWatch, "changes", deaf)
    following = asyncio.create_task(pods.follow())
    try:
        await until(lambda: pods.claims is not None)
        node.bind(A, "gpu:1(IDX:0)")
        await asyncio.sleep(0.1)
        assert A not in (pods.claims or {})
        pods.doubt()
        await until(lambda: A in (pods.claims or {}))
        await node.delete(A)
        pods.doubt()
        await until(lambda: A not in (pods.claims or {}))
        assert pods.removals({A})[A].pod == f"ml/{A}"
    finally:
        following.cancel()


async def test_no_pod_gets_devices_while_the_list_is_unreadable(node: Node) -> None:
    async with node.agent() as agent:
        one = await node.run_pod(A, "gpu:1(IDX:0)", "x")
        node.gres.write_text("slurmd: fatal: no such file\n")
        other, without = node.begin(B, "gpu:1(IDX:1)"), node.begin(C, "")
        await until(lambda: "the agent cannot use the list" in agent.problems.get(f"ml/{B}", ""))
        assert [node.has(each) for each in (one, other, without)] == ["x", "", ""]
        assert agent.problems.keys() == {f"ml/{B}"}
        node.print_devices("xzy")
        await until(lambda: (node.has(one), node.has(other)) == ("x", "z"))


async def test_folder_watch_ignores_writes_of_the_kernel(tmp_path: Path) -> None:
    """The kernel writes memory.events each time a Pod reaches the memory limit."""
    told: list[None] = []
    (tmp_path / "kept").mkdir()
    for name in ("memory.max", "memory.events"):
        (tmp_path / name).touch()
    watch = FolderWatch(lambda: told.append(None), {"memory.max"})
    try:
        watch.add(tmp_path)
        (tmp_path / "memory.events").write_text("oom 1")
        await asyncio.sleep(0.05)
        assert told == []
        (tmp_path / "memory.max").write_text("1")
        await until(lambda: told)
        told.clear()
        (tmp_path / "pod").mkdir()
        await until(lambda: told)
        told.clear()
        (tmp_path / "kept").rmdir()
        await until(lambda: told)
    finally:
        watch.close()


async def test_agent_works_without_inotify(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object, __: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(agent_module, "FolderWatch", none)
    async with node.agent() as agent:
        assert "inotify" in agent.health.problems()
        await node.run_pod(A, "gpu:1(IDX:0)", "x")


async def test_agent_is_not_ready_without_cgroups_of_pods(node: Node) -> None:
    async def readyz() -> tuple[int, bool]:
        answer = await client.get("/readyz")
        return answer.status_code, "guard" in answer.json()["problems"]

    node.remove_pods_cgroup()
    async with node.agent(ready=False) as agent:
        transport = httpx.ASGITransport(app=probes.application(agent.health))
        async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
            for _ in range(2):
                await until_equal(readyz, (503, True))
                assert "no cgroup" in agent.health.problems()["guard"]
                assert (await client.get("/healthz")).status_code == 200
                await until_equal(node.reason, "NotGuarded")
                node.tree.make("kubepods/burstable")
                await until_equal(readyz, (200, False))
                await until_equal(node.reason, "DevicesUsable")
                node.remove_pods_cgroup()


async def test_agent_is_not_ready_before_first_read_of_slurmds_list(node: Node) -> None:
    printed = node.gres.read_text()
    node.gres.unlink()
    async with node.agent(ready=False) as agent:
        node.begin(A, "gpu:1(IDX:0)")
        await until(lambda: _DEVICES in agent.health.problems())
        await asyncio.sleep(0.3)
        assert not agent.health.ready
        node.gres.write_text(printed)
        node.start(B)
        await until(lambda: agent.health.ready)
        node.gres.unlink()  # the agent continues with the known list
        node.bind(B, "gpu:1(IDX:1)")
        await until(lambda: _DEVICES in agent.health.problems())
        assert agent.health.ready


async def test_own_pod_of_agent_has_every_device_and_delays_no_pod(node: Node) -> None:
    """The agent needs all devices, because the agent calls the drivers of all devices."""
    node.own_pod = B
    own = node.start(B)
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False) as agent:
        one = node.start(A)
        await until(lambda: (node.has(own), node.has(one)) == ("xyz", ""))
        node.kubernetes.outage(None)
        await until(lambda: agent.health.ready)
        with node.process(own):
            node.bind(A, "gpu:1(IDX:1)")
            await until(lambda: node.has(one) == "y")
        assert node.has(own) == "xyz"


async def test_node_reports_a_failed_device_until_the_repair(node: Node) -> None:
    async with node.agent():
        await until_equal(node.condition, Condition.of({}, []))
        late = node.unload("y")
        node.bind(A, "gpu:1(IDX:0)")  # a change, so that the agent checks the Pods
        words = f"{late}: No such file or directory"
        await until_equal(node.condition, Condition(True, "DeviceFailed", f"gpu 1: {words}"))
        text = node_devices.text_on(await node.kubernetes.read_node("n1"))
        problems = [each.get("problem") for each in json.loads(text or "{}")["devices"]]
        assert problems == [None, words, None]
        node.load(late)
        node.bind(A, "gpu:1(IDX:0)", news="1")
        await until_equal(node.condition, Condition.of({}, []))


async def test_native_job_without_limits_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(lasting, "_SETTLES_S", 0.0)
    part = "Slurm's limits of its jobs"
    scope = "system.slice/n1_slurmstepd.scope"
    node.tree.make(f"{scope}/system")
    async with node.agent() as agent:
        assert part not in agent.health.problems()
        job = f"{scope}/job_33"
        with capture_logs() as logs:
            node.tree.make(f"{job}/step_batch/user")
            with node.process(f"{job}/step_batch/user"):
                await until(lambda: "in force for job_33" in agent.health.problems().get(part, ""))
                for parameter in ("ConstrainCores=yes", "ConstrainDevices=yes"):
                    assert parameter in agent.health.problems()[part]
                assert agent.health.ready
            for below in ("step_batch/user", "step_batch", ""):
                (node.tree.root / job / below).rmdir()
            await until(lambda: part not in agent.health.problems())
        told = [(line["log_level"], line["event"]) for line in logs if line.get("part") == part]
        assert told == [("error", "problem"), ("info", "problem ended")]


async def test_core_shared_by_two_pods_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(lasting, "_SETTLES_S", 0.0)
    for uid in (A, B):
        node.bind(uid, "", **{GRANTED: Allocation(7, "n1", cores="0").granted})
    one, other = node.start(A), node.start(B)
    shared = "node_agent_shared_cpus"
    async with node.agent() as agent:
        with node.process(one):
            await until_equal(node.condition, Condition.of({}, []))
            with node.process(other):
                await until_equal(node.reason, "CoresShared")
                cpus = Cpus.read().cores[0]
                words = f"Pod ml/{A} and Pod ml/{B} have the same CPUs: {number_list.compress(cpus)}"
                assert await node.condition() == Condition(False, "CoresShared", words)
                assert agent.health.problems()["cores of two jobs"] == words
                assert registry_of(agent).get_sample_value(shared) == len(cpus)
            await until_equal(node.condition, Condition.of({}, []))
        assert registry_of(agent).get_sample_value(shared) == 0


@pytest.fixture
def native_jobs(node: Node, tmp_path: Path) -> Iterator[Path]:
    """Native jobs as plain files, because this kernel has no cpuset controller. Yields the folder."""
    folder, at = tmp_path / "native", node.tree.root / "system.slice"
    (folder / "system.slice").mkdir(parents=True)
    node.tree.make("system.slice")
    subprocess.run(["mount", "--bind", folder / "system.slice", at], check=True)
    yield folder
    subprocess.run(["umount", at], check=True)


async def test_core_shared_by_pod_and_native_job_is_reported(
    node: Node, native_jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(lasting, "_SETTLES_S", 0.0)
    node.print_devices("")  # a plain folder has no device program
    first = number_list.compress(Cpus.read().cores[0])
    job = make_job(native_jobs, cpus=first)
    make_job(native_jobs, "job_7", cpus=first)  # the Pod's own job
    node.bind(A, "", **{GRANTED: Allocation(7, "n1", cores="0").granted})
    with node.process(node.start(A)):
        async with node.agent():
            words = f"Pod ml/{A} and job_33 have the same CPUs: {first}"
            await until_equal(node.condition, Condition(False, "CoresShared", words))
            (job / "step_batch/user" / EVENTS).write_text("populated 1\nfrozen 1\n")
            await until_equal(node.condition, Condition.of({}, []))


@pytest.mark.parametrize("ends", [True, False])
async def test_step_in_the_job_of_a_pod_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """A user runs `srun --jobid=7 --overlap` on Slurm 24.11."""
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(agent_module, "_STEPS_S", 0.05)
    node.ends_steps = ends
    job = "system.slice/n1_slurmstepd.scope/job_7"
    for step in ("batch", "0"):
        node.tree.make(f"{job}/step_{step}/user")
    pod = node.begin(A, "gpu:1(IDX:0)")
    with node.process(pod), node.process(f"{job}/step_batch/user"):
        async with node.agent() as agent:
            await until_equal(node.condition, Condition.of({}, []))
            with node.process(f"{job}/step_0/user"):
                words = f"a user ran srun in job 7 of Pod ml/{A}"
                words += ": the node agent ends such steps" if ends else ""
                await until_equal(node.condition, Condition(False, "StepInJobOfPod", words))
                await until(lambda: has_processes(node.tree.root / job / "step_0") is not ends)
            assert agent.health.problems()["steps in jobs of Pods"] == words
            assert registry_of(agent).get_sample_value("node_agent_steps_in_jobs_of_pods_total") == 1
            assert has_processes(node.tree.root / pod)
            assert has_processes(node.tree.root / job / "step_batch")


@pytest.mark.parametrize("off", [True, False])
async def test_setting_limits_cores_of_pods_of_no_job(
    node: Node, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This kernel has no cpuset controller, so the agent reports a Pod without limits."""
    monkeypatch.setattr(lasting, "_SETTLES_S", 0.0)
    part, step = "cores of Pods of no job", "system.slice/n1_slurmstepd.scope/job_33/step_0"
    node.keeps_others_off = off
    node.bind_without_job(A, "kube-system")
    node.start(A)
    node.tree.make(step)
    with node.process(step):
        async with node.agent() as agent:
            if off:
                words = "Pod kube-system/p: its cgroup has no cpuset.cpus: the controller is not enabled"
                await until(lambda: words in agent.health.problems().get(part, ""))
            await until(lambda: "Slurm's limits of its jobs" in agent.health.problems())
            await node.run_pod(B, "gpu:1(IDX:0)", "x")
            assert (part in agent.health.problems()) is off


async def test_own_pod_has_access_before_drivers_are_called(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML reports only the devices that NVML found at its start. So the agent's own Pod must have
    access before the agent calls NVML."""
    had = list[str]()
    async with node.agent():
        pass
    node.own_pod = B
    own = node.start(B)

    def ask() -> Answers:
        had.append(node.has(own))
        return Answers()

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(names, "ask_drivers", ask)
    monkeypatch.setattr(agent_module.Agent, "_keep", never)
    async with node.agent(ready=False):
        await until(lambda: had)
    assert had[0] == "xyz"
