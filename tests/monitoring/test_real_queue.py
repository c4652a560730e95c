"""Tests of the metrics about a Pod that waits although Slurm leaves a suitable node idle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually

pytestmark = pytest.mark.real

SPEC = ClusterSpec(nodes=2, gpus_per_node=0, slurm_conf=("SchedulerType=sched/builtin",))
"""sched/builtin starts the jobs of a partition strictly in their order, and does not plan starts. So a
job may wait although a suitable node is idle."""


@pytest.fixture(scope="module")
def actors() -> Iterator[Actors]:
    with (
        tempfile.TemporaryDirectory(prefix="queue-") as directory,
        Cluster.up(SPEC, Path(directory)) as cluster,
    ):
        actors = Actors(cluster)
        yield actors
        actors.close()


def told(actors: Actors, name: str) -> dict[str, float]:
    """Returns the values of a metric, by partition."""
    page = fetch(f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics").text
    return {
        sample.labels["partition"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def startable(actors: Actors, partition: str, count: int) -> None:
    def is_told() -> bool:
        return told(actors, "slurm_extender_startable_pods")[partition] == count

    eventually(is_told, f"{count} Pods could start in {partition}")


def test_metric_counts_a_pod_that_waits_beside_an_idle_node(actors: Actors) -> None:
    slurm = actors.cluster.run_slurm
    (partition,) = told(actors, "slurm_extender_bound_pods_total")
    actors.create("runs")
    actors.bound("runs")
    assert told(actors, "slurm_extender_bound_pods_total") == {partition: 1}
    startable(actors, partition, 0)
    slurm("sbatch", "-N2", "--exclusive", "-J", "first", "--wrap", "sleep 600", user="alice")
    actors.create("waits")
    startable(actors, partition, 1)
    slurm("scontrol", "update", f"partitionname={partition}", "state=down")
    startable(actors, partition, 0)
    slurm("scontrol", "update", f"partitionname={partition}", "state=up")
    startable(actors, partition, 1)
    slurm("scancel", "--name=first")
    actors.bound("waits")
    startable(actors, partition, 0)
    assert told(actors, "slurm_extender_bound_pods_total") == {partition: 2}
