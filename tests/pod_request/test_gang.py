"""Gangs by annotations: the workload of a Pod, its request, and its problems."""

from typing import Any

import pytest

from extender.pod_request.gang import Gang
from extender.pod_request.pod import Pod
from slurm_client.model import JobSpec
from tests.builders import PREFIX, pod

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
        ({"gang_size": "0"}, '"0" is not a whole number from 1 to 10000'),
        ({"gang_size": "10001"}, '"10001" is not a whole number from 1 to 10000'),
        ({"gang": "a/b"}, '"a/b" is not a name of at most 63 lower-case letters'),
        ({"members_per_node": "3"}, "a gang of 4 Pods cannot have 3 Pods on each node"),
        ({"required_nodes": "n1"}, "required-nodes: a gang cannot name its nodes"),
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
