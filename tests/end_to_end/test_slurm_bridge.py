"""Tests of the setting for slurm-bridge: the extender places a Pod that is written for slurm-bridge."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from extender.pod_request.slurm_bridge import OLD_PREFIX
from extender.pod_request.slurm_bridge import PREFIX as THEIRS
from tests.end_to_end.actors import Actors, Manifest, pod
from tests.eventually import eventually

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    """Starts a cluster with the setting in the extender and in the webhooks."""
    spec = ClusterSpec(
        nodes=1,
        release=slurm_release,
        kill_wait=30,
        extender_settings=(("SLURM_BRIDGE_ANNOTATIONS", "true"),),
    )
    with (
        tempfile.TemporaryDirectory(prefix="bridge-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


def written_for_slurm_bridge(name: str, prefix: str = THEIRS, **annotations: str) -> Manifest:
    """Returns a Pod with annotations of slurm-bridge. The Pod's scheduler is `default-scheduler`, as for
    a Pod whose author names no scheduler."""
    own = {prefix + key: value for key, value in annotations.items()}
    return pod(name, scheduler="default-scheduler", own_annotations=own)


def test_slurm_bridge_annotations_and_their_changes_reach_the_job(actors: Actors) -> None:
    asked = written_for_slurm_bridge("p", timelimit="5", partition="nowhere", wckey="w")
    told = actors.apply(asked)
    assert f"Warning: annotation {THEIRS}wckey does nothing" in told.stderr
    eventually(lambda: actors.condition("p").get("reason") == "Invalid", "Slurm's answer is on the Pod")
    assert "nowhere" in actors.condition("p")["message"]
    change = ("annotate", "--overwrite", "pod", actors.full("p"), f"{THEIRS}partition=main")
    actors.cluster.kubectl(*change)
    actors.bound("p")
    shown = actors.scontrol("p")
    assert shown["TimeLimit"] == "00:05:00"
    assert shown["NumCPUs"] == "8"  # the whole node


def test_pod_with_the_prefix_before_1_0_is_placed(actors: Actors) -> None:
    asked = written_for_slurm_bridge("p", OLD_PREFIX, timelimit="5", partition="main")
    assert actors.apply(asked).returncode == 0
    actors.bound("p")
    assert actors.scontrol("p")["TimeLimit"] == "00:05:00"
