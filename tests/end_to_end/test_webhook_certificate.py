"""Tests of the webhooks' own certificate, and of a cluster without running webhooks."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, pod
from tests.eventually import eventually

pytestmark = pytest.mark.real

SECRET = ("secret", "slurm-extender-webhooks", "--namespace=kube-system")


@pytest.fixture(scope="module")
def alone() -> Iterator[Actors]:
    """Starts a separate cluster with an extender that manages the certificate."""
    with (
        tempfile.TemporaryDirectory(prefix="e2e-") as directory,
        Cluster.up(ClusterSpec(nodes=1, self_signed=True), Path(directory)) as running,
    ):
        actors = Actors(running)
        yield actors
        actors.close()


def test_the_extender_makes_its_own_certificate_and_is_trusted(alone: Actors) -> None:
    alone.create("first")
    alone.bound("first")


def test_deleted_certificate_is_recreated_without_a_rejected_pod(alone: Actors) -> None:
    old = _uid(alone)
    alone.cluster.kubectl("delete", *SECRET)

    names = (f"meanwhile-{number}" for number in itertools.count())

    def made_anew() -> bool:
        name = next(names)
        alone.create(name)
        alone.delete(name)
        return _uid(alone) not in ("", old)

    eventually(made_anew, "another Secret", 60)
    alone.create("after")
    alone.bound("after")


def test_unmanaged_pods_are_created_while_no_extender_runs(quiet: Actors) -> None:
    """A Pod that requests Slurm is refused with the reason, because no webhook can add the gate."""
    assert quiet.apply(pod("other", scheduler="somebody-elses")).returncode == 0
    refused = quiet.apply(pod("ours"))
    assert refused.returncode != 0
    assert "failed calling webhook" in refused.stderr


def _uid(actors: Actors) -> str:
    uid = ("--ignore-not-found", "--output=jsonpath={.metadata.uid}")
    return actors.cluster.kubectl("get", *SECRET, *uid).stdout
