"""The agent on a real kernel: Pods come and go, and each has the devices of its job and no others."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from structlog.testing import capture_logs

from kubernetes_client.errors import Unavailable
from kubernetes_client.watch import Change, ResourceWatch
from node_agent import agent as agent_module
from node_agent.enforcement import native_jobs
from node_agent.kernel.inotify import FolderWatch
from node_agent.machine import names
from node_agent.machine.devices import Answers
from node_agent.metrics import METRICS, registry_of
from node_agent.pods.node_pods import NodePods
from node_agent.reporting import device_health, node_devices
from node_agent.reporting.node_condition import Condition
from service import probes
from tests.eventually import until
from tests.node_agent.node import A, B, until_equal
from wellknown.names import GRANTED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from node_agent.agent import Agent
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real

_DEVICES = "slurmd's list of devices"


@asynccontextmanager
async def probed(agent: Agent) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=probes.application(agent.health))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def test_a_pod_has_its_devices_whichever_comes_first_pod_or_cgroup(node: Node) -> None:
    async with node.agent():
        node.bind(A, "gpu:h100:2(IDX:0,2)")
        one = node.start(A)
        other = node.start(B, guaranteed=False)
        await until(lambda: node.has(one) == "xz")
        assert node.has(other) == ""
        node.bind(B, "gpu:h100:1(IDX:1)")
        await until(lambda: node.has(other) == "y")
        assert node.has(one) == "xz"


async def test_pods_of_no_job_have_none(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        metadata = {"uid": A, "namespace": "ml", "name": "p"}
        node.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
        none = node.start(A)
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B)
        await until(lambda: node.has(other) == "x")  # the agent has looked
        assert node.has(none) == ""


async def test_a_device_is_given_on_once_the_last_process_of_its_pod_is_gone(node: Node) -> None:
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B, guaranteed=False)
        with node.process(one):
            await node.delete(A)  # by force
            await until(lambda: agent.problems.get(f"ml/{B}", "").startswith("processes of a Pod"))
            assert (node.has(one), node.has(other)) == ("x", "")
        await until(lambda: node.has(other) == "x")
        assert node.has(one) == ""
        assert agent.problems == {}


async def test_a_pod_that_has_ended_has_none(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        cgroup = node.start(A)
        await until(lambda: node.has(cgroup))
        await node.kubernetes.patch_pod_status("ml", A, {"status": {"phase": "Failed"}})
        await until(lambda: not node.has(cgroup))


async def test_while_no_agent_runs_everybody_keeps_what_they_have_and_nobody_gets_more(
    node: Node,
) -> None:
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")
    node.bind(B, "gpu:1(IDX:1)")
    other = node.start(B)
    assert (node.has(one), node.has(other)) == ("x", "")
    async with node.agent():
        await until(lambda: node.has(other) == "y")
        assert node.has(one) == "x"


async def test_while_kube_apiserver_is_away_an_agent_that_starts_takes_nothing_away(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        cgroup = node.start(A)
        await until(lambda: node.has(cgroup) == "x")
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False) as agent:
        await until(agent.health.troubles)
        await asyncio.sleep(0.3)
        assert (node.has(cgroup), agent.health.ready) == ("x", False)
        node.kubernetes.outage(None)
        await until(lambda: agent.health.ready)
        assert node.has(cgroup) == "x"


async def test_the_first_agent_of_a_boot_needs_no_kube_apiserver_to_close_the_devices(
    one_driver: Node,
) -> None:
    node = one_driver
    node.bind(A, "gpu:1(IDX:0)")
    cgroup = node.start(A)
    assert node.has(cgroup) == "xyz"
    node.kubernetes.outage(Unavailable(0, "no answer"))
    async with node.agent(ready=False):
        await until(lambda: not node.has(cgroup))
        node.kubernetes.outage(None)
        await until(lambda: node.has(cgroup) == "x")


async def test_a_device_whose_file_comes_later_is_guarded_then(one_driver: Node) -> None:
    node = one_driver
    late = node.unload("y")
    async with node.agent(ready=False) as agent:
        await until(lambda: f"{late}: No such file" in agent.health.troubles().get(_DEVICES, ""))
        node.load(late)
        node.bind(A, "gpu:1(IDX:1)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("y", ""))
        assert _DEVICES not in agent.health.troubles()


async def test_an_agent_without_slurmds_list_guards_what_was_guarded_and_says_why(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")
    node.gres.write_text("slurmd: fatal: Unable to determine this slurmd's NodeName\n")
    async with node.agent(ready=False) as agent:
        await until(lambda: _DEVICES in agent.health.troubles())
        assert "fatal: Unable" in agent.health.troubles()[_DEVICES]
        other = node.start(B)
        assert (node.has(one), node.has(other)) == ("x", "")
        node.print_devices("xyz")
        node.bind(B, "gpu:1(IDX:2)")
        await until(lambda: agent.health.ready)
        await until(lambda: node.has(other) == "z")


async def test_a_list_that_changes_counts_from_then_on(one_driver: Node) -> None:
    node = one_driver
    node.print_devices("xy")
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        assert "z" in node.has(one)  # Slurm does not count it
        await until(lambda: node.has(one) == "xz")
        node.print_devices("zy")
        node.bind(A, "gpu:1(IDX:0)", news="1")
        await until(lambda: node.has(one) == "z")
        node.gres.write_text("")  # slurmd counts none: what was guarded stays so
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B)
        await until(lambda: f"ml/{B}" in agent.problems)
        assert node.has(other) == ""


async def test_a_pod_that_cannot_have_its_devices_is_told_of(one_driver: Node) -> None:
    node = one_driver
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


def figure(agent: Agent, name: str, **labels: str) -> float:
    value = registry_of(agent).get_sample_value(name, labels)
    assert value is not None, f"{name} {labels}"
    return value


async def test_the_devices_are_counted(one_driver: Node) -> None:
    node = one_driver
    late = node.unload("y")
    async with node.agent(ready=False) as agent:
        await until(lambda: str(late) in agent.health.troubles().get(_DEVICES, ""))
        of = {"gres": "gpu", "type": ""}
        assert figure(agent, "node_agent_devices", **of) == 3
        assert figure(agent, "node_agent_devices_failed", **of) == 1


async def test_the_agent_tells_what_its_table_has_and_nothing_else(one_driver: Node) -> None:
    node = one_driver
    async with node.agent() as agent:
        told = {family.name: family.type for family in registry_of(agent).collect()}
        own = {name: kind for name, kind in told.items() if not name.startswith("process_")}
        assert own == {each.name.removesuffix("_total"): each.kind for each in METRICS}
        assert figure(agent, "node_agent_ready") == 1
        assert abs(figure(agent, "node_agent_last_look_timestamp_seconds") - time.time()) < 60
        assert figure(agent, "node_agent_gres_mismatches") == 0


async def test_pods_of_other_nodes_do_not_count(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)", node="n2")
        node.bind(B, "gpu:1(IDX:1)")
        foreign, own = node.start(A), node.start(B)
        await until(lambda: node.has(own) == "y")
        assert node.has(foreign) == ""


async def test_a_node_that_was_moved_to_another_driver_is_guarded_in_both_places(
    one_driver: Node,
) -> None:
    node = one_driver
    async with node.agent():
        node.tree.make("kubepods.slice/kubepods-pod" + A.replace("-", "_") + ".slice/c")
        moved = "kubepods.slice/kubepods-pod" + A.replace("-", "_") + ".slice/c"
        node.bind(B, "gpu:1(IDX:1)")
        await until(lambda: node.has(moved) == "")
        node.bind(A, "gpu:1(IDX:0)")
        await until(lambda: node.has(moved) == "x")


async def test_a_kubelet_that_makes_its_cgroup_anew_is_guarded_anew(one_driver: Node) -> None:
    node = one_driver
    async with node.agent():
        for name in ("burstable", ""):
            (node.tree.root / "kubepods" / name).rmdir()
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("x", ""))


async def test_a_guard_that_somebody_takes_off_is_put_on_again(node: Node) -> None:
    async with node.agent():
        node.bind(A, "gpu:1(IDX:0)")
        one, other = node.start(A), node.start(B)
        await until(lambda: (node.has(one), node.has(other)) == ("x", ""))
        node.remove_guard()
        assert node.has(other) == "xyz"
        node.bind(B, "gpu:1(IDX:1)")  # something happens
        await until(lambda: (node.has(one), node.has(other)) == ("x", "y"))


@pytest.mark.parametrize("what", ["guarded", "let_in", "program-*", "*"])
async def test_what_somebody_removes_of_the_guard_is_kept_again(what: str, node: Node) -> None:
    """With all that was known: a device that a process has of a Pod that is gone is nobody else's."""
    node.tree.make("kubepods", "kubepods.slice")  # both drivers have been here
    async with node.agent() as agent:
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")
        with node.process(one):
            await node.delete(A)
            node.bind(B, "gpu:2(IDX:0,1)")
            other = node.start(B)
            await until(lambda: f"ml/{B}" in agent.problems)
            node.remove_files_of_guard(what)
            node.bind("u3", "")  # something happens
            await until(node.guard_is_kept)
            await until(lambda: f"ml/{B}" in agent.problems)
            assert (node.has(one), node.has(other)) == ("x", "")
        await until(lambda: node.has(other) == "xy")
        assert "other device programs" not in agent.health.troubles()


async def test_a_program_of_an_agent_whose_files_are_gone_is_told_of(one_driver: Node) -> None:
    node = one_driver
    async with node.agent() as agent:
        assert "other device programs" not in agent.health.troubles()
    node.remove_files_of_guard("*")
    async with node.agent() as agent:
        assert "until the Node is booted" in agent.health.troubles()["other device programs"]


async def test_a_watch_that_has_died_unheard_is_ended_for_a_pod_that_begins(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = one_driver
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
        assert pods.removals({A}) == {A: f"ml/{A}"}
    finally:
        following.cancel()


async def test_what_the_kernel_writes_wakes_nobody(tmp_path: Path) -> None:
    """It writes memory.events each time that a Pod is at its limit."""
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


async def test_without_inotify_it_looks_more_often(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: object, __: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(agent_module, "FolderWatch", none)
    node = one_driver
    async with node.agent() as agent:
        assert "inotify" in agent.health.troubles()
        node.bind(A, "gpu:1(IDX:0)")
        one = node.start(A)
        await until(lambda: node.has(one) == "x")


async def test_a_machine_without_pods_cgroups_is_told_of(one_driver: Node) -> None:
    node = one_driver
    for name in ("burstable", ""):
        (node.tree.root / "kubepods" / name).rmdir()
    async with node.agent(ready=False) as agent:
        await until(lambda: "no cgroup" in agent.health.troubles().get("guard", ""))
        node.tree.make("kubepods")
        await until(lambda: agent.health.ready)


async def test_it_is_not_ready_while_the_guard_has_trouble(one_driver: Node) -> None:
    node = one_driver
    async with node.agent() as agent, probed(agent) as client:

        async def readyz() -> tuple[int, bool]:
            answer = await client.get("/readyz")
            return answer.status_code, "guard" in answer.json()["troubles"]

        assert await readyz() == (200, False)
        for name in ("burstable", ""):
            (node.tree.root / "kubepods" / name).rmdir()
        await until_equal(readyz, (503, True))
        assert (await client.get("/healthz")).status_code == 200
        node.tree.make("kubepods")
        await until_equal(readyz, (200, False))


async def test_it_is_not_ready_before_slurmds_list_was_read_once(one_driver: Node) -> None:
    node = one_driver
    printed = node.gres.read_text()
    node.gres.unlink()
    async with node.agent(ready=False) as agent:
        node.bind(A, "gpu:1(IDX:0)")
        node.start(A)
        await until(lambda: _DEVICES in agent.health.troubles())
        await asyncio.sleep(0.3)
        assert not agent.health.ready
        node.gres.write_text(printed)
        node.start(B)
        await until(lambda: agent.health.ready)
        node.gres.unlink()  # what was read counts on
        node.bind(B, "gpu:1(IDX:1)")
        await until(lambda: _DEVICES in agent.health.troubles())
        assert agent.health.ready


async def test_the_agents_own_pod_has_every_device_and_is_in_nobodys_way(one_driver: Node) -> None:
    """It asks the driver about all of them."""
    node = one_driver
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


async def test_a_device_that_fails_is_a_condition_of_the_node_and_its_repair_another(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_health, "_LOOK_S", 0.05)
    node = one_driver

    async def told() -> Condition | None:
        return Condition.on(await node.kubernetes.read_node("n1"))

    async with node.agent():
        await until_equal(told, Condition.of({}, []))
        late = node.unload("y")
        node.bind(A, "gpu:1(IDX:0)")  # something happens
        words = f"{late}: No such file or directory"
        await until_equal(told, Condition(True, "DeviceFailed", f"gpu 1: {words}"))
        text = node_devices.text_on(await node.kubernetes.read_node("n1"))
        problems = [each.get("problem") for each in json.loads(text or "{}")["devices"]]
        assert problems == [None, words, None]
        node.load(late)
        node.bind(A, "gpu:1(IDX:0)", news="1")
        await until_equal(told, Condition.of({}, []))


async def test_a_job_that_slurm_does_not_hold_is_told_of_while_it_is_here(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(native_jobs, "_SETTLES_S", 0.0)
    node, part = one_driver, "Slurm's limits of its jobs"
    scope = "system.slice/n1_slurmstepd.scope"
    node.tree.make(f"{scope}/system")
    async with node.agent() as agent:
        assert part not in agent.health.troubles()
        job = f"{scope}/job_33"
        with capture_logs() as logs:
            node.tree.make(f"{job}/step_batch/user")
            with node.process(f"{job}/step_batch/user"):
                await until(lambda: "in force for job_33" in agent.health.troubles().get(part, ""))
                for parameter in ("ConstrainCores=yes", "ConstrainDevices=yes"):
                    assert parameter in agent.health.troubles()[part]
                assert agent.health.ready
            for below in ("step_batch/user", "step_batch", ""):
                (node.tree.root / job / below).rmdir()
            await until(lambda: part not in agent.health.troubles())
        told = [(line["log_level"], line["event"]) for line in logs if line.get("part") == part]
        assert told == [("error", "trouble"), ("info", "trouble over")]


@pytest.mark.parametrize("off", [True, False])
async def test_pods_of_no_job_are_touched_by_the_setting_alone(
    one_driver: Node, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here is no kernel that has cores for cgroups: a Pod that is to be touched is told of."""
    monkeypatch.setattr(native_jobs, "_SETTLES_S", 0.0)
    node, part = one_driver, "cores of Pods of no job"
    node.keeps_others_off = off
    metadata = {"uid": A, "namespace": "kube-system", "name": "p"}
    node.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    node.start(A)
    step = "system.slice/n1_slurmstepd.scope/job_33/step_0"
    node.tree.make(step)
    with node.process(step):
        await _touches_by_the_setting_alone(node, part)


async def _touches_by_the_setting_alone(node: Node, part: str) -> None:
    off = node.keeps_others_off
    async with node.agent() as agent:
        if off:
            words = "Pod kube-system/p: its cgroup has no cpuset.cpus: the controller is not enabled"
            await until(lambda: words in agent.health.troubles().get(part, ""))
        await until(lambda: "Slurm's limits of its jobs" in agent.health.troubles())
        node.bind(B, "gpu:1(IDX:0)")
        other = node.start(B)
        await until(lambda: node.has(other) == "x")
        assert (part in agent.health.troubles()) is off


async def reason(node: Node) -> str:
    condition = Condition.on(await node.kubernetes.read_node("n1"))
    return condition.reason if condition else ""


async def test_a_list_that_cannot_be_read_is_a_condition_of_the_node(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_health, "_LOOK_S", 0.05)
    node = one_driver
    node.gres.write_text("slurmd: fatal: Unable to determine this slurmd's NodeName\n")
    async with node.agent(ready=False):
        await until_equal(lambda: reason(node), "ListUnreadable")
        node.print_devices("xyz")
        node.bind(A, "gpu:1(IDX:0)")  # something happens
        await until_equal(lambda: reason(node), "DevicesUsable")


async def test_devices_that_are_not_closed_are_a_condition_of_the_node(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_health, "_LOOK_S", 0.05)
    node = one_driver
    for name in ("burstable", ""):
        (node.tree.root / "kubepods" / name).rmdir()
    async with node.agent(ready=False):
        await until_equal(lambda: reason(node), "NotGuarded")
        node.tree.make("kubepods")
        await until_equal(lambda: reason(node), "DevicesUsable")


async def test_the_agents_own_pod_is_let_in_before_the_drivers_are_asked(
    one_driver: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML keeps to the devices that it had when it began."""
    node, had = one_driver, list[str]()
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
