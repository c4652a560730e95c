"""Tokens of the node agents' service account: a token for each Pod of an agent, as the kubelet
requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.chart import AGENT_NAME, NAMESPACE
from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.rendering import render
from tests.end_to_end.actors import pod

_OF_THE_ACCOUNT = ("--namespace", NAMESPACE)


def unbound_token(cluster: Cluster, *options: str) -> str:
    """Returns a token of the account. By default, the token is bound to no object."""
    return cluster.kubectl("create", "token", AGENT_NAME, *_OF_THE_ACCOUNT, *options).stdout.strip()


@contextmanager
def token_of_a_pod(cluster: Cluster, node: str | None) -> Iterator[str]:
    """Yields the token of an agent's Pod on a Node; None stands for a Pod without a Node. The token is
    valid while the Pod exists. The Pod requests no resources."""
    name = f"agent-{node or 'nowhere'}"
    manifest = pod(name, cpu=None, memory=None, scheduler="nobody")
    manifest["metadata"]["namespace"] = NAMESPACE
    manifest["spec"] |= {"serviceAccountName": AGENT_NAME, "nodeName": node}
    created = cluster.kubectl("create", "-f", "-", "--output=json", stdin=json.dumps(manifest)).stdout
    uid = json.loads(created)["metadata"]["uid"]
    try:
        yield unbound_token(
            cluster,
            "--bound-object-kind=Pod",
            f"--bound-object-name={name}",
            f"--bound-object-uid={uid}",
        )
    finally:
        cluster.kubectl("delete", "pod", name, *_OF_THE_ACCOUNT, "--force", "--grace-period=0")


def authority(cluster: Cluster) -> Path:
    """Returns the path of kube-apiserver's CA certificate."""
    return Layout(cluster.directory).kubernetes / "ca.crt"


def write_kubeconfig(path: Path, cluster: Cluster, token: str) -> None:
    server, ca = cluster.api_server_url, authority(cluster)
    path.write_text(render("kubeconfig.yaml.j2", user=AGENT_NAME, token=token, server=server, ca=ca))
