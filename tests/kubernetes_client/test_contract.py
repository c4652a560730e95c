"""Contract tests of each kube-apiserver behind `protocol.Kubernetes`: a real kube-apiserver and the
in-memory kube-apiserver.

If their answers differ, the in-memory kube-apiserver has a bug. This file reads, patches, binds and
deletes Pods. test_contract_others.py tests other objects, and test_contract_watches.py tests lists and
watches.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kubernetes_client.errors import Conflict, NotFound, Rejected
from kubernetes_client.protocol import Kubernetes, Manifest
from tests.kubernetes_client.bench import Bench, conditions

OURS, THEIRS = "example.io/ours", "example.io/theirs"
NOW = "2026-11-21T08:00:00Z"


def condition(kind: str, status: str = "False", **given: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": NOW} | given


def version(manifest: Manifest) -> str:
    return str(manifest["metadata"]["resourceVersion"])


async def read(bench: Bench, name: str) -> Manifest:
    found = await bench.kubernetes.read_pod("default", name)
    assert found is not None
    return found


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


# -- reading and patching


async def test_a_pod_is_read_as_it_was_created(bench: Bench) -> None:
    created = bench.pod()
    assert await read(bench, name_of(created)) == created
    assert created["metadata"]["uid"]


async def test_a_pod_that_does_not_exist_is_none_and_cannot_be_patched_or_bound(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, bench.name()
    assert await kubernetes.read_pod("default", name) is None
    patch = {"metadata": {"annotations": {OURS: "1"}}}
    for call in (
        kubernetes.patch_pod("default", name, patch),
        kubernetes.patch_pod_status("default", name, patch),
        kubernetes.bind_pod("default", name, "nowhere", {}),
    ):
        with pytest.raises(NotFound):
            await call


async def test_patch_adds_changes_and_removes_annotations(bench: Bench) -> None:
    name = name_of(bench.pod(annotations={THEIRS: "x"}))
    for value, ours in (("1", {OURS: "1"}), ("2", {OURS: "2"}), (None, {})):
        patched = await bench.kubernetes.patch_pod(
            "default", name, {"metadata": {"annotations": {OURS: value}}}
        )
        assert patched["metadata"]["annotations"] == {THEIRS: "x"} | ours
        assert patched == await read(bench, name)


async def test_pod_without_annotations_has_no_annotations_field(bench: Bench) -> None:
    name = name_of(bench.pod(annotations={OURS: "1"}))
    patch = {"metadata": {"annotations": {OURS: None}}}
    patched = await bench.kubernetes.patch_pod("default", name, patch)
    assert "annotations" not in patched["metadata"]


async def test_a_patch_makes_a_newer_version_unless_it_changes_nothing(bench: Bench) -> None:
    before = bench.pod()
    patch = {"metadata": {"annotations": {OURS: "1"}}}
    first = await bench.kubernetes.patch_pod("default", name_of(before), patch)
    assert int(version(first)) > int(version(before))
    assert await bench.kubernetes.patch_pod("default", name_of(before), patch) == first


async def test_patches_of_spec_and_status_leave_the_other_part_alone(
    bench: Bench,
) -> None:
    name = name_of(bench.pod(gates=("example.io/gate",)))
    patch = {
        "metadata": {"annotations": {OURS: "1"}},
        "spec": {"schedulingGates": [{"name": "example.io/gate", "$patch": "delete"}]},
        "status": {"nominatedNodeName": "n1"},
    }
    status = await bench.kubernetes.patch_pod_status("default", name, patch)
    assert status["spec"]["schedulingGates"] == [{"name": "example.io/gate"}]
    assert status["status"]["nominatedNodeName"] == "n1"
    assert status["metadata"]["annotations"] == {OURS: "1"}
    patch["status"] = {"nominatedNodeName": None}
    main = await bench.kubernetes.patch_pod("default", name, patch)
    assert "schedulingGates" not in main["spec"]
    assert main["status"]["nominatedNodeName"] == "n1"
    taken_back = await bench.kubernetes.patch_pod_status("default", name, patch)
    assert "nominatedNodeName" not in taken_back["status"]


async def test_conditions_are_merged_by_their_types(bench: Bench) -> None:
    name = name_of(bench.pod())
    for patched in (
        [condition("example.io/A", message="a"), condition("example.io/B", reason="First", message="b")],
        [condition("example.io/B", "True", reason="Second")],
    ):
        await bench.kubernetes.patch_pod_status("default", name, {"status": {"conditions": patched}})
    said = conditions(await read(bench, name))
    assert condition("example.io/A", message="a").items() <= said["example.io/A"].items()
    second = condition("example.io/B", "True", reason="Second", message="b")
    assert second.items() <= said["example.io/B"].items()


async def test_patch_removes_one_gate_and_keeps_the_other_gates(bench: Bench) -> None:
    name = name_of(bench.pod(gates=("example.io/ours", "example.io/theirs")))
    lifted = {"spec": {"schedulingGates": [{"name": "example.io/ours", "$patch": "delete"}]}}
    patched = await bench.kubernetes.patch_pod("default", name, lifted)
    assert patched["spec"]["schedulingGates"] == [{"name": "example.io/theirs"}]
    assert await bench.kubernetes.patch_pod("default", name, lifted) == patched


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulingGates": [{"name": "example.io/new"}]}, id="a gate"),
        pytest.param({"schedulerName": "another"}, id="another scheduler"),
        pytest.param({"nodeName": "n1"}, id="a Node"),
    ],
)
async def test_patch_of_other_fields_of_the_spec_is_rejected(bench: Bench, spec: Manifest) -> None:
    created = bench.pod()
    with pytest.raises(Rejected):
        await bench.kubernetes.patch_pod("default", name_of(created), {"spec": spec})
    assert await read(bench, name_of(created)) == created


# -- preconditions

CONDITION = {"conditions": [condition("example.io/A")]}
WRITES: dict[str, Callable[[Kubernetes, str, dict[str, Any]], Awaitable[object]]] = {
    "patch": lambda api, name, held_to: api.patch_pod(
        "default", name, {"metadata": held_to | {"annotations": {OURS: "1"}}}
    ),
    "patch status": lambda api, name, held_to: api.patch_pod_status(
        "default", name, {"metadata": held_to, "status": CONDITION}
    ),
    "delete": lambda api, name, held_to: api.delete_pod("default", name, held_to, 30),
    "bind": lambda api, name, held_to: api.bind_pod("default", name, "nowhere", held_to),
}


@pytest.mark.parametrize("call", WRITES)
async def test_write_with_a_wrong_version_or_uid_is_a_conflict(bench: Bench, call: str) -> None:
    write = WRITES[call]
    old = bench.pod()
    name, uid = name_of(old), old["metadata"]["uid"]
    now = bench.edit("pods", name, {"metadata": {"labels": {"x": "y"}}})
    for wrong in (
        {"uid": uid, "resourceVersion": version(old)},
        {"uid": "b4ee76a2-5d9c-4b9c-a9d4-0d5b3f5c6e6a", "resourceVersion": version(now)},
        {"uid": "b4ee76a2-5d9c-4b9c-a9d4-0d5b3f5c6e6a"},
    ):
        with pytest.raises(Conflict):
            await write(bench.kubernetes, name, wrong)
    assert await read(bench, name) == now
    await write(bench.kubernetes, name, {"uid": uid, "resourceVersion": version(now)})
    assert await bench.kubernetes.read_pod("default", name) != now


# -- binding


async def test_binding_sets_the_node_the_annotations_and_the_condition(bench: Bench) -> None:
    name = name_of(bench.pod(annotations={THEIRS: "x"}))
    before = condition("PodScheduled", reason="SlurmSays", message="not yet")
    await bench.kubernetes.patch_pod_status("default", name, {"status": {"conditions": [before]}})
    await bench.kubernetes.bind_pod("default", name, "nowhere", {"annotations": {OURS: "1"}})
    bound = await read(bench, name)
    assert bound["spec"]["nodeName"] == "nowhere"
    assert bound["metadata"]["annotations"] == {OURS: "1", THEIRS: "x"}
    scheduled = conditions(bound)["PodScheduled"]
    assert scheduled["status"] == "True"
    assert not {"reason", "message"} & scheduled.keys()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"node": "nowhere"}, id="bound"),
        pytest.param({"gates": ("example.io/gate",)}, id="gated"),
    ],
)
async def test_bound_or_gated_pod_cannot_be_bound(bench: Bench, given: dict[str, Any]) -> None:
    created = bench.pod(**given)
    with pytest.raises(Conflict):
        await bench.kubernetes.bind_pod("default", name_of(created), "elsewhere", {})
    assert await read(bench, name_of(created)) == created


# -- deletion


async def test_deletion_of_a_missing_pod_succeeds(bench: Bench) -> None:
    await bench.kubernetes.delete_pod("default", bench.name(), {"uid": "u"}, 30)


@pytest.mark.parametrize(
    ("given", "phase", "grace_s"),
    [
        pytest.param({}, None, 30, id="unbound"),
        pytest.param({"node": "nowhere"}, None, 0, id="without grace"),
        pytest.param({"node": "nowhere"}, "Succeeded", 30, id="ended"),
        pytest.param({"node": "nowhere"}, "Failed", 30, id="failed"),
    ],
)
async def test_pod_without_running_containers_is_deleted_at_once(
    bench: Bench, given: dict[str, Any], phase: str | None, grace_s: int
) -> None:
    pod = bench.pod(**given)
    if phase is not None:
        bench.end(name_of(pod), phase)
    await bench.kubernetes.delete_pod("default", name_of(pod), {"uid": pod["metadata"]["uid"]}, grace_s)
    assert await bench.kubernetes.read_pod("default", name_of(pod)) is None


async def test_grace_of_a_pod_being_deleted_can_only_become_shorter(
    bench: Bench,
) -> None:
    pod = bench.pod(node="nowhere")
    held_to = {"uid": pod["metadata"]["uid"]}
    seen = []
    for grace_s in (60, 20, 20, 300):
        await bench.kubernetes.delete_pod("default", name_of(pod), held_to, grace_s)
        seen.append((await read(bench, name_of(pod)))["metadata"])
    assert [each["deletionGracePeriodSeconds"] for each in seen] == [60, 20, 20, 20]
    first, *later = [datetime.fromisoformat(each["deletionTimestamp"]) for each in seen]
    assert later == [first - timedelta(seconds=40)] * 3
    assert len({each["resourceVersion"] for each in seen}) == 2
    await bench.kubernetes.delete_pod("default", name_of(pod), held_to, 0)
    assert await bench.kubernetes.read_pod("default", name_of(pod)) is None


async def test_status_of_a_pod_being_deleted_can_be_patched(bench: Bench) -> None:
    pod = bench.pod(node="nowhere")
    await bench.kubernetes.delete_pod("default", name_of(pod), {"uid": pod["metadata"]["uid"]}, 60)
    told = {"status": {"conditions": [condition("example.io/A", "True")]}}
    patched = await bench.kubernetes.patch_pod_status("default", name_of(pod), told)
    assert conditions(patched)["example.io/A"]["status"] == "True"
    assert patched["metadata"]["deletionGracePeriodSeconds"] == 60
