"""Tests with a real authorizer and a real kube-scheduler: the authorizer permits the requests of each
program, and kube-scheduler runs with the chart's roles."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import AGENT_NAME, NAMESPACE, RELEASE, Manifest, Rendered, Values
from deploy.local.cluster import Cluster
from deploy.local.components import answers
from deploy.local.kubernetes.components import api_client
from deploy.local.layout import Layout
from deploy.local.processes.ports import lease_ports
from deploy.local.programs.kubernetes_binaries import kubernetes_binaries
from deploy.local.progress import silent
from tests.chart import asked
from tests.chart.asked import Permission, asked_by
from tests.chart.rendering import RBAC, install, roles_and_policies
from tests.chart_matrix import OUTSIDE, POOLS, merged
from tests.end_to_end.actors import pod
from tests.end_to_end.agent_account import write_kubeconfig
from tests.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy

NOBODYS = {
    Permission(verb, group, resource)
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
    for group, resource in (
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts/token"),
        ("", "pods/exec"),
        ("apps", "daemonsets"),
        ("rbac.authorization.k8s.io", "clusterroles"),
    )
}
"""Requests that no program of the chart may make in all namespaces."""

_SCHEDULER = "a-scheduler-of-its-own"  # the usual name belongs to the cluster's own kube-scheduler


def account(name: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{name}"


def review(user: str, each: Permission) -> Manifest:
    resource, _, subresource = each.resource.partition("/")
    attributes = {
        "verb": each.verb,
        "group": each.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": each.namespace,
        "name": each.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }


def allowed(cluster: Cluster, user: str, asks: Iterable[Permission]) -> set[Permission]:
    """Returns the requests that kube-apiserver permits to a user."""
    let = set()
    with api_client(dict(cluster.ports), Layout(cluster.directory)) as client:
        for each in asks:
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            answer = client.post(path, json=review(user, each))
            answer.raise_for_status()
            if answer.json()["status"].get("allowed"):
                let.add(each)
    return let


async def test_authorizer_allows_each_program_only_its_own_requests(
    release_cluster: Cluster,
) -> None:
    everything = merged(POOLS, {"nodeAgent": {"outside": {"users": ["an-agent"]}}})
    outside = merged(merged(OUTSIDE, everything), {"pools": {"createNamespace": False}})
    extenders = await asked_by(asked.EXTENDERS, asked.EXTENDER_KINDS, asked.EXTENDER_LISTS)
    agents = await asked_by(asked.AGENTS, asked.AGENT_KINDS)
    install(release_cluster, outside, RBAC)
    programs = {"slurm-extender": extenders, account(AGENT_NAME): agents, "an-agent": agents}
    missing = {user: asks - allowed(release_cluster, user, asks) for user, asks in programs.items()}
    more = {user: allowed(release_cluster, user, NOBODYS) for user in programs}
    create = {Permission("create", "", "secrets", NAMESPACE)}
    assert allowed(release_cluster, "slurm-extender", create) == create
    install(release_cluster, {}, RBAC)
    inside = {
        account(RELEASE): extenders | asked.KUBE_SCHEDULERS,
        account(f"{RELEASE}-check"): asked.CHECKS,
    }
    for user, asks in inside.items():
        wanted = {each for each in asks if each.namespace != "slurm-nodes" and each.resource != "nodes"}
        missing[user] = wanted - allowed(release_cluster, user, wanted)
    assert not any(missing.values()), missing
    assert not any(more.values()), more


def test_authorizer_allows_changes_of_pods_only_in_namespaces_in_scope(
    release_cluster: Cluster,
) -> None:
    """In a Pod with both, kube-scheduler and the extender share one account. So kube-scheduler's role
    adds permissions to this account, but not the permission to patch Pods."""
    scope: Values = {"scheduler": {"scope": {"type": "namespace", "namespaces": ["team-a", "team-b"]}}}
    changes = {("patch", "pods"), ("delete", "pods"), ("patch", "pods/status")}
    everywhere = {("get", "pods"), ("list", "pods"), ("watch", "pods"), ("create", "pods/binding")}

    def permissions(asks: set[tuple[str, str]], *namespaces: str) -> set[Permission]:
        where = [(ask, namespace) for ask in asks for namespace in namespaces]
        return {Permission(verb, "", kind, namespace, "p") for (verb, kind), namespace in where}

    asks = permissions(changes | everywhere, "team-a", "team-b", "default")
    wanted = permissions(changes, "team-a", "team-b")
    wanted |= permissions(everywhere, "team-a", "team-b", "default")
    install(release_cluster, merged(OUTSIDE, scope), RBAC)
    assert allowed(release_cluster, "slurm-extender", asks) == wanted
    install(release_cluster, scope, RBAC)
    patches = permissions({("patch", "pods")}, "team-a", "team-b", "default")
    assert allowed(release_cluster, account(RELEASE), patches) == patches & wanted
    install(release_cluster, {}, RBAC)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.kill()


def test_kube_scheduler_runs_with_the_configuration_and_roles_of_the_chart(
    release_cluster: Cluster, tmp_path: Path
) -> None:
    """If kube-scheduler runs in the extender's Pod, kube-scheduler has the extender's account. So the
    policy for the extender's account also limits kube-scheduler."""
    with roles_and_policies(release_cluster, {"scheduler": {"name": _SCHEDULER}}) as chart:
        runs_as_in_the_chart(release_cluster, tmp_path, chart)


def runs_as_in_the_chart(release_cluster: Cluster, tmp_path: Path, chart: Rendered) -> None:
    token = release_cluster.kubectl("create", "token", RELEASE, "-n", NAMESPACE).stdout.strip()
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "log"
    write_kubeconfig(kubeconfig, release_cluster, token)
    with closing(lease_ports(["kube-scheduler", "nobody"])) as lease:
        secure, nobody = lease.ports["kube-scheduler"], lease.ports["nobody"]
    text = chart.find("ConfigMap", f"{RELEASE}-kube-scheduler")["data"]["config.yaml"]
    configuration: dict[str, Any] = yaml.safe_load(text.replace(":8888", f":{nobody}"))
    # Without the verb, this configuration is complete: each Pod has only one feasible Node, so
    # kube-scheduler would never call prioritize.
    assert not [each for each in configuration["extenders"] if "prioritizeVerb" in each]
    configuration["clientConnection"]["kubeconfig"] = str(kubeconfig)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(configuration))
    binary = kubernetes_binaries(release_cluster.spec.kubernetes_release, silent)["kube-scheduler"]
    command = [
        binary,
        f"--config={config}",
        f"--secure-port={secure}",
        "--bind-address=127.0.0.1",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
    asks = json.dumps(pod("asks-for-slurm", scheduler=_SCHEDULER))
    release_cluster.kubectl("create", "-f", "-", stdin=asks)
    with running(command, log):
        eventually(lambda: answers(f"https://127.0.0.1:{secure}/readyz"), "kube-scheduler is ready")
        words = eventually(lambda: why_it_waits(release_cluster), "it says why the Pod waits")
        assert f"127.0.0.1:{nobody}/scheduler/filter" in words
        lease_name = ("get", "lease", f"{RELEASE}-kube-scheduler", "-n", NAMESPACE, "-o", "json")
        assert json.loads(release_cluster.kubectl(*lease_name).stdout)["spec"]["holderIdentity"]
    assert "forbidden" not in log.read_text().lower()


def why_it_waits(cluster: Cluster) -> str:
    """Returns kube-scheduler's message on the Pod. The message shows the call of the extender. In this
    test, no extender listens."""
    shown = json.loads(cluster.kubectl("get", "pod", "asks-for-slurm", "-o", "json").stdout)
    conditions = shown["status"].get("conditions") or []
    return "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
