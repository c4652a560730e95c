"""Helm installs, upgrades and uninstalls a release on a real kube-apiserver, and nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from deploy.local.chart import CHART, Values
from deploy.local.cluster import Cluster
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from tests.chart.matrix import POOLS, merged, with_needed
from tests.end_to_end.actors import eventually_not

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # a cluster, and four calls of Helm

NAMESPACE = "slurm-system"
KINDS = (
    *("deployments", "daemonsets", "services", "configmaps", "serviceaccounts", "pods", "roles"),
    *("rolebindings", "clusterroles", "clusterrolebindings", "networkpolicies", "poddisruptionbudgets"),
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)


def run(cluster: Cluster, *command: str, values: Values | None = None) -> str:
    """What Helm prints; fails with its words."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    given = ["--values", "-"] if values is not None else []
    whole = [str(helm(silent)), *command, "--namespace", NAMESPACE, *given]
    text = json.dumps(values or {})
    done = subprocess.run(
        whole, input=text, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def of_the_release(cluster: Cluster, kinds: Sequence[str] = KINDS) -> set[tuple[str, str]]:
    """Kind and name of each object that there is of the release."""
    selector = ("--selector", "app.kubernetes.io/instance=placer", "--all-namespaces", "-o", "json")
    listed: list[Any] = json.loads(cluster.kubectl("get", ",".join(kinds), *selector).stdout)["items"]
    return {(each["kind"], each["metadata"]["name"]) for each in listed}


def test_a_release_comes_changes_and_goes_without_a_trace(release_cluster: Cluster) -> None:
    values = with_needed(merged(POOLS, {"pools": {"createNamespace": False}}))
    told = run(release_cluster, "install", "placer", str(CHART), "--create-namespace", values=values)
    name = "placer-slurm-extender"
    assert f"kubectl rollout status -n {NAMESPACE} deployment/{name}" in told
    assert f"helm test -n {NAMESPACE} placer --logs" in told
    assert "No Pod may run yet" in told
    installed = of_the_release(release_cluster)
    assert {("Deployment", name), ("DaemonSet", f"{name}-node-agent")} <= installed
    with pytest.raises(AssertionError, match="has placer in the namespace slurm-system"):
        run(release_cluster, "install", "another", str(CHART), values=values)
    before = generation(release_cluster, name)
    rules = [{"name": "all", "namespaces": ["*"], "default": {"user": 2001}}]
    told = run(
        release_cluster,
        *("upgrade", "placer", str(CHART)),
        values=merged(values, {"policy": {"preset": "restricted", "rules": rules}}),
    )
    assert "No Pod may run yet" not in told
    assert generation(release_cluster, name) == before  # a changed policy makes no Pod anew
    faster = merged(values, {"extender": {"settings": {"pollIntervalS": 0.1}}})
    run(release_cluster, "upgrade", "placer", str(CHART), values=faster)
    assert generation(release_cluster, name) == before + 1
    run(release_cluster, "uninstall", "placer", "--wait")
    # Its Pods end a moment after the Deployment.
    eventually_not(lambda: of_the_release(release_cluster), "what is left of the release")


def generation(cluster: Cluster, name: str) -> int:
    """How often what the Deployment is to be has changed."""
    shown = cluster.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o", "json").stdout
    return int(json.loads(shown)["metadata"]["generation"])
