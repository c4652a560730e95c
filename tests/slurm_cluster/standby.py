"""Runs a second slurmctld of a local cluster as if on a separate host. The second slurmctld has its own
host name, address, /etc/slurm and /run, and shares the state of the first slurmctld."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from tests.meanwhile import meanwhile
from tests.slurm_programs import on_path, put_slurmctld

HOST = "standby"
ADDRESS = "127.0.0.2"
_HOLDS = """\
hostname {host}
mount --bind {etc} {root}/etc/slurm
mount --bind {run} {root}/run
echo up
exec sleep infinity
"""
_CLIENT = """\
#!/bin/sh
# A program of Slurm's on the second one's host.
conf=/etc/slurm/slurm.conf
[ -z "$SLURM_CONF" ] || {{ conf=/tmp/standby.conf && cp "$SLURM_CONF" {tmp}/standby.conf; }}
exec nsenter --target {pid} --mount --uts --pid -- chroot {root} \\
    /usr/bin/env -i PATH=/usr/bin SLURM_CONF="$conf" "${{0##*/}}" "$@"
"""


class Standby:
    """The second slurmctld and the programs on the second host. Like a kubelet, `runs` starts slurmctld
    again whenever slurmctld has ended."""

    def __init__(self, cluster: Cluster, tree: Path, folder: Path) -> None:
        self.etc, self._root = folder / "etc", cluster.directory / "root"
        run = folder / "run"
        shutil.copytree(cluster.directory / "slurm/run", run, ignore=lambda *_: ["sack.socket"])
        for made in (run, *run.iterdir()):
            made.chmod(0o777)
        self.etc.mkdir()
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        pid = (cluster.directory / "init").read_text().split()[0]
        holds = _HOLDS.format(host=HOST, etc=self.etc, run=run, root=self._root)
        self._holder = subprocess.Popen(
            [
                *("nsenter", f"--target={pid}", "--mount", "--"),
                *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child"),
                *("--propagation=private", "sh", "-euc", holds),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        self.pid = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().strip()
        self.programs = folder / "programs"
        put_slurmctld(self.programs, tree, self.etc, HOST)
        client = _CLIENT.format(tmp=cluster.directory / "slurm/tmp", pid=self.pid, root=self._root)
        for name in ("scontrol", "squeue"):
            (self.programs / name).write_text(client)
            (self.programs / name).chmod(0o755)

    @contextmanager
    def host(self) -> Iterator[None]:
        """Lets the code in the block run as on the second host."""
        with pytest.MonkeyPatch.context() as patch, on_path(self.programs):
            patch.setattr(socket, "gethostname", lambda: HOST)
            yield

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Keeps the second slurmctld running until the block ends."""

        def run() -> None:
            if self._process is None or self._process.poll() is not None:
                self._start()

        try:
            with meanwhile(run, 0.1):
                yield
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def ask(self, program: str, *arguments: str) -> str:
        """Returns the output of a program; "" if the program fails."""
        command = [str(self.programs / program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()

    def _start(self) -> None:
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--pid", "--"]
        program = ["chroot", os.fspath(self._root), "/usr/sbin/slurmctld", "-D", "-i"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*enter, *program], stdout=log, stderr=log)
