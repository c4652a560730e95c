"""Tests of the Node's condition and list of devices, for all states of the drivers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.machine import names
from node_agent.machine.devices import Answers, Device, Names
from node_agent.machine.numbered import Machine
from node_agent.machine.vendors.nvidia import NVIDIA
from node_agent.reporting import device_health, node_devices
from node_agent.reporting.device_health import DeviceHealth
from node_agent.reporting.node_condition import Condition, Reason
from tests.eventually import until
from tests.node_agent.machines import look
from tests.node_agent.node import until_equal
from wellknown.names import DEVICES

GPU = Device("gpu", "h100", ("/dev/nvidia0",), uuid="GPU-0", bus="0000:19:00.0")
FINE = Condition.of({}, [])


class Drivers:
    """Fake drivers with configured replies. The drivers can hang."""

    def __init__(self) -> None:
        self.answer: Answers | Exception = Answers((GPU,))
        self.goes_on = threading.Event()
        self.goes_on.set()

    def ask(self) -> Answers:
        self.goes_on.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Node:
    """A Node with a GPU."""

    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
        keeper: Any = SimpleNamespace(
            devices=(GPU,), guarded=frozenset(), names={}, failed={}, machine=None, core_map=None
        )
        self.keeper = keeper
        self.said: dict[str, object] = {}
        self.health = DeviceHealth(self.kubernetes, "n1", keeper, [], {}, self.says)

    def says(self, part: str, problem: Exception | str | None) -> None:
        self.said[part] = problem

    def looked(self) -> None:
        """Reports to the Node's health that the list is readable and the guard is in force."""
        self.health.note(Reason.LIST_UNREADABLE, None)
        self.health.note(Reason.NOT_GUARDED, None)

    async def condition(self) -> Condition | None:
        return Condition.on(await self.kubernetes.read_node("n1"))

    async def listed(self) -> list[dict[str, Any]] | None:
        """Returns the devices in the Node's annotation."""
        text = node_devices.text_on(await self.kubernetes.read_node("n1"))
        return None if text is None else json.loads(text)["devices"]

    def has(self) -> Names:
        called: Names = self.keeper.names.get(frozenset(GPU.files), Names())
        return called

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.health.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Drivers:
    made = Drivers()
    monkeypatch.setattr(names, "ask_drivers", made.ask)
    monkeypatch.setattr(NVIDIA, "watch", lambda: None)
    for name, seconds in (("_LOOK_S", 0.02), ("_ASK_S", 0.05), ("_PATIENCE_S", 0.1)):
        monkeypatch.setattr(device_health, name, seconds)
    return made


@pytest.fixture
def node(drivers: Drivers) -> Node:
    """A Node with a guard and a readable list."""
    made = Node()
    made.looked()
    return made


async def test_last_replies_stay_valid_while_a_driver_hangs(node: Node, drivers: Drivers) -> None:
    async with node.runs():
        await until_equal(node.condition, FINE)
        drivers.goes_on.clear()
        words = "a driver has not answered for 0.1 s"
        await until_equal(node.condition, Condition(True, "DeviceFailed", words))
        assert node.said["names of devices"] == words
        assert node.has() == Names("GPU-0")
        drivers.goes_on.set()
        await until_equal(node.condition, FINE)
        assert node.said["names of devices"] is None


async def test_gpu_without_a_driver_is_awaited(
    node: Node, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / GPU.bus
    place.mkdir()
    for name, content in (("vendor", "0x10de"), ("class", "0x030200")):
        (place / name).write_text(f"{content}\n")
    monkeypatch.setattr(names, "without_driver", partial(names.without_driver, pci=tmp_path))
    drivers.answer = Answers(problems={"NVIDIA": "NVML: Driver Not Loaded"})
    await node.health.ask()
    words = f"no driver reports the GPU at {GPU.bus} (NVML: Driver Not Loaded)"
    assert node.health.awaited == words
    drivers.answer = Answers((GPU,))
    await node.health.ask()
    assert node.health.awaited == ""


async def test_driver_that_hangs_at_the_start_delays_nothing(node: Node, drivers: Drivers) -> None:
    drivers.goes_on.clear()
    async with asyncio.timeout(2):
        await node.health.ask()
    assert node.has() == Names()
    drivers.goes_on.set()


async def test_last_replies_stay_valid_after_an_unknown_error(node: Node, drivers: Drivers) -> None:
    async with node.runs():
        await until_equal(node.condition, FINE)
        drivers.answer = ZeroDivisionError("half dead")
        words = "the drivers could not be asked: half dead"
        await until_equal(node.condition, Condition(True, "DeviceFailed", words))
        assert node.has() == Names("GPU-0")
        drivers.answer = Answers((GPU,))
        await until_equal(node.condition, FINE)


async def test_failed_driver_without_devices_is_no_problem(node: Node, drivers: Drivers) -> None:
    node.keeper.devices = ()
    drivers.answer = ZeroDivisionError("half dead")
    async with node.runs():
        await until_equal(node.condition, FINE)


@pytest.mark.usefixtures("drivers")
async def test_node_has_no_condition_before_the_first_look() -> None:
    node = Node()
    async with node.runs():
        await asyncio.sleep(0.1)
        assert await node.condition() is None
        node.health.note(Reason.LIST_UNREADABLE, None)
        await asyncio.sleep(0.1)
        assert await node.condition() is None
        node.health.note(Reason.NOT_GUARDED, None)
        await until_equal(node.condition, FINE)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.LIST_UNREADABLE, "slurmd's list of devices cannot be used: [Errno 2] No such file"),
        (Reason.NOT_GUARDED, "the devices are not closed to other Pods: [Errno 2] No such file"),
    ],
)
async def test_problem_of_all_devices_is_reported(node: Node, reason: Reason, words: str) -> None:
    async with node.runs():
        await until_equal(node.condition, FINE)
        node.health.note(reason, FileNotFoundError(2, "No such file"))
        await until_equal(node.condition, Condition(True, reason, words))
        node.looked()
        await until_equal(node.condition, FINE)


LISTED = {"name": "gpu", "index": 0, "type": "h100", "files": ["/dev/nvidia0"]}
BY_DRIVER = {"uuid": "GPU-0", "bus": "0000:19:00.0"}


async def test_devices_are_listed_once_slurmds_list_is_known(node: Node, drivers: Drivers) -> None:
    async with node.runs():
        await until_equal(node.condition, FINE)
        assert await node.listed() is None
        node.keeper.machine = Machine([GPU], look)
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        drivers.answer = Answers(())
        await until_equal(node.listed, [LISTED])


async def test_condition_is_repeated_and_device_list_only_if_different(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent repeats the condition, because the extender regards a silent agent as gone."""
    monkeypatch.setattr(device_health, "_TELL_S", 0.0)  # a report at each check
    writes = list[Any]()
    patch = node.kubernetes.patch_node_status

    async def count(name: str, told: Any) -> None:
        writes.append(told)
        await patch(name, told)

    monkeypatch.setattr(node.kubernetes, "patch_node_status", count)
    node.keeper.machine = Machine([GPU], look)
    async with node.runs():
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        await until(lambda: len(writes) > 2)
        told = [each["status"]["conditions"][0] for each in writes]
        assert all("lastHeartbeatTime" in each for each in told)
        assert ["lastTransitionTime" in each for each in told[:3]] == [True, False, False]
        assert sum("metadata" in each for each in writes) == 1
        await node.kubernetes.patch_node(
            "n1", {"metadata": {"annotations": {DEVICES: '{"devices":[]}'}}}
        )
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        assert sum("metadata" in each for each in writes) == 2


async def test_error_of_the_driver_watch_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from node_agent.machine.vendors import xid  # noqa: PLC0415 -- it imports NVML's own

    def wait(*_: object) -> bool:
        raise ZeroDivisionError("half dead")

    monkeypatch.setattr(NVIDIA, "watch", xid.XidWatch)
    monkeypatch.setattr(xid.XidWatch, "wait", wait)
    async with node.runs():
        await until_equal(node.condition, FINE)
        await until(lambda: str(node.said.get("complaints of NVIDIA's driver")) == "half dead")
