"""Tests of the uninstall: by choice, waiting Pods lose their gate, and live jobs end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_fixture import deleted
from tests.end_to_end.actors import Actors
from tests.end_to_end.chart_accounts import kubeconfig_of
from tests.eventually import eventually
from wellknown.names import GATE

pytestmark = pytest.mark.real


def uninstall(actors: Actors, kubeconfig: Path, *options: str) -> subprocess.CompletedProcess[str]:
    account = {"SLURM_EXTENDER_KUBECONFIG": str(kubeconfig)}
    # The command waits for the duration of the Lease, because a live leader renews the Lease in this
    # time.
    brief = {"SLURM_EXTENDER_LEASE_DURATION_S": "3"}
    environment = {**os.environ, **actors.cluster.extender_environment, **account, **brief}
    command = [sys.executable, "-m", "extender", "uninstall", *options]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def gates(actors: Actors, name: str) -> list[dict[str, Any]]:
    seen = actors.see(name)
    assert seen is not None
    return list(seen["spec"].get("schedulingGates") or ())


def test_uninstall_keeps_running_pods_and_removes_jobs_and_gates(actors: Actors, tmp_path: Path) -> None:
    """The command has only the rights that the chart gives. The extender is stopped before the second
    run, and its validating webhook is gone during the last run."""
    account = kubeconfig_of("uninstall", actors.cluster, tmp_path)
    native = actors.cluster.run_slurm("sbatch", "-J", "native", "--mem=10", "--wrap", "sleep 600")
    assert "Submitted" in native.stdout
    actors.create("runs")
    actors.create("mapped", annotations={"user-id": "2001"})
    actors.create("waits", annotations={"required-nodes": "node-1", "exclusive": "none"}, cpu="8")
    for name in ("runs", "mapped"):
        actors.bound(name)
    eventually(lambda: actors.job_of("waits"), "a job for the Pod that waits")
    refused = uninstall(actors, account, "--gates=lift", "--jobs=end", "--timeout=4")
    assert refused.returncode == 2
    assert "a replica renews the Lease kube-system/slurm-extender" in refused.stderr
    assert gates(actors, "waits") == [{"name": GATE}]
    actors.cluster.stop("extender")
    try:
        kept = uninstall(actors, account)
        assert (kept.returncode, kept.stdout) == (0, "gates lifted: 0; jobs ended: 0\n")
        assert len(actors.squeue()) == 4
        with deleted(actors.cluster, "validatingwebhookconfiguration", "slurm-extender"):
            done = uninstall(actors, account, "--gates=lift", "--jobs=end")
        assert (done.returncode, done.stdout, done.stderr) == (0, "gates lifted: 1; jobs ended: 3\n", "")
        eventually(lambda: set(actors.squeue()) == {"native"}, "no job of ours is left")
        assert gates(actors, "waits") == []
        assert all(actors.see(name) for name in ("runs", "mapped"))
        actors.delete("waits")
    finally:
        actors.cluster.start("extender")
