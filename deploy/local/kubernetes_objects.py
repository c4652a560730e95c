"""The objects that a cluster starts with: its Nodes, and what the extender needs to be asked."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import yaml

from deploy.local.errors import ClusterError
from deploy.local.kubernetes_components import api_client
from deploy.local.kubernetes_config import (
    AGENT_NAME,
    AGENT_NAMESPACE,
    AGENT_USER,
    POOLS_NAMESPACE,
    ca_bundle,
)
from deploy.local.layout import Layout
from deploy.local.links import admission_port
from deploy.local.rendering import render
from deploy.local.spec import ClusterSpec

_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PATHS: Final = {
    "ClusterRole": f"{_ROLES}/clusterroles",
    "ClusterRoleBinding": f"{_ROLES}/clusterrolebindings",
    "Role": f"{_ROLES}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_ROLES}/namespaces/{{namespace}}/rolebindings",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Namespace": "/api/v1/namespaces",
    "MutatingWebhookConfiguration": f"{_ADMISSION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_ADMISSION}/validatingwebhookconfigurations",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "Node": "/api/v1/nodes",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
}
_CONNECTIONS: Final = 4


def create_objects(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Creates the Nodes, but for the guest's, and the roles and webhooks of what runs here."""
    manifests = list(_nodes(spec))
    if spec.extender:
        port = admission_port(spec, ports)
        extender = render(
            "extender.yaml.j2",
            spec=spec,
            admission_port=port,
            ca_bundle=ca_bundle(layout),
            pools_namespace=POOLS_NAMESPACE,
        )
        manifests += map(_of, yaml.safe_load_all(extender))
    if not spec.in_pods:
        manifests += map(_of, yaml.safe_load_all(node_agent_objects(spec)))
    if spec.pools:
        with api_client(ports, layout) as client:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": POOLS_NAMESPACE}}
            _create(client, *_of(namespace))

    def create(share: list[tuple[str, str]]) -> None:
        with api_client(ports, layout) as client:  # its own: a shared one costs twice as much
            for path, manifest in share:
                _create(client, path, manifest)

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(create, (manifests[first::_CONNECTIONS] for first in range(_CONNECTIONS))))


def node_agent_objects(spec: ClusterSpec) -> str:
    """Returns the node agents' account, role and policy, as YAML. The guest's agent has the role as a
    user with a static token. Such a token names no Node: the policy, which would refuse it, is for the
    account alone."""
    users = [AGENT_USER] if spec.guest else []
    pools = POOLS_NAMESPACE if spec.pools else ""
    names = {"namespace": AGENT_NAMESPACE, "agent": AGENT_NAME, "pools_namespace": pools}
    return render("node-agent.yaml.j2", **names, users=users)


def _nodes(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Path and JSON of each Node. The template is parsed once: there may be thousands."""
    now = datetime.now(UTC).strftime('"%Y-%m-%dT%H:%M:%SZ"')
    node = json.dumps(yaml.safe_load(render("node.yaml.j2", spec=spec, name="@name@", now=now)))
    for name in spec.kubernetes_node_names:
        yield _PATHS["Node"], node.replace("@name@", name)


def _of(manifest: dict[str, Any]) -> tuple[str, str]:
    """Where an object is created, and its JSON."""
    namespace = manifest["metadata"].get("namespace", "")
    return _PATHS[manifest["kind"]].format(namespace=namespace), json.dumps(manifest)


def _create(client: httpx.Client, path: str, manifest: str) -> None:
    answer = client.post(path, content=manifest, headers={"Content-Type": "application/json"})
    if not answer.is_success:
        raise ClusterError(f"creating an object at {path}: {answer.text}")
