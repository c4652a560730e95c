"""Contract tests of Events, Nodes, Leases, Secrets, webhooks and other objects, for each kube-apiserver
behind `protocol.Kubernetes`."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trustme

from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import kubeconfig_of
from deploy.local.layout import Layout
from kubernetes_client.errors import Conflict, NotFound, Unavailable
from kubernetes_client.protocol import Manifest, Right
from kubernetes_client.rest import KubernetesRest
from tests.kubernetes_client.bench import Bench, conditions
from tests.kubernetes_client.test_contract import condition, name_of, version


def manifest(group: str, kind: str, name: str, about: Manifest | None = None, /, **of: Any) -> Manifest:
    named = {"name": name, "namespace": "default", **(about or {})}
    return {"apiVersion": group, "kind": kind, "metadata": named, **of}


# -- Events


def event(name: str, message: str) -> Manifest:
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"}
    told = {"type": "Normal", "reason": "Granted", "message": message}
    return manifest("v1", "Event", name, involvedObject=pod, **told)


async def test_event_with_an_existing_name_stays_unchanged(bench: Bench) -> None:
    name = bench.name()
    for message in ("first", "second"):
        await bench.kubernetes.create_event("default", event(name, message))
    assert bench.read("events", name)["message"] == "first"
    bench.remove("events", name)


async def test_events_are_selected_by_reason_and_reporting_component(
    bench: Bench,
) -> None:
    named = {
        name: {"reason": reason, "reportingComponent": f"{program}-{bench.scheduler}"}
        for name, reason, program in (
            (bench.name(), "Preempted", "one"),
            (bench.name(), "Preempted", "other"),
            (bench.name(), "Granted", "one"),
        )
    }
    for name, fields in named.items():
        told = {**event(name, "m"), **fields, "reportingInstance": "i"}
        await bench.kubernetes.create_event("default", told)
    selector = f"reason=Preempted,reportingComponent=one-{bench.scheduler}"
    found = (await bench.kubernetes.list("events", selector))["items"]
    assert [name_of(each) for each in found] == [next(iter(named))]
    for name in named:
        bench.remove("events", name)


# -- PodGroups


async def test_pod_group_of_an_unserved_version_is_none(bench: Bench) -> None:
    """The end-to-end tests read PodGroups of versions that kube-apiserver serves."""
    assert await bench.kubernetes.read_pod_group("none.example.io/v1", "default", "g") is None


# -- the server, and the calling account


async def test_server_reports_its_version_uid_and_kinds(bench: Bench) -> None:
    kubernetes = bench.kubernetes
    uid = await kubernetes.cluster_uid()
    assert uid
    assert await kubernetes.cluster_uid() == uid
    assert re.fullmatch(r"v1\.\d+\.\d+\S*", await kubernetes.version())
    assert "pods" in await kubernetes.kinds("v1")
    admission = await kubernetes.kinds("admissionregistration.k8s.io/v1")
    assert "validatingadmissionpolicies" in admission
    assert await kubernetes.kinds("none.example.io/v1") == frozenset()


async def test_account_can_read_its_name_and_its_rights(bench: Bench) -> None:
    assert (await bench.kubernetes.account())["username"] == "admin"
    rights = [
        Right("patch", "pods/status"),
        Right("get", "leases", "coordination.k8s.io", "kube-system", "slurm-extender"),
        Right("create", "leases", "coordination.k8s.io", "kube-system"),
    ]
    assert await bench.kubernetes.denied(rights) == ()


@pytest.mark.real
async def test_account_lacks_the_rights_that_no_role_gives(shared_cluster: Cluster) -> None:
    kubeconfig = kubeconfig_of("system:kube-scheduler", Layout(shared_cluster.directory))
    kubernetes = await KubernetesRest.connect(kubeconfig)
    leases, scheduler = "coordination.k8s.io", "kube-scheduler"
    given = [
        Right("create", "pods/binding"),
        Right("patch", "pods/status"),
        Right("delete", "pods", namespace="default"),
        Right("patch", "pods/status", namespace="default"),
        Right("create", "leases", leases, "default"),
        Right("update", "leases", leases, "default", scheduler),
    ]
    lacking = [
        Right("create", "pods"),
        Right("update", "pods", namespace="default"),
        Right("patch", "pods/exec", namespace="default"),
        Right("update", "leases", leases, "default"),
        Right("update", "leases", leases, "default", "other"),
        Right("update", "leases", "", "default", scheduler),
    ]
    assert set(await kubernetes.denied([*given, *lacking])) == set(lacking)
    await kubernetes.aclose()


# -- Nodes


async def test_a_node_that_does_not_exist_cannot_be_read_or_patched(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, bench.name()
    for call in (
        kubernetes.read_node(name),
        kubernetes.patch_node(name, {"spec": {"unschedulable": True}}),
        kubernetes.patch_node_status(name, {"status": {"conditions": [condition("example.io/A")]}}),
    ):
        with pytest.raises(NotFound):
            await call


async def test_a_patch_of_a_node_replaces_its_taints_and_leaves_its_status(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, name_of(bench.node())
    one, other = [{"key": f"example.io/{key}", "effect": "NoSchedule"} for key in ("a", "b")]
    for taints in ([one], [other]):
        told = {"conditions": [condition("example.io/Never")]}
        await kubernetes.patch_node(name, {"spec": {"taints": taints}, "status": told})
        node = await kubernetes.read_node(name)
        assert node["spec"]["taints"] == taints
        assert "example.io/Never" not in conditions(node)
    await kubernetes.patch_node(name, {"spec": {"taints": []}})
    assert "taints" not in (await kubernetes.read_node(name))["spec"]


async def test_a_patch_of_a_nodes_status_merges_conditions_and_leaves_its_spec(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, name_of(bench.node())
    for told in (condition("example.io/A", message="a"), condition("example.io/B", "True")):
        patch = {"spec": {"unschedulable": True}, "status": {"conditions": [told]}}
        await kubernetes.patch_node_status(name, patch)
    node = await kubernetes.read_node(name)
    assert "unschedulable" not in node["spec"]
    assert conditions(node)["example.io/A"]["message"] == "a"
    assert conditions(node)["example.io/B"]["status"] == "True"


async def test_patch_of_a_node_with_an_old_version_is_a_conflict(bench: Bench) -> None:
    kubernetes, old = bench.kubernetes, bench.node()
    name = name_of(old)
    bench.edit("nodes", name, {"metadata": {"labels": {"x": "y"}}})
    held_to = {"resourceVersion": version(old)}
    with pytest.raises(Conflict):
        await kubernetes.patch_node(name, {"metadata": held_to, "spec": {"unschedulable": True}})
    told = {"conditions": [condition("example.io/A")]}
    with pytest.raises(Conflict):
        await kubernetes.patch_node_status(name, {"metadata": held_to, "status": told})
    for _ in range(10):  # repeats the patch, because the kubelet may patch the Node at the same time
        held_to = {"resourceVersion": version(await kubernetes.read_node(name))}
        with suppress(Conflict):
            await kubernetes.patch_node(name, {"metadata": held_to, "spec": {"unschedulable": True}})
            break
    assert (await kubernetes.read_node(name))["spec"]["unschedulable"] is True


# -- created Pods, and ControllerRevisions


async def test_pod_is_created_once(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, bench.name()
    spec = {"schedulerName": bench.scheduler, "containers": [{"name": "c", "image": "none"}]}
    pod = manifest("v1", "Pod", name, spec=spec)
    made = await kubernetes.create_pod("default", pod)
    assert made["metadata"]["uid"] == bench.read("pods", name)["metadata"]["uid"]
    with pytest.raises(Conflict):
        await kubernetes.create_pod("default", pod)
    bench.remove("pods", name)


def revision(name: str, data: Manifest) -> Manifest:
    labels = {"labels": {"a": "b"}}
    return manifest("apps/v1", "ControllerRevision", name, labels, revision=1, data=data)


async def test_revision_is_created_once_listed_and_deleted(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, bench.name()
    assert await kubernetes.read_revision("default", name) is None
    for data in ({"a": [1, {"b": "c"}]}, {"other": 1}):
        await kubernetes.create_revision("default", revision(name, data))
    found = await kubernetes.read_revision("default", name)
    assert found is not None
    assert found["data"] == {"a": [1, {"b": "c"}]}
    assert name in [each["metadata"]["name"] for each in await kubernetes.revisions("default")]
    assert name not in [each["metadata"]["name"] for each in await kubernetes.revisions("kube-system")]
    for _ in range(2):
        await kubernetes.delete_revision("default", name)
    assert await kubernetes.read_revision("default", name) is None


# -- Leases


def lease(name: str, holder: str, **metadata: str) -> Manifest:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return manifest("coordination.k8s.io/v1", "Lease", name, metadata, spec=spec)


async def test_a_lease_is_created_once_and_replaced_in_its_version(bench: Bench) -> None:
    kubernetes, name = bench.kubernetes, bench.name()
    assert await kubernetes.read_lease("default", name) is None
    first = await kubernetes.create_lease("default", lease(name, "a"))
    with pytest.raises(Conflict):
        await kubernetes.create_lease("default", lease(name, "b"))
    assert await kubernetes.read_lease("default", name) == first
    second = await kubernetes.replace_lease(
        "default", name, lease(name, "b", resourceVersion=version(first))
    )
    assert second["spec"]["holderIdentity"] == "b"
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    with pytest.raises(Conflict):
        await kubernetes.replace_lease("default", name, lease(name, "c", resourceVersion=version(first)))
    assert await kubernetes.read_lease("default", name) == second
    bench.remove("leases", name)
    gone = lease(name, "c", resourceVersion=version(second))
    third = await kubernetes.replace_lease("default", name, gone)
    assert third["metadata"]["uid"] != second["metadata"]["uid"]
    assert await kubernetes.read_lease("default", name) == third
    bench.remove("leases", name)


# -- Secrets and ConfigMaps


def secret(name: str, value: str, **metadata: str) -> Manifest:
    data = {"x": b64encode(value.encode()).decode()}
    return manifest("v1", "Secret", name, metadata, type="Opaque", data=data)


def config_map(name: str, value: str, **metadata: str) -> Manifest:
    return manifest("v1", "ConfigMap", name, metadata, data={"x": value})


@pytest.mark.parametrize("make", [secret, config_map])
async def test_object_is_created_once_and_replaced_in_its_version(
    bench: Bench, make: Callable[..., Manifest]
) -> None:
    read = getattr(bench.kubernetes, f"read_{make.__name__}")
    write = getattr(bench.kubernetes, f"write_{make.__name__}")
    name = bench.name()
    assert await read("default", name) is None
    await write(make(name, "1"))
    with pytest.raises(Conflict):
        await write(make(name, "2"))
    first = await read("default", name)
    assert make(name, "1").get("type") == first.get("type")
    assert make(name, "1")["data"] == first["data"]
    await write(make(name, "2", resourceVersion=version(first)))
    with pytest.raises(Conflict):
        await write(make(name, "3", resourceVersion=version(first)))
    second = await read("default", name)
    assert second["data"] == make(name, "2")["data"]
    bench.remove("secrets" if make is secret else "configmaps", name)
    assert await read("default", name) is None
    with pytest.raises(NotFound):
        await write(make(name, "4", resourceVersion=version(second)))


# -- webhooks


def webhook(name: str) -> Manifest:
    return {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


async def test_webhooks_trust_a_new_ca_and_the_previous_ca(bench: Bench) -> None:
    name, kind = bench.name(), "mutatingwebhookconfigurations"
    hooks = [webhook(f"{each}.example.io") for each in ("a", "b")]
    of = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    bench.create(kind, of | {"metadata": {"name": name}, "webhooks": hooks})
    first, second, third = [trustme.CA().cert_pem.bytes() for _ in range(3)]
    for authority, trusted in (
        (first, first),
        (second, second + first),
        (first, second + first),
        (third, third + second),
    ):
        await bench.kubernetes.trust(name, authority)
        found = bench.read(kind, name)["webhooks"]
        assert [each["name"] for each in found] == [each["name"] for each in hooks]
        assert [b64decode(each["clientConfig"]["caBundle"]) for each in found] == [trusted] * 2
    before = bench.read(kind, name)
    for configuration in (name, bench.name()):  # the second configuration does not exist
        await bench.kubernetes.trust(configuration, third)
    assert bench.read(kind, name) == before


# -- Services


async def test_a_service_is_called_if_it_exists_and_has_a_pod(bench: Bench) -> None:
    name, kubernetes = bench.name(), bench.kubernetes
    with pytest.raises(NotFound, match=f'services "{name}" not found'):
        await kubernetes.call_service("default", name, 443, "/mutate")
    ports = [{"port": 443, "targetPort": 8443}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    bench.create("services", {**service, "spec": {"selector": {"app": name}, "ports": ports}})
    for port, words in ((443, "no endpoints available"), (444, "no service port 444 found")):
        with pytest.raises(Unavailable, match=words) as error:
            await kubernetes.call_service("default", name, port, "/mutate")
        assert error.value.status == 503
    bench.remove("services", name)
