"""The files of one cluster, all in one directory."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.local.errors import ClusterError
from deploy.local.spec import ClusterSpec

CHECKOUT: Final = Path(__file__).resolve().parents[2]

_SOCKET_PATH_LIMIT: Final = 107  # bytes in sockaddr_un.sun_path, without the final NUL

_TUPLES: Final = (
    *("extender_argv", "extender_verbs", "guest_images", "hooks"),
    *("kubernetes_nodes", "slurm_conf"),
)
"""Tuples of the spec. JSON stores tuples as lists."""


def python() -> str:
    """Returns the path of the interpreter, for commands that a user copies."""
    return os.path.relpath(sys.executable)


class Layout:
    """The paths of one cluster. The next `up` replaces all files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "cluster.json"
        """The choices of `up`. This file marks the directory as a cluster's."""
        self.control = directory / "control.sock"
        """The supervisor's socket."""
        self.init = directory / "init"
        """The process id of the namespace's init, and the name of its mount namespace."""
        self.logs = directory / "logs"
        self.bin = directory / "bin"
        self.root = directory / "root"
        """Mount point of Slurm's tree, inside the cluster's mount namespace only."""
        self.slurm = directory / "slurm"
        self.job_submit_lua = self.slurm / "etc" / "job_submit.lua"
        """The job_submit plugin, if the spec has one."""
        self.home = directory / "home"
        """The home directories of jobs, mounted as /home."""
        self.slurmrestd_socket = directory / "rest" / "slurmrestd.sock"
        self.database_socket = directory / "db" / "mysqld.sock"
        self.token_file = directory / "slurm.token"
        self.hooks_token_file = self.slurm / "etc" / "slurm-extender-hook.token"
        """The token of Slurm's pushes to the extender; beside the script, readable by SlurmUser."""
        self.policy_file = directory / "policy.yaml"
        self.pools_file = directory / "pools.yaml"
        self.kubernetes = directory / "kubernetes"
        self.chart = self.kubernetes / "chart.json"
        """The chart's objects, rendered by Helm."""
        self.kubeconfig = directory / "kubeconfig"
        self.guest = directory / "guest"
        """A folder of files for each program of the guest."""

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def check(self) -> None:
        """Raises ClusterError if the directory cannot hold the sockets, or has unrelated files."""
        if len(bytes(self.slurmrestd_socket)) > _SOCKET_PATH_LIMIT:
            raise ClusterError(f"{self.directory}: the path is too long for a UNIX socket")
        if self.directory.exists() and not self.record.exists() and any(self.directory.iterdir()):
            raise ClusterError(f"{self.directory} holds other files: give an empty directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The choices of `up`, so that another process can attach to the cluster."""

    spec: ClusterSpec
    ports: dict[str, int]
    tree: str
    binaries: dict[str, str]
    guest: dict[str, str] = field(default_factory=dict)
    """The paths of the guest's kernel and disk, if there is a guest."""

    def save(self, layout: Layout) -> None:
        layout.record.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, layout: Layout) -> "Record":
        try:
            saved: dict[str, Any] = json.loads(layout.record.read_text())
        except FileNotFoundError:
            raise ClusterError(f"{layout.directory}: no cluster here") from None
        spec = saved["spec"]
        for name in _TUPLES:
            spec[name] = tuple(spec[name])
        return cls(**{**saved, "spec": ClusterSpec(**spec)})
