"""Tests of gangs on a real cluster: one job for several Pods, which start together or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.end_to_end.actors import PREFIX, Actors, QueuedJob, pod
from tests.eventually import eventually
from wellknown import number_list
from wellknown.job_key import job_name

pytestmark = pytest.mark.real

GANG = "slurm-extender.io/granted"


class Gang:
    """A gang of annotated Pods. Each Pod requests 3 of the 8 CPUs of a node, and one GPU of four."""

    def __init__(self, actors: Actors, size: int, name: str = "train", **annotations: str) -> None:
        self.actors, self.size, self.name = actors, size, actors.full(name)
        self.annotations = {"gang": self.name, "gang-size": str(size), **annotations}

    @property
    def names(self) -> list[str]:
        return [f"w{number}" for number in range(self.size)]

    def create(self, *names: str, **given: Any) -> None:
        """Creates Pods of the gang; all Pods without names."""
        asked = {"cpu": "3", "gpus": 1, "annotations": self.annotations} | given
        for name in names or self.names:
            self.actors.create(name, **asked)

    def job(self) -> QueuedJob | None:
        return self.actors.squeue().get(job_name("default", self.name))

    def bound(self) -> dict[str, str]:
        """Waits until all Pods are bound. Returns the Node of each Pod."""
        return {name: self.actors.bound(name) for name in self.names}

    def granted(self, name: str) -> dict[str, Any]:
        """Returns the slot on a Pod."""
        seen = self.actors.see(name) or {}
        return dict(json.loads(seen["metadata"]["annotations"][GANG]))


@pytest.fixture
def gang(actors: Actors) -> Gang:
    return Gang(actors, 3)


def test_one_job_places_a_gang_on_as_few_nodes_as_possible(actors: Actors, gang: Gang) -> None:
    gang.create()
    nodes = gang.bound()
    assert len(set(nodes.values())) == 2
    job = gang.job()
    assert job is not None
    shown = actors.cluster.run_slurm("scontrol", "show", "job", str(job.id)).stdout
    assert "NumTasks=3 " in shown
    ids = {
        (actors.see(name) or {})["metadata"]["annotations"]["slurm-extender.io/job-id"] for name in nodes
    }
    assert ids == {str(job.id)}
    cores = [
        (nodes[name], core) for name in nodes for core in number_list.expand(gang.granted(name)["cores"])
    ]
    assert len(cores) == len(set(cores)) == 9
    devices = [(nodes[name], gang.granted(name)["gres"]) for name in nodes]
    assert len(set(devices)) == 3


def test_members_per_node_spreads_a_gang(actors: Actors) -> None:
    gang = Gang(actors, 4, **{"members-per-node": "1"})
    gang.create()
    assert len(set(gang.bound().values())) == 4


def test_ranks_follow_the_tiers_of_the_nodes(quiet: Actors) -> None:
    actors, rack = quiet, "example.io/rack"
    racks = {"node-1": "r2", "node-2": "r1", "node-3": "r2", "node-4": "r1"}
    for node, name in racks.items():
        actors.cluster.kubectl("label", "node", node, f"{rack}={name}")
    actors.cluster.start("extender", env={"SLURM_EXTENDER_TOPOLOGY_TIERS": rack})
    try:
        gang = Gang(actors, 4, **{"members-per-node": "1"})
        gang.create()
        assert list(gang.bound().values()) == ["node-2", "node-4", "node-1", "node-3"]
    finally:
        actors.cluster.stop("extender")
        for node in racks:
            actors.cluster.kubectl("label", "node", node, f"{rack}-")


def test_gang_waits_for_its_last_pod_without_a_job(actors: Actors, gang: Gang) -> None:
    gang.create("w0", "w1")
    eventually(lambda: actors.condition("w1").get("reason") == "PodsMissing", "the Pods wait")
    assert f"2 of 3 Pods of the gang {gang.name} exist" in actors.condition("w0")["message"]
    assert gang.job() is None
    gang.create("w2")
    gang.bound()


def test_gang_waits_as_a_whole_for_room(actors: Actors) -> None:
    actors.create("alone", cpu="8")
    actors.bound("alone")
    gang = Gang(actors, 8)  # two members on each of four nodes
    gang.create()
    eventually(lambda: (job := gang.job()) and job.state == "PENDING" and job.reason, "the job waits")
    assert all(actors.node_of(name) is None for name in gang.names)
    actors.delete("alone")
    assert len(set(gang.bound().values())) == 4


def test_all_members_are_evicted_when_the_job_ends(actors: Actors, gang: Gang) -> None:
    gang.create()
    gang.bound()
    job = gang.job()
    assert job is not None
    actors.cluster.run_slurm("scancel", str(job.id))
    for name in gang.names:
        assert "was cancelled" in actors.event(name, "SlurmJobCancelled")
        actors.gone(name)


def test_job_ends_with_the_last_pod_and_the_name_can_be_used_again(actors: Actors, gang: Gang) -> None:
    gang.create()
    gang.bound()
    first = gang.job()
    assert first is not None
    for name in gang.names[:2]:
        actors.delete(name)
    for name in gang.names[:2]:
        actors.gone(name)
    assert gang.job() == first
    actors.delete(gang.names[2])
    eventually(lambda: gang.job() is None, "the job has ended")
    actors.gone(gang.names[2])
    gang.create()
    gang.bound()
    second = gang.job()
    assert second is not None
    assert second.id != first.id


def test_gang_is_placed_once_by_a_restarted_extender(actors: Actors, gang: Gang) -> None:
    gang.create("w0", "w1")
    actors.cluster.restart("extender")
    gang.create("w2")
    gang.bound()
    job = gang.job()
    actors.cluster.restart("extender")
    eventually(lambda: actors.ready()[0] == 200, "ready")
    assert gang.job() == job
    assert len([each for each in actors.jobs() if each.name == job_name("default", gang.name)]) == 1


@pytest.fixture
def job(actors: Actors) -> Iterator[str]:
    """A Job of Kubernetes with 12 Pods, which are a gang. Returns the name of the Job."""
    made, name = pod("unnamed", gpus=1, annotations={"gang": "job"}), actors.full("train")
    template = {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}
    template["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    spec = {"completionMode": "Indexed", "completions": 12, "parallelism": 12, "template": template}
    new = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    assert actors.apply(new).returncode == 0
    yield name
    actors.kubectl("delete", "job", name, "--cascade=foreground")


Rank = tuple[int, str, dict[str, Any]]


def ranks(actors: Actors, job: str) -> list[Rank]:
    """Waits until all Pods of a Job are bound. Returns the index, the Node and the slot of each Pod."""

    def bound() -> list[Rank] | None:
        pods = [each for name, each in actors.pods().items() if name.startswith(job)]
        pods = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        if len(pods) < 12 or not all(each["spec"].get("nodeName") for each in pods):
            return None
        found = []
        for each in pods:
            index = each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
            assert each["metadata"]["annotations"]["slurm-extender.io/rank"] == index
            slot = json.loads(each["metadata"]["annotations"][GANG])
            found.append((int(index), each["spec"]["nodeName"], slot))
        return sorted(found, key=lambda rank: rank[0])

    return eventually(bound, "all Pods of the Job are bound", 60) or []


def test_a_job_is_a_gang_and_its_ranks_follow_the_nodes(actors: Actors, job: str) -> None:
    found = ranks(actors, job)
    nodes = [node for _, node, _ in found]
    assert [index for index, _, _ in found] == list(range(12))
    assert nodes == sorted(nodes)
    assert len(set(nodes)) == 3
    assert len({(node, slot["gres"]) for _, node, slot in found}) == 12
    names = [name for name in actors.squeue() if name.startswith(job)]
    assert names == [job_name("default", job)]


def test_a_replaced_pod_of_a_job_gets_the_slot_of_the_lost_pod(actors: Actors, job: str) -> None:
    found, placed = ranks(actors, job), actors.squeue()[job_name("default", job)]
    name = next(name for name in actors.pods() if name.startswith(f"{job}-5-"))
    assert actors.kubectl("delete", "pod", name).returncode == 0
    assert ranks(actors, job) == found
    assert name not in actors.pods()
    assert actors.squeue()[job_name("default", job)] == placed


def test_a_pod_cannot_leave_its_gang(actors: Actors, gang: Gang, job: str) -> None:
    gang.create("w0")
    for key in ("gang=other", "gang-size=2", "members-per-node=1", "gang-"):
        changed = actors.kubectl("annotate", "pod", actors.full("w0"), "--overwrite", PREFIX + key)
        assert "fixed at the creation of a Pod" in changed.stderr
    seen = eventually(
        lambda: [name for name in actors.pods() if name.startswith(job)], "Pods of the Job"
    )
    label = "batch.kubernetes.io/controller-uid=other"
    changed = actors.kubectl("label", "pod", seen[0], "--overwrite", label)
    assert "fixed at the creation of a Pod" in changed.stderr


def test_pods_with_unlike_requests_are_invalid(actors: Actors, gang: Gang) -> None:
    gang.create("w0", "w1")
    gang.create("w2", cpu="2")
    eventually(lambda: actors.condition("w2").get("reason") == "Invalid", "the gang is invalid")
    assert "equal requests" in actors.condition("w0")["message"]
    assert gang.job() is None
