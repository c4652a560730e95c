"""The client's side of a cluster's supervisor: starts the supervisor, and sends requests."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.processes.namespaces import Bind

# The supervisor answers each request at once, except "wait". The request "wait" has a separate time
# limit.
_ANSWER_TIMEOUT_S: Final = 30.0

_SHUTDOWN_TIMEOUT_S: Final = 20.0

_UCRED: Final = struct.Struct("3i")  # pid, uid, gid (unix(7) SO_PEERCRED)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """A component that was started at least once. `returncode` is None while the component runs."""

    pid: int
    returncode: int | None


class Owner:
    """Ends a supervisor together with this process. When this process ends, the kernel closes this
    process's end of a pipe. The supervisor holds the other end."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def handed_over(self) -> None:
        """Closes the supervisor's end of the pipe here, after the supervisor has started or failed."""
        os.close(self.theirs)

    def let_go(self) -> None:
        os.close(self._ours)


class Supervision:
    """A running supervisor, reached through a socket. Any process may use this class."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @classmethod
    def begin(
        cls,
        layout: Layout,
        binds: Sequence[Bind],
        procs: Sequence[Path],
        keep: Sequence[int],
        owner: Owner,
    ) -> tuple["Supervision", "subprocess.Popen[str]"]:
        """Starts a supervisor. The supervisor inherits the file descriptors `keep`, and ends when
        `owner` ends."""
        plan = {
            "binds": [asdict(bind) for bind in binds],
            "procs": [str(proc) for proc in procs],
            "owner": owner.theirs,
        }
        with layout.log("supervisor").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "deploy.local.processes.supervisor", str(layout.directory)],
                cwd=CHECKOUT,
                pass_fds=[*keep, owner.theirs],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a terminal's Ctrl-C must reach only the owner
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin, process.stdout as stdout:
            stdin.write(json.dumps(plan) + "\n")
            stdin.flush()
            if stdout.readline() != "ready\n":
                process.wait()
                log_tail = tail(layout.log("supervisor"))
                raise ClusterError(f"the supervisor did not start:\n{log_tail}")
        return cls(layout), process

    def is_alive(self) -> bool:
        try:
            self.status()
        except (OSError, ClusterError):
            return False
        return True

    def start(self, name: str, argv: Sequence[str], env: dict[str, str], cwd: Path) -> int:
        """Starts a component, and returns its process id in the machine's PID namespace."""
        answer = self._ask("start", name=name, argv=list(argv), env=env, cwd=str(cwd))
        return int(answer["pid"])

    def signal(self, name: str, number: int) -> None:
        self._ask("signal", name=name, number=int(number))

    def wait(self, name: str, timeout_s: float) -> int | None:
        """Returns the component's return code, or None if the component still runs after
        `timeout_s`."""
        answer = self._ask("wait", name=name, timeout_s=timeout_s)
        code: int | None = answer["returncode"]
        return code

    def status(self) -> dict[str, ComponentStatus]:
        return {name: ComponentStatus(**known) for name, known in self._ask("status").items()}

    def release(self) -> None:
        """Lets the supervisor outlive its owner."""
        self._ask("release")

    def shutdown(self) -> None:
        """Ends the supervisor and all its processes, and waits until all have ended."""
        with self._connect() as link:
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            link.sendall(b'{"op": "shutdown"}\n')
            with suppress(ProcessLookupError):  # the supervisor has ended in the meantime
                _await_end(_UCRED.unpack(credentials)[0])

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        with self._connect() as link, link.makefile("rwb") as lines:
            link.settimeout(_ANSWER_TIMEOUT_S + float(arguments.get("timeout_s", 0)))
            lines.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            lines.flush()
            answer: dict[str, Any] = json.loads(lines.readline() or b'{"error": "the supervisor ended"}')
        if error := answer.get("error"):
            raise ClusterError(f"{op} {arguments.get('name', '')}: {error}")
        return answer

    def _connect(self) -> "closing[socket.socket]":
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(bytes(self._layout.control))
        except OSError:
            link.close()
            message = f"the cluster in {self._layout.directory} is not running"
            raise ClusterError(message) from None
        return closing(link)


def _await_end(pid: int) -> None:
    """Waits until a supervisor ends. Kills a supervisor that does not end in time. The kernel then ends
    the cluster's processes."""
    process = os.pidfd_open(pid)
    try:
        if not select.select([process], [], [], _SHUTDOWN_TIMEOUT_S)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [])
    finally:
        os.close(process)


def tail(log: Path, lines: int = 15) -> str:
    """Returns the end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return f"(no {log})"
