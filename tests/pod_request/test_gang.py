"""The gang of a Pod, by annotations or by a controller: the workload, the request, and the problems."""

from collections.abc import Mapping
from typing import Any

import pytest

from extender.pod_request.gang import Gang
from extender.pod_request.pod import Pod, parse_pod
from slurm_client.model import JobSpec
from tests.builders import PREFIX, TRANSLATION, pod, pod_manifest

GANG = {"gang": "train", "gang-size": "4"}


def member(name: str = "train-0", namespace: str = "team", **changes: Any) -> Pod:
    """Returns a Pod of the gang, with changed annotations. None removes an annotation."""
    texts = {**GANG, **{key.replace("_", "-"): text for key, text in changes.items()}}
    annotations = {f"{PREFIX}{key}": text for key, text in texts.items() if text is not None}
    return pod(name, annotations=annotations, cpu="2", memory="1Gi", gpus=2, namespace=namespace)


def request_of(member: Pod) -> JobSpec:
    assert member.request.problems == ()
    return member.workload.request([member.request]).job


def test_members_have_the_same_workload_and_one_packed_job() -> None:
    one, other = member(), member("train-1")
    assert one.workload == other.workload
    assert (one.workload.full_name, one.workload.size) == ("team/train", 4)
    job = request_of(one)
    assert (job.name, job.tasks, job.nodes) == ("train@team", 4, 1)
    assert (job.cpus, job.memory_mb, job.gres) == (2, 1024, (("gpu", 2),))


def test_members_per_node_fixes_the_number_of_nodes() -> None:
    job = request_of(member(members_per_node="2"))
    assert (job.tasks, job.nodes) == (None, 2)
    assert (job.cpus, job.memory_mb, job.gres) == (4, 2048, (("gpu", 4),))


def test_job_of_a_gang_has_its_switches_and_its_segment() -> None:
    job = request_of(member(members_per_node="1", segment="2", switches="3"))
    assert (job.nodes, job.segment, job.switches) == (4, 2, 3)


def test_gangs_with_one_name_in_two_namespaces_have_different_uids() -> None:
    assert member().workload.uid != member(namespace="other").workload.uid


def test_a_gang_of_one_pod_is_the_pod_by_itself() -> None:
    alone = member(gang_size="1")
    assert alone.group is None
    assert alone.workload.uid == alone.uid
    assert request_of(alone).name == "train-0@team"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gang_size": None}, f"{PREFIX}gang: a gang also needs {PREFIX}gang-size"),
        ({"gang": None}, f"{PREFIX}gang-size: a gang also needs {PREFIX}gang"),
        (
            {"gang": None, "gang_size": None, "members_per_node": "1"},
            f"{PREFIX}members-per-node: a gang also needs {PREFIX}gang and {PREFIX}gang-size",
        ),
        ({"gang_size": "0"}, '"0" is not a whole number from 1 to 2048'),
        ({"gang_size": "2049"}, '"2049" is not a whole number from 1 to 2048'),
        ({"gang": "a/b"}, '"a/b" is not a name of at most 63 lower-case letters'),
        ({"members_per_node": "3"}, "a gang of 4 Pods cannot have 3 Pods on each node"),
        ({"required_nodes": "n1"}, "required-nodes: a gang cannot name its nodes"),
        ({"segment": "2"}, "segment: a gang cannot have segments of 2 nodes: set members-per-node"),
        ({"members_per_node": "1", "segment": "3"}, "a gang on 4 nodes cannot have segments of 3 nodes"),
    ],
)
def test_wrong_annotations_are_problems_and_name_no_workload(
    changes: dict[str, Any], words: str
) -> None:
    wrong = member(**changes)
    assert words in "\n".join(wrong.request.problems)
    assert all("#gang" in each or "#members" in each for each in wrong.request.problems)


@pytest.mark.parametrize(("here", "number"), [(None, 1), (2, 1), (1, 0)])
def test_parts_of_gpus_need_a_node_for_each_member(here: int | None, number: int) -> None:
    gang, job = Gang("train", 4, here), JobSpec("p", 1, 1, (("shard:h100", 1),))
    problems = list(gang.problems(job, PREFIX))
    assert len(problems) == number
    assert all("only Pods on different nodes may have parts of GPUs" in each for each in problems)


JOB = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "u1"}
JOB_SET = {
    "jobset.sigs.k8s.io/jobset-name": "set",
    "jobset.sigs.k8s.io/jobset-uid": "u2",
    "jobset.sigs.k8s.io/restart-attempt": "0",
}
LWS = {"leaderworkerset.sigs.k8s.io/name": "serve"}
POD_GROUP = {"scheduling.x-k8s.io/pod-group": "train"}
OF_LWS = {"leaderworkerset.sigs.k8s.io/size": "4"}


def of_controller(
    gang: str,
    labels: Mapping[str, str],
    name: str = "p",
    *,
    size: str | None = "4",
    own: Mapping[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """Returns a Pod of a controller's gang. `own` are annotations of the controller."""
    annotations = {f"{PREFIX}gang": gang, **({f"{PREFIX}gang-size": size} if size else {})}
    manifest = pod_manifest(name, annotations=annotations | dict(own or {}))
    manifest["metadata"]["labels"] = dict(labels)
    manifest["spec"] |= spec
    return parse_pod(manifest, TRANSLATION)


def of_lws(name: str, leader: str | None = None) -> Pod:
    named = {} if leader is None else {"leaderworkerset.sigs.k8s.io/leader-name": leader}
    return of_controller("lws", LWS, name, size=None, own=OF_LWS | named)


def test_pods_of_a_job_are_a_gang_with_the_name_of_the_job() -> None:
    one, other = of_controller("job", JOB, "train-0-x"), of_controller("job", JOB, "train-1-y")
    assert one.request.problems == ()
    assert one.workload == other.workload
    assert (one.workload.full_name, one.workload.size) == ("default/train", 4)
    again = of_controller("job", JOB | {"batch.kubernetes.io/controller-uid": "u9"})
    assert again.workload.uid != one.workload.uid


def test_owner_of_a_member_is_its_controller() -> None:
    manifest = pod_manifest(annotations={f"{PREFIX}gang": "train", f"{PREFIX}gang-size": "2"})
    assert parse_pod(manifest, TRANSLATION).life.owner is None
    other = {"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "u0"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
    manifest["metadata"]["ownerReferences"] = [other, job]
    assert parse_pod(manifest, TRANSLATION).life.owner == ("batch/v1", "Job", "train", "u1")
    for wrong in (job | {"name": "x" * 254}, {"controller": True}):
        manifest["metadata"]["ownerReferences"] = [wrong]
        assert parse_pod(manifest, TRANSLATION).life.owner is None


def test_a_restart_of_a_job_set_is_another_gang() -> None:
    first = of_controller("jobset", JOB_SET)
    second = of_controller("jobset", JOB_SET | {"jobset.sigs.k8s.io/restart-attempt": "1"})
    assert first.request.problems == ()
    assert (first.workload.name, first.workload.size) == ("set", 4)
    assert first.workload.uid != second.workload.uid


def test_each_leader_of_a_leader_worker_set_has_a_gang() -> None:
    """Only the workers name their leader, by an annotation."""
    leader = of_lws("serve-1")
    worker = of_lws("serve-1-2", "serve-1")
    assert leader.request.problems == ()
    assert leader.workload == worker.workload
    assert (leader.workload.name, leader.workload.size) == ("serve-1", 4)
    assert of_lws("serve-2").workload.uid != leader.workload.uid


def test_pods_of_a_pod_group_are_a_gang_with_its_name() -> None:
    native = of_controller("podgroup", {}, schedulingGroup={"podGroupName": "train"})
    other = of_controller("podgroup", POD_GROUP, "q")
    assert native.request.problems == other.request.problems == ()
    assert (native.workload.full_name, native.workload.size) == ("default/train", 4)
    assert native.workload._replace(uid="") == other.workload._replace(uid="")
    assert native.workload.uid != other.workload.uid  # PodGroups of two APIs


def test_pod_of_a_pod_group_that_the_webhook_has_not_read_is_invalid() -> None:
    manifest = pod_manifest(annotations={f"{PREFIX}partition": "main"})
    manifest["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    (problem,) = parse_pod(manifest, TRANSLATION).request.problems
    assert f"spec.schedulingGroup: the Pod has no annotation {PREFIX}gang" in problem


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (of_controller("podgroup", {}), "and no spec.schedulingGroup.podGroupName"),
        (of_controller("podgroup", POD_GROUP, size=None), "adds to a new Pod: create the Pod again"),
        (of_controller("job", {}), "the Pod has no label batch.kubernetes.io/job-name"),
        (
            of_controller("job", JOB, size=None),
            "the extender's webhook adds to the Pod template of a new",
        ),
        (of_controller("jobset", JOB), "the Pod has no label jobset.sigs.k8s.io/jobset-name"),
        (of_controller("lws", LWS), "leaderworkerset.sigs.k8s.io/size is no number from 1 to 2048"),
    ],
)
def test_a_pod_without_its_controller_is_invalid(pod: Pod, words: str) -> None:
    (problem,) = pod.request.problems
    assert words in problem
    assert pod.group is None


@pytest.mark.parametrize(
    ("size", "leader"),
    [("0", "a"), ("9999999999", "a"), ("4", "a/b"), ("4", "a\nb"), ("4", "x" * 300)],
)
def test_wrong_annotations_of_a_leader_worker_set_are_problems(size: str, leader: str) -> None:
    own = {"leaderworkerset.sigs.k8s.io/size": size, "leaderworkerset.sigs.k8s.io/leader-name": leader}
    wrong = of_controller("lws", LWS, size=None, own=own)
    assert wrong.request.problems
    assert wrong.group is None


def test_gang_none_is_no_gang() -> None:
    alone = member(gang="none")
    assert (alone.group, alone.request.problems) == (None, ())


def test_ranks_follow_the_numbers_in_the_names() -> None:
    names = ["train-10-b", "train-2-z", "train-1-c"]
    assert [each.name for each in sorted(map(pod, names), key=lambda each: each.rank)] == names[::-1]
