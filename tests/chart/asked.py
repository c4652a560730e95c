"""Compares the requests that each program sends to kube-apiserver with the permissions of the program's
roles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import getmembers_static, isfunction
from pathlib import Path
from typing import Any, Self

from deploy.local.chart import NAMESPACE, POOLS_NAMESPACE, RELEASE, Rendered
from extender.execution import claim_watch
from kubernetes_client.errors import NotFound
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.rest import KubernetesRest
from tests.kubernetes_client.accesses import access_of
from wellknown.slurmd_pod import TEMPLATES

CHECKOUT = Path(__file__).parents[2]
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v\w+/(?:namespaces/(?P<namespace>[^/]+)/(?=\w))?"
    r"(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?P<subresource>/[^/]+)?$"
)
WEBHOOKS = {"metadata": {"namespace": NAMESPACE, "name": f"{RELEASE}-webhooks"}}
USES = {"metadata": {"namespace": POOLS_NAMESPACE, "name": TEMPLATES}}
Calls = Mapping[str, Sequence[tuple[Any, ...]]]
EXTENDERS: Calls = {
    "read_pod": [("ns", "p")],
    "patch_pod": [("ns", "p", {})],
    "patch_pod_status": [("ns", "p", {})],
    "delete_pod": [("ns", "p", {}, 0)],
    "bind_pod": [("ns", "p", "n", {})],
    "create_event": [("ns", {})],
    "read_pod_group": [
        ("scheduling.k8s.io/v1beta1", "ns", "g"),
        ("scheduling.x-k8s.io/v1alpha1", "ns", "g"),
    ],
    "read_node": [("n",)],
    "patch_node": [("n", {})],
    "patch_node_status": [("n", {})],
    "cluster_uid": [()],
    "revisions": [(POOLS_NAMESPACE,)],
    "create_revision": [(POOLS_NAMESPACE, {})],
    "delete_revision": [(POOLS_NAMESPACE, "r")],
    "read_config_map": [(POOLS_NAMESPACE, TEMPLATES)],
    "write_config_map": [(USES,), ({"metadata": {**USES["metadata"], "resourceVersion": "1"}},)],
    "read_lease": [(NAMESPACE, "slurm-extender")],
    "create_lease": [(NAMESPACE, {})],
    "replace_lease": [(NAMESPACE, "slurm-extender", {})],
    "read_secret": [(NAMESPACE, f"{RELEASE}-webhooks")],
    "write_secret": [(WEBHOOKS,), ({"metadata": {**WEBHOOKS["metadata"], "resourceVersion": "1"}},)],
    "trust": [(RELEASE, b"authority")],
}
"""By method: the arguments of each call of the extender for a single object."""
AGENTS: Calls = {
    "read_node": [("n",)],
    "patch_node_status": [("n", {})],
    "create_pod": [(POOLS_NAMESPACE, {})],
    "delete_pod": [(POOLS_NAMESPACE, "p", {}, 0)],
    "read_revision": [(POOLS_NAMESPACE, "r")],
}
EXTENDER_KINDS = ("pods", "nodes", "events", *claim_watch._KINDS)
EXTENDER_LISTS = ("validatingadmissionpolicies",)
"""Kinds that the extender lists without a watch."""
AGENT_KINDS = ("pods", "nodes")
CHECKS_CALLS = {"create_pod"}
"""Methods that only the command `slurm-extender check` calls in the extender's package."""
CLUSTERS_CALLS = {
    "create_event",
    "read_secret",
    "write_secret",
    "read_config_map",
    "write_config_map",
}
"""Methods that only slurm-cluster calls. The roles of the chart slurm permit these calls. The roles of
slurm-extender do not."""
EVERYBODYS = {"version", "kinds", "account", "denied"}
"""Methods that every account may call (system:basic-user, system:discovery)."""
ABOUT_ALL = {"serves", "list", "latest_version", "pages", "watch"}
PERSONS = {"call_service"}
"""Methods that only preflight calls, with the account of a user. No role of the chart permits these
calls."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """A request to kube-apiserver, or a permission in a role. In a permission, an empty namespace or
    name stands for every namespace or name."""

    verb: str
    group: str
    resource: str
    """The resource, with the subresource if a subresource exists."""
    namespace: str = ""
    name: str = ""

    def allows(self, asked: Permission) -> bool:
        same = (self.verb, self.group, self.resource) == (asked.verb, asked.group, asked.resource)
        return same and self.namespace in ("", asked.namespace) and self.name in ("", asked.name)


def _lease(verb: str, name: str = "") -> Permission:
    return Permission(verb, "coordination.k8s.io", "leases", NAMESPACE, name)


KUBE_SCHEDULERS = {
    _lease("create"),
    _lease("get", f"{RELEASE}-kube-scheduler"),
    _lease("update", f"{RELEASE}-kube-scheduler"),
}
"""Requests of kube-scheduler about the Lease (client-go's leaderelection). A role of Kubernetes itself
permits all other requests of kube-scheduler."""
CHECKS = {
    Permission("create", "", "pods", "default"),
    Permission("get", "", "pods", "default", "p"),
    Permission("delete", "", "pods", "default", "p"),
    Permission("get", "", "nodes", "", "n"),
}
"""Requests of `slurm-extender check`."""
UNINSTALLS = {
    Permission("list", "", "pods"),
    Permission("patch", "", "pods", "default", "p"),
    Permission("get", "", "namespaces", "", "kube-system"),
    _lease("get", "slurm-extender"),
}
"""Requests of `slurm-extender uninstall`, if every step is necessary."""


class Recorder(KubernetesRest):
    """Records requests, and sends nothing."""

    asked: set[Permission]

    async def __aenter__(self) -> Self:
        self.asked = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ask(self, method: str, path: str, **_: Any) -> Manifest:
        webhook = {"name": "w", "clientConfig": {}}
        if path.count("/") == 2:  # every account may read the versions of a group
            return {"preferredVersion": {"groupVersion": f"{path.removeprefix('/apis/')}/v1"}}
        self._note(method, path)
        return {"metadata": {"uid": "u"}, "webhooks": [webhook]}

    async def _send(self, method: str, path: str, **_: Any) -> Any:
        self._note(method, path)
        raise NotFound(404, "nothing is sent here")

    def _note(self, method: str, target: str) -> None:
        path, _, query = target.partition("?")
        asks = PATH.fullmatch(path)
        assert asks, path
        reads = "watch" if "watch=true" in query else "get" if asks["name"] else "list"
        verb = VERBS.get(method, reads)
        resource = asks["resource"] + (asks["subresource"] or "")
        where = (asks["namespace"] or "", asks["name"] or "")
        self.asked.add(Permission(verb, asks["group"] or "", resource, *where))


async def asked_by(calls: Calls, kinds: Iterable[str], lists: Iterable[str] = ()) -> set[Permission]:
    """Returns the requests of these calls, of watches of `kinds`, and of lists of the kinds in
    `lists`."""
    async with Recorder(access_of("http://kubernetes")) as recorder:
        for name, arguments in calls.items():
            for given in arguments:
                await getattr(recorder, name)(*given)
        for kind in kinds:
            assert await recorder.serves(kind)
            await recorder.list(kind, None)
            with suppress(NotFound):
                async with recorder.watch(kind, None, "0", 1):
                    pass
        for kind in lists:
            await recorder.list(kind, None)
        return recorder.asked


def allowed_to(chart: Rendered, subject: str) -> set[Permission]:
    """Returns the permissions of the roles that the chart binds to a subject."""
    permissions = set[Permission]()
    for binding in chart.manifests:
        bound = [each["name"] for each in binding.get("subjects") or ()]
        if subject not in bound or binding["roleRef"]["name"] not in _roles(chart):
            continue
        role = chart.find(binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for each in _all(chart, role, binding):
            permissions |= set(_permissions(each))
    return permissions


def _all(chart: Rendered, role: Manifest, binding: Manifest) -> Iterator[Manifest]:
    """Yields the role that a binding means. Several namespaces may have a role of this name. The binding
    means the role in the binding's own namespace."""
    for each in chart.manifests:
        same = (each["kind"], each["metadata"]["name"]) == (role["kind"], role["metadata"]["name"])
        if same and each["metadata"].get("namespace") == binding["metadata"].get("namespace"):
            yield each


def _roles(chart: Rendered) -> set[str]:
    return {each["metadata"]["name"] for each in chart.manifests if "rules" in each}


def _permissions(role: Manifest) -> Iterator[Permission]:
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield Permission(verb, group, resource, namespace, name)


def missing(allowed: set[Permission], asks: set[Permission]) -> list[Permission]:
    return sorted(each for each in asks if not any(one.allows(each) for one in allowed))


def unused(allowed: set[Permission], asks: set[Permission]) -> list[Permission]:
    return sorted(one for one in allowed if not any(one.allows(each) for each in asks))


def methods() -> set[str]:
    """Returns the names of the methods of the client of kube-apiserver."""
    return {name for name, _ in getmembers_static(Kubernetes, isfunction) if name[0] != "_"}


def called_in(package: str) -> set[str]:
    """Returns the names of the client's methods that a package calls."""
    trees = (ast.parse(path.read_text()) for path in (CHECKOUT / package).rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} & methods()
