"""What is rendered is what a real kube-apiserver takes, with strict validation of each field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Rendered
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.slurm_chart.matrix import MATRIX, TREE
from tests.slurm_chart.rendering import pod_specs, rendered, run_helm, text

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # on a busy machine

_CLAIM = "persistentVolumeClaim"
_DRY_RUN = (
    *("apply", "--server-side", "--force-conflicts", "--field-manager=helm"),
    *("--dry-run=server", "--validate=strict", "-f", "-"),
)


@pytest.mark.parametrize("case", MATRIX)
def test_helm_lint_finds_nothing(case: str) -> None:
    said = run_helm("lint", "--strict", str(CHART), values=MATRIX[case])
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("case", MATRIX)
def test_kube_apiserver_takes_each_object_and_knows_each_field(
    release_cluster: Cluster, case: str
) -> None:
    release = release_cluster.spec.kubernetes_release
    objects = text(MATRIX[case], "--kube-version", f"{release}.0")
    release_cluster.kubectl(*_DRY_RUN, stdin=objects)


def _probes(container: Any) -> list[Any]:
    """On a slow machine a command in a container takes longer than the default of 1 s."""
    return [{"timeoutSeconds": 1, **container[key]} for key in container if key.endswith("Probe")]


def test_an_object_that_is_wrong_would_be_noticed(release_cluster: Cluster) -> None:
    objects = text({})
    for right, wrong in (
        ("serviceName: slurmctld", "servicName: slurmctld"),
        ("port: 6819", "port: 70000"),
    ):
        assert right in objects
        with pytest.raises(ClusterError):
            release_cluster.kubectl(*_DRY_RUN, stdin=objects.replace(right, wrong))


@pytest.mark.parametrize("case", [case for case in MATRIX if case != "more of each Pod"])
def test_the_pods_are_let_into_a_restricted_namespace(release_cluster: Cluster, case: str) -> None:
    """All but login's: sshd is root. Those of people's own containers are theirs to make so."""
    for what, spec in pod_specs(rendered(MATRIX[case])):
        if what.startswith("Deployment") and what.endswith("login"):
            continue
        metadata = {"name": "p", "namespace": "restricted"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        spec["serviceAccountName"] = "default"
        try:
            release_cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
        except ClusterError as error:
            raise AssertionError(f"{what}: {error}") from error


@pytest.mark.parametrize("case", ["defaults", "volumes", "a backup controller"])
def test_each_claim_has_a_pod_that_wants_it_at_once(case: str) -> None:
    """Else a StorageClass that waits for the first consumer makes no volume, and `helm --wait` waits."""
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
def test_what_may_have_replicas_is_spread_over_nodes(kind: str, name: str) -> None:
    template = rendered(TREE).find(kind, name)["spec"]["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def names(chart: Rendered) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of each object."""
    found = ((each["kind"], each["metadata"]) for each in chart.manifests)
    return {(kind, one.get("namespace", ""), one["name"]) for kind, one in found}


def test_names_are_short_enough_whatever_the_release_is_called() -> None:
    for kind, _, name in names(rendered(TREE, release="r" * 53)):
        assert len(name) <= (52 if kind in ("CronJob", "StatefulSet") else 63), (kind, name)


def test_two_releases_may_be_in_one_namespace_and_in_any_cluster() -> None:
    second = {**TREE, "slurmExtender": {"token": {"secretName": "second-token"}}}
    assert not names(rendered(TREE)) & names(rendered(second, release="second"))
    said = text(second, release="second")
    assert "SlurmctldHost=second-slurmctld-0(second-slurmctld-0.slurm.svc)" in said
    assert "cluster.local" not in said


@pytest.mark.parametrize("case", MATRIX)
def test_containers_mount_what_there_is_and_all_there_is(case: str) -> None:
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
