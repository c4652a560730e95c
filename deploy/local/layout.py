"""Where everything of one cluster lies: one directory, one place that knows its names."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.local.errors import ClusterError
from deploy.local.spec import ClusterSpec

PYTHON: Final = os.path.relpath(sys.executable)
"""The interpreter, for commands that a person copies."""
CHECKOUT: Final = Path(__file__).resolve().parents[2]

_SOCKET_PATH_LIMIT: Final = 107  # bytes in sockaddr_un.sun_path, less its final NUL

_TUPLES: Final = (
    *("extender_argv", "extender_verbs", "guest_images", "hooks"),
    *("kubernetes_nodes", "slurm_conf"),
)
"""The spec's fields that JSON makes lists of, and that are used as tuples."""


class Layout:
    """The paths of one cluster; all of it is replaced at the next `up`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "cluster.json"
        """What was chosen at `up`; marks the directory as ours."""
        self.control = directory / "control.sock"
        """The supervisor's socket."""
        self.init = directory / "init"
        """The process id of the namespace's init, and the name of its mount namespace."""
        self.logs = directory / "logs"
        self.bin = directory / "bin"
        self.root = directory / "root"
        """Where Slurm's tree is mounted, inside the cluster's mount namespace only."""
        self.slurm = directory / "slurm"
        self.job_submit_lua = self.slurm / "etc" / "job_submit.lua"
        """What slurmctld asks about every submission, where the spec has it asked."""
        self.home = directory / "home"
        """The home directories that jobs run in; seen as /home inside."""
        self.slurmrestd_socket = directory / "rest" / "slurmrestd.sock"
        self.database_socket = directory / "db" / "mysqld.sock"
        self.token_file = directory / "slurm.token"
        self.hooks_token_file = self.slurm / "etc" / "slurm-extender-hook.token"
        """What Slurm's pushes to the extender carry; beside the script, for SlurmUser to read."""
        self.policy_file = directory / "policy.yaml"
        self.pools_file = directory / "pools.yaml"
        """Who may ask the extender for what."""
        self.kubernetes = directory / "kubernetes"
        self.chart = self.kubernetes / "chart.json"
        """The objects that Helm has made of the chart."""
        self.kubeconfig = directory / "kubeconfig"
        self.guest = directory / "guest"
        """What the guest's programs read, a folder each, by the paths that it has there."""

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def check(self) -> None:
        """Refuses a directory that cannot hold the sockets, or that holds something else."""
        if len(bytes(self.slurmrestd_socket)) > _SOCKET_PATH_LIMIT:
            raise ClusterError(f"{self.directory}: too long a path to hold a UNIX socket")
        if self.directory.exists() and not self.record.exists() and any(self.directory.iterdir()):
            raise ClusterError(f"{self.directory} holds something else: give an empty directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What `up` decided, kept so that another process can attach to the cluster."""

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
