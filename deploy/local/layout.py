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
"""Fields of the spec that are tuples. JSON stores tuples as lists, so `load` converts these fields."""


def python() -> str:
    """Returns the path of the interpreter, for commands that a user copies."""
    return os.path.relpath(sys.executable)


class Layout:
    """The paths of one cluster. The next `Cluster.up` in this directory replaces all files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "cluster.json"
        """The spec, ports and programs of this cluster, as `up` chose them. If a directory has this
        file, it is the directory of a cluster."""
        self.control = directory / "control.sock"
        """The supervisor's socket."""
        self.init = directory / "init"
        """A file with the process id of the cluster's init process, and with the name of the cluster's
        mount namespace."""
        self.logs = directory / "logs"
        self.bin = directory / "bin"
        self.root = directory / "root"
        """Mount point of Slurm's tree, inside the cluster's mount namespace only."""
        self.slurm = directory / "slurm"
        self.job_submit_lua = self.slurm / "etc" / "job_submit.lua"
        """The script for Slurm's job_submit plugin, if the spec has such a script."""
        self.home = directory / "home"
        """The home directories of jobs, mounted as /home."""
        self.slurmrestd_socket = directory / "rest" / "slurmrestd.sock"
        self.database_socket = directory / "db" / "mysqld.sock"
        self.token_file = directory / "slurm.token"
        self.hooks_token_file = self.slurm / "etc" / "slurm-extender-hook.token"
        """The token with which Slurm's hook script calls the extender. The file is beside the script,
        and SlurmUser can read the file."""
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
        """Raises ClusterError if the directory's path is too long for the sockets in the directory, or
        if the directory has unrelated files."""
        if len(bytes(self.slurmrestd_socket)) > _SOCKET_PATH_LIMIT:
            raise ClusterError(f"{self.directory}: the path is too long for a UNIX socket")
        if self.directory.exists() and not self.record.exists() and any(self.directory.iterdir()):
            raise ClusterError(f"{self.directory} holds other files: give an empty directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The spec, ports and programs of a cluster, as `up` chose them. With this record, another process
    can use the cluster (`Cluster.attach`)."""

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
