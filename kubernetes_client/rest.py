"""The adapter to kube-apiserver. The adapter implements `protocol.Kubernetes` over HTTP.

The calls use httpx and plain manifests. The models of the library `kubernetes.aio` are slow, and raise
an error after a successful Binding. Short calls, long lists, and urgent calls have separate connections.
Every error becomes a `KubernetesError`.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

import httpx
import orjson

from kubernetes_client import rights
from kubernetes_client.access import Access, find_access
from kubernetes_client.errors import (
    Conflict,
    KubernetesError,
    NoCredentials,
    NotFound,
    Unavailable,
    error_of,
    message_of,
)
from kubernetes_client.protocol import Manifest, Right
from kubernetes_client.trust import trusting
from service.http.client import Client
from service.http.pool import LOST, Endpoint, PooledTransport
from wellknown.quoting import words_of

_JSON = "application/json"
_STRATEGIC = "application/strategic-merge-patch+json"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/events",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
    "mutatingwebhookconfigurations": f"{_WEBHOOKS}/mutatingwebhookconfigurations",
    "validatingwebhookconfigurations": f"{_WEBHOOKS}/validatingwebhookconfigurations",
    "validatingadmissionpolicies": f"{_WEBHOOKS}/validatingadmissionpolicies",
}
_CONFIGURATIONS = (_PATHS["mutatingwebhookconfigurations"], _PATHS["validatingwebhookconfigurations"])
_OPTIONAL = {"resourceclaims": "/apis/resource.k8s.io"}
"""Kinds in API groups that some API servers lack, or serve in another version."""
_TIMEOUT_S = 10.0
_LIST_TIMEOUT_S = 60.0
_CONNECT_S = 5.0
_KEPT_S = 15.0
_PAGE = 250  # parsing so many Pods takes some 15 ms of the event loop
_CONNECTIONS = 24  # each needs a TLS handshake; calls over more connections would wait in kube-apiserver
_STEADY_CONNECTIONS = 1024  # more than the number of watches
_NO_TOKEN: Final = (OSError, NoCredentials)  # errors of reading a rotating token
_USER_AGENT: Final = "slurm-extender"
"""The extender's name as the owner of fields (managedFields) and as the author of requests (audit)."""


class KubernetesRest:
    """`protocol.Kubernetes` of one kube-apiserver, over HTTPS."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._paths = dict(_PATHS)
        self._short = _client(access, _CONNECTIONS, _TIMEOUT_S)
        self._lists = _client(access, _CONNECTIONS, _LIST_TIMEOUT_S)
        self._steady = _client(access, _STEADY_CONNECTIONS, _TIMEOUT_S)
        """For calls that must not wait behind a burst of other calls: calls about the Lease, and
        watches. Each watch has its own connection."""

    @classmethod
    async def connect(cls, kubeconfig: Path | str | None, context: str | None = None) -> Self:
        """Connects as `find_access` says. Raises NoCredentials."""
        return cls(await find_access(kubeconfig, context))

    async def aclose(self) -> None:
        for client in (self._short, self._lists, self._steady):
            await client.aclose()

    # Pods

    async def read_pod(self, namespace: str, name: str) -> Manifest | None:
        return await self._find(_pod(namespace, name))

    async def patch_pod(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        return await self._patch(_pod(namespace, name), patch)

    async def patch_pod_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        return await self._patch(_pod(namespace, name, "status"), patch)

    async def delete_pod(self, namespace: str, name: str, preconditions: Manifest, grace_s: int) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": grace_s,
            "preconditions": preconditions,
        }
        with suppress(NotFound):
            await self._ask("DELETE", _pod(namespace, name), body=options)

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Manifest) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._ask("POST", _pod(namespace, name, "binding"), body=binding)

    async def create_pod(self, namespace: str, pod: Manifest) -> Manifest:
        return await self._ask("POST", _core("namespaces", namespace, "pods"), body=pod)

    async def create_event(self, namespace: str, event: Manifest) -> None:
        with suppress(Conflict):
            await self._ask("POST", _core("namespaces", namespace, "events"), body=event)

    # Nodes

    async def read_pod_group(self, version: str, namespace: str, name: str) -> Manifest | None:
        return await self._find(f"/apis/{version}/namespaces/{_part(namespace)}/podgroups/{_part(name)}")

    async def read_node(self, name: str) -> Manifest:
        return await self._ask("GET", _core("nodes", name))

    async def patch_node(self, name: str, patch: Manifest) -> None:
        await self._patch(_core("nodes", name), patch)

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        await self._patch(_core("nodes", name, "status"), patch)

    async def cluster_uid(self) -> str:
        namespace = await self._ask("GET", _core("namespaces", "kube-system"))
        return str(namespace["metadata"]["uid"])

    # ControllerRevisions

    async def read_revision(self, namespace: str, name: str) -> Manifest | None:
        return await self._find(_revisions(namespace, name))

    async def revisions(self, namespace: str) -> Sequence[Manifest]:
        return (await self._ask("GET", _revisions(namespace))).get("items") or ()

    async def create_revision(self, namespace: str, revision: Manifest) -> None:
        with suppress(Conflict):
            await self._ask("POST", _revisions(namespace), body=revision)

    async def delete_revision(self, namespace: str, name: str) -> None:
        with suppress(NotFound):
            await self._ask("DELETE", _revisions(namespace, name))

    # Leases

    async def read_lease(self, namespace: str, name: str) -> Manifest | None:
        return await self._find(_leases(namespace, name), by=self._steady)

    async def create_lease(self, namespace: str, lease: Manifest) -> Manifest:
        return await self._ask("POST", _leases(namespace), body=lease, by=self._steady)

    async def replace_lease(self, namespace: str, name: str, lease: Manifest) -> Manifest:
        return await self._ask("PUT", _leases(namespace, name), body=lease, by=self._steady)

    # Secrets and ConfigMaps

    async def read_secret(self, namespace: str, name: str) -> Manifest | None:
        return await self._find(_core("namespaces", namespace, "secrets", name))

    async def write_secret(self, secret: Manifest) -> None:
        await self._write_of("secrets", secret)

    async def read_config_map(self, namespace: str, name: str) -> Manifest | None:
        return await self._find(_core("namespaces", namespace, "configmaps", name))

    async def write_config_map(self, config_map: Manifest) -> None:
        await self._write_of("configmaps", config_map)

    async def _write_of(self, kind: str, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        path = _core("namespaces", metadata["namespace"], kind)
        if "resourceVersion" in metadata:
            await self._ask("PUT", f"{path}/{metadata['name']}", body=manifest)
        else:
            await self._ask("POST", path, body=manifest)

    # Webhooks and Services

    async def trust(self, configuration: str, ca: bytes) -> None:
        for kind in _CONFIGURATIONS:
            path = f"{kind}/{configuration}"
            with suppress(NotFound):
                patch = trusting((await self._ask("GET", path)).get("webhooks") or (), ca)
                if patch is not None:
                    await self._patch(path, patch)

    async def call_service(self, namespace: str, service: str, port: int, path: str) -> int:
        named = _core("namespaces", namespace, "services", f"https:{service}:{port}", "proxy")
        response = await self._send("GET", named + quote(path))
        if response.status_code >= 300 and _is_of_kube_apiserver(response.content):
            raise _error_of(response)
        return response.status_code

    # The server, and the account of the calls

    async def version(self) -> str:
        return str((await self._ask("GET", "/version"))["gitVersion"])

    async def kinds(self, group_version: str) -> frozenset[str]:
        path = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        served = await self._find(path) or {}
        return frozenset(each["name"] for each in served.get("resources") or ())

    async def account(self) -> Manifest:
        status = await self._review("SelfSubjectReview", {}, "authentication.k8s.io")
        user: Manifest = status["userInfo"]
        return user

    async def denied(self, asked: Iterable[Right]) -> tuple[Right, ...]:
        return await rights.denied(asked, self._review)

    async def _review(self, kind: str, spec: Manifest, group: str = "authorization.k8s.io") -> Manifest:
        """Returns the status in kube-apiserver's answer to a review of the account itself."""
        review: dict[str, Any] = {"apiVersion": f"{group}/v1", "kind": kind}
        if spec:
            review["spec"] = spec
        answer = await self._ask("POST", f"/apis/{group}/v1/{kind.lower()}s", body=review)
        status: Manifest = answer["status"]
        return status

    # Lists and watches

    async def serves(self, kind: str) -> bool:
        if kind not in self._paths:
            group = await self._find(_OPTIONAL[kind])
            if group is None:
                return False
            version = group["preferredVersion"]["groupVersion"]
            self._paths[kind] = f"/apis/{version}/{kind}"
        return True

    async def list(self, kind: str, field_selector: str | None) -> Manifest:
        return await self._list(kind, _selecting(field_selector))

    async def pages(self, kind: str, field_selector: str | None) -> AsyncIterator[Manifest]:
        query = _selecting(field_selector) | {"limit": str(_PAGE)}
        while True:
            page = await self._list(kind, query)
            yield page
            following = page["metadata"].get("continue")
            if not following:
                return
            query["continue"] = following

    async def latest_version(self, kind: str) -> str:
        """Sends no field selector, because a server without a watch cache would search all objects for a
        match."""
        return str((await self._list(kind, {"limit": "1"}))["metadata"]["resourceVersion"])

    async def _list(self, kind: str, query: Mapping[str, str]) -> Manifest:
        path = f"{self._paths[kind]}?{urlencode(query)}"
        return await self._ask("GET", path, by=self._lists)

    @asynccontextmanager
    async def watch(
        self, kind: str, field_selector: str | None, resource_version: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        path = f"{self._paths[kind]}?{urlencode(query | _selecting(field_selector))}"
        response = await self._send("GET", path, by=self._steady, watched_s=seconds + 30.0)
        pieces = _pieces(response)
        try:
            if response.status_code >= 300:
                body = b"".join([piece async for piece in pieces])
                raise error_of(response.status_code, message_of(body))
            yield pieces
        finally:
            await response.aclose()

    # Requests

    async def _patch(self, path: str, patch: Manifest) -> Manifest:
        return await self._ask("PATCH", path, body=patch, content_type=_STRATEGIC)

    async def _find(self, path: str, **how: Any) -> Manifest | None:
        """Returns an object; None if there is no object."""
        with suppress(NotFound):
            return await self._ask("GET", path, **how)
        return None

    async def _ask(self, method: str, path: str, **how: Any) -> Manifest:
        """Returns the object in the answer to a call. Takes the options of `_send`."""
        response = await self._send(method, path, **how)
        if response.status_code >= 300:
            raise _error_of(response)
        return _manifest(response.content)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Manifest | None = None,
        content_type: str = _JSON,
        by: Client | None = None,
        watched_s: float | None = None,
    ) -> httpx.Response:
        """Returns the answer to a call, by default over `_short`. With `watched_s`, the caller reads the
        body. Repeats a call after a lost connection, because the server may have closed an idle
        connection. A repeat is safe: a call names the version of an object, or a repeated call changes
        nothing more."""
        try:
            client = by or self._short
            headers = _headers(content_type, *(await self._access.headers()).items())
            content = None if body is None else orjson.dumps(body)
            timeout = httpx.Timeout(watched_s, connect=_CONNECT_S) if watched_s else None
            extensions = {"timeout": timeout.as_dict()} if timeout else None
            request = client.call(method, path, headers, content, extensions)
            try:
                return await client.send(request, stream=watched_s is not None)
            except LOST:
                return await client.send(request, stream=watched_s is not None)
        except (httpx.TransportError, *_NO_TOKEN) as error:
            raise _unavailable(error) from error


def _client(access: Access, connections: int, timeout_s: float) -> Client:
    """Returns a client with at most `connections` connections. For calls through a proxy, the client
    uses httpx's own transport."""
    transport: httpx.AsyncBaseTransport
    if access.proxy is None:
        transport = PooledTransport(Endpoint.parse(access.server, lambda: access.tls), connections)
    else:
        limits = httpx.Limits(max_connections=connections, keepalive_expiry=_KEPT_S)
        transport = _Proxied(verify=access.tls, proxy=access.proxy, limits=limits)
    return Client(access.server, transport, timeout_s=timeout_s, connect_s=_CONNECT_S)


class _Proxied(httpx.AsyncHTTPTransport):
    """httpx's own transport, for calls through a proxy."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Moves the target into the URL. Otherwise httpx would ask the proxy itself for the target."""
        if target := request.extensions.pop("target", None):
            request.url = request.url.copy_with(raw_path=target)
        return await super().handle_async_request(request)


@lru_cache(maxsize=16)
def _headers(content_type: str, *who: tuple[str, str]) -> httpx.Headers:
    about = {"Accept": _JSON, "Content-Type": content_type, "User-Agent": _USER_AGENT}
    return httpx.Headers(about | dict(who), encoding="utf-8")


async def _pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_bytes():
            yield piece
    except httpx.TransportError as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> Unavailable:
    happened = "broke off its answer" if isinstance(error, LOST) else "does not answer"
    return Unavailable(0, f"kube-apiserver {happened}: {words_of(error)}")


def _error_of(response: httpx.Response) -> KubernetesError:
    return error_of(response.status_code, message_of(response.content))


def _manifest(content: bytes) -> Manifest:
    try:
        manifest: Manifest = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Unavailable(0, f"kube-apiserver broke off its answer: {error}") from error
    return manifest


def _is_of_kube_apiserver(content: bytes) -> bool:
    """Returns True for a Status of kube-apiserver, and False for the answer of a Service."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    return isinstance(answer, dict) and answer.get("kind") == "Status"


def _selecting(field_selector: str | None) -> dict[str, str]:
    return {"fieldSelector": field_selector} if field_selector else {}


def _part(name: str) -> str:
    """Quotes one part of a path. Names may come from outside, so each name stays one part of the path.
    This also holds for the names `.` and `..`."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")


def _core(*parts: str) -> str:
    return "/".join(("/api/v1", *map(_part, parts)))


def _pod(namespace: str, name: str, *more: str) -> str:
    return _core("namespaces", namespace, "pods", name, *more)


def _leases(namespace: str, *name: str) -> str:
    return "/".join(("/apis/coordination.k8s.io/v1/namespaces", namespace, "leases", *name))


def _revisions(namespace: str, *name: str) -> str:
    return "/".join(("/apis/apps/v1/namespaces", *map(_part, (namespace, "controllerrevisions", *name))))
