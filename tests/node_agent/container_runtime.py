"""Runs NRI's side of a container runtime (containerd/nri, pkg/adaptation), in two releases of NRI."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.local.programs.cache import build_once, cache_folder, recipe_hash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_SOURCES = Path(__file__).with_name("runtime")
_LONGEST = 1 << 20
RELEASES = ("0.8", "0.12")
"""Releases of NRI: the release in containerd 2.1, and the newest release."""


def built(release: str) -> Path:
    """Returns the path of the program, built once."""
    sources = [_SOURCES / "main.go", *sorted((_SOURCES / f"nri-{release}").iterdir())]
    place = cache_folder() / f"nri-{release}-{recipe_hash(*(file.read_bytes() for file in sources))}"

    def build(folder: Path) -> None:
        folder.mkdir()
        for source in sources:
            shutil.copy(source, folder)
        environment = os.environ | {"GOTOOLCHAIN": "local"}
        command = ["go", "build", "-tags", "nri_no_wasm", "-o", "runtime", "."]
        subprocess.run(command, cwd=folder, env=environment, check=True)

    return build_once(place, build, lambda _: None) / "runtime"


class ContainerRuntime:
    """Asks the connected plugins about Pods and containers, but creates no Pods or containers."""

    def __init__(self, process: asyncio.subprocess.Process, socket: Path) -> None:
        self._process = process
        self.socket = socket

    @classmethod
    @asynccontextmanager
    async def start(
        cls, release: str, socket: Path, *required: str, pods: int = 0
    ) -> AsyncIterator[ContainerRuntime]:
        """Starts a runtime with Pods. The runtime creates no container without the `required`
        plugins."""
        argv = [str(socket), str(pods), *required]
        process = await asyncio.create_subprocess_exec(
            built(release), *argv, stdin=PIPE, stdout=PIPE, limit=_LONGEST
        )
        assert process.stdout is not None
        await process.stdout.readline()  # the runtime listens
        try:
            yield cls(process, socket)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def kill(self) -> None:
        self._process.kill()

    async def runs(self, pod: Mapping[str, Any]) -> str:
        """Runs a Pod's sandbox. Returns the error; "" without an error."""
        return await self._error({"Do": "run", "Pod": pod})

    async def stops(self, pod: Mapping[str, Any]) -> str:
        return await self._error({"Do": "stop", "Pod": pod})

    async def has(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
        """Adds an existing container. The runtime reports the container to plugins that connect
        later."""
        await self._ask(_about("has", pod, container))

    async def synchronized(self) -> list[dict[str, Any]]:
        """Returns the changes of existing containers that a plugin requested when the plugin connected.
        Only the last plugin to connect counts."""
        return _listed(await self._ask(_about("synchronized", {"id": ""}, None)))

    async def ends(self, pod: Mapping[str, Any], container: Mapping[str, Any], *, gone: bool) -> str:
        """Stops or removes a container. Returns the error; "" without an error."""
        what = "remove container" if gone else "stop container"
        return await self._error(_about(what, pod, container))

    async def updates(self, pod: Mapping[str, Any], **resources: Any) -> tuple[dict[str, Any], str]:
        """Updates the resources of a container. Returns the resulting resources, and the error."""
        told = await self._ask(_about("update", pod, None) | {"Resources": resources})
        resulting = [update.get("linux", {}).get("resources", {}) for update in _listed(told)]
        return (resulting[0] if resulting else {}), told.get("error", "")

    async def creates(
        self, pod: Mapping[str, Any], container: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], str]:
        """Creates a container. Returns the plugins' adjustments of the container, and the error."""
        told = await self._ask(_about("create", pod, container))
        return _without_nothing(told.get("adjust") or {}), told.get("error", "")

    async def _error(self, asked: Mapping[str, Any]) -> str:
        return str((await self._ask(asked)).get("error", ""))

    async def _ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return dict(json.loads(await self._process.stdout.readline()))


def _about(do: str, pod: Mapping[str, Any], container: Mapping[str, Any] | None) -> dict[str, Any]:
    named = {"id": "c1", "podSandboxId": pod["id"], "name": "c"} | dict(container or {})
    return {"Do": do, "Pod": pod, "Container": named}


def _listed(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_without_nothing(update or {}) for update in told.get("updates") or []]


def _without_nothing(told: dict[str, Any]) -> dict[str, Any]:
    """Removes the empty messages from a reply of NRI. A reply contains every possible message, mostly
    empty."""
    kept = {k: _without_nothing(v) if isinstance(v, dict) else v for k, v in told.items()}
    return {key: value for key, value in kept.items() if value not in ({}, [])}
