"""Where everything of one cluster lies: one directory, one place that knows its names."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local.errors import ClusterError
from deploy.local.spec import ClusterSpec

CHECKOUT: Final = Path(__file__).resolve().parents[2]

_SOCKET_PATH_LIMIT: Final = 107  # bytes in sockaddr_un.sun_path, less its final NUL


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster; all of it is replaced at the next `up`."""

    directory: Path

    @property
    def record(self) -> Path:
        """What was chosen at `up`; marks the directory as ours."""
        return self.directory / "cluster.json"

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.directory / "control.sock"

    @property
    def init(self) -> Path:
        """The process id of the namespace's init, and the name of its mount namespace."""
        return self.directory / "init"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def root(self) -> Path:
        """Where Slurm's tree is mounted, inside the cluster's mount namespace only."""
        return self.directory / "root"

    @property
    def slurm(self) -> Path:
        return self.directory / "slurm"

    @property
    def job_submit_lua(self) -> Path:
        """What slurmctld asks about every submission, where the spec has it asked."""
        return self.slurm / "etc" / "job_submit.lua"

    @property
    def home(self) -> Path:
        """The home directories that jobs run in; seen as /home inside."""
        return self.directory / "home"

    @property
    def slurmrestd_socket(self) -> Path:
        return self.directory / "rest" / "slurmrestd.sock"

    @property
    def database_socket(self) -> Path:
        return self.directory / "db" / "mysqld.sock"

    @property
    def token_file(self) -> Path:
        return self.directory / "slurm.token"

    @property
    def hooks_token_file(self) -> Path:
        """What Slurm's pushes to the extender carry; beside the script, for SlurmUser to read."""
        return self.slurm / "etc" / "slurm-extender-hook.token"

    @property
    def policy_file(self) -> Path:
        """Who may ask the extender for what."""
        return self.directory / "policy.yaml"

    @property
    def kubernetes(self) -> Path:
        return self.directory / "kubernetes"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

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

    def save(self, layout: Layout) -> None:
        layout.record.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, layout: Layout) -> "Record":
        try:
            saved: dict[str, Any] = json.loads(layout.record.read_text())
        except FileNotFoundError:
            raise ClusterError(f"{layout.directory}: no cluster here") from None
        spec = saved["spec"]
        for name in ("hooks", "slurm_conf", "extender_argv", "extender_verbs", "kubernetes_nodes"):
            spec[name] = tuple(spec[name])
        return cls(**{**saved, "spec": ClusterSpec(**spec)})
