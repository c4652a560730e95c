"""Runs the Pods of the Job of examples/23-mpi in namespaces of this machine.

Each Pod has its own network, host name, processes and file system, and gets the files and commands of
the manifest. /etc/hosts in each Pod contains the names of all Pods.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.local.layout import CHECKOUT

EXAMPLE: Final = CHECKOUT / "examples/23-mpi/mpi.yaml"
USER: Final = 1000
_LONGEST_S: Final = 300
_POD: Final = Path(__file__).with_name("pod.sh")
_TIED: Final = ("setpriv", "--pdeathsig", "KILL")
_SWITCH: Final = (
    "ip link add pods type bridge && ip link set pods up && echo ready && exec sleep infinity"
)
_APART: Final = (
    *("unshare", "--mount", "--propagation", "private", "--net", "--uts", "--ipc"),
    *("--pid", "--fork", "--kill-child"),
)
_PASSWD: Final = (
    "root:x:0:0::/root:/bin/sh\nmpiuser:x:{0}:{0}::/tmp:/bin/sh\nsshd:x:101:65534::/run:/bin/false\n"
)


def manifests() -> dict[str, dict[str, Any]]:
    """Returns the example's objects, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(EXAMPLE.read_text())}


def container() -> dict[str, Any]:
    """Returns the only container in the example's Pod template."""
    (found,) = manifests()["Job"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


class Pods:
    """The Pods of a Job. All Pods end when this process ends."""

    def __init__(self, tree: Path, folder: Path, count: int, ranks_each: int) -> None:
        """Prepares the network of `count` Pods, and starts no Pod. `folder` must be empty."""
        self._tree = tree
        self._folder = folder
        self._count = count
        self._ranks_each = ranks_each
        self._running: dict[int, subprocess.Popen[str]] = {}
        make_key(folder / "key")
        self._switch = _started([*_TIED, "unshare", "--net", "sh", "-c", _SWITCH])

    def start(self, index: int, *command: str) -> subprocess.Popen[str]:
        """Starts a Pod with the given command, or with the example's command."""
        given = list(command) or [*container()["command"], *container()["args"]]
        place = self._place(index)
        arguments = [str(self._tree), str(place), f"mpi-{index}", str(USER)]
        environment = ["env", "-i", *self._environment(index)]
        pod = _started([*_TIED, *_APART, str(_POD), *arguments, *environment, *given])
        self._running[index] = pod
        self._connect(index, pod.pid)
        assert pod.stdin is not None
        pod.stdin.write("begin\n")
        pod.stdin.flush()
        return pod

    def execute(self, index: int, *command: str) -> str:
        """Runs a command in a Pod, as `kubectl exec` does, and returns the output.

        Raises CalledProcessError, TimeoutExpired.
        """
        (script,) = _children(self._running[index].pid)
        first, *_ = _children(script)
        enter = ["nsenter", "--target", str(first), "--mount", "--net", "--uts", "--ipc", "--pid"]
        enter += ["--root", "--wd", f"--setuid={USER}", f"--setgid={USER}"]
        whole = [*enter, "env", "-i", *self._environment(index), *command]
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        done = subprocess.run(
            whole, check=True, stdin=nothing, stdout=pipe, text=True, timeout=_LONGEST_S
        )
        return done.stdout

    def end(self) -> None:
        for process in [*self._running.values(), self._switch]:
            with process:  # closes the pipes
                process.kill()

    def _place(self, index: int) -> Path:
        """Creates the folder of a Pod, with the files that the Pod has in /etc. Returns the folder."""
        place = self._folder / f"mpi-{index}"
        for name in ("root", "writable", "etc/mpi", "etc/mpi-ssh"):
            (place / name).mkdir(parents=True)
        for name, content in manifests()["ConfigMap"]["data"].items():
            (place / "etc/mpi" / name).write_text(content)
        for source in (self._folder / "key").iterdir():
            target = place / "etc/mpi-ssh" / source.name
            target.write_bytes(source.read_bytes())
            target.chmod(0o444)  # the Pod's user must be able to read this file
        hosts = [f"10.0.0.{each + 1} mpi-{each}.mpi mpi-{each}" for each in range(self._count)]
        (place / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
        (place / "etc/passwd").write_text(_PASSWD.format(USER))
        return place

    def _environment(self, index: int) -> Iterator[str]:
        given = {each["name"]: each["value"] for each in container()["env"]}
        own = {"JOB_COMPLETION_INDEX": str(index), "PATH": "/usr/sbin:/usr/bin", "HOME": "/tmp"}
        size = {"PODS": str(self._count), "RANKS_EACH": str(self._ranks_each)}
        return (f"{name}={value}" for name, value in {**given, **own, **size}.items())

    def _connect(self, index: int, pid: int) -> None:
        """Connects a Pod to the network that all Pods share."""
        port, switch = (
            f"pod-{index}",
            ("nsenter", "--target", str(self._switch.pid), "--net", "ip", "link"),
        )
        _call(*switch, "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _call(*switch, "set", port, "master", "pods", "up")
        inside = ("nsenter", "--target", str(pid), "--net", "ip")
        _call(*inside, "address", "add", f"10.0.0.{index + 1}/24", "dev", "eth0")
        _call(*inside, "link", "set", "eth0", "up")


def make_key(folder: Path) -> None:
    """Creates the files from which the example's run.sh makes a Secret: an SSH key and known_hosts."""
    folder.mkdir(parents=True)
    key = folder / "key"
    _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "mpi", "-f", str(key))
    (folder / "known_hosts").write_text(f"* {key.with_suffix('.pub').read_text()}")


@contextmanager
def pods(tree: Path, folder: Path, count: int, ranks_each: int) -> Iterator[Pods]:
    """Yields the Pods of a Job, and ends them after the block. All Pods except the first Pod are already
    running."""
    job = Pods(tree, folder, count, ranks_each)
    try:
        for index in range(1, count):
            job.start(index)
        yield job
    finally:
        job.end()


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a process, and waits until the process prints `ready`."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", f"{command} has ended"
    return process


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
