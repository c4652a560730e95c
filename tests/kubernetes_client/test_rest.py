"""Tests of the HTTP requests that the client sends to kube-apiserver, and of the errors that the client
raises."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubernetes_client.errors import (
    Conflict,
    Expired,
    KubernetesError,
    NoCredentials,
    NotFound,
    Rejected,
    Unavailable,
)
from kubernetes_client.rest import KubernetesRest
from tests.builders import Manifest, node_manifest, pod_manifest
from tests.kubernetes_client.accesses import access_of

POD = "/api/v1/namespaces/default/pods/p"


pytestmark = pytest.mark.asyncio(loop_scope="module")


def client_of(url: str) -> KubernetesRest:
    return KubernetesRest(access_of(url))


class ApiServer:
    """A kube-apiserver that answers every request in the way that the test has set, and records the last
    request."""

    api: KubernetesRest
    url: str

    def __init__(self) -> None:
        self.request: web.Request | None = None
        self.sent: Any = None
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = _says({"kind": "Status"})

    def fails(self, status: int, body: str | None = None) -> None:
        said = {"kind": "Status", "message": f"because of {status}", "code": status}
        self.answer = _says(said if body is None else body, status)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.request = request
        self.sent = json.loads(await request.text() or "null")
        return await self.answer(request)

    @property
    def got(self) -> web.Request:
        assert self.request is not None
        return self.request

    @property
    def asked(self) -> tuple[str, str]:
        return self.got.method, self.got.path


def _says(body: Any, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))

    return answer


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def _listening() -> AsyncIterator[ApiServer]:
    application, fake = web.Application(), ApiServer()
    application.router.add_route("*", r"/{path:[\s\S]*}", fake.handle)
    async with TestServer(application) as listening:
        fake.url = str(listening.make_url("")).rstrip("/")
        fake.api = client_of(fake.url)
        yield fake
        await fake.api.aclose()


@pytest.fixture
def server(_listening: ApiServer) -> ApiServer:
    _listening.answer, _listening.request = _says({"kind": "Status"}), None
    return _listening


UNCHANGED: Manifest = {"uid": "u1", "resourceVersion": "7"}
CALLS: dict[str, Callable[[KubernetesRest], Awaitable[object]]] = {
    "read_pod": lambda api: api.read_pod("default", "p"),
    "patch_pod": lambda api: api.patch_pod("default", "p", PATCH),
    "patch_pod_status": lambda api: api.patch_pod_status("default", "p", PATCH),
    "delete_pod": lambda api: api.delete_pod("default", "p", UNCHANGED, 24),
    "bind_pod": lambda api: api.bind_pod("default", "p", "n1", {"uid": "u1", "resourceVersion": "7"}),
    "create_event": lambda api: api.create_event("default", EVENT),
    "read_node": lambda api: api.read_node("n1"),
    "patch_node": lambda api: api.patch_node("n1", PATCH),
    "patch_node_status": lambda api: api.patch_node_status("n1", PATCH),
    "read_pod_group": lambda api: api.read_pod_group("x/v1", "default", "g"),
    "read_lease": lambda api: api.read_lease("kube-system", "x"),
    "list": lambda api: api.list("pods", None),
}
PATCH: Manifest = {
    "spec": {"schedulingGates": [{"name": "x", "$patch": "delete"}]},
    "status": {"nominatedNodeName": None, "conditions": [{"type": "x", "status": "True"}]},
}
EVENT: Manifest = {
    "metadata": {"name": "p.1", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u1"},
    "reason": "SlurmJobCancelled",
    "message": "Slurm job 7 was cancelled in Slurm (CANCELLED)",
    "type": "Warning",
}

# Requests


@pytest.mark.parametrize(
    ("call", "made", "path"),
    [
        ("read_pod", pod_manifest(), POD),
        ("read_node", node_manifest("n1"), "/api/v1/nodes/n1"),
        ("read_pod_group", {"kind": "PodGroup"}, "/apis/x/v1/namespaces/default/podgroups/g"),
    ],
)
async def test_object_is_read_as_it_is(server: ApiServer, call: str, made: Manifest, path: str) -> None:
    server.answer = _says(made)
    assert await CALLS[call](server.api) == made
    assert server.asked == ("GET", path)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("patch_pod", POD),
        ("patch_pod_status", POD + "/status"),
        ("patch_node", "/api/v1/nodes/n1"),
        ("patch_node_status", "/api/v1/nodes/n1/status"),
    ],
)
async def test_patch_keeps_the_gates_and_conditions_of_others(
    server: ApiServer, call: str, path: str
) -> None:
    await CALLS[call](server.api)
    assert server.got.content_type == "application/strategic-merge-patch+json"
    assert (server.asked, server.sent) == (("PATCH", path), PATCH)


async def test_deletion_has_preconditions_and_a_grace_period(server: ApiServer) -> None:
    await server.api.delete_pod("default", "p", UNCHANGED, 24)
    assert server.asked == ("DELETE", POD)
    assert server.sent["preconditions"] == UNCHANGED
    assert server.sent["gracePeriodSeconds"] == 24


async def test_binding_has_the_uid_and_the_version_of_the_pod(server: ApiServer) -> None:
    metadata = {"uid": "u1", "resourceVersion": "7", "annotations": {"x": "y"}}
    await server.api.bind_pod("default", "p", "n1", metadata)
    assert server.asked == ("POST", POD + "/binding")
    assert server.sent["metadata"] == {"name": "p", "namespace": "default"} | metadata
    assert server.sent["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}


async def test_an_event_arrives_as_it_was_written(server: ApiServer) -> None:
    await server.api.create_event("default", EVENT)
    assert server.asked == ("POST", "/api/v1/namespaces/default/events")
    assert EVENT.items() <= server.sent.items()


@pytest.mark.parametrize(("kind", "path"), [("pods", "/api/v1/pods"), ("nodes", "/api/v1/nodes")])
async def test_a_kind_is_listed_with_its_selector(server: ApiServer, kind: str, path: str) -> None:
    await server.api.list(kind, "spec.schedulerName=x")
    assert server.asked == ("GET", path)
    assert dict(server.got.query) == {"fieldSelector": "spec.schedulerName=x"}


async def test_long_list_is_requested_page_by_page(server: ApiServer) -> None:
    parts = {None: ("a", "x&=y"), "x&=y": ("b", "z"), "z": ("c", "")}
    queries: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        queries.append(dict(request.query))
        item, following = parts[request.query.get("continue")]
        return web.json_response({"metadata": {"continue": following}, "items": [item]})

    server.answer = answer
    pages = [page async for page in server.api.pages("pods", "spec.schedulerName=x")]
    assert [page["items"] for page in pages] == [["a"], ["b"], ["c"]]
    every = {"fieldSelector": "spec.schedulerName=x", "limit": "250"}
    assert queries == [every, every | {"continue": "x&=y"}, every | {"continue": "z"}]


@pytest.mark.parametrize("proxied", [False, True])
async def test_call_of_a_service_returns_its_http_status(server: ApiServer, proxied: bool) -> None:
    proxy = server.url if proxied else None  # the server plays the proxy, too
    api = KubernetesRest(replace(access_of(server.url), proxy=proxy))
    server.answer = _says({"Error": "this takes POST only"}, 405)
    assert await api.call_service("a", "b", 443, "/mutate") == 405
    assert server.asked == ("GET", "/api/v1/namespaces/a/services/https:b:443/proxy/mutate")
    server.answer = _says("not JSON", 404)
    assert await api.call_service("a", "b", 443, "/mutate") == 404
    server.fails(503)
    with pytest.raises(Unavailable, match="because of 503"):
        await api.call_service("a", "b", 443, "/mutate")
    await api.aclose()


async def test_a_name_from_outside_cannot_become_another_request(server: ApiServer) -> None:
    """kube-scheduler's calls contain names of Pods, and any client that reaches the extender's listener
    may send such a call with any name."""
    name = "p HTTP/1.1\r\nHost: x\r\n\r\nDELETE /api/v1/namespaces/default/pods/q"
    await server.api.read_pod("kube-system/services/s", name)
    parts = server.got.rel_url.raw_parts
    assert [unquote(part) for part in parts[4:]] == ["kube-system/services/s", "pods", name]


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_of_dots_stays_one_part_of_a_path(server: ApiServer, name: str) -> None:
    await server.api.read_pod("default", name)
    assert server.got.raw_path.endswith("/pods/" + name.replace(".", "%2E"))


async def test_requests_have_a_user_agent(server: ApiServer) -> None:
    for ask in (server.api.read_pod("default", "p"), server.api.list("pods", None)):
        await ask
        assert server.got.headers["User-Agent"] == "slurm-extender"


async def test_connection_is_reused_after_a_refusal(server: ApiServer) -> None:
    """If each refusal (such as a conflict) cost a new connection, the many conflicts would cost many TLS
    handshakes."""
    peers = []
    for status in (409, 200):
        server.fails(status, "{}")
        with suppress(Conflict):
            await server.api.read_pod("default", "p")
        assert server.got.transport is not None
        peers.append(server.got.transport.get_extra_info("peername"))
    assert peers[0] == peers[1]


async def test_a_connection_that_the_server_had_closed_is_no_failure(server: ApiServer) -> None:
    server.answer = _says(pod_manifest())
    await server.api.read_pod("default", "p")
    assert server.got.transport is not None
    server.got.transport.abort()
    assert await server.api.read_pod("default", "p") == pod_manifest()


@pytest.mark.parametrize("error", [OSError(24, "too many open files"), NoCredentials("it is empty")])
async def test_unreadable_token_makes_the_server_unavailable(
    server: ApiServer, error: Exception
) -> None:
    async def fails() -> dict[str, str]:
        raise error

    api = KubernetesRest(access_of(server.url, fails))
    for ask in (api.read_pod("default", "p"), api.list("pods", None)):
        with pytest.raises(Unavailable, match="does not answer"):
            await ask
    await api.aclose()


# Failures


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Rejected) for status in (400, 401, 403, 422)),
        *((404, NotFound), (409, Conflict), (410, Expired)),
        *((status, Unavailable) for status in (429, 500, 503, 504)),
    ],
)
async def test_http_status_decides_the_kind_of_error(
    server: ApiServer, status: int, kind: type[KubernetesError]
) -> None:
    server.fails(status)
    with pytest.raises(kind, match=f"because of {status}") as refusal:
        await server.api.patch_pod("default", "p", {})
    assert refusal.type is kind
    assert refusal.value.status == status


@pytest.mark.parametrize(
    ("body", "words"),
    [("<html>bad gateway</html>", "bad gateway"), ("", "no answer"), ("[]", "[]"), ("{}", "{}")],
)
async def test_refusal_in_an_unknown_form_is_quoted(server: ApiServer, body: str, words: str) -> None:
    server.fails(502, body)
    with pytest.raises(Unavailable) as refusal:
        await server.api.patch_pod("default", "p", {})
    assert words in refusal.value.message


async def test_a_patch_for_the_predecessor_of_a_pod_is_a_conflict(server: ApiServer) -> None:
    """kube-apiserver 1.36 answers with this error if metadata.uid in the patch is not the uid of the
    Pod."""
    words = 'Pod "p" is invalid: metadata.uid: Invalid value: "u2": field is immutable'
    server.fails(422, json.dumps({"kind": "Status", "message": words, "code": 422}))
    with pytest.raises(Conflict):
        await server.api.patch_pod_status("default", "p", {})


@pytest.mark.parametrize(
    ("status", "call"),
    [(404, "read_pod"), (404, "delete_pod"), (404, "read_lease"), (409, "create_event")],
)
async def test_missing_object_and_repeated_event_are_no_errors(
    server: ApiServer, status: int, call: str
) -> None:
    server.fails(status)
    assert await CALLS[call](server.api) is None


async def test_a_pod_that_has_changed_is_not_deleted(server: ApiServer) -> None:
    server.fails(409)
    with pytest.raises(Conflict):
        await server.api.delete_pod("default", "p", UNCHANGED, 24)


LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_lease_is_read_created_and_replaced(server: ApiServer) -> None:
    lease: Manifest = {"metadata": {"name": "x"}, "spec": {"holderIdentity": "a"}}
    await server.api.read_lease("kube-system", "x")
    assert server.asked == ("GET", LEASE + "/x")
    await server.api.create_lease("kube-system", lease)
    assert (server.asked, server.sent) == (("POST", LEASE), lease)
    await server.api.replace_lease("kube-system", "x", lease)
    assert (server.asked, server.sent) == (("PUT", LEASE + "/x"), lease)


def _cut(*pieces: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Returns an answer that sends the beginning of a stream, and then closes the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("cut_off", [True, False])
async def test_answer_that_is_cut_off_or_no_json_is_unavailable(
    server: ApiServer, call: str, cut_off: bool
) -> None:
    server.answer = _cut(b'{"kind"') if cut_off else _says("<html>hello</html>")
    with pytest.raises(Unavailable):
        await CALLS[call](server.api)


async def test_a_server_that_is_not_there_is_unavailable(server: ApiServer) -> None:
    api = client_of("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="does not answer"):
        await api.read_pod("default", "p")
    await api.aclose()


async def test_a_server_that_never_answers_is_unavailable(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    server.answer = answer
    monkeypatch.setattr("kubernetes_client.rest._TIMEOUT_S", 0.05)
    api = client_of(server.url)
    with pytest.raises(Unavailable):
        await api.read_pod("default", "p")
    release.set()
    await api.aclose()


# Watches


async def _watched(server: ApiServer) -> bytes:
    async with server.api.watch("pods", "spec.schedulerName=x", "7", 290) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_watch_requests_bookmarks_and_returns_the_raw_stream(server: ApiServer) -> None:
    server.answer = _says('{"type":"ADDED"}\n{"type":"DELETED"}\n')
    assert await _watched(server) == b'{"type":"ADDED"}\n{"type":"DELETED"}\n'
    assert server.asked == ("GET", "/api/v1/pods")
    assert {name: value.lower() for name, value in server.got.query.items()} == {
        "fieldSelector": "spec.schedulername=x",
        "resourceVersion": "7",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "290",
    }


async def test_a_watch_from_too_old_a_version_is_expired(server: ApiServer) -> None:
    server.fails(410)
    with pytest.raises(Expired):
        await _watched(server)


async def test_a_watch_cut_in_mid_stream_is_unavailable(server: ApiServer) -> None:
    """If kube-apiserver is killed during a stream, the client must raise Unavailable, because the reader
    of changes resumes a watch only after the client's own exceptions."""
    server.answer = _cut(b'{"type":"ADDED"}\n', b'{"type"')
    with pytest.raises(Unavailable):
        await _watched(server)
