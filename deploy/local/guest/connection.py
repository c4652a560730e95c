"""Runs programs in a guest, and puts files there, through the guest's runner (inside/runner.py)."""

import io
import json
import socket
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from deploy.local.errors import ClusterError

_CONNECT_S: Final = 5.0
_END: Final = ("the output ended without a status: the guest or its runner is gone",)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit status and the output of a program. If a signal ended the program, the status is
    negative."""

    status: int
    output: str


class Program:
    """A program in the guest. If this object is closed before the program ends, the program is
    killed."""

    def __init__(self, port: int, argv: Sequence[str], given: bytes, within_s: float | None) -> None:
        """Starts the program. `within_s` is the longest time without output. Raises OSError."""
        self._link = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S)
        self._link.settimeout(within_s)
        self._lines = self._link.makefile("rb")
        self._link.sendall(json.dumps({"argv": argv, "input": len(given)}).encode() + b"\n" + given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def messages(self) -> Iterator[Mapping[str, Any]]:
        """Yields the program's messages: {"output": text}, and at last {"status": number}. Raises
        OSError."""
        for line in self._lines:
            message = json.loads(line)
            yield message
            if "status" in message:
                return
        raise ConnectionError(*_END)

    def signal(self, number: int) -> None:
        """Sends a signal to the program. Raises OSError if the guest is gone."""
        self._link.sendall(json.dumps({"signal": number}).encode() + b"\n")

    def close(self) -> None:
        self._lines.close()
        self._link.close()


class Connection:
    """The connection to a booted guest, through the port of the guest's runner."""

    def __init__(self, port: int) -> None:
        self._port = port

    def is_up(self) -> bool:
        """Returns whether the guest can run programs. (QEMU accepts connections much earlier.)"""
        try:
            return self._run(["true"], b"", 2.0).status == 0
        except (OSError, ValueError):
            return False

    def run(self, command: str, *, within_s: float = 60.0, check: bool = True) -> CommandResult:
        """Runs a command. Raises ClusterError if the command does not run or takes too long. With
        `check`, a failed command also raises ClusterError."""
        try:
            result = self._run(["bash", "-c", command], b"", within_s)
        except (OSError, ValueError) as error:
            raise ClusterError(f"in the guest: {command}: {error!r}") from error
        if check and result.status != 0:
            raise ClusterError(f"in the guest: {command} ({result.status}): {result.output.strip()}")
        return result

    def start(self, argv: Sequence[str]) -> Program:
        """Starts a program, whose messages the caller reads. Raises OSError."""
        return Program(self._port, argv, b"", None)

    def put(self, source: Path, target: str, *, within_s: float = 60.0) -> None:
        """Copies a file or the content of a folder to `target` in the guest, and creates the
        folders above. Owners and modes stay the same. Raises ClusterError."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as files:
            files.add(source, arcname=target.strip("/") or ".", filter=_without_bytecode)
        unpack = ["tar", "-x", "--numeric-owner", "-C", "/", "-f", "-"]
        try:
            result = self._run(unpack, archive.getvalue(), within_s)
        except (OSError, ValueError) as error:
            raise ClusterError(f"{source} was not copied into the guest: {error!r}") from error
        if result.status != 0:
            raise ClusterError(f"{source} was not copied into the guest: {result.output.strip()}")

    def _run(self, argv: Sequence[str], given: bytes, within_s: float) -> CommandResult:
        output: list[str] = []
        deadline = time.monotonic() + within_s
        with closing(Program(self._port, argv, given, within_s)) as program:
            for message in program.messages():
                if "status" in message:
                    return CommandResult(int(message["status"]), "".join(output))
                output.append(message["output"])
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the program still runs after {within_s} s")
        raise ConnectionError(*_END)


def _without_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry
