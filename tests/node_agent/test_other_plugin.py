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
    """Kubelet 1.37 counts the vendor's devices, too. Kubelet 1.31 ends the newest connection."""
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
        assert len(kubelet.registered) == 1  # after a pause
        await until(lambda: len(kubelet.registered) > 1)
        await until(lambda: "gpu-0" in kubelet.checkpoint.read_text())  # it counts again
        await asyncio.sleep(0.15)
        assert set(reports[1:]) == {WORDS}  # all the while
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
    """It ends the connection, and the socket stays until the next one starts."""
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
        ["gpu-0"],  # of two, one is of use
        ["gpu-0", "gpu-7"],  # a unit that went just now
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
        await until(lambda: WORDS in reports)  # it looks yet


async def test_earlier_count_is_not_taken_for_another_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor's was turned off, and this one's list is not written down yet."""
    monkeypatch.setattr(device_plugin, "_SETTLES_S", 0.6)
    kubelet = Kubelet(tmp_path)
    kubelet.counts("GPU-a")
    async with kubelet.runs(), plugged(tmp_path, UNITS) as reports:
        await until(lambda: kubelet.registered)
        await looked()
        kubelet.counts(*UNITS)
        await asyncio.sleep(0.5)
        assert reports == [None]
