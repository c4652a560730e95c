"""The client's side of a cluster's supervisor: starts it, and asks it for things."""

import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.namespaces import Bind

# The supervisor answers at once, "wait" aside, which brings its own time.
_ANSWER_TIMEOUT_S: Final = 30.0

_UCRED: Final = struct.Struct("3i")  # pid, uid, gid (unix(7) SO_PEERCRED)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """A component that was started at least once. `returncode` is None while it runs."""

    pid: int
    returncode: int | None


class Owner:
    """Ties a supervisor's life to ours: the kernel closes our end of a pipe, however we end."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def started(self) -> None:
        """The supervisor has its end: keep only ours."""
        os.close(self.theirs)

    def let_go(self) -> None:
        os.close(self._ours)


class Supervision:
    """One running supervisor, reached through its socket; safe to use from any process."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @classmethod
    def begin(
        cls,
        layout: Layout,
        binds: Sequence[Bind],
        procs: Sequence[Path],
        keep: Sequence[int],
        owner: Owner | None,
    ) -> tuple["Supervision", "subprocess.Popen[str]"]:
        """Starts a supervisor, which holds the descriptors `keep` for as long as it lives."""
        plan = {
            "directory": str(layout.directory),
            "binds": [asdict(bind) for bind in binds],
            "procs": [str(proc) for proc in procs],
            "owner": owner.theirs if owner else None,
        }
        with layout.log("supervisor").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "deploy.local.supervisor", json.dumps(plan)],
                cwd=CHECKOUT,
                pass_fds=[*keep, *([owner.theirs] if owner else [])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that a terminal's Ctrl-C reaches only its owner
            )
        assert process.stdout is not None
        with process.stdout as told:
            if told.readline() != "ready\n":
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
        """Starts a component and returns its process id, as seen from outside the cluster."""
        answer = self._ask("start", name=name, argv=list(argv), env=env, cwd=str(cwd))
        return int(answer["pid"])

    def signal(self, name: str, number: int) -> None:
        self._ask("signal", name=name, number=int(number))

    def wait(self, name: str, timeout_s: float) -> int | None:
        """The component's return code, or None if it still runs after `timeout_s`."""
        answer = self._ask("wait", name=name, timeout_s=timeout_s)
        code: int | None = answer["returncode"]
        return code

    def status(self) -> dict[str, ComponentStatus]:
        return {name: ComponentStatus(**known) for name, known in self._ask("status").items()}

    def shutdown(self) -> None:
        """Asks the supervisor to end everything; returns when it has, itself included."""
        with self._connect() as link:
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            supervisor = os.pidfd_open(_UCRED.unpack(credentials)[0])
            link.sendall(b'{"op": "shutdown"}\n')
            select.select([supervisor], [], [])
            os.close(supervisor)

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        with self._connect() as link, link.makefile("rwb") as lines:
            link.settimeout(_ANSWER_TIMEOUT_S + float(arguments.get("timeout_s", 0)))
            lines.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            lines.flush()
            answer: dict[str, Any] = json.loads(lines.readline() or b'{"error": "it has ended"}')
        if error := answer.get("error"):
            raise ClusterError(f"{op} {arguments.get('name', '')}: {error}")
        return answer

    def _connect(self) -> "closing[socket.socket]":
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(bytes(self._layout.control))
        except OSError:
            link.close()
            raise
        return closing(link)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return f"(no {log})"
