"""Gangs of Pods that the real controllers of LeaderWorkerSets and JobSets create."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from tests.end_to_end.actors import PREFIX, Actors, Manifest, pod
from tests.eventually import eventually

pytestmark = [pytest.mark.controllers, pytest.mark.timeout(900)]

_JOB_ID = "slurm-extender.io/job-id"
_GRANTED = "slurm-extender.io/granted"
_WITHIN_S = 60.0


def template(gang: str) -> Manifest:
    """Returns a template of Pods with 3 of the 8 CPUs of a node, and one GPU of four."""
    made = pod("unnamed", cpu="3", gpus=1, annotations={"gang": gang})
    made["spec"] |= {"terminationGracePeriodSeconds": 1}
    return {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}


def placed(actors: Actors, label: str, number: int) -> dict[str, list[Manifest]]:
    """Waits until all Pods are bound. Returns the Pods by the value of a label."""

    def bound() -> dict[str, list[Manifest]] | None:
        pods = [each for each in actors.pods().values() if "deletionTimestamp" not in each["metadata"]]
        if len(pods) != number or not all(each["spec"].get("nodeName") for each in pods):
            return None
        found: dict[str, list[Manifest]] = {}
        for each in pods:
            found.setdefault(each["metadata"]["labels"][label], []).append(each)
        return found

    return eventually(bound, f"{number} Pods are bound", _WITHIN_S) or {}


def job_of(pods: list[Manifest]) -> str:
    """Returns the id of the only job of these Pods, and checks that no two Pods have the same slot."""
    notes = [each["metadata"]["annotations"] for each in pods]
    devices = [json.loads(note[_GRANTED])["gres"] for note in notes]
    slots = set(zip([each["spec"]["nodeName"] for each in pods], devices, strict=True))
    assert len(slots) == len(pods)
    (job_id,) = {n[_JOB_ID] for n in notes}
    return str(job_id)


def apply(actors: Actors, api: str, kind: str, spec: dict[str, Any]) -> str:
    """Creates an object of a controller, and returns the full name."""
    done = actors.apply({"apiVersion": api, "kind": kind, "metadata": {"name": "train"}, "spec": spec})
    assert done.returncode == 0, done.stderr
    return actors.full("train")


def leader_worker_set(actors: Actors) -> str:
    group = {"size": 3, "workerTemplate": template("lws")}
    spec = {"replicas": 2, "leaderWorkerTemplate": group}
    return apply(actors, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def test_each_group_of_a_leader_worker_set_is_a_gang(actors: Actors) -> None:
    leader_worker_set(actors)
    groups = placed(actors, "leaderworkerset.sigs.k8s.io/group-index", 6)
    assert len({job_of(pods) for pods in groups.values()}) == len(groups) == 2
    for each in chain(*groups.values()):
        index = each["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"]
        assert each["metadata"]["annotations"]["slurm-extender.io/rank"] == index


def test_restarted_group_gets_another_job_and_the_other_group_runs_on(actors: Actors) -> None:
    name = leader_worker_set(actors)
    index = "leaderworkerset.sigs.k8s.io/group-index"
    before = placed(actors, index, 6)
    uids = {each["metadata"]["uid"] for each in before["1"]}
    actors.kubectl("delete", "pod", f"{name}-1-1", "--wait=false")

    def restarted() -> bool:
        now = {each["metadata"]["uid"] for each in actors.pods().values()}
        return uids.isdisjoint(now)

    eventually(restarted, "the old Pods of the group are gone", _WITHIN_S)
    after = placed(actors, index, 6)
    assert job_of(after["0"]) == job_of(before["0"])
    assert job_of(after["1"]) != job_of(before["1"])


def job_set(actors: Actors) -> str:
    """Creates a JobSet with one leader, and twice three workers."""

    def jobs(name: str, replicas: int, pods: int) -> dict[str, Any]:
        made = template("jobset")
        made["spec"] |= {"restartPolicy": "Never"}
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": made}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    spec = {
        "failurePolicy": {"maxRestarts": 1},
        "replicatedJobs": [jobs("leader", 1, 1), jobs("workers", 2, 3)],
    }
    return apply(actors, "jobset.x-k8s.io/v1alpha2", "JobSet", spec)


def test_all_pods_of_a_job_set_are_one_gang(actors: Actors) -> None:
    job_set(actors)
    (pods,) = placed(actors, "jobset.sigs.k8s.io/jobset-name", 7).values()
    assert {each["metadata"]["annotations"][f"{PREFIX}gang-size"] for each in pods} == {"7"}
    job_id = job_of(pods)
    shown = actors.cluster.run_slurm("scontrol", "show", "job", job_id).stdout
    assert "NumTasks=7 " in shown


def test_restarted_job_set_is_another_gang(actors: Actors) -> None:
    job_set(actors)
    attempt = "jobset.sigs.k8s.io/restart-attempt"
    (before,) = placed(actors, attempt, 7).values()
    first = before[0]["metadata"]["name"]
    failed = json.dumps({"status": {"phase": "Failed"}})
    actors.kubectl("patch", "pod", first, "--subresource=status", "--type=merge", "-p", failed)
    uids = {each["metadata"]["uid"] for each in before}

    def restarted() -> bool:
        now = {each["metadata"]["uid"] for each in actors.pods().values()}
        return uids.isdisjoint(now)

    eventually(restarted, "the old Pods are gone", _WITHIN_S)
    after = placed(actors, attempt, 7)
    assert list(after) == ["1"]
    assert job_of(after["1"]) != job_of(before)
