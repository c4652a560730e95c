"""Tests of a Helm release on a real kube-apiserver: install, upgrade and uninstall. An upgrade changes
only the objects that the changed values concern, and state survives the uninstall. Helm skips the hooks,
because the cluster cannot run Pods."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Manifest, Values
from deploy.local.cluster import Cluster
from kubernetes_client.rest import KubernetesRest
from slurm_cluster.published_secrets import writer
from slurm_cluster.published_secrets.places import Copy, Place
from slurm_cluster.published_secrets.writer import Wanted, publish
from tests.eventually import eventually_not
from tests.slurm_chart.rendering import NAMESPACE, run_helm

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

KINDS = (
    *("statefulsets", "deployments", "cronjobs", "services", "configmaps", "serviceaccounts", "pods"),
    *("roles", "rolebindings", "networkpolicies", "poddisruptionbudgets", "secrets"),
)
ELSEWHERE: Values = {
    "slurmExtender": {"namespace": "slurm-extender"},
    "slurmd": {"namespaces": ["slurm-nodes"]},
}


def helm(cluster: Cluster, *command: str, values: Values | None = None) -> str:
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig), "--no-hooks")
    return run_helm(*command, *where, values=values)


def get(cluster: Cluster, kind: str, name: str, namespace: str = NAMESPACE) -> Manifest:
    shown: Manifest = json.loads(
        cluster.kubectl("get", kind, name, "-n", namespace, "-o", "json").stdout
    )
    return shown


def of_the_release(cluster: Cluster, *kinds: str) -> set[str]:
    """Returns the kind and name of each object of the release, for the given kinds."""
    selector = ("--selector", "app.kubernetes.io/instance=slurm", "--all-namespaces", "-o", "json")
    listed: list[Any] = json.loads(cluster.kubectl("get", ",".join(kinds), *selector).stdout)["items"]
    return {f"{each['kind']} {each['metadata']['name']}" for each in listed}


async def test_a_release_keeps_its_state_after_upgrades_and_an_uninstall(
    release_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = release_cluster
    told = helm(cluster, "install", "slurm", str(CHART), values=ELSEWHERE)
    assert "restUrl: http://slurmrestd.slurm.svc:6820" in told
    assert "controllers: [slurmctld-0.slurm.svc:6817]" in told
    assert "Make their namespace" not in told
    before = generations(cluster)
    monkeypatch.setattr(writer, "mint", lambda *_: "a.b.c")
    await hand_out_all(cluster)
    faster = ELSEWHERE | {"config": {"slurm": {"KillWait": 44}}}
    helm(cluster, "upgrade", "slurm", str(CHART), values=faster)
    assert "KillWait=44" in get(cluster, "configmap", "slurm-config")["data"]["slurm.conf"]
    assert generations(cluster) == before  # a changed slurm.conf recreates no Pod
    helm(cluster, "upgrade", "slurm", str(CHART), values=ELSEWHERE)
    assert contents(cluster, "slurm-extender", "slurm-token") == {"token": b"a.b.c"}
    assert contents(cluster, "slurm-nodes", "slurmd").keys() == {"slurm.key", "slurm-extender-hook.conf"}
    longer = ELSEWHERE | {"slurmctld": {"env": [{"name": "TZ", "value": "UTC"}]}}
    helm(cluster, "upgrade", "slurm", str(CHART), values=longer)
    assert generations(cluster) == before | {"slurmctld": before["slurmctld"] + 1}
    helm(cluster, "uninstall", "slurm", "--wait")
    eventually_not(lambda: of_the_release(cluster, *KINDS), "what is left of the release")
    claims = {
        f"PersistentVolumeClaim {name}" for name in ("slurmctld-state", "mariadb", "mariadb-backup")
    }
    assert of_the_release(cluster, "pvc") == claims
    helm(cluster, "install", "slurm", str(CHART), values=ELSEWHERE)  # finds the earlier volumes
    helm(cluster, "uninstall", "slurm", "--wait")
    cluster.kubectl("delete", "pvc", "--all", "-n", NAMESPACE, "--wait=false")  # tests share no claims


async def hand_out_all(cluster: Cluster) -> None:
    kubernetes = await KubernetesRest.connect(cluster.kubeconfig)
    copies = [Copy(Place("slurm-nodes", "slurmd", "slurm.key"), CHART / "Chart.yaml")]
    token = Place("slurm-extender", "slurm-token", "token")
    try:
        await publish(kubernetes, Wanted(token=token, lifespan_s=60, copies=copies))
    finally:
        await kubernetes.aclose()


def generations(cluster: Cluster) -> dict[str, int]:
    """Returns the generation of each workload. kube-apiserver increases the generation with each change
    of the spec."""
    listed = cluster.kubectl("get", "deployments,statefulsets", "-n", NAMESPACE, "-o", "json").stdout
    return {
        each["metadata"]["name"]: each["metadata"]["generation"] for each in json.loads(listed)["items"]
    }


def contents(cluster: Cluster, namespace: str, name: str) -> dict[str, bytes]:
    data = get(cluster, "secret", name, namespace)["data"]
    return {key: b64decode(text) for key, text in data.items()}
