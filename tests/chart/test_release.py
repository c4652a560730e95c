"""Tests of a release on a real kube-apiserver: Helm installs, upgrades and uninstalls the release. After
the uninstallation, no object of the release is left."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from deploy.local.chart import CHART, Rendered, Values
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart_matrix import POOLS, UNINSTALL, merged, with_needed
from tests.eventually import eventually, eventually_not
from tests.meanwhile import meanwhile

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # for a cluster and four calls of Helm

NAMESPACE = "slurm-system"
KINDS = (
    *("deployments", "daemonsets", "services", "configmaps", "serviceaccounts", "pods", "roles"),
    *("rolebindings", "clusterroles", "clusterrolebindings", "networkpolicies", "poddisruptionbudgets"),
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
)
_OF_THE_RELEASE = ("--selector", "app.kubernetes.io/instance=placer")


def asked(
    cluster: Cluster, *command: str, values: Values | None = None, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """Runs Helm in the release's namespace. Returns the result even if Helm fails."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    given = ["--values", "-"] if values is not None else []
    whole = [str(helm(silent)), *command, "--namespace", namespace, *given]
    text = json.dumps(values or {})
    return subprocess.run(
        whole, input=text, env=environment, capture_output=True, text=True, check=False
    )


def run(cluster: Cluster, *command: str, values: Values | None = None) -> str:
    """Runs Helm and returns the output. If Helm fails, the test fails with Helm's message."""
    done = asked(cluster, *command, values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def of_the_release(cluster: Cluster, kinds: Sequence[str] = KINDS) -> set[tuple[str, str]]:
    """Returns the kind and the name of each object of the release in the cluster, for the given
    kinds."""
    shown = cluster.kubectl("get", ",".join(kinds), *_OF_THE_RELEASE, "--all-namespaces", "-o", "json")
    listed: list[Any] = json.loads(shown.stdout)["items"]
    return {(each["kind"], each["metadata"]["name"]) for each in listed}


def test_release_is_installed_upgraded_and_uninstalled_without_a_trace(release_cluster: Cluster) -> None:
    values = with_needed(merged(POOLS, {"pools": {"createNamespace": False}}))
    told = run(release_cluster, "install", "placer", str(CHART), "--create-namespace", values=values)
    name = "placer-slurm-extender"
    assert f"kubectl rollout status -n {NAMESPACE} deployment/{name}" in told
    assert f"helm test -n {NAMESPACE} placer --logs" in told
    assert "No Pod may run yet" in told
    installed = of_the_release(release_cluster)
    assert {("Deployment", name), ("DaemonSet", f"{name}-node-agent")} <= installed
    with pytest.raises(AssertionError, match="has slurm-system/placer"):
        run(release_cluster, "install", "another", str(CHART), values=values)
    before = generation(release_cluster, name)
    rules = [{"name": "all", "namespaces": ["*"], "default": {"user": 2001}}]
    restricted = merged(values, {"policy": {"preset": "restricted", "rules": rules}})
    told = run(release_cluster, "upgrade", "placer", str(CHART), values=restricted)
    assert "No Pod may run yet" not in told
    assert generation(release_cluster, name) == before  # a changed policy creates no new Pods
    faster = merged(values, {"extender": {"settings": {"pollIntervalS": 0.1}}})
    run(release_cluster, "upgrade", "placer", str(CHART), values=faster)
    assert generation(release_cluster, name) == before + 1
    run(release_cluster, "uninstall", "placer", "--wait")
    # After Helm has deleted the Deployment, the Pods take a moment to end.
    eventually_not(lambda: of_the_release(release_cluster), "what is left of the release")


def test_install_refuses_a_second_release_that_kubectl_applied(release_cluster: Cluster) -> None:
    values = with_needed({})

    def call(*command: str, namespace: str) -> subprocess.CompletedProcess[str]:
        return asked(release_cluster, *command, values=values, namespace=namespace)

    policies = ("--show-only", "templates/pod-policies.yaml")
    applied = call("template", "first", str(CHART), *policies, namespace="team-a").stdout
    adopted = ("install", "first", str(CHART), "--take-ownership", "--dry-run=server")
    release_cluster.kubectl("apply", "-f", "-", stdin=applied)
    try:
        with pytest.raises(AssertionError, match=r"has team-a/first \(ValidatingAdmissionPolicy first-"):
            run(release_cluster, "install", "placer", str(CHART), values=values)
        same = call(*adopted, namespace="team-a")
        assert same.returncode == 0, same.stderr
        assert "has team-a/first" in call(*adopted, namespace="team-b").stderr
        by_gitops = call("template", "placer", str(CHART), namespace="team-b")
        assert by_gitops.returncode == 0, by_gitops.stderr
    finally:
        release_cluster.kubectl("delete", "-f", "-", stdin=applied)


def generation(cluster: Cluster, name: str) -> int:
    """Returns the generation of a Deployment, which kube-apiserver increases with each change of the
    spec."""
    shown = cluster.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o", "json").stdout
    return int(json.loads(shown)["metadata"]["generation"])


@contextmanager
def released(cluster: Cluster, values: Values) -> Iterator[None]:
    run(cluster, "install", "placer", str(CHART), "--create-namespace", values=with_needed(values))
    try:
        yield
    finally:
        run(cluster, "uninstall", "placer", "--wait")
        eventually_not(lambda: of_the_release(cluster), "what is left of the release")


def test_type_of_the_hooks_service_may_change(release_cluster: Cluster) -> None:
    """kube-apiserver refuses to turn a headless Service into a normal Service, so the chart gives the
    two Services different names."""

    def pushes(kind: str) -> Values:
        return {
            "hooks": {"enabled": True, "tokenSecret": {"name": "t"}, "service": {"type": kind}},
            "nodeAgent": {"enabled": False},
        }

    with released(release_cluster, pushes("ClusterIP")):
        names = {"NodePort": "hooks-external", "LoadBalancer": "hooks-external", "ClusterIP": "hooks"}
        for kind, name in names.items():
            values = with_needed(pushes(kind))
            run(release_cluster, "upgrade", "placer", str(CHART), values=values)
            services = of_the_release(release_cluster, ["services"])
            assert services == {
                ("Service", "placer-slurm-extender"),
                ("Service", f"placer-slurm-extender-{name}"),
            }


def test_system_pods_need_no_extender_if_their_namespaces_are_labelled(
    release_cluster: Cluster,
) -> None:
    """In this test, the webhooks exist, but no extender answers their calls."""
    label = "slurm-extender.io/every-pod"
    created = ("run", "p", "--image=i", "--dry-run=server", "-n")
    namespaces = ("kube-system", NAMESPACE, "team-a")
    text = run(release_cluster, "template", "placer", str(CHART), values=with_needed({}))
    webhooks = [e for e in Rendered.parsed(text).manifests if e["kind"].endswith("WebhookConfiguration")]
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [own, *webhooks]}

    def refused() -> str:
        try:
            return release_cluster.kubectl(*created, "team-a").stderr
        except ClusterError as error:
            return str(error)

    release_cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listed))
    release_cluster.kubectl("label", "namespace", *namespaces, f"{label}=true")
    try:
        eventually(refused, holds=re.compile(r"failed calling webhook .every-pod\.").search)
        for namespace in ("kube-system", NAMESPACE):
            release_cluster.kubectl(*created, namespace)
    finally:
        release_cluster.kubectl("label", "namespace", *namespaces, f"{label}-")
        kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
        release_cluster.kubectl("delete", kinds, *_OF_THE_RELEASE)


@contextmanager
def ended(cluster: Cluster, component: str, status: int) -> Iterator[None]:
    """Lets kwok end the running Pods of a component with this exit status. So the Job of the component
    ends, because the Job does not retry a failed Pod."""
    label = f"app.kubernetes.io/component={component}"
    local = "local.slurm-extender.io"
    ends = (f"{local}/run-for=0", f"{local}/exit-code={status}")
    job = ("job", f"placer-slurm-extender-{component}", "-n", NAMESPACE)

    def end() -> None:
        with suppress(ClusterError):  # fails while the Job does not exist yet
            cluster.kubectl("annotate", "pods", "-n", NAMESPACE, "-l", label, *ends, "--overwrite")
            cluster.kubectl("patch", *job, "-p", '{"spec": {"backoffLimit": 0}}')

    with meanwhile(end, 0.5):
        yield


def test_objects_of_check_and_uninstall_are_deleted_after_each_run(release_cluster: Cluster) -> None:
    """The test also includes failing runs. After a failed run, the Job stays with the log, but the Job's
    roles are deleted."""
    values = with_needed(merged(UNINSTALL, {"nodeAgent": {"enabled": False}}))
    chart = ("placer", str(CHART), "--create-namespace")
    run(release_cluster, "install", *chart, values=values)
    installed = standing(release_cluster)
    assert not [name for _, name in installed if name.endswith(("-check", "-uninstall"))]
    for status in (0, 1):
        with ended(release_cluster, "check", status):
            tested = asked(release_cluster, "test", "placer", "--timeout", "1m")
        assert (tested.returncode == 0) is (status == 0), tested.stderr
        assert standing(release_cluster) == installed
    with ended(release_cluster, "uninstall", 1):
        gone = asked(release_cluster, "uninstall", "placer", "--wait", "--timeout", "2m")
    assert gone.returncode != 0
    assert standing(release_cluster) == {("Job", "placer-slurm-extender-uninstall")}
    release_cluster.kubectl("delete", "job,pod", "--all", "-n", NAMESPACE)


def standing(cluster: Cluster) -> set[tuple[str, str]]:
    """Returns the kind and the name of each object of the release, without Pods."""
    kinds = [kind for kind in KINDS if kind != "pods"]
    return of_the_release(cluster, [*kinds, "jobs"])
