"""The extender's roles allow what its client asks of kube-apiserver, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from inspect import getmembers_static, isfunction
from typing import Any, Self

import yaml

from deploy.local.rendering import render
from deploy.local.spec import ClusterSpec
from extender.control import claim_watch
from kubernetes_client.errors import NotFound
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.rest import KubernetesRest
from tests.kubernetes_client.accesses import access_of

Permission = tuple[str, str, str]
"""API group, resource (with its subresource), verb."""
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v\w+/(?:namespaces/[^/]+/(?=\w))?"
    r"(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?P<subresource>/[^/]+)?$"
)
SECRET = {"metadata": {"namespace": "kube-system", "name": "webhooks"}}
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "read_pod": [("ns", "p")],
    "patch_pod": [("ns", "p", {})],
    "patch_pod_status": [("ns", "p", {})],
    "delete_pod": [("ns", "p", {}, 0)],
    "bind_pod": [("ns", "p", "n", {})],
    "create_event": [("ns", {})],
    "read_node": [("n",)],
    "patch_node": [("n", {})],
    "patch_node_status": [("n", {})],
    "cluster_uid": [()],
    "revisions": [("ns",)],
    "create_revision": [("ns", {})],
    "delete_revision": [("ns", "r")],
    "read_lease": [("ns", "l")],
    "create_lease": [("ns", {})],
    "replace_lease": [("ns", "l", {})],
    "read_secret": [("ns", "s")],
    "write_secret": [(SECRET,), ({"metadata": SECRET["metadata"] | {"resourceVersion": "1"}},)],
    "trust": [("slurm-extender", b"authority")],
}
"""How each method is called that is about one object."""
ABOUT_ALL = {"serves", "list", "pages", "watch"}
AGENTS = {"create_pod", "read_revision"}
"""What only the node agent asks, and the check after an install."""
EVERYBODYS = {"version", "kinds", "account", "allows"}
"""What every account may ask (system:basic-user, system:discovery)."""


class Recorder(KubernetesRest):
    """Notes what kube-apiserver would be asked."""

    asked: set[Permission]

    async def __aenter__(self) -> Self:
        self.asked = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ask(self, method: str, path: str, **_: Any) -> Manifest:
        webhook = {"name": "w", "clientConfig": {}}
        if path.count("/") == 2:  # which versions a group has, which everybody may know
            return {"preferredVersion": {"groupVersion": f"{path.removeprefix('/apis/')}/v1"}}
        self._note(method, path)
        return {"metadata": {"uid": "u"}, "webhooks": [webhook]}

    async def _ask_apart(self, method: str, path: str, **_: Any) -> Manifest:
        self._note(method, path)
        return {"metadata": {}}

    async def _send(self, method: str, path: str, **how: Any) -> Any:
        self._note(method, path, watch=how["query"]["watch"] == "true")
        raise NotFound(404, "nothing is sent here")

    def _note(self, method: str, path: str, *, watch: bool = False) -> None:
        asks = PATH.fullmatch(path)
        assert asks, path
        reads = "watch" if watch else "get" if asks["name"] else "list"
        verb = VERBS.get(method, reads)
        self.asked.add((asks["group"] or "", asks["resource"] + (asks["subresource"] or ""), verb))


def allowed(manifest: Any) -> Iterator[Permission]:
    for rule in manifest["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


async def test_the_roles_allow_exactly_what_the_client_may_ask() -> None:
    methods = {name for name, _ in getmembers_static(Kubernetes, isfunction) if name[0] != "_"}
    assert methods == CALLS.keys() | ABOUT_ALL | AGENTS | EVERYBODYS | {"aclose"}
    async with Recorder(access_of("http://kubernetes")) as recorder:
        for name, calls in CALLS.items():
            for given in calls:
                await getattr(recorder, name)(*given)
        for kind in ("pods", "nodes", "events", *claim_watch._KINDS):
            assert await recorder.serves(kind)
            await recorder.list(kind, None)
            with suppress(NotFound):
                async with recorder.watch(kind, None, "0", 1):
                    pass
    spec = ClusterSpec(self_signed=True, pools="pools: []")
    names = {"admission_port": 1, "ca_bundle": "ca", "pools_namespace": "slurm-nodes"}
    rendered = render("extender.yaml.j2", spec=spec, **names)
    roles = [each for each in yaml.safe_load_all(rendered) if each["kind"] in ("ClusterRole", "Role")]
    assert {permission for role in roles for permission in allowed(role)} == recorder.asked
