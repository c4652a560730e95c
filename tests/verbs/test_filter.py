"""Tests of /filter with the calls of kube-scheduler."""

from dataclasses import replace
from pathlib import Path

import pytest

from extender.explain.wording import NOT_SERVED
from extender.filter.route import NO_NAMES
from extender.pod_request.feasible_nodes import FeasibleNodes
from slurm_client.model import Partition
from tests.builders import PREFIX, Manifest, kube_node, view
from tests.verbs.callers import Listeners, body
from wellknown.log_fields import PodName
from wellknown.names import ATTEMPT, ELSEWHERE, FEASIBLE_NODES, GRANTED, JOB_ID, NODE, WAITING

OFFERED = body("filter")["NodeNames"]
NONE_YET = {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(OFFERED, WAITING)}


def call(**annotations: str | None) -> Manifest:
    """Returns a call of kube-scheduler, with other annotations on the Pod."""
    sent = body("filter")
    names = {"job_id": JOB_ID, "node": NODE, "attempt": ATTEMPT, "offer": FEASIBLE_NODES}
    names["granted"] = GRANTED
    names["partition"] = PREFIX + "partition"
    sent["Pod"]["metadata"]["annotations"] = {names[name]: value for name, value in annotations.items()}
    return sent


async def test_the_allocated_node_is_the_only_one_that_fits() -> None:
    answer = await Listeners().ask("filter", call(job_id="40000000", node="n4"))
    assert answer == {"NodeNames": ["n4"], "FailedNodes": {}}


def with_gpus(sent: Manifest) -> Manifest:
    """Returns the same call for a Pod with a GPU."""
    sent["Pod"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    return sent


@pytest.mark.parametrize(
    ("allocatable", "fits"),
    [({"cpu": "8", "nvidia.com/gpu": "4"}, True), ({"cpu": "8", "nvidia.com/gpu": "0"}, False)],
)
async def test_the_allocated_node_fits_while_its_devices_are_allocatable(
    allocatable: dict[str, str], *, fits: bool
) -> None:
    """On a Node without allocatable devices, kube-scheduler would choose devices by Dynamic Resource
    Allocation."""
    listeners = Listeners(view=view(replace(kube_node("n4"), allocatable=allocatable)))
    without = call(job_id="40000000", node="n4")
    assert (await listeners.ask("filter", without))["NodeNames"] == ["n4"]
    assert listeners.feasible_nodes == []
    granted = call(job_id="40000000", node="n4", granted='{"v":1,"gres":"gpu:1(IDX:0)"}')
    answer = await listeners.ask("filter", with_gpus(granted))
    if fits:
        assert answer == {"NodeNames": ["n4"], "FailedNodes": {}}
        return
    failed = dict.fromkeys(OFFERED, NOT_SERVED)
    assert answer == {"NodeNames": [], "FailedAndUnresolvableNodes": failed}
    ((_, offer),) = listeners.feasible_nodes
    assert offer == FeasibleNodes(40000000, tuple(name for name in OFFERED if name != "n4"))


UNANNOTATED, NULL = body("filter"), body("filter")
del UNANNOTATED["Pod"]["metadata"]["annotations"]
NULL["Pod"]["metadata"]["annotations"] = None
FORGED = [call(job_id=job_id, node="n4") for job_id in ("", "x", "-7", "1" * 5000)]


@pytest.mark.parametrize("sent", [body("filter"), call(job_id="40000000"), NULL, UNANNOTATED, *FORGED])
async def test_every_node_fails_for_one_constant_reason_without_an_allocation(sent: Manifest) -> None:
    assert await Listeners().ask("filter", sent) == NONE_YET


async def test_every_node_fails_if_the_allocated_node_is_not_offered() -> None:
    answer = await Listeners().ask("filter", call(job_id="40000000", node="n9"))
    assert answer["NodeNames"] == []
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(OFFERED, ELSEWHERE)


async def test_nominated_node_is_filtered_like_any_other_node() -> None:
    for offered, expected in ((["n4"], ["n4"]), (["n1"], [])):
        sent = call(job_id="40000000", node="n4") | {"NodeNames": offered}
        assert (await Listeners().ask("filter", sent))["NodeNames"] == expected


async def test_the_same_question_gets_the_same_answer() -> None:
    listeners, sent = Listeners(), call(job_id="40000000", node="n4")
    first, second = [(await listeners.post("filter", sent)).content for _ in range(2)]
    assert first == second


async def test_annotation_makes_a_pod_managed_only_at_its_creation() -> None:
    """After the creation, only the name of the extender's scheduler makes a Pod managed. If an
    annotation were enough, a Pod of another scheduler would wait for ever."""
    sent = call(partition="gpu")
    sent["Pod"]["spec"]["schedulerName"] = "default-scheduler"
    assert await Listeners().ask("filter", sent) != NONE_YET


async def test_empty_node_list_gives_no_failed_nodes() -> None:
    answer = await Listeners().ask("filter", body("filter") | {"NodeNames": []})
    assert answer == {"NodeNames": [], "FailedAndUnresolvableNodes": {}}


async def test_call_without_node_names_gets_an_error_with_the_missing_setting() -> None:
    sent = body("filter") | {"NodeNames": None, "Nodes": {"items": []}}
    assert await Listeners().ask("filter", sent) == {"Error": NO_NAMES}
    del sent["NodeNames"]
    assert await Listeners().ask("filter", sent) == {"Error": NO_NAMES}
    assert "nodeCacheCapable" in NO_NAMES


def refused_call(job_id: int, node: str = "elsewhere", offer: str | None = None) -> Manifest:
    return call(job_id=str(job_id), node=node, **({"offer": offer} if offer else {}))


async def test_offered_nodes_are_reported_if_the_allocated_node_is_refused() -> None:
    listeners = Listeners()
    sent = refused_call(7)
    await listeners.ask("filter", sent)
    ((pod, offer),) = listeners.feasible_nodes
    assert pod == PodName.of(sent["Pod"]["metadata"])
    assert offer == FeasibleNodes(7, tuple(OFFERED))


async def test_refusal_is_reported_once_per_job() -> None:
    listeners = Listeners()
    await listeners.ask("filter", refused_call(7, offer="7 n1 n2"))
    assert listeners.feasible_nodes == []
    await listeners.ask("filter", refused_call(8, offer="7 n1 n2"))
    assert len(listeners.feasible_nodes) == 1


async def test_pod_without_a_node_or_with_an_offered_node_reports_no_refusal() -> None:
    listeners = Listeners()
    await listeners.ask("filter", refused_call(7, node=OFFERED[0]))
    await listeners.ask("filter", call())
    assert listeners.feasible_nodes == []


def retried_call(**offer: str) -> Manifest:
    return call(attempt="2", **offer)


async def test_feasible_nodes_of_a_retried_pod_are_reported_once() -> None:
    listeners = Listeners()
    assert await listeners.ask("filter", retried_call()) == NONE_YET
    ((_, offer),) = listeners.feasible_nodes
    assert offer == FeasibleNodes(0, tuple(OFFERED))
    listeners = Listeners()
    await listeners.ask("filter", retried_call(offer="0 n1"))
    assert listeners.feasible_nodes == []
    await listeners.ask("filter", retried_call(offer="7 n1"))
    assert len(listeners.feasible_nodes) == 1


async def test_feasible_nodes_outside_the_partition_are_not_reported() -> None:
    partition = Partition("main", ("gpu-1",), default=True)
    seen = view(kube_node(OFFERED[0]), kube_node("gpu-1"), partitions=[partition])
    listeners = Listeners(view=seen)
    await listeners.ask("filter", retried_call())
    assert listeners.feasible_nodes == []
    await listeners.ask("filter", retried_call() | {"NodeNames": [*OFFERED, "gpu-1"]})
    assert len(listeners.feasible_nodes) == 1


async def test_feasible_nodes_follow_the_partition_of_the_policy(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{namespaces: [default], default: {user: 1000, partition: gpu}}]")
    partitions = Partition("cpu", ("c1",), default=True), Partition("gpu", ("g1",))
    seen = view(kube_node("c1"), kube_node("g1"), partitions=partitions)
    listeners = Listeners(view=seen, policy_file=policy)
    await listeners.ask("filter", retried_call() | {"NodeNames": ["c1"]})
    assert listeners.feasible_nodes == []
    await listeners.ask("filter", retried_call() | {"NodeNames": ["g1"]})
    assert len(listeners.feasible_nodes) == 1
