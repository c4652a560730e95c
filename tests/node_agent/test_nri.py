"""A plugin of the container runtime: what it hears and says, with NRI's own code at the other end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from node_agent.nri import api_pb2 as api
from node_agent.nri import plugin
from node_agent.nri.plugin import Session, serve, stay
from node_agent.nri.wire import Malformed
from tests.eventually import until
from tests.node_agent.container_runtime import RELEASES, ContainerRuntime
from tests.node_agent.plugin import Plugin, connected

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


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_a_pod_and_its_container_are_told_of_in_their_order(release: str, tmp_path: Path) -> None:
    handler = Plugin()
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
        assert await runtime.runs(POD) == ""
        assert await runtime.creates(POD) == ({}, "")
        assert await runtime.stops(POD) == ""
    assert handler.heard == [("run", "u1"), ("create", "u1"), ("stop", "u1")]
    assert (handler.pod.namespace, handler.pod.name) == ("ml", "p")
    assert dict(handler.pod.annotations) == {"a": "1"}


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_what_is_given_arrives(release: str, tmp_path: Path) -> None:
    handler = Plugin()
    handler.adjust.env.add(key="A", value="b")
    handler.adjust.CDI_devices.add(name="x.com/gpu=0")
    mode = api.OptionalUInt32(value=0o660)
    handler.adjust.linux.devices.add(path="/dev/x", type="c", major=60, minor=1, file_mode=mode)
    container = {"env": ["OLD=1"], "linux": {"devices": [{"path": "/dev/y", "major": 7, "minor": 1}]}}
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
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
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("what", ["run", "create"])
async def test_a_refusal_is_told_in_its_words(what: str, release: str, tmp_path: Path) -> None:
    handler = Plugin()
    handler.refuses = {what: "Pod ml/q has a device of its job"}
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
        error = await runtime.runs(POD) if what == "run" else (await runtime.creates(POD))[1]
        assert "Pod ml/q has a device of its job" in error
        handler.refuses = {}
        assert await runtime.runs(POD) == ""  # it is asked again, and so on


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_a_fault_of_the_agents_is_a_refusal(release: str, tmp_path: Path) -> None:
    handler = Plugin()
    handler.fails = True
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
        _, error = await runtime.creates(POD)
    assert "the node agent failed: ZeroDivisionError: a fault of its own" in error


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_long_messages_are_read_and_written(release: str, tmp_path: Path) -> None:
    """A list of 12 MB, which the runtime has to tell in parts; and an answer of 100 kB, in frames of
    four."""
    handler = Plugin()
    handler.adjust.env.add(key="A", value="x" * 100_000)
    start = ContainerRuntime.start(release, tmp_path / "s", pods=12_000)
    async with start as runtime, connected(runtime, handler):
        adjust, error = await runtime.creates(POD)
    assert (error, len(adjust["env"][0]["value"])) == ("", 100_000)


def _cpus(container: str, cpus: str) -> api.ContainerUpdate:
    resources = api.LinuxResources(cpu=api.LinuxCPU(cpus=cpus))
    linux = api.LinuxContainerUpdate(resources=resources)
    return api.ContainerUpdate(container_id=container, linux=linux)


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_the_plugins_change_of_an_update_counts_and_the_rest_stays(
    release: str, tmp_path: Path
) -> None:
    handler = Plugin()
    wanted = {"cpu": {"cpus": "0-1", "shares": {"value": "512"}}, "memory": {"limit": {"value": "7"}}}
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
        made, error = await runtime.updates(POD, **wanted)
        assert (made.get("cpu", {}).get("cpus"), error) == (None, "")  # as the runtime has it: no change
        handler.updates = [_cpus("c1", "4-5")]
        made, error = await runtime.updates(POD, **wanted)
    assert error == ""
    assert made["cpu"] == {"cpus": "4-5", "shares": {"value": "512"}}
    assert made["memory"]["limit"] == {"value": "7"}
    assert handler.heard == [("update c1 0-1", "u1")] * 2


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_what_there_is_already_is_told_in_parts_and_can_be_changed(
    release: str, tmp_path: Path
) -> None:
    handler = Plugin()
    handler.updates = [_cpus("old", "4-5")]
    async with ContainerRuntime.start(release, tmp_path / "s", pods=12_000) as runtime:
        await runtime.has(POD, {"id": "old"})
        async with connected(runtime, handler):
            assert await runtime.synchronized() == [
                {"containerId": "old", "linux": {"resources": {"cpu": {"cpus": "4-5"}}}}
            ]
    pods, containers = handler.there
    assert pods == [*map(str, range(12_000)), "p1"]
    assert containers == [*(f"of {n}" for n in range(12_000)), "old"]


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_a_container_that_ends_or_is_gone_is_told_of(release: str, tmp_path: Path) -> None:
    handler = Plugin()
    async with ContainerRuntime.start(release, tmp_path / "s") as runtime, connected(runtime, handler):
        assert await runtime.ends(POD, {"id": "c1"}, gone=False) == ""
        assert await runtime.ends(POD, {"id": "c2"}, gone=True) == ""
    assert handler.heard == [("stop c1", "u1"), ("stop c2", "u1")]


@pytest.mark.real
async def test_a_runtime_that_validates_asks_once_more(tmp_path: Path) -> None:
    handler = Plugin()
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
async def test_a_runtime_that_cannot_validate_is_served_without(tmp_path: Path) -> None:
    reports: list[object] = []
    async with ContainerRuntime.start("0.8", tmp_path / "s") as runtime:
        task = asyncio.create_task(stay(runtime.socket, handler := Plugin(), reports.append))
        await until(lambda: None in reports)
        assert (await runtime.creates(POD))[1] == ""
        task.cancel()
    assert [what for what, _ in handler.heard] == ["create"]
    assert reports == ["it has closed the connection", "it has closed the connection", None]


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_a_runtime_that_goes_ends_the_session(release: str, tmp_path: Path) -> None:
    start = ContainerRuntime.start(release, tmp_path / "s")
    async with start as runtime, connected(runtime, Plugin()) as task:
        runtime.kill()
        with suppress(ConnectionError):
            await task


@pytest.mark.real
async def test_a_runtime_that_starts_later_and_anew_is_served(tmp_path: Path) -> None:
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
async def test_where_the_plugin_is_required_nothing_is_made_without_it(tmp_path: Path) -> None:
    start = ContainerRuntime.start("0.12", tmp_path / "s", plugin.NAME)
    async with start as runtime:
        assert f'required plugin "{plugin.NAME}" not present' in (await runtime.creates(POD))[1]
        async with connected(runtime, Plugin(), validates=True):
            assert (await runtime.creates(POD))[1] == ""
        await asyncio.sleep(0.1)  # the runtime has seen it go
        assert "not present" in (await runtime.creates(POD))[1]


@pytest.mark.real
@pytest.mark.parametrize("end", ["hangs", "killed"])
async def test_a_plugin_that_hangs_or_is_killed_over_a_container_gives_nothing_and_then_none_is_made(
    end: str, tmp_path: Path
) -> None:
    """That one container is made: NRI 0.12.5 does not have a plugin validate that it has just lost, and
    counts it as present. Earlier releases refuse it. It has no devices either way."""
    start = ContainerRuntime.start("0.12", tmp_path / "s", plugin.NAME)
    async with start as runtime:
        argv = [sys.executable, "-c", _HANGS, str(runtime.socket)]
        hanging = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        assert hanging.stdout is not None
        await hanging.stdout.readuntil(b"connected\n")  # after lines of its log
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


async def test_what_is_no_nri_is_an_error(tmp_path: Path) -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(speak, tmp_path / "s"):
        with pytest.raises(Malformed, match=r"a frame of \d+ bytes"):
            await serve(tmp_path / "s", Session(Plugin(), validates=False, in_force=list))


def test_the_modules_of_messages_are_those_of_their_definitions(tmp_path: Path) -> None:
    files = sorted(str(file) for file in Path("node_agent/nri").glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}"]
    subprocess.run([*command, f"--pyi_out={tmp_path}", *files], check=True)
    made = sorted((tmp_path / "node_agent/nri").iterdir())
    assert len(made) == 2 * len(files)
    for file in made:
        assert file.read_text() == (Path("node_agent/nri") / file.name).read_text(), "make protocols"
