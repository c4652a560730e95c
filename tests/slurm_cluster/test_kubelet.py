"""Tests of the stand-in for the kubelet: after as many failed probes as in the chart, the stand-in ends
slurmctld."""

import signal
import socket
from pathlib import Path
from typing import cast

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.slurm_cluster.kubelet import GRACE_S, MAX_FAILURES, PERIOD_S, Kubelet


class HungSlurmctld:
    """A slurmctld that ignores SIGTERM, and the cluster of this slurmctld."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.calls: list[str] = []
        self._runs = True
        (directory / "slurm/etc").mkdir(parents=True)
        (directory / "slurm/etc/slurm.conf").write_text(f"SlurmctldPort={port}\n")

    def is_running(self, _: str) -> bool:
        return self._runs

    def start(self, name: str, *, wait: bool) -> None:
        assert not wait
        self.calls.append(f"start {name}")
        self._runs = True

    def stop(self, name: str, *, within_s: float) -> None:
        self.calls.append(f"stop {name} within {within_s} s")
        raise ClusterError(f"{name} still runs after {signal.SIGTERM.name}")

    def kill(self, name: str) -> None:
        self.calls.append(f"kill {name}")
        self._runs = False


def test_kubelet_ends_a_slurmctld_that_stops_answering(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        slurmctld = HungSlurmctld(tmp_path, server.getsockname()[1])
        kubelet = Kubelet(cast("Cluster", slurmctld), 0)
        kubelet.look(0)
    for probe in range(1, MAX_FAILURES):
        kubelet.look(probe * PERIOD_S)
    assert slurmctld.calls == []
    kubelet.look(MAX_FAILURES * PERIOD_S)
    ended = [f"stop slurmctld within {GRACE_S} s", "kill slurmctld"]
    assert slurmctld.calls == ended
    for probe in range(1, 3 * MAX_FAILURES):  # a slurmctld that does not serve yet may fail more probes
        kubelet.look((MAX_FAILURES + probe) * PERIOD_S)
    assert slurmctld.calls == [*ended, "start slurmctld"]
