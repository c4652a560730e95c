"""Tests of deploy/slurm/slurm-extender-gres, which runs on a node where slurmd is a systemd service."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from deploy.local.layout import CHECKOUT
from node_agent.machine.slurmd_gres import WrongGres, parse
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = (CHECKOUT / "deploy/slurm/slurm-extender-gres").read_text()
_SLURMD = 'trap \'exec sh -c "$0" "$0"\' USR1; while :; do sleep 0.05; done'
"""A shell script that executes itself again on SIGUSR1, as slurmd does on SIGHUP. A shell started by
nohup cannot trap SIGHUP."""


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@contextmanager
def slurmd(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that plays slurmd. The script sees this process as the main process of slurmd's
    unit."""
    with subprocess.Popen(["sh", "-c", _SLURMD, _SLURMD]) as process:
        (folder / "pid").write_text(str(process.pid))
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Path]:
    """Starts the script, and yields the path of the script's list. The file `order` beside the list has
    the output of `slurmd -G`."""
    program(tmp_path / "systemctl", f"cat {tmp_path}/pid 2>/dev/null || echo 0")
    program(tmp_path / "slurmd", f'echo "$*"; cat {tmp_path}/order')
    argv = ["sh", "-c", SCRIPT.replace("sleep 2", "sleep 0.1"), "gres", f"{tmp_path}/gres", "-N", "n1"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    running = subprocess.Popen(argv, env=path, start_new_session=True)
    yield tmp_path / "gres"
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def test_devices_are_listed_after_each_start_of_slurmd(listed: Path) -> None:
    order = listed.with_name("order")

    def lists(text: str) -> None:
        expected = f"-G -N n1\n{text}"

        def seen() -> str:
            return listed.read_text() if listed.exists() else "no list"

        eventually(seen, f"the list {text}", within_s=10, holds=lambda found: found == expected)

    order.write_text("one")
    with slurmd(listed.parent) as process:
        lists("one")
        order.write_text("two")
        process.send_signal(signal.SIGUSR1)
        lists("two")
    order.write_text("three")
    with slurmd(listed.parent):
        lists("three")


def test_a_list_that_fails_is_an_error_until_slurmd_lists_its_devices(listed: Path) -> None:
    with slurmd(listed.parent):
        eventually(listed.exists, within_s=10)
        with pytest.raises(WrongGres, match="fatal: slurmd -G ended with exit status 1"):
            parse(listed.read_text())
        listed.with_name("order").write_text("one")
        eventually(lambda: listed.read_text() == "-G -N n1\none", within_s=10)
