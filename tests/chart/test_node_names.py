"""Tests of `unmanagedPods: adopt`: only accounts with the right to bind Pods may create Pods with a
Node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from deploy.local.chart import NAMESPACE
from deploy.local.cluster import Cluster
from tests.chart.rendering import roles_and_policies
from tests.end_to_end.actors import pod
from tests.end_to_end.caller import Caller
from tests.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy

NODE, KUBELET = "node-1", "system:node:node-1"
ADOPTS = {
    "extender": {"settings": {"unmanagedPods": "adopt"}},
    "nodeAgent": {"outside": {"users": ["agent-of-a-host"]}},
}
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
DRY_RUN = "?dryRun=All"


@pytest.fixture(scope="module")
def callers(release_cluster: Cluster) -> Iterator[dict[str, Caller]]:
    """A Pod author, a kubelet, an agent and the administrator, while the policy is in force. The author,
    the kubelet and the agent have the right to create Pods in two namespaces."""
    with ExitStack() as stack:
        stack.enter_context(roles_and_policies(release_cluster, ADOPTS))
        made = {
            "admin": Caller(release_cluster),
            "author": Caller(release_cluster, user="author"),
            "kubelet": Caller(release_cluster, user=KUBELET, group="system:nodes"),
            "agent": Caller(release_cluster, user="agent-of-a-host"),
        }
        for caller in made.values():
            stack.callback(caller.close)
        for namespace in ("team-a", NAMESPACE):
            stack.enter_context(may_create(made["admin"], namespace, "pods"))
        eventually(lambda: create(made["author"]).status_code == httpx.codes.FORBIDDEN, "the policy")
        eventually(lambda: create(made["author"], nodeName=None).is_success, "the author's role")
        yield made


@contextmanager
def may_create(admin: Caller, namespace: str, resource: str) -> Iterator[None]:
    """Gives the author, the kubelet and the agent the right to create objects, because this cluster has
    no Node authorizer."""
    name = f"author-{resource}".replace("/", "-")
    named = {"metadata": {"name": name}}
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["create"]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "User", "name": name} for name in ("author", KUBELET, "agent-of-a-host")]
    binding = {"roleRef": reference, "subjects": subjects}
    for kind, body in (("roles", {"rules": [rule]}), ("rolebindings", binding)):
        admin.ask("POST", f"{ROLES}/{namespace}/{kind}", named | body).raise_for_status()
    yield
    for kind in ("rolebindings", "roles"):
        admin.ask("DELETE", f"{ROLES}/{namespace}/{kind}/{name}").raise_for_status()


def create(
    caller: Caller, namespace: str = "team-a", *, name: str = "p", mirror: bool = False, **spec: Any
) -> httpx.Response:
    """Creates a Pod with a Node, as a dry run."""
    annotations = {"kubernetes.io/config.mirror": "x"} if mirror else {}
    manifest = pod(name, scheduler="default-scheduler", own_annotations=annotations)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"] |= {"nodeName": NODE, "automountServiceAccountToken": False, **spec}
    return caller.ask("POST", f"/api/v1/namespaces/{namespace}/pods{DRY_RUN}", manifest)


def test_author_may_not_name_a_node_and_gets_advice(callers: dict[str, Caller]) -> None:
    refused = create(callers["author"])
    assert refused.status_code == httpx.codes.FORBIDDEN
    told = str(refused.json()["message"])
    assert "leave spec.nodeName out, and choose Nodes by nodeSelector or affinity" in told
    create(callers["author"], nodeName=None).raise_for_status()


def test_account_that_may_bind_pods_may_name_a_node(callers: dict[str, Caller]) -> None:
    author = callers["author"]
    create(callers["admin"]).raise_for_status()
    with may_create(callers["admin"], "team-a", "pods/binding"):
        eventually(lambda: create(author).is_success, "the author may name a Node")
    eventually(lambda: not create(author).is_success, "the author may not any more")


def test_kubelet_agents_and_release_name_nodes(callers: dict[str, Caller]) -> None:
    """A kubelet may create mirror Pods, and an agent slurmd Pods. The release's own namespace is exempt
    because of `extender.nodeNames`."""
    create(callers["agent"]).raise_for_status()
    create(callers["kubelet"], mirror=True).raise_for_status()
    create(callers["author"], NAMESPACE).raise_for_status()
