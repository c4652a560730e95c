"""The objects that a cluster starts with: its Nodes, and what the extender needs to be asked."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

import httpx
import yaml

from deploy.local.errors import ClusterError
from deploy.local.kubernetes_components import api_client
from deploy.local.kubernetes_config import AGENT_NAME, AGENT_NAMESPACE, AGENT_USER, ca_bundle
from deploy.local.layout import Layout
from deploy.local.links import admission_port
from deploy.local.rendering import render
from deploy.local.spec import ClusterSpec

_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PATHS: Final = {
    "ClusterRole": f"{_ROLES}/clusterroles",
    "ClusterRoleBinding": f"{_ROLES}/clusterrolebindings",
    "Role": f"{_ROLES}/namespaces/kube-system/roles",
    "RoleBinding": f"{_ROLES}/namespaces/kube-system/rolebindings",
    "MutatingWebhookConfiguration": f"{_ADMISSION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_ADMISSION}/validatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "Node": "/api/v1/nodes",
    "ServiceAccount": f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts",
}
_CONNECTIONS: Final = 4


def create_objects(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Creates the Nodes, but for the guest's, and the roles and webhooks of what runs here."""
    manifests = list(_nodes(spec))
    if spec.extender:
        port = admission_port(spec, ports)
        extender = render(
            "extender.yaml.j2", spec=spec, admission_port=port, ca_bundle=ca_bundle(layout)
        )
        manifests += ((each["kind"], json.dumps(each)) for each in yaml.safe_load_all(extender))
    agent = yaml.safe_load_all(node_agent_objects(spec))
    manifests += ((each["kind"], json.dumps(each)) for each in agent)

    def create(share: list[tuple[str, str]]) -> None:
        with api_client(ports, layout) as client:  # its own: a shared one costs twice as much
            for kind, manifest in share:
                _create(client, kind, manifest)

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(create, (manifests[first::_CONNECTIONS] for first in range(_CONNECTIONS))))


def node_agent_objects(spec: ClusterSpec) -> str:
    """Returns the node agents' account, role and policy, as YAML. The guest's agent has the role as a
    user with a static token. Such a token names no Node: the policy, which would refuse it, is for the
    account alone."""
    users = [AGENT_USER] if spec.guest else []
    return render("node-agent.yaml.j2", namespace=AGENT_NAMESPACE, agent=AGENT_NAME, users=users)


def _nodes(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Kind and JSON of each Node. The template is parsed once: there may be thousands."""
    now = datetime.now(UTC).strftime('"%Y-%m-%dT%H:%M:%SZ"')
    node = json.dumps(yaml.safe_load(render("node.yaml.j2", spec=spec, name="@name@", now=now)))
    for name in spec.kubernetes_node_names:
        yield "Node", node.replace("@name@", name)


def _create(client: httpx.Client, kind: str, manifest: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post(_PATHS[kind], content=manifest, headers=headers)
    if not answer.is_success:
        raise ClusterError(f"creating a {kind}: {answer.text}")
