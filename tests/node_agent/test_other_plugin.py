"""Tests of a vendor's plugin that takes the place of the agent's plugin at the kubelet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from node_agent.kubelet import device_plugin
from tests.eventually import until
from tests.node_agent.kubelet import RESOURCE, Kubelet, plugged

if TYPE_CHECKING:
    from pathlib import Path

WORDS = f"another plugin for {RESOURCE} took this one's place at the kubelet: turn the vendor's off"
UNITS = {"gpu-0": True, "gpu-1": True}
LOOKS = 10


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"LOOK": 0.02, "SETTLES": 0.1, "AGAIN": 0.3, "SHOWN": 0.9}.items():
        monkeypatch.setattr(device_plugin, f"_{name}_S", seconds)


async def looked() -> None:
    await asyncio.sleep(LOOKS * 0.02 + 0.1)


async def take(kubelet: Kubelet, how: str) -> None:
    """Takes the place of the agent's plugin. Kubelet 1.37 also counts the vendor's devices. Kubelet 1.31
    ends the newest connection."""
    if how == "it counts the other's devices":
        kubelet.counts("GPU-a", "GPU-b")
    else:
        await kubelet.hangs_up()


@pytest.mark.parametrize("how", ["it counts the other's devices", "it hangs up"])
async def test_agent_reports_another_plugin_and_registers_again(how: str, tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, listens=True)
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        await until(kubelet.checkpoint.exists)
        await asyncio.sleep(0.15)
        assert (reports, len(kubelet.registered)) == ([None], 1)
        await take(kubelet, how)
        await until(lambda: reports[1:] == [WORDS])
        await asyncio.sleep(0.15)
        assert len(kubelet.registered) == 1  # the plugin pauses before registering again
        await until(lambda: len(kubelet.registered) > 1)
        await until(lambda: "gpu-0" in kubelet.checkpoint.read_text())  # the kubelet counts again
        await asyncio.sleep(0.15)
        assert set(reports[1:]) == {WORDS}  # the report stays the same
        await until(lambda: reports[-1] is None)
        assert len(kubelet.registered) == 2
        assert kubelet.is_listening


async def test_returning_vendor_plugin_is_reported_again(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, listens=True)
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        for times in (1, 2):
            await until(kubelet.checkpoint.exists)
            await until(lambda: "gpu-0" in kubelet.checkpoint.read_text())
            kubelet.counts("GPU-a")
            await until(lambda times=times: len(kubelet.registered) > times)  # type: ignore[misc]
        assert reports[-1] == WORDS


async def test_ended_kubelet_is_not_taken_for_another_plugin(tmp_path: Path) -> None:
    """The ended kubelet closes the connection. The plugin's socket stays until the next start of a
    kubelet."""
    kubelet = Kubelet(tmp_path, listens=True)
    async with plugged(tmp_path, UNITS) as reports:
        async with kubelet.runs():
            await until(lambda: kubelet.is_listening)
            await until(kubelet.checkpoint.exists)
        kubelet.counts("GPU-a")
        await looked()
        kubelet.empties()
        async with kubelet.runs():
            await until(lambda: len(kubelet.registered) == 2)
            await looked()
    assert "the kubelet starts" in reports
    assert WORDS not in reports


@pytest.mark.parametrize(
    "counted",
    [
        ["gpu-0"],  # one of two units is usable
        ["gpu-0", "gpu-7"],  # a unit that has just disappeared
        [],
    ],
)
async def test_own_devices_are_not_taken_for_another_plugin(counted: list[str], tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, listens=True)
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        await until(kubelet.checkpoint.exists)
        kubelet.counts(*counted)
        await looked()
        assert reports == [None]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Data": {"RegisteredDevices": null}}'])
async def test_unreadable_checkpoint_is_ignored(text: str, tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, listens=True)
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        await until(kubelet.checkpoint.exists)
        kubelet.checkpoint.write_text(text)
        await looked()
        assert reports == [None]
        await kubelet.hangs_up()
        await until(lambda: WORDS in reports)  # the plugin still checks


async def test_earlier_count_is_not_taken_for_another_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor's plugin was turned off. The kubelet's checkpoint does not have the agent's devices
    yet."""
    monkeypatch.setattr(device_plugin, "_SETTLES_S", 0.6)
    kubelet = Kubelet(tmp_path)
    kubelet.counts("GPU-a")
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        await until(lambda: kubelet.registered)
        await looked()
        kubelet.counts(*UNITS)
        await asyncio.sleep(0.5)
        assert reports == [None]
