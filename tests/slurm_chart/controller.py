"""Runs the chart's slurmctld on a cluster of this machine.

The cluster has the chart's slurm.conf, except settings that fit only the chart's Pod. slurmctld runs
with the command of the chart's container, and a stand-in for the kubelet restarts slurmctld. The sidecar
`slurm-cluster configure` keeps its valid configurations beside slurmctld's state.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.processes.ports import lease_ports
from deploy.local.spec import ClusterSpec
from slurm_cluster.configuration import folders
from tests.eventually import eventually
from tests.meanwhile import meanwhile
from tests.slurm_chart.rendering import files, rendered
from tests.slurm_programs import on_path, put_scontrol, put_slurmctld, tree_of

STATE: Final = "/var/lib/slurm/state"
"""StateSaveLocation in this cluster. In the chart's Pod, StateSaveLocation is OF_CHART."""
OF_CHART: Final = "/var/spool/slurmctld/state"
_OF_PLACE: Final = frozenset(
    {
        *(
            "accountingstoragehost",
            "accountingstorageport",
            "accountingstoragetype",
            "authaltparameters",
        ),
        *(
            "clustername",
            "jobacctgathertype",
            "maxnodecount",
            "partitionname",
            "proctracktype",
            "prolog",
        ),
        *("slurmctldhost", "slurmctldpidfile", "slurmctldport", "slurmdport", "slurmdspooldir"),
        *("statesavelocation", "taskplugin"),
    }
)
"""Settings of the chart's slurm.conf that fit only the chart's Pod: addresses, paths, and settings that
need a container with cgroups."""
_OTHERS: Final = ("gres.conf", "cgroup.conf")
_LOOK_S: Final = 0.1


def parameters(release: str) -> tuple[str, ...]:
    """Returns the chart's default slurm.conf without the keys in _OF_PLACE, for
    `ClusterSpec.slurm_conf`."""
    conf = files(rendered({"slurmRelease": release}))["slurm.conf"]
    settings = (line.partition("=") for line in conf.splitlines() if "=" in line)
    return tuple(f"{key}={value}" for key, _, value in settings if key.strip().lower() not in _OF_PLACE)


def command(cluster: Cluster) -> list[str]:
    """Returns the command of the chart's container slurmctld. The command runs in the cluster's tree of
    Slurm files."""
    chart = rendered({"slurmRelease": cluster.spec.release})
    containers = chart.find("StatefulSet", "slurmctld")["spec"]["template"]["spec"]["containers"]
    (container,) = (each for each in containers if each["name"] == "slurmctld")
    argv = [STATE if each == OF_CHART else each for each in container["command"]]
    return ["chroot", str(Layout(cluster.directory).root), *argv]


class Controller:
    """The Pod of slurmctld, with its container and its volume."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.volume = Layout(cluster.directory).slurm / "var"
        self.state = self.volume / "state"
        self.killed_at: list[float] = []
        """Times of the kills (time.time())."""
        self.unserved_s: list[float] = []
        """For each kill: seconds until slurmctld serves again."""
        self._command = command(cluster)
        self._away = threading.Event()

    @classmethod
    @contextmanager
    def up(cls, release: str, **of_cluster: Any) -> Iterator[Controller]:
        """Starts a cluster with slurmdbd and the chart's slurm.conf. `of_cluster` has further fields of
        ClusterSpec. Until the caller calls `restart`, slurmctld runs with the command of
        deploy/local."""
        spec = ClusterSpec(
            accounting=True, release=release, slurm_conf=parameters(release), **of_cluster
        )
        with (
            tempfile.TemporaryDirectory(prefix="controller-") as directory,
            Cluster.up(spec, Path(directory)) as cluster,
        ):
            yield cls(cluster)

    def start(self, *, wait: bool = True) -> None:
        """Starts the container. Raises ClusterError if slurmctld ends instead of serving."""
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.cluster.start("slurmctld", argv=self._command, env=path, wait=wait)

    def restart(self) -> None:
        """Ends slurmctld by SIGTERM, so that slurmctld saves all state. Then starts slurmctld with the
        command of the chart's container."""
        self.cluster.stop("slurmctld", within_s=60)
        self.start()

    def kill(self) -> None:
        """Kills slurmctld with SIGKILL. Returns after `kubelet` has started slurmctld again, and
        slurmctld serves."""
        began = time.monotonic()
        self.killed_at.append(time.time())
        self._signal(signal.SIGKILL)
        self.unserved_s.append(round(time.monotonic() - began, 2))

    def end_in_order(self) -> None:
        """Ends slurmctld with SIGTERM, as a deletion of the Pod does. Returns after `kubelet` has
        started slurmctld again, and slurmctld serves."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.cluster.pid("slurmctld")
        os.kill(pid, number)
        eventually(lambda: self._is_another(pid) and self.serves(), "slurmctld serves again", 60)

    def serves(self) -> bool:
        try:
            return " is UP" in self.cluster.run_slurm("scontrol", "ping").stdout
        except ClusterError:
            return False

    @contextmanager
    def kubelet(self) -> Iterator[None]:
        """Starts slurmctld again whenever slurmctld has ended. A real kubelet would wait after several
        ends (CrashLoopBackOff)."""
        with meanwhile(self._start_again, _LOOK_S):
            yield

    @contextmanager
    def away(self) -> Iterator[None]:
        """Removes the Pod of slurmctld until the block ends. In the block, no process reads the
        volume."""
        self._away.set()
        try:
            self.cluster.kill("slurmctld")
            yield
        finally:
            self._away.clear()

    def lose_state(self) -> None:
        """Empties the volume, as if the volume were a new one."""
        for path in (self.state, *self.volume.glob("configuration-*")):
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def said(self) -> str:
        """Returns slurmctld's log. The log has all starts of slurmctld."""
        return (self.cluster.logs / "slurmctld.log").read_text(errors="replace")

    def _is_another(self, pid: int) -> bool:
        known = self.cluster.status()["slurmctld"]
        return known.returncode is None and known.pid != pid

    def _start_again(self) -> None:
        if not self._away.is_set() and not self.cluster.is_running("slurmctld"):
            self.start(wait=False)


class Sidecar:
    """Runs `slurm-cluster configure` beside slurmctld."""

    def __init__(self, controller: Controller, folder: Path, port: int) -> None:
        self._controller, self._folder, self._port = controller, folder, port
        self._etc = controller.volume.parent / "etc"
        self._wanted = folder / "wanted"
        self._log = folder / "configure.log"
        conf = (self._etc / "slurm.conf").read_text()
        self.conf = conf.replace("localhost(127", f"{socket.gethostname()}(127")
        """slurm.conf with this host's name instead of localhost, because a trial (a temporary slurmctld
        that tries the configuration) accepts only this host's name."""

    @classmethod
    @contextmanager
    def beside(cls, controller: Controller, folder: Path) -> Iterator[Sidecar]:
        """Runs the sidecar until the block ends."""
        cluster = controller.cluster
        programs = folder / "programs"
        put_slurmctld(programs, tree_of(cluster.spec.release), Layout(cluster.directory).slurm / "etc")
        put_scontrol(programs, cluster)
        with closing(lease_ports(["configure"])) as lease, on_path(programs, cluster.directory / "bin"):
            made = cls(controller, folder, lease.ports["configure"])
            made.want(made.conf)
            process = made.start()
            try:
                yield made
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)

    def want(self, conf: str) -> None:
        """Writes slurm.conf into the folder that stands for the mounted ConfigMap."""
        others = {name: folders.File((self._etc / name).read_bytes()) for name in _OTHERS}
        folders.write(self._wanted, {**others, "slurm.conf": folders.File(conf.encode())})

    def told(self) -> list[dict[str, Any]]:
        """Returns the log lines of the sidecar."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def applied(self) -> list[str]:
        """Returns the messages about the configurations that the sidecar has applied to slurmctld."""
        told = [each for each in self.told() if each["event"] == "configuration"]
        return [each["words"] for each in told if each["verdict"] == "Applied"]

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the process of the sidecar. `beside` ends the process."""
        folder = self._controller.volume
        command = [
            *(sys.executable, "-m", "slurm_cluster", "configure"),
            *(f"--wanted={self._wanted}", f"--running={self._etc}"),
            f"--kept={folder / 'configuration-slurmctld-0'}",
            *(f"--state={self._controller.state}", f"--port={self._port}"),
        ]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=CHECKOUT, env={**os.environ}, stderr=log)
