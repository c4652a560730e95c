"""A Pod that kube-scheduler would bind nowhere: nobody is preempted for it, and nothing is held.

One node, two partitions, of which the higher one's jobs take the place of the lower one's.
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
from tests.end_to_end.people import People, eventually
from tests.end_to_end.test_disagreements import local_volume

pytestmark = pytest.mark.real

NODE = "node-1"
LOW, HIGH = {"partition": "low"}, {"partition": "high"}
GPUS = 4
"""All that the node has."""


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
def everybody(cluster: Cluster) -> Iterator[People]:
    people = People(cluster)
    yield people
    people.close()


def wants_volume(people: People, name: str) -> str:
    """Creates a Pod of the higher partition that needs a claim which is not there; returns its name."""
    claimed = people.full(name)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    people.create(name, gpus=GPUS, annotations=HIGH, volumes=[volume])
    return claimed


def says(people: People, name: str, reason: str) -> str:
    """Waits for a Pod's condition, and returns its message."""
    eventually(lambda: people.condition(name).get("reason") == reason, f"{name}: {reason}")
    return people.condition(name)["message"]


def test_nobody_is_preempted_for_a_pod_whose_claim_is_missing_until_it_appears(people: People) -> None:
    people.create("runs", gpus=GPUS, annotations=LOW)
    people.bound("runs")
    claimed = wants_volume(people, "wants")
    told = says(people, "wants", "ClaimNotReady")
    words = f'PersistentVolumeClaim "{claimed}" not found; no job is asked for until it exists'
    assert told == words
    assert people.job_of("wants") is None
    assert people.see("runs") is not None
    with local_volume(people, claimed, NODE):
        assert people.bound("wants") == NODE
        people.gone("runs")
        assert people.attempt("wants") == 1
        people.delete("wants")
        people.gone("wants")


def test_nobody_is_preempted_for_the_second_attempt_at_a_pod_that_is_refused_by_kube_scheduler_alone(
    people: People,
) -> None:
    """The extender may not read claims here, and so knows no better: as with any plugin's PreFilter."""
    with without_claims(people):
        claimed = wants_volume(people, "wants")
        told = says(people, "wants", "NotBindable")
        assert f'persistentvolumeclaim "{claimed}" not found' in told
        people.create("runs", gpus=GPUS, annotations=LOW)
        people.bound("runs")
        people.create("follows", gpus=GPUS, annotations=LOW)
        people.queued("follows")
        assert people.job_of("wants") is None
        assert people.attempt("wants") == 2
        people.delete("runs")
        assert people.bound("follows")
        people.delete("follows")
        people.gone("follows")
        with local_volume(people, claimed, NODE):
            assert people.bound("wants", within=90) == NODE
            assert people.attempt("wants") == 2
            people.delete("wants")
            people.gone("wants")


@contextmanager
def without_claims(people: People) -> Iterator[None]:
    """The role of an older installation: the extender says what it cannot check."""
    role = json.loads(
        people.cluster.kubectl("get", "clusterrole", "slurm-extender", "-o", "json").stdout
    )
    older = {"persistentvolumeclaims", "persistentvolumes"}
    rules = [rule for rule in role["rules"] if not older & set(rule["resources"])]
    set_rules(people, rules)
    restart(people)
    try:
        troubles = people.ready()[1]["troubles"]
        assert "watch of persistentvolumeclaims" in troubles
        yield
    finally:
        set_rules(people, role["rules"])
        restart(people)


def set_rules(people: People, rules: list[object]) -> None:
    patch = json.dumps({"rules": rules})
    people.cluster.kubectl("patch", "clusterrole", "slurm-extender", "--type=merge", "-p", patch)


def restart(people: People) -> None:
    people.cluster.stop("extender")
    people.cluster.start("extender")
    eventually(lambda: people.ready()[0] == 200, "recovered")
