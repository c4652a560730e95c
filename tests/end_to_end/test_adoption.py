"""Pods that another scheduler bound are in Slurm's books while they are there, and no longer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.people import People, QueuedJob, eventually
from tests.end_to_end.test_audit import audit, metrics
from tests.end_to_end.test_unmanaged_pods import sbatch
from wellknown.names import ADOPTED

pytestmark = pytest.mark.real

SETTING = {"SLURM_EXTENDER_UNMANAGED_PODS": "adopt"}
NATIVE = "native-node-2"


@pytest.fixture
def adopting(quiet: People, monkeypatch: pytest.MonkeyPatch) -> Iterator[People]:
    """The audit's command goes by the same settings."""
    for name, value in SETTING.items():
        monkeypatch.setenv(name, value)
    quiet.cluster.start("extender", env=SETTING)
    yield quiet
    if quiet.cluster.is_running("extender"):
        quiet.cluster.stop("extender")


def runs(people: People, name: str) -> QueuedJob:
    """Waits until the Pod's job runs, and the Pod says so."""

    def see() -> QueuedJob | None:
        job = people.job_of(name)
        return job if job and job.state == "RUNNING" and noted(people, name) == str(job.id) else None

    return eventually(see, f"{name} has a job")  # type: ignore[return-value]


def noted(people: People, name: str) -> str | None:
    seen = people.see(name)
    return (seen["metadata"].get("annotations") or {}).get(ADOPTED) if seen else None


def counted(people: People, stage: str, count: int) -> None:
    line = f'slurm_extender_adopted{{stage="{stage}"}} {float(count)}'
    eventually(lambda: line in metrics(people), line)


def test_slurm_counts_pods_that_others_bound_for_as_long_as_they_are_there(adopting: People) -> None:
    """node-2 has 8 CPUs: 6 are the guest's, one an unmanaged Pod's, one a Pod's of ours."""
    people, cluster = adopting, adopting.cluster
    people.create("guest", cpu="6", scheduler="another-scheduler", nodeName="node-2")
    people.create("spared", cpu="1", scheduler="another-scheduler", nodeName="node-3")
    job = runs(people, "guest")
    shown = people.scontrol("guest")
    assert (job.node, shown["NumCPUs"], shown["ReqNodeList"]) == ("node-2", "6", "node-2")
    assert runs(people, "spared").node == "node-3"

    here = {"kubernetes.io/hostname": "node-2"}
    people.create("through-us", cpu="1", scheduler="default-scheduler", nodeSelector=here)
    people.create("ours", cpu="1", annotations={"required-nodes": "node-2"})
    assert people.bound("through-us") == people.bound("ours") == "node-2"
    runs(people, "through-us")
    sbatch(people, "node-2", cpus=8, memory_mb=100, gpus=0)
    eventually(lambda: people.squeue()[NATIVE].reason not in ("", "None"), "Slurm has looked at it")

    cluster.kill("extender")
    cluster.start("extender", env=SETTING)
    counted(people, "running", 3)
    assert runs(people, "guest").id == job.id
    eventually(lambda: audit(people, "--settle", "1") == (0, {}), "nothing found", 40)

    people.scancel("spared")
    counted(people, "cancelled", 1)
    eventually(lambda: noted(people, "spared") is None, "nothing stands on the Pod any more")
    left_alone = people.see("spared")
    assert left_alone is not None
    assert "deletionTimestamp" not in left_alone["metadata"]
    assert people.job_of("spared") is None

    people.delete("ours")
    people.delete("through-us")
    eventually(lambda: people.squeue().keys() == {NATIVE, job.name}, "the guest's alone is left", 40)
    assert people.squeue()[NATIVE].state == "PENDING"
    people.delete("guest")
    eventually(lambda: people.squeue()[NATIVE].state == "RUNNING", "the native job has its node", 40)
    assert people.see("guest") is None


def test_with_another_setting_the_jobs_of_guests_are_ended_and_the_pods_stay(adopting: People) -> None:
    people, cluster = adopting, adopting.cluster
    people.create("guest", scheduler="another-scheduler", nodeName="node-1")
    runs(people, "guest")
    cluster.kill("extender")
    cluster.start("extender")
    eventually(lambda: not people.squeue(), "no jobs left", 40)
    assert people.node_of("guest") == "node-1"
