"""The adapter to kube-apiserver: the reads and writes that this project makes, and their errors.

Calls go through `kubernetes.aio` without its models, which are slow and in places wrong (a Binding that
succeeded raises); bodies are plain manifests. Every error becomes a `KubernetesError` here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp
import orjson
from kubernetes.aio import client, config

Manifest = Mapping[str, Any]
Call = Callable[..., Coroutine[Any, Any, aiohttp.ClientResponse]]

_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_TIMEOUT_S = 10.0
_LIST_TIMEOUT_S = 60.0


class KubernetesError(Exception):
    """A call to kube-apiserver did not do what was asked; `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.message = message


class NoCredentials(Exception):
    """There is no kubeconfig and no service account to be had: a person must say which to use."""


class Conflict(KubernetesError):
    """The object is not as it was seen: look again."""


class NotFound(KubernetesError):
    """The object does not exist."""


class Rejected(KubernetesError):
    """kube-apiserver will not do this: the request or our permissions are wrong."""


class Unavailable(KubernetesError):
    """kube-apiserver did not answer, or is too busy: it may have been carried out; ask again."""


class Expired(KubernetesError):
    """The resourceVersion is too old to be watched from: list again."""


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(0, f"kube-apiserver broke off the watch: {error!r}") from error


def _error(status: int, message: str) -> KubernetesError:
    classes = {404: NotFound, 409: Conflict, 410: Expired, 429: Unavailable}
    kind = classes.get(status, Unavailable if status >= 500 else Rejected)
    if status == 422 and "metadata.uid" in message:  # another object has the name by now
        kind = Conflict
    return kind(status, message)


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "no answer"


class KubernetesApi:
    """One connection pool to one kube-apiserver."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client
        self._core = client.CoreV1Api(api_client)

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> Self:
        """Reads the kubeconfig, or the service account where there is none.

        Raises NoCredentials where neither can be read.
        """
        configuration = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    kubeconfig, client_configuration=configuration
                )
        except (config.ConfigException, OSError) as error:
            raise NoCredentials(f"{kubeconfig or 'service account'}: {error}") from error
        return cls(client.ApiClient(configuration))

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    # Pods

    async def read_pod(self, namespace: str, name: str) -> Manifest | None:
        """Returns a Pod as it is now, None where there is none."""
        try:
            return await self._ask(
                self._core.read_namespaced_pod_without_preload_content, name, namespace
            )
        except NotFound:
            return None

    async def patch_pod(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Merges a patch into a Pod. A `resourceVersion` in it that is not current raises Conflict."""
        call = self._core.patch_namespaced_pod_without_preload_content
        return await self._ask(call, name, namespace, patch, _content_type=_MERGE)

    async def patch_pod_status(self, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Merges a patch into a Pod's status, conditions by their type. Annotations may be in it too."""
        call = self._core.patch_namespaced_pod_status_without_preload_content
        return await self._ask(call, name, namespace, patch, _content_type=_STRATEGIC)

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Deletes this very Pod with its own grace; one that is gone is success."""
        options = {"preconditions": {"uid": uid}}
        try:
            await self._ask(
                self._core.delete_namespaced_pod_without_preload_content,
                name,
                namespace,
                body=client.V1DeleteOptions.from_dict(options),
            )
        except (NotFound, Conflict):
            return

    async def bind_pod(self, namespace: str, name: str, node: str, metadata: Manifest) -> None:
        """Binds a Pod; `metadata` carries the uid and resourceVersion to hold it to, and annotations."""
        body = client.V1Binding.from_dict(
            {
                "metadata": {"name": name, "namespace": namespace, **metadata},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
        )
        call = self._core.create_namespaced_pod_binding_without_preload_content
        await self._ask(call, name, namespace, body)

    async def create_event(self, namespace: str, event: Manifest) -> None:
        """Creates an Event; one of that name that exists already is success."""
        call = self._core.create_namespaced_event_without_preload_content
        try:
            await self._ask(call, namespace, client.CoreV1Event.from_dict(dict(event)))
        except Conflict:
            return

    # Lists and watches

    async def list(self, kind: str, field_selector: str | None) -> Manifest:
        """Returns a list of "pods" or "nodes" as the API server has it, all namespaces."""
        return await self._ask(
            self._lister(kind), field_selector=field_selector, _request_timeout=_LIST_TIMEOUT_S
        )

    @asynccontextmanager
    async def watch(
        self, kind: str, field_selector: str | None, resource_version: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens a watch of at most `seconds`; gives the stream as it arrives, in pieces of any size."""
        response = await self._send(
            self._lister(kind),
            field_selector=field_selector,
            resource_version=resource_version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=seconds,
            _request_timeout=float(seconds + 30),
        )
        try:
            yield _pieces(response)
        finally:
            response.close()

    def _lister(self, kind: str) -> Call:
        calls: dict[str, Call] = {
            "pods": self._core.list_pod_for_all_namespaces_without_preload_content,
            "nodes": self._core.list_node_without_preload_content,
        }
        return calls[kind]

    # The one way out

    async def _ask(self, call: Call, *arguments: Any, **options: Any) -> Manifest:
        response = await self._send(call, *arguments, **({"_request_timeout": _TIMEOUT_S} | options))
        try:
            manifest: Manifest = orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            raise Unavailable(0, f"kube-apiserver broke off its answer: {error!r}") from error
        return manifest

    async def _send(self, call: Call, *arguments: Any, **options: Any) -> aiohttp.ClientResponse:
        given = {name: value for name, value in options.items() if value is not None}
        try:
            response = await call(*arguments, **given)
            if response.status >= 400:
                raise _error(response.status, _message(await response.read()))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(0, f"kube-apiserver does not answer: {error!r}") from error
        return response
