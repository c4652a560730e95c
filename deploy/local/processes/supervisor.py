"""The process that holds a cluster together: `python -m deploy.local.processes.supervisor DIRECTORY`.

All components are children of the supervisor, in the cluster's own namespaces (see namespaces.py). The
supervisor answers requests on a UNIX socket in the cluster's directory: one JSON object per line. The
client (supervision.py) decides what to start, in which order, and when a component is ready.

The supervisor and all its processes end on the request "shutdown", on SIGTERM, and when the init process
ends. They also end when the owner ends, the process that started the cluster. After the request
"release", the end of the owner has no effect. The supervisor must stay single-threaded (see fork_init),
so the supervisor watches exits through pidfds.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.local.processes.namespaces import Bind, enter_mount_namespace, fork_init

# Longest request in bytes. A request "start" contains a whole environment.
_LINE_LIMIT: Final = 1 << 20


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    exited: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """The components by name, and the operations on the components."""

    def __init__(self, directory: Path, init_pid: int, owner: int) -> None:
        self._directory = directory
        self._init_pid = init_pid
        self._owner = owner  # a pipe; the owner holds the other end
        self._children: dict[str, _Child] = {}
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Serves until the cluster has to end. Afterwards the caller kills the init process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._done.set)
        self._when_exited(self._init_pid, self._done.set)
        loop.add_reader(self._owner, self._done.set)  # readable means end of file
        server = await asyncio.start_unix_server(self._serve, "control.sock", limit=_LINE_LIMIT)
        print("ready", flush=True)
        await self._done.wait()
        server.close()  # does not wait for clients: the exit of this process closes their connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not self._done.is_set() and (line := await reader.readline()):
            try:
                reply = await self._answer(json.loads(line))
            except (OSError, LookupError) as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(reply).encode() + b"\n")
        writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("op"):
            case "start":
                return self._start(**request)
            case "signal":
                return self._signal(**request)
            case "wait":
                return await self._wait(**request)
            case "status":
                return self._status()
            case "release":
                asyncio.get_running_loop().remove_reader(self._owner)
                return {}
            case _:
                self._done.set()
                return {}

    def _start(self, name: str, argv: list[str], env: dict[str, str], cwd: str) -> dict[str, Any]:
        if (child := self._children.get(name)) and not child.exited.is_set():
            return {"error": f"{name} is already running"}
        with (self._directory / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[name] = child = _Child(process)
        self._when_exited(process.pid, lambda: self._reap(child))
        return {"pid": process.pid}

    def _signal(self, name: str, number: int) -> dict[str, Any]:
        self._child(name).process.send_signal(number)  # no effect after the process was reaped
        return {}

    async def _wait(self, name: str, timeout_s: float) -> dict[str, Any]:
        child = self._child(name)
        if not child.exited.is_set():
            await asyncio.wait({asyncio.ensure_future(child.exited.wait())}, timeout=timeout_s)
        return {"returncode": child.process.returncode}

    def _child(self, name: str) -> _Child:
        if name not in self._children:
            raise LookupError(f"{name} was never started")
        return self._children[name]

    def _status(self) -> dict[str, Any]:
        return {
            name: {"pid": child.process.pid, "returncode": child.process.returncode}
            for name, child in self._children.items()
        }

    @staticmethod
    def _reap(child: _Child) -> None:
        child.process.wait()
        child.exited.set()

    @staticmethod
    def _when_exited(pid: int, act: Callable[[], object]) -> None:
        loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(pid)

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            act()

        loop.add_reader(descriptor, ended)


def _end_namespace(init_pid: int) -> None:
    """Kills the init, and so every process in the namespace. Returns after all have ended."""
    os.kill(init_pid, signal.SIGKILL)
    try:
        while True:  # the init ends only after this process has reaped its other children
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def main() -> None:
    """Reads the plan, creates the namespaces, and serves."""
    directory = Path(sys.argv[1])
    plan = json.loads(sys.stdin.readline())
    os.chdir(directory)  # keeps the socket's path short
    enter_mount_namespace([Bind(**bind) for bind in plan["binds"]])
    namespace = Path("/proc/self/ns/mnt").readlink()  # before fork_init mounts another /proc
    init_pid = fork_init([Path(proc) for proc in plan["procs"]])
    Path("init").write_text(f"{init_pid} {namespace}\n")
    try:
        asyncio.run(Supervisor(directory, init_pid, plan["owner"]).run())
    finally:
        _end_namespace(init_pid)
        Path("control.sock").unlink(missing_ok=True)
        Path("init").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
