"""What the Node says of its devices, whatever becomes of their drivers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.machine import names
from node_agent.machine.devices import Answers, Device, Names, Number
from node_agent.machine.numbered import Machine
from node_agent.machine.vendors.nvidia import NVIDIA
from node_agent.reporting import device_health, node_devices
from node_agent.reporting.device_health import DeviceHealth
from node_agent.reporting.node_condition import Condition, Reason
from tests.node_agent.node import until_equal
from wellknown.names import DEVICES

GPU = Device("gpu", "h100", ("/dev/nvidia0",), uuid="GPU-0", bus="0000:19:00.0")
FINE = Condition.of({}, [])


class Drivers:
    """Answers what it is told to, and hangs where it is told to."""

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
    """One with a GPU, whose health is looked at."""

    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})
        keeper: Any = SimpleNamespace(
            devices=(GPU,), guarded=frozenset(), names={}, failed={}, machine=None, cores=None
        )
        self.keeper = keeper
        self.said: dict[str, object] = {}
        self.health = DeviceHealth(self.kubernetes, "n1", keeper, [], {}, self.says)

    def says(self, part: str, trouble: Exception | str | None) -> None:
        self.said[part] = trouble

    def looked(self) -> None:
        """The agent has looked at slurmd's list, and the guard is on."""
        self.health.hears(Reason.LIST_UNREADABLE, None)
        self.health.hears(Reason.NOT_GUARDED, None)

    async def condition(self) -> Condition | None:
        return Condition.on(await self.kubernetes.read_node("n1"))

    async def listed(self) -> list[dict[str, Any]] | None:
        """The devices that stand on the Node."""
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


async def test_a_driver_that_hangs_is_told_of_and_its_last_answers_count(drivers: Drivers) -> None:
    node = Node()
    node.looked()
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


async def test_it_says_which_gpu_no_driver_tells_of_and_why(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / GPU.bus
    place.mkdir()
    for name, content in (("vendor", "0x10de"), ("class", "0x030200")):
        (place / name).write_text(f"{content}\n")
    monkeypatch.setattr(names, "untold", partial(names.untold, pci=tmp_path))
    node = Node()
    drivers.answer = Answers(problems={"NVIDIA": "NVML: Driver Not Loaded"})
    await node.health.ask()
    words = f"no driver tells of the GPU at {GPU.bus} (NVML: Driver Not Loaded)"
    assert node.health.awaited == words
    drivers.answer = Answers((GPU,))
    await node.health.ask()
    assert node.health.awaited == ""


async def test_a_driver_that_hangs_from_the_beginning_holds_nobody_up(drivers: Drivers) -> None:
    node = Node()
    drivers.goes_on.clear()
    async with asyncio.timeout(2):
        await node.health.ask()
    assert node.has() == Names()
    drivers.goes_on.set()


async def test_an_error_that_nobody_has_thought_of_is_told_of_and_the_last_answers_count(
    drivers: Drivers,
) -> None:
    node = Node()
    node.looked()
    async with node.runs():
        await until_equal(node.condition, FINE)
        drivers.answer = ZeroDivisionError("half dead")
        words = "the drivers could not be asked: half dead"
        await until_equal(node.condition, Condition(True, "DeviceFailed", words))
        assert node.has() == Names("GPU-0")
        drivers.answer = Answers((GPU,))
        await until_equal(node.condition, FINE)


async def test_drivers_are_of_no_matter_where_slurm_counts_no_device(drivers: Drivers) -> None:
    node = Node()
    node.looked()
    node.keeper.devices = ()
    drivers.answer = ZeroDivisionError("half dead")
    async with node.runs():
        await until_equal(node.condition, FINE)


async def test_the_node_is_told_of_nothing_before_the_agent_has_looked(drivers: Drivers) -> None:
    node = Node()
    async with node.runs():
        await asyncio.sleep(0.1)
        assert await node.condition() is None
        node.health.hears(Reason.LIST_UNREADABLE, None)
        await asyncio.sleep(0.1)
        assert await node.condition() is None
        node.health.hears(Reason.NOT_GUARDED, None)
        await until_equal(node.condition, FINE)


def _list_is_away(health: DeviceHealth) -> None:
    health.hears(Reason.LIST_UNREADABLE, FileNotFoundError(2, "No such file"))


def _guard_is_off(health: DeviceHealth) -> None:
    health.hears(Reason.NOT_GUARDED, PermissionError(1, "Operation not permitted"))


@pytest.mark.parametrize(
    ("happens", "reason", "words"),
    [
        (_list_is_away, "ListUnreadable", "slurmd's list of devices cannot be used: [Errno 2] "),
        (_guard_is_off, "NotGuarded", "the devices are not closed to other Pods: [Errno 1] "),
    ],
)
async def test_devices_that_are_not_known_or_not_closed_are_told_of(
    happens: Callable[[DeviceHealth], None], reason: str, words: str, drivers: Drivers
) -> None:
    node = Node()
    node.looked()
    async with node.runs():
        await until_equal(node.condition, FINE)
        happens(node.health)

        async def told() -> tuple[bool, str, bool]:
            said = await node.condition()
            assert said is not None
            return said.problem, said.reason, said.message.startswith(words)

        await until_equal(told, (True, reason, True))
        node.looked()
        await until_equal(node.condition, FINE)


LISTED = {"name": "gpu", "index": 0, "type": "h100", "files": ["/dev/nvidia0"]}
BY_DRIVER = {"uuid": "GPU-0", "bus": "0000:19:00.0"}


def machine() -> Machine:
    return Machine([GPU], lambda _: (frozenset({Number(195, 0)}), ""))


async def test_the_devices_stand_on_the_node_once_slurmds_list_is_known(drivers: Drivers) -> None:
    node = Node()
    node.looked()
    async with node.runs():
        await until_equal(node.condition, FINE)
        assert await node.listed() is None
        node.keeper.machine = machine()
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        drivers.answer = Answers(())
        await until_equal(node.listed, [LISTED])


async def test_the_list_of_devices_is_written_where_it_is_not_what_stands_there(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_health, "_TELL_S", 0.0)  # the Node is read at each look
    node, writes = Node(), list[Any]()
    patch = node.kubernetes.patch_node_status

    async def count(name: str, told: Any) -> None:
        writes.append(told)
        await patch(name, told)

    monkeypatch.setattr(node.kubernetes, "patch_node_status", count)
    node.keeper.machine = machine()
    node.looked()
    async with node.runs():
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        await asyncio.sleep(0.2)
        assert len(writes) == 1
        await node.kubernetes.patch_node(
            "n1", {"metadata": {"annotations": {DEVICES: '{"devices":[]}'}}}
        )
        await until_equal(node.listed, [LISTED | BY_DRIVER])
        assert len(writes) == 2


async def test_an_error_in_listening_to_the_driver_ends_nothing(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from node_agent.machine.vendors import xid  # noqa: PLC0415 -- it imports NVML's own

    def wait(*_: object) -> bool:
        raise ZeroDivisionError("half dead")

    monkeypatch.setattr(NVIDIA, "watch", xid.XidWatch)
    monkeypatch.setattr(xid.XidWatch, "wait", wait)
    node = Node()
    node.looked()
    async with node.runs():
        await until_equal(node.condition, FINE)
        part = "complaints of NVIDIA's driver"

        async def said() -> str:
            return str(node.said.get(part))

        await until_equal(said, "half dead")
