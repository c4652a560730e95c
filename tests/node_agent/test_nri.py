"""Tests of the agent's plugin with the NRI code that a container runtime uses (pkg/adaptation)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node_agent.nri import api_pb2 as api
from node_agent.nri import plugin
from node_agent.nri.plugin import Session, serve, stay
from node_agent.nri.wire import Malformed
from tests.eventually import until
from tests.node_agent.container_runtime import RELEASES, ContainerRuntime
from tests.node_agent.plugin import Plugin, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POD = {
    "id": "p1",
    "name": "p",
    "uid": "u1",
    "namespace": "ml",
    "annotations": {"a": "1"},
    "linux": {"cgroupParent": "/kubepods/podu1"},
}
_HANGS = """
import asyncio, sys, time
from pathlib import Path
from node_agent.nri import api_pb2 as api, plugin

class Handler:
    def synchronize(self, pods, containers): return []
    def run_pod(self, pod): pass
    def stop_pod(self, pod): pass
    def create_container(self, pod, container): time.sleep(600)
    def validate(self, pod, container, adjust): pass

connected = lambda: print("connected", flush=True)
session = plugin.Session(Handler(), validates=True, in_force=connected)
asyncio.run(plugin.serve(Path(sys.argv[1]), session))
"""


@pytest.fixture(params=RELEASES)
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ContainerRuntime]:
    """A container runtime with each release of NRI."""
    async with ContainerRuntime.start(request.param, tmp_path / "s") as started:
        yield started


@pytest.fixture
def handler() -> Plugin:
    return Plugin()


@pytest.mark.real
async def test_events_of_a_pod_arrive_in_order(runtime: ContainerRuntime, handler: Plugin) -> None:
    async with connected(runtime, handler):
        assert await runtime.runs(POD) == ""
        assert await runtime.creates(POD) == ({}, "")
        assert await runtime.stops(POD) == ""
        assert await runtime.ends(POD, {"id": "c1"}, gone=False) == ""
        assert await runtime.ends(POD, {"id": "c2"}, gone=True) == ""
    events = ["run", "create", "stop", "stop c1", "stop c2"]
    assert handler.heard == [(event, "u1") for event in events]
    assert (handler.pod.namespace, handler.pod.name) == ("ml", "p")
    assert dict(handler.pod.annotations) == {"a": "1"}


@pytest.mark.real
async def test_additions_of_the_plugin_arrive(runtime: ContainerRuntime, handler: Plugin) -> None:
    handler.adjust.env.add(key="A", value="b")
    handler.adjust.CDI_devices.add(name="x.com/gpu=0")
    mode = api.OptionalUInt32(value=0o660)
    handler.adjust.linux.devices.add(path="/dev/x", type="c", major=60, minor=1, file_mode=mode)
    container = {"env": ["OLD=1"], "linux": {"devices": [{"path": "/dev/y", "major": 7, "minor": 1}]}}
    async with connected(runtime, handler):
        adjust, error = await runtime.creates(POD, container)
    assert error == ""
    assert adjust["env"] == [{"key": "A", "value": "b"}]
    assert adjust["CDIDevices"] == [{"name": "x.com/gpu=0"}]
    (device,) = adjust["linux"]["devices"]
    assert device["path"] == "/dev/x"
    assert (device["major"], device["minor"], device["fileMode"]) == ("60", "1", {"value": 0o660})
    assert list(handler.created.env) == ["OLD=1"]
    assert [(d.path, d.major) for d in handler.created.linux.devices] == [("/dev/y", 7)]


@pytest.mark.real
@pytest.mark.parametrize("what", ["run", "create"])
async def test_runtime_shows_a_rejection(what: str, runtime: ContainerRuntime, handler: Plugin) -> None:
    handler.refuses = {what: "Pod ml/q has a device of its job"}
    async with connected(runtime, handler):
        error = await runtime.runs(POD) if what == "run" else (await runtime.creates(POD))[1]
        assert "Pod ml/q has a device of its job" in error
        handler.refuses = {}
        assert await runtime.runs(POD) == ""  # the plugin still gets calls
        handler.fails = True
        _, error = await runtime.creates(POD)
        assert "the node agent failed: ZeroDivisionError: a fault of its own" in error


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_long_messages_arrive(release: str, handler: Plugin, tmp_path: Path) -> None:
    """A list of 12 MB comes in parts, and a reply of 100 kB goes in frames of 4 kB."""
    handler.adjust.env.add(key="A", value="x" * 100_000)
    handler.updates = [_cpus("old", "4-5")]
    async with ContainerRuntime.start(release, tmp_path / "s", pods=12_000) as runtime:
        await runtime.has(POD, {"id": "old"})
        async with connected(runtime, handler):
            assert await runtime.synchronized() == [
                {"containerId": "old", "linux": {"resources": {"cpu": {"cpus": "4-5"}}}}
            ]
            adjust, error = await runtime.creates(POD)
    pods, containers = handler.there
    assert pods == [*map(str, range(12_000)), "p1"]
    assert containers == [*(f"of {n}" for n in range(12_000)), "old"]
    assert (error, len(adjust["env"][0]["value"])) == ("", 100_000)


def _cpus(container: str, cpus: str) -> api.ContainerUpdate:
    resources = api.LinuxResources(cpu=api.LinuxCPU(cpus=cpus))
    linux = api.LinuxContainerUpdate(resources=resources)
    return api.ContainerUpdate(container_id=container, linux=linux)


@pytest.mark.real
async def test_plugin_changes_a_part_of_an_update(runtime: ContainerRuntime, handler: Plugin) -> None:
    wanted = {"cpu": {"cpus": "0-1", "shares": {"value": "512"}}, "memory": {"limit": {"value": "7"}}}
    async with connected(runtime, handler):
        made, error = await runtime.updates(POD, **wanted)
        assert (made.get("cpu", {}).get("cpus"), error) == (None, "")  # the same CPUs, so no change
        handler.updates = [_cpus("c1", "4-5")]
        made, error = await runtime.updates(POD, **wanted)
    assert error == ""
    assert made["cpu"] == {"cpus": "4-5", "shares": {"value": "512"}}
    assert made["memory"]["limit"] == {"value": "7"}
    assert handler.heard == [("update c1 0-1", "u1")] * 2


@pytest.mark.real
async def test_validating_runtime_asks_again(handler: Plugin, tmp_path: Path) -> None:
    handler.adjust.env.add(key="A", value="b")
    start = ContainerRuntime.start("0.12", tmp_path / "s")
    async with start as runtime, connected(runtime, handler, validates=True):
        assert (await runtime.creates(POD))[1] == ""
        handler.refuses = {"validate": "something else gives it /dev/x"}
        assert "something else gives it /dev/x" in (await runtime.creates(POD))[1]
    assert handler.heard == [("create", "u1"), ("validate", "u1")] * 2
    container, adjust = handler.validated
    assert (container.name, adjust.env) == ("c", handler.adjust.env)


@pytest.mark.real
async def test_runtime_without_validation_is_served(handler: Plugin, tmp_path: Path) -> None:
    reports: list[object] = []
    async with ContainerRuntime.start("0.8", tmp_path / "s") as runtime:
        task = asyncio.create_task(stay(runtime.socket, handler, reports.append))
        await until(lambda: None in reports)
        assert (await runtime.creates(POD))[1] == ""
        task.cancel()
    assert [what for what, _ in handler.heard] == ["create"]
    assert reports == ["it has closed the connection", "it has closed the connection", None]


@pytest.mark.real
async def test_session_ends_with_the_runtime(runtime: ContainerRuntime, handler: Plugin) -> None:
    async with connected(runtime, handler) as task:
        runtime.kill()
        with suppress(ConnectionError):
            await task


@pytest.mark.real
async def test_runtime_that_starts_later_or_restarts_is_served(tmp_path: Path) -> None:
    reports: list[object] = []
    task = asyncio.create_task(stay(tmp_path / "s", Plugin(), reports.append))
    await until(lambda: reports)
    assert isinstance(reports[0], FileNotFoundError)
    for _ in range(2):
        async with ContainerRuntime.start("0.12", tmp_path / "s") as runtime:
            reports.clear()
            await until(lambda: None in reports)
            assert (await runtime.creates(POD))[1] == ""
    task.cancel()


@pytest.mark.real
async def test_runtime_creates_no_container_without_a_required_plugin(tmp_path: Path) -> None:
    start = ContainerRuntime.start("0.12", tmp_path / "s", plugin.NAME)
    async with start as runtime:
        assert f'required plugin "{plugin.NAME}" not present' in (await runtime.creates(POD))[1]
        async with connected(runtime, Plugin(), validates=True):
            assert (await runtime.creates(POD))[1] == ""
        await asyncio.sleep(0.1)  # the runtime has noticed the plugin's end
        assert "not present" in (await runtime.creates(POD))[1]


@pytest.mark.real
@pytest.mark.parametrize("end", ["hangs", "killed"])
async def test_no_container_is_made_after_the_plugin_ends(end: str, tmp_path: Path) -> None:
    """NRI 0.12.5 creates the first container, without devices. Earlier releases reject the container."""
    start = ContainerRuntime.start("0.12", tmp_path / "s", plugin.NAME)
    async with start as runtime:
        argv = [sys.executable, "-c", _HANGS, str(runtime.socket)]
        hanging = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        assert hanging.stdout is not None
        await hanging.stdout.readuntil(b"connected\n")  # after lines of the log
        creating = asyncio.create_task(runtime.creates(POD))
        await asyncio.sleep(0.1)
        if end == "killed":
            hanging.kill()
        made, _ = await creating
        if end == "hangs":
            hanging.kill()
        await hanging.wait()
        assert made == {}
        assert "not present" in (await runtime.creates(POD))[1]


async def test_server_that_does_not_speak_nri_is_an_error(tmp_path: Path) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(speak, tmp_path / "s"):
        with pytest.raises(Malformed, match=r"a frame of \d+ bytes"):
            await serve(tmp_path / "s", Session(Plugin(), validates=False, in_force=list))


def test_generated_message_modules_match_their_definitions(tmp_path: Path) -> None:
    files = sorted(str(file) for file in Path("node_agent/nri").glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}"]
    subprocess.run([*command, f"--pyi_out={tmp_path}", *files], check=True)
    made = sorted((tmp_path / "node_agent/nri").iterdir())
    assert len(made) == 2 * len(files)
    for file in made:
        assert file.read_text() == (Path("node_agent/nri") / file.name).read_text(), "make protocols"
