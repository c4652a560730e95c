"""Tests of the chart's objects: a real kube-apiserver accepts each object, and knows each field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Rendered
from deploy.local.cluster import Cluster
from tests.chart.dry_run import rejections
from tests.slurm_chart.matrix import MATRIX, TREE
from tests.slurm_chart.rendering import pod_specs, rendered, run_helm, text

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # seconds, because the machine may be busy

_CLAIM = "persistentVolumeClaim"


@pytest.mark.parametrize("case", ["defaults", "images, and two slurmctlds", "more of each Pod"])
def test_helm_lint_finds_nothing(case: str) -> None:
    said = run_helm("lint", "--strict", str(CHART), values=MATRIX[case])
    assert "0 chart(s) failed" in said


def test_kube_apiserver_takes_each_object_and_knows_each_field(release_cluster: Cluster) -> None:
    """Sends the objects of all cases of the matrix."""
    version = ("--kube-version", f"{release_cluster.spec.kubernetes_release}.0")
    _, rejected = rejections(release_cluster, [text(values, *version) for values in MATRIX.values()])
    assert not rejected, "\n".join(rejected)


def _probes(container: Any) -> list[Any]:
    """Returns the container's probes with their timeouts. The default timeout of 1 s is too short for a
    command, because a command in a container takes longer on a slow machine."""
    return [{"timeoutSeconds": 1, **container[key]} for key in container if key.endswith("Probe")]


def test_kube_apiserver_rejects_an_invalid_object(release_cluster: Cluster) -> None:
    right = text({})
    wrong = [("serviceName: slurmctld", "servicName: slurmctld"), ("port: 6819", "port: 70000")]
    texts = [right.replace(*each) for each in wrong]
    assert right not in texts
    _, rejected = rejections(release_cluster, texts)
    assert [word for word in ("servicName", "70000") if word not in "\n".join(rejected)] == []


def test_the_pods_are_admitted_to_a_restricted_namespace(release_cluster: Cluster) -> None:
    """Login Pods are left out, because sshd runs as root. The case "more of each Pod" is left out,
    because it adds containers that the user chooses."""
    charts = (rendered(values) for case, values in MATRIX.items() if case != "more of each Pod")
    specs = {
        json.dumps(spec | {"serviceAccountName": "default"}): what
        for chart in charts
        for what, spec in pod_specs(chart)
        if not (what.startswith("Deployment") and what.endswith("login"))
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": restricted(what, number),
            "spec": json.loads(spec),
        }
        for number, (spec, what) in enumerate(specs.items())
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": pods}
    release_cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(listed))


def restricted(what: str, number: int) -> dict[str, str]:
    """Returns the metadata of a Pod. The Pod's name contains the kind and name of the workload."""
    return {"name": f"{what.lower().replace(' ', '-')}-{number}", "namespace": "restricted"}


@pytest.mark.parametrize("case", ["defaults", "volumes", "a backup controller"])
def test_each_claim_is_used_by_a_pod_from_the_start(case: str) -> None:
    """If a StorageClass waits for the first consumer, a claim that no Pod uses gets no volume, and `helm
    --wait` does not end."""
    chart = rendered(MATRIX[case])
    claims = [each for each in chart.manifests if each["kind"] == "PersistentVolumeClaim"]
    volumes = [
        volume
        for what, spec in pod_specs(chart)
        if not what.startswith("CronJob")
        for volume in spec["volumes"]
    ]
    wanted = {each[_CLAIM]["claimName"] for each in volumes if _CLAIM in each}
    assert {each["metadata"]["name"] for each in claims} <= wanted


@pytest.mark.parametrize(
    ("kind", "name"),
    [("StatefulSet", "slurmctld"), ("Deployment", "slurmrestd"), ("Deployment", "login")],
)
def test_workloads_with_replicas_are_spread_over_nodes(kind: str, name: str) -> None:
    template = rendered(TREE).find(kind, name)["spec"]["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def names(chart: Rendered) -> set[tuple[str, str, str]]:
    """Returns kind, namespace and name of each object."""
    found = ((each["kind"], each["metadata"]) for each in chart.manifests)
    return {(kind, one.get("namespace", ""), one["name"]) for kind, one in found}


def test_names_are_short_enough_for_any_release_name() -> None:
    for kind, _, name in names(rendered(TREE, release="r" * 53)):
        assert len(name) <= (52 if kind in ("CronJob", "StatefulSet") else 63), (kind, name)


def test_two_releases_may_be_in_one_namespace_and_in_any_cluster() -> None:
    second = {**TREE, "slurmExtender": {"token": {"secretName": "second-token"}}}
    assert not names(rendered(TREE)) & names(rendered(second, release="second"))
    said = text(second, release="second")
    assert "SlurmctldHost=second-slurmctld-0(second-slurmctld-0.slurm.svc)" in said
    assert "cluster.local" not in said


@pytest.mark.parametrize("case", MATRIX)
def test_containers_mount_every_volume_and_have_safe_settings(case: str) -> None:
    for what, spec in pod_specs(rendered(MATRIX[case])):
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        mounted = {each["name"] for one in containers for each in one.get("volumeMounts", ())}
        assert mounted == {each["name"] for each in spec["volumes"]}, what
        own = [one for one in containers if one["name"] not in ("logs", "before")]
        for one in own:
            assert one["securityContext"]["readOnlyRootFilesystem"] is True, (what, one["name"])
            assert not [each for each in _probes(one) if "exec" in each and each["timeoutSeconds"] < 10]
            assert one["resources"]["requests"], (what, one["name"])
            assert "memory" in one["resources"]["limits"], (what, one["name"])
        assert spec["automountServiceAccountToken"] is False
