"""Runs the chart's Pods as processes of this machine. The chart determines the command, environment,
volumes and user of each container.

All Pods share one network namespace, but each Pod has its own address and host name. All Pods share one
PID namespace, so that the end of this namespace ends every process of a test. The images are replaced by
the unpacked files of Debian's Slurm. This module creates the volumes as the kubelet does: an emptyDir
belongs to root and is open to all users, and a Secret is open to the Pod's group.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from deploy.local.chart import Manifest, Rendered
from tests.eventually import eventually
from tests.slurm_chart.rendering import NAMESPACE

ADDRESSES = {
    name: f"10.99.0.{number}"
    for number, name in enumerate(("slurmctld-0", "slurmctld-1", "slurmdbd", "mariadb", "slurmrestd"), 1)
}
_INIT = " && ".join(
    [
        "ip link set lo up",
        # The addresses are outside 127.0.0.0/8, because glibc resolves no names on a host that has only
        # such addresses (AI_ADDRCONFIG).
        *(f"ip address add {address}/24 dev lo" for address in ADDRESSES.values()),
        "echo up",
        "exec sleep infinity",
    ]
)
_ENTER = """
hostname {host}
mount -t tmpfs tmpfs {scratch}
mkdir {scratch}/upper {scratch}/work {scratch}/root
writable=upperdir={scratch}/upper,workdir={scratch}/work
mount -t overlay overlay -o lowerdir={tree},$writable {scratch}/root
mount --rbind /dev {scratch}/root/dev
mount -t proc proc {scratch}/root/proc
cp {hosts} {scratch}/root/etc/hosts
{binds}
exec chroot --userspec={uid}:{uid} --groups={uid} {scratch}/root {command}
"""


class Machine:
    """The namespaces in which the Pods run. After `close`, no process of the Pods runs."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder, self.tree = folder, tree
        self.opened: list[subprocess.Popen[bytes]] = []
        lines = [f"127.0.0.1 localhost {os.uname().nodename}"]
        lines += [f"{address} {name} {name}.{NAMESPACE}.svc" for name, address in ADDRESSES.items()]
        self.hosts = folder / "hosts"
        self.hosts.write_text("\n".join([*lines, ""]))
        self._init = subprocess.Popen(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", _INIT],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == "up\n"
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text()
        self.pid = int(children.split()[0])

    def enter(self, *command: str) -> list[str]:
        """Returns the command line with which a command runs in the machine's namespaces."""
        return ["nsenter", f"--target={self.pid}", "--net", "--pid", "--", *command]

    def close(self) -> None:
        self._init.kill()
        self._init.wait()
        for each in self.opened:
            each.wait()
        assert self._init.stdout is not None
        self._init.stdout.close()


@contextmanager
def machine(folder: Path, tree: Path) -> Iterator[Machine]:
    made = Machine(folder, tree)
    try:
        yield made
    finally:
        made.close()


@dataclass
class Pod:
    """A Pod of a workload of the chart. Volumes that the test does not provide are empty."""

    machine: Machine
    host: str
    spec: Manifest
    volumes: dict[str, Path] = field(default_factory=dict)
    running: subprocess.Popen[bytes] | None = None
    tree: Path | None = None
    """Files of the Pod's image; None if the Pod has the image of `machine`."""
    trees: dict[str, Path] = field(default_factory=dict)
    """Files of the images of some containers, by the container's name. Other containers have `tree`."""

    @classmethod
    def of(
        cls, machine: Machine, chart: Rendered, workload: tuple[str, str], host: str, **volumes: Path
    ) -> Pod:
        found = chart.find(*workload)["spec"]
        spec = found.get("jobTemplate", {}).get("spec", found)["template"]["spec"]
        return cls(machine, host, spec, dict(volumes))

    @property
    def uid(self) -> int:
        return int(self.spec["securityContext"]["runAsUser"])

    @property
    def log(self) -> Path:
        return self.machine.folder / f"{self.host}.log"

    def start(self, container: str) -> None:
        """Starts a container, as the kubelet does. The output goes to the log."""
        with self.log.open("ab") as log:
            self.running = self._open(self._container(container), (), log)
            self.machine.opened.append(self.running)

    def init(self, container: str) -> None:
        """Runs an init container, and waits until the container ends."""
        with self.log.open("ab") as log:
            assert self._open(self._container(container), (), log).wait(60) == 0, self.log.read_text()

    def run(self, container: str, *command: str) -> str:
        """Runs a command in a container, like `kubectl exec`, and returns the output."""
        running = self._open(self._container(container), command, subprocess.PIPE)
        said, _ = running.communicate(timeout=120)
        if running.returncode != 0:
            raise AssertionError(f"{shlex.join(command)}: {said.decode()}")
        return said.decode()

    def kill(self, program: str, number: int = signal.SIGKILL) -> None:
        """Ends a container's program with a signal."""
        found = self.pids(program)
        for pid in found:
            os.kill(pid, number)
        eventually(lambda: not self.pids(program), f"{program} has ended", 60)
        self.running = None
        assert found, f"{program} does not run"

    def pids(self, program: str) -> list[int]:
        """Returns the process ids of a program in this Pod, as this machine numbers processes."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is(path, program)]

    def _is(self, path: Path, program: str) -> bool:
        try:
            wanted = f"{self.machine.folder / self.host}"
            return (path / "comm").read_text().strip() == program and wanted in (
                path / "mounts"
            ).read_text()
        except OSError:
            return False

    def _container(self, name: str) -> Manifest:
        containers = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        found: list[Manifest] = [each for each in containers if each["name"] == name]
        return found[0]

    def _open(
        self, container: Manifest, command: Sequence[str], output: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        scratch = self.machine.folder / self.host / f"{container['name']}-{time.monotonic_ns()}"
        scratch.mkdir(parents=True)
        argv = command or [*container["command"], *container.get("args", ())]
        binds = [
            f"mkdir -p {scratch}/root{each['mountPath']} && "
            f"mount --bind {self.volume(each['name'])} {scratch}/root{each['mountPath']}"
            for each in container["volumeMounts"]
        ]
        script = _ENTER.format(
            host=self.host,
            scratch=scratch,
            tree=self.trees.get(container["name"], self.tree or self.machine.tree),
            hosts=self.machine.hosts,
            binds="\n".join(binds),
            uid=self.uid,
            command=shlex.join(argv),
        )
        shell = ("sh", "-euc", script)
        own = ("unshare", "--mount", "--uts", "--propagation=private", *shell)
        environment = {
            "PATH": "/opt/slurm-extender/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/",
            **_environment(container),
        }
        return subprocess.Popen(
            self.machine.enter(*own), env=environment, stdout=output, stderr=subprocess.STDOUT
        )

    def volume(self, name: str) -> Path:
        """Returns the folder of a volume."""
        if name not in self.volumes:
            path = self.machine.folder / "volumes" / self.host / name
            path.mkdir(parents=True, exist_ok=True)
            os.chown(path, 0, self.uid)
            path.chmod(0o2777)
            self.volumes[name] = path
        return self.volumes[name]


def secret(folder: Path, uid: int, files: Mapping[str, bytes | Path]) -> Path:
    """Creates the folder of a Secret, as the kubelet does for a Pod with this fsGroup."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.read_bytes() if isinstance(content, Path) else content)
        (folder / name).chmod(0o440)
        os.chown(folder / name, 0, uid)
    return folder


def _environment(container: Manifest) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container.get("env", ())}
