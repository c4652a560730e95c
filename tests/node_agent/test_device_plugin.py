"""Tests of the devices that the agent's plugin reports to the kubelet. A real kubelet is in
tests/node."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from node_agent.kubelet import device_plugin
from tests.eventually import until
from tests.node_agent.kubelet import (
    RESOURCE,
    Kubelet,
    connections_are_closed,
    list_and_watch,
    plugged,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_agent.node import Node


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plugin, "_LOOK_S", 0.02)


async def test_kubelet_gets_the_devices_and_changes_of_their_health(tmp_path: Path) -> None:
    kubelet, units = Kubelet(tmp_path), {"gpu-0": True, "gpu-1": False}
    async with kubelet.runs(), plugged(tmp_path, units) as reports:
        await until(lambda: None in reports)
        assert kubelet.registered == [("v1beta1", RESOURCE, "slurm-extender-nvidia.com-gpu.sock")]
        assert await heard(kubelet, units) == [
            {"gpu-0": "Healthy", "gpu-1": "Unhealthy"},
            {"gpu-0": "Healthy", "gpu-1": "Healthy"},
        ]


async def heard(kubelet: Kubelet, units: dict[str, bool]) -> list[dict[str, str]]:
    """Returns two reports, before and after a change. After the return, no frame of the test keeps the
    call alive."""
    reports = []
    async with kubelet.asks() as plugin:
        call = list_and_watch(plugin)
        async for report in call:
            reports.append({unit.ID: unit.health for unit in report.devices})
            units["gpu-1"] = True
            if len(reports) == 2:
                call.cancel()
                return reports
    raise AssertionError(reports)


@pytest.mark.real
async def test_kubelet_counts_parts_of_gpus_as_slurm_does(node: Node, short_folder: Path) -> None:
    node.print_devices("xyz", shards=2)
    node.unload("y")
    node.device_plugins, node.nri = short_folder, node.gres.with_name("nri")
    node.resources = {"example.com/shard": "shard"}
    kubelet = Kubelet(node.device_plugins)
    async with kubelet.runs(), node.agent(ready=False):
        await until(lambda: kubelet.registered)
        assert kubelet.registered[-1][1] == "example.com/shard"
        async with kubelet.asks() as plugin:
            first = await anext(aiter(list_and_watch(plugin)))
    await connections_are_closed(short_folder)
    told = {unit.ID: unit.health for unit in first.devices}
    assert told == {
        f"shard-{gpu}-{n}": "Unhealthy" if gpu == 1 else "Healthy" for gpu in range(3) for n in range(2)
    }


async def test_plugin_registers_when_the_kubelet_starts_later_or_again(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with plugged(tmp_path, {"gpu-0": True}) as reports:
        await until(lambda: reports and reports[0] is not None)
        for _ in range(2):
            kubelet.registered.clear()
            async with kubelet.runs():
                await until(lambda: kubelet.registered)
                kubelet.empties()


async def test_kubelet_stops_listening_when_the_plugin_ends(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path, listens=True)
    async with kubelet.runs():
        async with plugged(tmp_path, {"gpu-0": True}):
            await until(kubelet.checkpoint.exists)
            assert kubelet.is_listening
        await until(lambda: not kubelet.is_listening)
        assert kubelet.sockets() == ["kubelet.sock"]


@pytest.mark.parametrize("turns", range(1, 9))
async def test_plugin_leaves_no_socket_open_whenever_it_ends(tmp_path: Path, turns: int) -> None:
    """If a cancelled start left a socket open, a ResourceWarning would fail the test."""
    staying = device_plugin.stay(tmp_path, RESOURCE, dict, lambda _: None)
    task = asyncio.create_task(staying)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gc.collect()


async def test_reason_of_a_failed_registration_is_reported(tmp_path: Path) -> None:
    async with plugged(tmp_path, {"gpu-0": True}) as reports:
        await until(lambda: reports)
        (tmp_path / "kubelet.sock").touch()
        await until(lambda: len(set(reports)) > 1)
    where = f"the kubelet: {tmp_path / 'kubelet.sock'}"
    assert {*reports} == {f"{where}: No such file or directory", f"{where}: Connection refused"}
