"""Creates the first objects of a cluster: the Nodes, and the objects that kube-apiserver needs to call
the extender."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import yaml

from deploy.local.chart import Rendered
from deploy.local.errors import ClusterError
from deploy.local.guest.services import services_objects
from deploy.local.kubernetes.components import api_client
from deploy.local.layout import Layout
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
    "Service": "/api/v1/namespaces/{namespace}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
}
_CONNECTIONS: Final = 4


def create_objects(spec: ClusterSpec, ports: dict[str, int], layout: Layout) -> None:
    """Creates all Nodes except the guest's Node. Also creates the roles and webhooks of the components
    that run on this machine."""
    chart = [] if spec.in_pods else list(Rendered.read(layout.chart).wanted(spec))
    namespaces = [each for each in chart if each["kind"] == "Namespace"]
    namespaces += [{"kind": "Namespace", "metadata": {"name": name}} for name in spec.namespaces]
    others = [each for each in chart if each not in namespaces]
    services = services_objects(ports) if spec.services else ()
    manifests = [*_nodes(spec), *map(_of, (*others, *services))]
    with api_client(ports, layout) as client:
        # Namespaces come first, because other objects (the Roles of the scope) are in these namespaces.
        for each in namespaces:
            _create(client, *_of(each))

    def create(share: list[tuple[str, str]]) -> None:
        with api_client(ports, layout) as client:  # one client for all threads needs twice the time
            for path, manifest in share:
                _create(client, path, manifest)

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(create, (manifests[first::_CONNECTIONS] for first in range(_CONNECTIONS))))


def _nodes(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Yields path and JSON of each Node. The template is parsed once: a cluster may have thousands
    of Nodes."""
    now = datetime.now(UTC).strftime('"%Y-%m-%dT%H:%M:%SZ"')
    node = json.dumps(yaml.safe_load(render("node.yaml.j2", spec=spec, name="@name@", now=now)))
    for name in spec.kubernetes_node_names:
        yield _PATHS["Node"], node.replace("@name@", name)


def _of(manifest: dict[str, Any]) -> tuple[str, str]:
    """Returns the path at which an object is created, and the object's JSON."""
    namespace = manifest["metadata"].get("namespace", "")
    return _PATHS[manifest["kind"]].format(namespace=namespace), json.dumps(manifest)


def _create(client: httpx.Client, path: str, manifest: str) -> None:
    answer = client.post(path, content=manifest, headers={"Content-Type": "application/json"})
    if not answer.is_success:
        raise ClusterError(f"creating an object at {path}: {answer.text}")
