"""Tests with a real kube-apiserver: the extender's account may make exactly the writes of the extender's
code."""

from __future__ import annotations

import itertools
import string
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from deploy.local.chart import NAMESPACE, RELEASE, Manifest
from deploy.local.cluster import Cluster
from extender.certificates import KeyPair
from extender.execution import pod_patches
from extender.node_sync.drain_decision import with_taint
from kubernetes_client.trust import trusting
from tests.chart.rendering import roles_and_policies
from tests.end_to_end.actors import pod
from tests.end_to_end.caller import Caller
from tests.eventually import eventually
from wellknown.conditions import condition
from wellknown.names import (
    CAPACITY_FREED,
    CONDITION,
    GATE,
    GRANTED,
    JOB_ID,
    LINGERING,
    NODE_NAME_LABEL,
    OUT_OF_SERVICE,
    PODS_REJECTED,
    SLURM_OUT_OF_SERVICE,
    SLURMD,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy

PODS = "/api/v1/namespaces/team-a/pods"
NODE = "/api/v1/nodes/node-1"
SERVICE, URL = "service.example.com", "url.example.com"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
READY = {"type": "Ready", "status": "Unknown"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHERS_GATE, OTHERS_TAINT = "example.com/gate", {"key": "example.com/taint", "effect": "NoSchedule"}


def tainted(**given: str) -> Manifest:
    """Returns a patch that sets the extender's taint. `given` changes fields of the taint."""
    (taint,) = with_taint([], wanted=True)
    return {"spec": {"taints": [OTHERS_TAINT, {**taint, **given}]}}


@pytest.fixture(scope="module")
def admin(release_cluster: Cluster) -> Iterator[Caller]:
    """The administrator, after the roles and the policies of a release are installed."""
    caller = Caller(release_cluster)
    with roles_and_policies(release_cluster, {"extender": {"settings": {"taintNodes": True}}}):
        caller.ask("PATCH", NODE, {"spec": {"taints": [OTHERS_TAINT]}}).raise_for_status()
        yield caller
        caller.ask("PATCH", NODE, {"spec": {"taints": None}}).raise_for_status()
        release_cluster.kubectl("delete", "pods", "--all", "-n", "team-a", "--force")
    caller.close()


@pytest.fixture(scope="module")
def extender(release_cluster: Cluster, admin: Caller) -> Iterator[Caller]:
    """The extender's account, as soon as both policies are in force."""
    caller = Caller(release_cluster, user=f"system:serviceaccount:{NAMESPACE}:{RELEASE}")
    created(admin, "probe")

    def refused() -> bool:  # a patch without a change would be allowed
        patch = {"metadata": {"labels": {"probed": str(time.monotonic_ns())}}}
        answers = [caller.ask("PATCH", path, patch) for path in (f"{PODS}/probe", NODE)]
        return all(answer.status_code == httpx.codes.FORBIDDEN for answer in answers)

    eventually(refused, "the policies are in force")
    yield caller
    caller.close()
    admin.ask("PATCH", NODE, {"metadata": {"labels": {"probed": None}}}).raise_for_status()


def created(admin: Caller, name: str, **given: Any) -> str:
    """Creates a Pod with two scheduling gates, and returns the Pod's path."""
    gates = [{"name": GATE}, {"name": OTHERS_GATE}]
    manifest = pod(name, **{"schedulingGates": gates, **given})
    manifest["metadata"]["namespace"] = "team-a"
    admin.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    admin.ask("POST", PODS, manifest).raise_for_status()
    return f"{PODS}/{name}"


def read(admin: Caller, path: str) -> Manifest:
    """Returns an object without the fields of the metadata that change at each write."""
    answer: Manifest = admin.ask("GET", path).raise_for_status().json()
    for field in ("managedFields", "resourceVersion"):
        answer["metadata"].pop(field, None)
    return answer


def refusal(answer: httpx.Response) -> str:
    """Returns the changes that the policy's message lists as refused."""
    assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
    message = str(answer.json()["message"])
    assert "the extender may write" in message
    return message.partition("This changes: ")[2]


def test_extender_writes_its_notes_gate_and_conditions(admin: Caller, extender: Caller) -> None:
    path = created(admin, "written", own_annotations={"mine": "yes"})
    uid = read(admin, path)["metadata"]["uid"]
    notes = dict.fromkeys((GRANTED, CAPACITY_FREED, JOB_ID), "1")
    patches: list[tuple[str, Manifest]] = [
        (path, pod_patches.annotated(uid, notes)),
        (path, {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}),
        (path, pod_patches.annotated(uid, {JOB_ID: None})),
    ]
    for kind in (CONDITION, "PodScheduled", "DisruptionTarget"):
        told = condition(kind, "Words", "words", NOW, holds=True)
        status = {"nominatedNodeName": "node-1", "conditions": [told]}
        patches.append((f"{path}/status", {"status": status}))
    for where, patch in patches:
        extender.ask("PATCH", where, patch).raise_for_status()
    seen = read(admin, path)
    assert seen["spec"]["schedulingGates"] == [{"name": OTHERS_GATE}]
    assert seen["metadata"]["annotations"].keys() == {"mine", GRANTED, CAPACITY_FREED}
    assert len(seen["status"]["conditions"]) == 3


def test_extender_binds_and_deletes_a_pod_of_its_scheduler(admin: Caller, extender: Caller) -> None:
    path = created(admin, "bound", schedulingGates=None)
    target = {"kind": "Node", "name": "node-1"}
    for metadata, named in (
        ({"annotations": {"mine": "no"}}, "annotations"),
        ({"labels": {"mine": "no"}}, "labels"),
    ):
        binding = {"metadata": {"name": "bound", **metadata}, "target": target}
        assert refusal(extender.ask("POST", f"{path}/binding", binding)) == named
    binding = {"metadata": {"name": "bound", "annotations": {GRANTED: "{}"}}, "target": target}
    extender.ask("POST", f"{path}/binding", binding).raise_for_status()
    extender.ask("DELETE", path).raise_for_status()
    others = created(admin, "others", scheduler="default-scheduler")
    assert refusal(extender.ask("DELETE", others)) == "another scheduler's Pod"
    assert read(admin, others)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ({"spec": {"containers": [{"name": "c", "image": "elsewhere"}]}}, "containers"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "activeDeadlineSeconds"),
        ({"spec": {"tolerations": [{"key": "any", "operator": "Exists"}]}}, "tolerations"),
        ({"spec": {"nodeSelector": {"a": "b"}}}, "nodeSelector"),
        ({"spec": {"schedulingGates": [{"name": OTHERS_GATE, "$patch": "delete"}]}}, "other gates"),
        ({"metadata": {"labels": {"app": "another"}}}, "labels"),
        ({"metadata": {"labels": {"kept": None}}}, "labels"),
        ({"metadata": {"annotations": {"mine": "no"}}}, "annotations"),
        ({"metadata": {"annotations": {"mine": None}}}, "annotations"),
        ({"metadata": {"annotations": {"added": "yes"}}}, "annotations"),
        ({"metadata": {"finalizers": ["example.com/stays"]}}, "finalizers"),
    ],
)
def test_extender_writes_nothing_else_of_a_pod(
    admin: Caller, extender: Caller, patch: Manifest, named: str
) -> None:
    path = created(admin, "kept", own_annotations={"mine": "yes"}, labels={"kept": "yes"})
    before = read(admin, path)
    assert refusal(extender.ask("PATCH", path, patch)) == named
    assert read(admin, path) == before


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ({"status": {"phase": "Failed"}}, "phase"),
        ({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}, "podIP, podIPs"),
        ({"status": {"message": "words"}}, "message"),
        ({"status": {"conditions": [READY]}}, "other conditions"),
        ({"metadata": {"labels": {"app": "another"}}}, "labels"),
        ({"metadata": {"annotations": {"added": "yes"}}}, "annotations"),
    ],
)
def test_extender_writes_nothing_else_of_a_pods_status(
    admin: Caller, extender: Caller, patch: Manifest, named: str
) -> None:
    path = created(admin, "kept")
    before = read(admin, path)
    assert sorted(refusal(extender.ask("PATCH", f"{path}/status", patch)).split(", ")) == named.split(
        ", "
    )
    assert read(admin, path) == before


def test_extender_writes_to_a_pod_with_as_many_annotations_as_fit(
    admin: Caller, extender: Caller
) -> None:
    """The Pod's annotations are as large as kube-apiserver permits (256 KiB). The policy's expressions
    must nevertheless stay below kube-apiserver's limit on their cost."""
    many = map("".join, itertools.product(string.ascii_letters, repeat=3))
    path = created(admin, "large", own_annotations=dict.fromkeys(itertools.islice(many, 80_000), ""))
    uid = read(admin, path)["metadata"]["uid"]
    extender.ask("PATCH", path, pod_patches.annotated(uid, {JOB_ID: "1"})).raise_for_status()
    for change in ({"added": "yes"}, {"aaa": None}):
        patch = {"metadata": {"annotations": change}}
        assert refusal(extender.ask("PATCH", path, patch)) == "annotations"


def test_extender_writes_its_conditions_annotations_and_taint_of_a_node(
    admin: Caller, extender: Caller
) -> None:
    before = read(admin, NODE)
    for kind in (SLURM_OUT_OF_SERVICE, PODS_REJECTED):
        told = condition(kind, "Words", "words", NOW, holds=True)
        extender.ask("PATCH", f"{NODE}/status", {"status": {"conditions": [told]}}).raise_for_status()
    for wanted in (True, False):
        taints = with_taint([OTHERS_TAINT], wanted=wanted)
        extender.ask("PATCH", NODE, {"spec": {"taints": taints}}).raise_for_status()
        assert read(admin, NODE)["spec"]["taints"] == taints
    for key, path in ((SLURMD, NODE), (LINGERING, f"{NODE}/status")):
        for value in ("{}", None):
            patch = {"metadata": {"annotations": {key: value}}}
            seen = extender.ask("PATCH", path, patch).raise_for_status().json()
            assert seen["metadata"].get("annotations", {}).get(key) == value
    for kind in (SLURM_OUT_OF_SERVICE, PODS_REJECTED):
        gone = {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}
        extender.ask("PATCH", f"{NODE}/status", gone).raise_for_status()
    assert read(admin, NODE) == before


@pytest.mark.parametrize(
    ("subresource", "patch", "named"),
    [
        ("", {"metadata": {"labels": {NODE_NAME_LABEL: "another"}}}, "labels"),
        ("/status", {"metadata": {"labels": {NODE_NAME_LABEL: "another"}}}, "labels"),
        ("", {"metadata": {"annotations": {"added": "yes"}}}, "annotations"),
        ("", {"spec": {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoSchedule"}]}}, "other taints"),
        ("", {"spec": {"taints": [OTHERS_TAINT, OTHERS_TAINT | {"key": "added"}]}}, "other taints"),
        ("", tainted(effect="NoExecute"), "other taints"),
        ("", tainted(effect="PreferNoSchedule"), "other taints"),
        ("", tainted(value="another"), "other taints"),
        ("", {"spec": {"unschedulable": True}}, "unschedulable"),
        (
            "/status",
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            "other conditions",
        ),
        ("/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, "capacity"),
    ],
)
def test_extender_writes_nothing_else_of_a_node(
    admin: Caller, extender: Caller, subresource: str, patch: Manifest, named: str
) -> None:
    before = read(admin, NODE)
    assert refusal(extender.ask("PATCH", NODE + subresource, patch)) == named
    assert read(admin, NODE) == before


@pytest.fixture
def webhooks(admin: Caller) -> Iterator[str]:
    """Creates a webhook configuration with the extender's name. The rules match nothing, so
    kube-apiserver never calls the webhooks."""
    nothing = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["nothing"]}
    webhook = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [nothing | {"operations": ["CREATE"]}],
    }
    service = {"name": "s", "namespace": NAMESPACE, "path": "/mutate", "port": 443}
    clients = {SERVICE: {"service": service}, URL: {"url": "https://a.example.com"}}
    both = [webhook | {"name": name, "clientConfig": client} for name, client in clients.items()]
    admin.ask("POST", WEBHOOKS, {"metadata": {"name": RELEASE}, "webhooks": both}).raise_for_status()
    yield f"{WEBHOOKS}/{RELEASE}"
    admin.ask("DELETE", f"{WEBHOOKS}/{RELEASE}").raise_for_status()


def test_extender_writes_the_ca_bundle_of_its_webhooks(
    admin: Caller, extender: Caller, webhooks: str
) -> None:
    """The extender writes the CA bundle twice. The second write keeps the first CA in the bundle."""
    for _ in range(2):
        certificate = KeyPair.ca(datetime.now(UTC)).certificate
        patch = trusting(read(admin, webhooks)["webhooks"], certificate)
        extender.ask("PATCH", webhooks, patch).raise_for_status()
        assert trusting(read(admin, webhooks)["webhooks"], certificate) is None


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ({"webhooks": [{"name": SERVICE, "clientConfig": {"service": {"name": "x"}}}]}, "webhooks"),
        ({"webhooks": [{"name": URL, "clientConfig": {"url": "https://x.example.com"}}]}, "webhooks"),
        ({"webhooks": [{"name": URL, "failurePolicy": "Ignore"}]}, "webhooks"),
        ({"webhooks": [{"name": URL, "rules": []}]}, "webhooks"),
        ({"webhooks": [{"name": URL, "$patch": "delete"}]}, "webhooks"),
        ({"metadata": {"labels": {"added": "yes"}}}, "labels"),
    ],
)
def test_extender_writes_nothing_else_of_its_webhooks(
    admin: Caller, extender: Caller, webhooks: str, patch: Manifest, named: str
) -> None:
    before = read(admin, webhooks)
    assert refusal(extender.ask("PATCH", webhooks, patch)) == named
    assert read(admin, webhooks) == before
