"""Creates the service accounts of the chart's Pods, and kubeconfigs for the accounts."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.local.chart import NAMESPACE, RELEASE, Rendered
from deploy.local.cluster import Cluster
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart_matrix import UNINSTALL, with_needed
from tests.end_to_end.agent_account import write_kubeconfig

_RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")


def kubeconfig_of(component: str, cluster: Cluster, folder: Path) -> Path:
    """Creates the account and the roles of a component of the chart ("check"), and returns a
    kubeconfig."""
    chart = Rendered.of(helm(silent), with_needed(UNINSTALL))
    label = "app.kubernetes.io/component"
    labelled = (each for each in chart.manifests if each["metadata"]["labels"].get(label) == component)
    wanted = [each for each in labelled if each["kind"] in _RIGHTS]
    assert len({each["kind"] for each in wanted}) == len(_RIGHTS)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
    account = f"{RELEASE}-{component}"
    token = cluster.kubectl("create", "token", account, "-n", NAMESPACE).stdout.strip()
    path = folder / "kubeconfig"
    write_kubeconfig(path, cluster, token)
    return path
