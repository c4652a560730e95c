"""The Pods of a PodGroup are a gang: with the PodGroups of Kubernetes, and with the PodGroups of the
plugin coscheduling."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end import pod_groups
from tests.end_to_end.actors import PREFIX, Actors, pod
from tests.end_to_end.test_admission import define
from tests.eventually import eventually
from wellknown.job_key import job_name

pytestmark = pytest.mark.real

NAMES = ("w0", "w1", "w2")


@pytest.fixture(scope="module")
def grouped() -> Iterator[Cluster]:
    """Starts a cluster of two nodes with PodGroups, if Kubernetes has PodGroups."""
    gates = pod_groups.gates()
    if not gates:
        pytest.skip("this Kubernetes has no PodGroups")
    spec = ClusterSpec(nodes=2, validates_pods=True, feature_gates=gates)
    with (
        tempfile.TemporaryDirectory(prefix="groups-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        yield cluster


@pytest.fixture
def native(grouped: Cluster) -> Iterator[Actors]:
    actors = Actors(grouped)
    try:
        yield actors
        actors.clean_up()
    finally:
        actors.close()


def is_one_gang(actors: Actors, name: str) -> None:
    """Waits until all Pods are bound, and checks that one job has placed the Pods."""
    for each in NAMES:
        actors.bound(each)
    job = actors.squeue()[job_name("default", actors.full(name))]
    for each in NAMES:
        annotations = (actors.see(each) or {})["metadata"]["annotations"]
        assert annotations["slurm-extender.io/job-id"] == str(job.id)
        assert annotations[f"{PREFIX}gang"] == "podgroup"
    assert len(actors.squeue()) == 1


def test_pods_of_a_pod_group_are_a_gang(native: Actors) -> None:
    actors = native
    group = pod_groups.make_group(actors, "train", {"gang": {"minCount": 3}})
    for name in NAMES[:2]:
        actors.create(name, cpu="3", **group)
    eventually(lambda: actors.condition("w1").get("reason") == "PodsMissing", "the Pods wait")
    assert f"2 of 3 Pods of the gang {actors.full('train')} exist" in actors.condition("w0")["message"]
    actors.create("w2", cpu="3", **group)
    is_one_gang(actors, "train")


def test_pods_of_a_basic_pod_group_are_placed_one_by_one(native: Actors) -> None:
    actors = native
    group = pod_groups.make_group(actors, "bag", {"basic": {}})
    for name in NAMES[:2]:
        actors.create(name, **group)
    for name in NAMES[:2]:
        actors.bound(name)
        assert actors.job_of(name) is not None


def test_pod_of_a_missing_pod_group_is_refused(native: Actors) -> None:
    answer = native.apply(pod("early", schedulingGroup={"podGroupName": "none"}))
    assert "there is no PodGroup none: create the PodGroup before its Pods" in answer.stderr


def test_pods_with_the_label_of_coscheduling_are_a_gang(actors: Actors) -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": actors.full("train"), "namespace": "default"},
        "spec": {"minMember": 3},
    }
    define(actors, group)
    actors.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(group))
    label = {"scheduling.x-k8s.io/pod-group": actors.full("train")}
    for name in NAMES:
        actors.create(name, cpu="3", labels=label)
    is_one_gang(actors, "train")
    moved = actors.kubectl(
        "label", "pod", actors.full("w0"), "--overwrite", f"{next(iter(label))}=other"
    )
    assert "fixed at the creation of a Pod" in moved.stderr
