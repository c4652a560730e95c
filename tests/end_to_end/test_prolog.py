"""Test of a Prolog that fails on a node: the Pod does not end, and gets another job on another node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real
SPEC = ClusterSpec(
    nodes=2, release="24.11", slurm_conf=("Prolog=/etc/slurm/prolog", "PrologFlags=Alloc")
)
"""Slurm 24.11, because only there placeholders are batch jobs, which slurmd starts after the Prolog."""
FAILS_ON_THE_FIRST_NODE = '#!/bin/sh\n[ "$SLURMD_NODENAME" != node-1 ]\n'


@pytest.fixture
def actors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    with Cluster.up(SPEC, tmp_path_factory.mktemp("prolog")) as cluster:
        prolog = Layout(cluster.directory).slurm / "etc/prolog"
        prolog.write_text(FAILS_ON_THE_FIRST_NODE)
        prolog.chmod(0o755)
        everybody = Actors(cluster)
        yield everybody
        everybody.close()


def test_pod_gets_another_job_after_a_failed_prolog(actors: Actors) -> None:
    cluster = actors.cluster
    cluster.stop("kube-scheduler")  # kube-scheduler could bind the Pod before the Prolog fails
    uid = actors.create("p")["metadata"]["uid"]
    sinfo = ("sinfo", "-hN", "-n", "node-1", "-o", "%T")
    eventually(lambda: cluster.run_slurm(*sinfo).stdout.startswith("drain"), "its Prolog has failed")
    eventually(lambda: (job := actors.job_of("p")) and job.node == "node-2", "another job")
    cluster.start("kube-scheduler")
    eventually(lambda: actors.node_of("p") == "node-2", "bound where its Prolog succeeds")
    seen = actors.see("p")
    assert seen is not None
    assert seen["metadata"]["uid"] == uid
