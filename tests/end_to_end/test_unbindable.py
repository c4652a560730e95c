"""Tests of a Pod that kube-scheduler would bind to no Node: Slurm preempts no job for the Pod, and holds
no resources.

The cluster has one node and two partitions. Jobs of the higher partition preempt jobs of the lower
partition.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.end_to_end.test_disagreements import local_volume
from tests.eventually import eventually

pytestmark = pytest.mark.real

NODE = "node-1"
LOW, HIGH = {"partition": "low"}, {"partition": "high"}
GPUS = 4
"""GPUs of the node."""


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=1,
        release=slurm_release,
        kill_wait=30,
        slurm_conf=(
            "PreemptType=preempt/partition_prio",
            "PreemptMode=CANCEL",
            f"PartitionName=low Nodes={NODE} PriorityTier=1 PreemptMode=CANCEL State=UP",
            f"PartitionName=high Nodes={NODE} PriorityTier=9 PreemptMode=OFF State=UP",
        ),
    )
    with (
        tempfile.TemporaryDirectory(prefix="unbindable-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def wants_volume(actors: Actors, name: str) -> str:
    """Creates a Pod of the higher partition with a claim that does not exist. Returns the name of the
    claim."""
    claimed = actors.full(name)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    actors.create(name, gpus=GPUS, annotations=HIGH, volumes=[volume])
    return claimed


def says(actors: Actors, name: str, reason: str) -> str:
    """Waits until the Pod's condition has the reason, and returns the message."""
    eventually(lambda: actors.condition(name).get("reason") == reason, f"{name}: {reason}")
    return actors.condition(name)["message"]


def test_pod_with_a_missing_claim_preempts_no_pod_until_the_claim_appears(actors: Actors) -> None:
    actors.create("runs", gpus=GPUS, annotations=LOW)
    actors.bound("runs")
    claimed = wants_volume(actors, "wants")
    told = says(actors, "wants", "ClaimNotReady")
    words = (
        f'PersistentVolumeClaim "{claimed}" not found; the extender requests no job until the claim'
        " exists"
    )
    assert told == words
    assert actors.job_of("wants") is None
    assert actors.see("runs") is not None
    with local_volume(actors, claimed, NODE):
        assert actors.bound("wants") == NODE
        actors.gone("runs")
        assert actors.attempt("wants") == 1
        actors.delete("wants")
        actors.gone("wants")


def test_second_attempt_of_a_pod_refused_by_kube_scheduler_preempts_no_pod(
    actors: Actors,
) -> None:
    """The extender may not read claims here, so the extender requests a job, and kube-scheduler rejects
    the first attempt in PreFilter. Any other PreFilter plugin may reject a Pod in the same way."""
    with without_claims(actors):
        claimed = wants_volume(actors, "wants")
        told = says(actors, "wants", "NotBindable")
        assert f'persistentvolumeclaim "{claimed}" not found' in told
        actors.create("runs", gpus=GPUS, annotations=LOW)
        actors.bound("runs")
        actors.create("follows", gpus=GPUS, annotations=LOW)
        actors.queued("follows")
        assert actors.job_of("wants") is None
        assert actors.attempt("wants") == 2
        actors.delete("runs")
        assert actors.bound("follows")
        actors.delete("follows")
        actors.gone("follows")
        with local_volume(actors, claimed, NODE):
            assert actors.bound("wants", within=90) == NODE
            assert actors.attempt("wants") == 2
            actors.delete("wants")
            actors.gone("wants")


@contextmanager
def without_claims(actors: Actors) -> Iterator[None]:
    """Removes the right to read claims, as in the role of an older installation. Asserts that /readyz
    names the missing watch."""
    role = json.loads(
        actors.cluster.kubectl("get", "clusterrole", "slurm-extender", "-o", "json").stdout
    )
    older = {"persistentvolumeclaims", "persistentvolumes"}
    rules = [rule for rule in role["rules"] if not older & set(rule["resources"])]
    set_rules(actors, rules)
    restart(actors)
    try:
        problems = actors.ready()[1]["problems"]
        assert "watch of persistentvolumeclaims" in problems
        yield
    finally:
        set_rules(actors, role["rules"])
        restart(actors)


def set_rules(actors: Actors, rules: list[object]) -> None:
    patch = json.dumps({"rules": rules})
    actors.cluster.kubectl("patch", "clusterrole", "slurm-extender", "--type=merge", "-p", patch)


def restart(actors: Actors) -> None:
    actors.cluster.stop("extender")
    actors.cluster.start("extender")
    eventually(lambda: actors.ready()[0] == 200, "recovered")
