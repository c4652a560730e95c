"""Tests of the program `slurm-cluster topology watch` with a real kube-apiserver. A real slurmctld reads
the topology of the ConfigMap."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from deploy.local.cluster import Cluster
from deploy.local.components import answers
from deploy.local.errors import ClusterError
from deploy.local.processes.ports import lease_ports
from slurm_cluster.topology import files
from slurm_cluster.topology.model import Topology
from tests.eventually import eventually
from tests.slurm_cluster.topology.slurms import RealSlurm

pytestmark = pytest.mark.real

PROGRAM = "from slurm_cluster.topology.commands import app; app()"
LABEL, MAP = "example.io/rack", "slurm-topology"
OPTIONS = ("--kind", "tree", "--tier", LABEL, "--config-map", f"default/{MAP}", "--settle", "0.3")


@pytest.fixture
def labelled(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with labels: node-1 and node-3 are in one rack, node-2 is in another rack, and node-4
    has no label."""
    for node, rack in (("node-1", "a"), ("node-3", "a"), ("node-2", "b")):
        shared_cluster.kubectl("label", "node", node, f"{LABEL}={rack}")
    yield shared_cluster
    shared_cluster.kubectl("label", "node", "--all", f"{LABEL}-")
    with suppress(ClusterError):
        shared_cluster.kubectl("delete", "configmap", MAP)
    RealSlurm(shared_cluster).file.unlink(missing_ok=True)
    RealSlurm(shared_cluster).restart()


def topology(cluster: Cluster) -> Topology | None:
    with suppress(ClusterError):
        shown = json.loads(cluster.kubectl("get", "configmap", MAP, "-o", "json").stdout)
        return files.read(shown["data"][files.YAML])
    return None


def nodes_of(cluster: Cluster, rack: str) -> tuple[str, ...] | None:
    found = topology(cluster)
    unit = found.by_name.get(rack) if found else None
    return unit.nodes if unit else None


def test_the_config_map_follows_labels_and_slurm_takes_it(labelled: Cluster) -> None:
    environment = {**os.environ, "KUBECONFIG": str(labelled.kubeconfig)}
    lease = lease_ports(["probes"])
    port = lease.ports["probes"]
    probes = ("--probes-port", str(port), "--listen-address", "127.0.0.1")
    command = [sys.executable, "-c", PROGRAM, "watch", *OPTIONS, *probes]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        try:
            eventually(lambda: nodes_of(labelled, "a") == ("node-1", "node-3"), within_s=60)
            eventually(lambda: answers(f"http://127.0.0.1:{port}/readyz"), within_s=60)
            slurm = RealSlurm(labelled)
            found = topology(labelled)
            assert found is not None
            slurm.takes(files.to_yaml(found))
            assert slurm.shown().by_name == found.by_name
            assert slurm.nodes_for("--nodes=2") in (("node-1", "node-3"), ("node-2", "node-4"))
            assert slurm.nodes_for("--nodes=2", "--switches=1") == ("node-1", "node-3")
            labelled.kubectl("label", "node", "node-4", f"{LABEL}=b")
            eventually(lambda: nodes_of(labelled, "b") == ("node-2", "node-4"), within_s=60)
            labelled.kubectl("label", "node", "--all", f"{LABEL}-")
            eventually(lambda: nodes_of(labelled, "a") == (), within_s=60)
        finally:
            program.send_signal(signal.SIGTERM)
        _, told = program.communicate(timeout=20)
        assert program.returncode == 0
        assert f"label {LABEL} is missing: 1 nodes: node-4" in told
    lease.close()
