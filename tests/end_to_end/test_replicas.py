"""Tests of two replicas, each with a separate kube-scheduler, that restart one after the other under
load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Actors]:
    directory: Path = tmp_path_factory.mktemp("replicas")
    with Cluster.up(ClusterSpec(nodes=4, cpus_per_node=32, replicas=2), directory) as cluster:
        actors = Actors(cluster)
        yield actors
        actors.close()


class Stream(threading.Thread):
    """Creates a Pod every tenth of a second, until `over` is set."""

    def __init__(self, actors: Actors) -> None:
        super().__init__()
        self._actors = actors
        self.over = threading.Event()
        self.created: list[str] = []
        self.refused: list[str] = []

    def run(self) -> None:
        while not self.over.wait(0.1):
            name = f"stream-{len(self.created) + len(self.refused)}"
            try:
                self._actors.create(name)
                self.created.append(name)
            except httpx.HTTPStatusError as error:
                self.refused.append(error.response.text)


def leader(actors: Actors) -> str:
    path = "--output=jsonpath={.spec.holderIdentity}"
    return actors.cluster.kubectl("get", "lease", "slurm-extender", "-n", "kube-system", path).stdout


def test_a_rolling_restart_under_load_refuses_no_pod_and_loses_none(replicated: Actors) -> None:
    stream = Stream(replicated)
    stream.start()
    try:
        for number in ("", "-2"):
            for name in (f"extender{number}", f"kube-scheduler{number}"):
                replicated.cluster.stop(name)
                replicated.cluster.start(name)
        time.sleep(1)
    finally:
        stream.over.set()
        stream.join()
    assert stream.refused == []
    assert len(stream.created) > 20
    eventually(lambda: all(replicated.node_of(name) for name in stream.created), "all bound", 30)
    jobs = replicated.squeue()
    pods = replicated.pods()
    for name in stream.created:
        full = replicated.full(name)
        assert jobs[replicated.job_name(name)].node == pods[full]["spec"]["nodeName"]


def test_another_replica_leads_at_once_after_a_clean_stop_of_the_leader(replicated: Actors) -> None:
    """The kube-scheduler beside the leader stops after the leader, as if both ran in one Pod that
    ends."""
    before = leader(replicated)
    beside = before.replace("extender", "kube-scheduler")
    replicated.cluster.stop(before)
    try:
        after = eventually(lambda: leader(replicated), "another leads", 3)
        assert after not in ("", before)
        replicated.cluster.stop(beside)
        replicated.create("after")
        replicated.bound("after", within=20)
    finally:
        for name in (before, beside):
            if not replicated.cluster.is_running(name):
                replicated.cluster.start(name)
