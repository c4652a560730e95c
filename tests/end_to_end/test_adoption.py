"""Tests of adoption: Pods that another scheduler has bound have jobs in Slurm, until the Pods are
gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.unmanaged.adoption import COMMENT
from tests.end_to_end.actors import Actors, QueuedJob
from tests.end_to_end.test_audit import audit, metrics
from tests.end_to_end.test_policy import ALICE, NOBODY, Policy, owner
from tests.end_to_end.test_unmanaged_pods import sbatch
from tests.eventually import eventually
from wellknown.names import ADOPTED, JOB_ID

pytestmark = pytest.mark.real

SETTING = {"SLURM_EXTENDER_UNMANAGED_PODS": "adopt", "SLURM_EXTENDER_CLUSTER_NAME": "prod"}
NATIVE = "native-node-2"


@pytest.fixture
def adopting(quiet: Actors, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actors]:
    """Actors of a cluster with an extender that adopts Pods. The audit command gets the same
    settings."""
    for name, value in SETTING.items():
        monkeypatch.setenv(name, value)
    quiet.cluster.start("extender", env=SETTING)
    yield quiet
    if quiet.cluster.is_running("extender"):
        quiet.cluster.stop("extender")


def runs(actors: Actors, name: str) -> QueuedJob:
    """Waits until the Pod's job runs and the Pod names the job. Returns the job."""

    def see() -> QueuedJob | None:
        job = actors.job_of(name)
        return job if job and job.state == "RUNNING" and noted(actors, name) == str(job.id) else None

    return eventually(see, f"{name} has a job")  # type: ignore[return-value]


def noted(actors: Actors, name: str) -> str | None:
    """Returns the job id that the Pod's annotation and label name."""
    metadata = (actors.see(name) or {"metadata": {}})["metadata"]
    job = (metadata.get("annotations") or {}).get(ADOPTED)
    assert (metadata.get("labels") or {}).get(JOB_ID) == job
    return str(job) if job else None


def counted(actors: Actors, stage: str, count: int) -> None:
    line = f'slurm_extender_adopted{{stage="{stage}"}} {float(count)}'
    eventually(lambda: line in metrics(actors), line)


def test_adopted_pods_have_jobs_until_the_pods_are_gone(adopting: Actors) -> None:
    """node-2 has 8 CPUs: 6 for `guest` of another scheduler, 1 for `through-us` of kube-scheduler, and 1
    for the managed Pod `ours`."""
    actors, cluster = adopting, adopting.cluster
    actors.create("guest", cpu="6", scheduler="another-scheduler", nodeName="node-2")
    actors.create("spared", cpu="1", scheduler="another-scheduler", nodeName="node-3")
    job = runs(actors, "guest")
    shown = actors.scontrol("guest")
    assert (job.node, shown["NumCPUs"], shown["ReqNodeList"]) == ("node-2", "6", "node-2")
    pod = f"Kubernetes Pod default/{actors.full('guest')} of cluster prod"
    assert job.comment == f"{pod}; {COMMENT}"
    assert runs(actors, "spared").node == "node-3"

    here = {"kubernetes.io/hostname": "node-2"}
    actors.create("through-us", cpu="1", scheduler="default-scheduler", nodeSelector=here)
    actors.create("ours", cpu="1", annotations={"required-nodes": "node-2"})
    assert actors.bound("through-us") == actors.bound("ours") == "node-2"
    runs(actors, "through-us")
    sbatch(actors, "node-2", cpus=8, memory_mb=100, gpus=0)
    eventually(lambda: actors.squeue()[NATIVE].reason not in ("", "None"), "Slurm has looked at it")

    cluster.kill("extender")
    cluster.start("extender", env=SETTING)
    counted(actors, "running", 3)
    assert runs(actors, "guest").id == job.id
    eventually(lambda: audit(actors, "--settle", "1") == (0, {}), "nothing found", 40)

    actors.scancel("spared")
    counted(actors, "cancelled", 1)
    eventually(lambda: noted(actors, "spared") is None, "nothing stands on the Pod any more")
    left_alone = actors.see("spared")
    assert left_alone is not None
    assert "deletionTimestamp" not in left_alone["metadata"]
    assert actors.job_of("spared") is None

    actors.delete("ours")
    actors.delete("through-us")
    eventually(lambda: actors.squeue().keys() == {NATIVE, job.name}, "the guest's alone is left", 40)
    assert actors.squeue()[NATIVE].state == "PENDING"
    actors.delete("guest")
    eventually(lambda: actors.squeue()[NATIVE].state == "RUNNING", "the native job has its node", 40)
    assert actors.see("guest") is None


def test_turning_adoption_off_ends_jobs_and_keeps_adopted_pods(adopting: Actors) -> None:
    actors, cluster = adopting, adopting.cluster
    actors.create("guest", scheduler="another-scheduler", nodeName="node-1")
    runs(actors, "guest")
    cluster.kill("extender")
    cluster.start("extender")
    eventually(lambda: not actors.squeue(), "no jobs left", 40)
    assert actors.node_of("guest") == "node-1"


def test_job_of_an_adopted_pod_follows_the_policy_rule(adopting: Actors) -> None:
    """When the Pod is created, the policy has no rule for the Pod. The rule comes later."""
    actors, policy = adopting, Policy(adopting)
    policy.write(NOBODY)
    try:
        actors.create("guest", scheduler="another-scheduler", nodeName="node-1")
        counted(actors, "no_rule", 1)
        assert actors.job_of("guest") is None
        policy.write(ALICE)
        runs(actors, "guest")
        assert owner(actors, "guest") == "alice"
        shown = actors.scontrol("guest")
        assert (shown["GroupId"], shown["Priority"]) == ("alice(2001)", "1000")
    finally:
        policy.restore()
