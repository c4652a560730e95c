"""Tests of preflight's calls to webhooks, which go through an in-memory kube-apiserver, or directly to a
URL."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
import trustme

from extender.preflight.facts import Address, Answer, Called, Webhook
from extender.preflight.webhooks import called, webhooks_of
from kubernetes_client.access import Access
from kubernetes_client.errors import KubernetesError, Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.rest import KubernetesRest
from service.http.pool import PooledTransport
from tests.kubernetes_client.accesses import access_of
from tests.preflight.good import webhook

MUTATING = "mutatingwebhookconfiguration"
PORTS = {"spec": {"ports": [{"port": 443}]}}


def configuration(name: str, *webhooks: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "webhooks": list(webhooks)}


def test_webhooks_are_recognized_by_name_or_configuration_label() -> None:
    service = {"namespace": "a", "name": "b", "path": "/mutate", "port": 8443}
    ours = {"name": "pods.slurm-extender.io", "clientConfig": {"service": service, "caBundle": "x"}}
    renamed = {"name": "x.example.io", "clientConfig": {"url": "https://c/mutate"}}
    renamed |= {"failurePolicy": "Ignore"}
    label = {"app.kubernetes.io/name": "slurm-extender"}
    found = webhooks_of(
        MUTATING,
        [
            configuration("copy", ours, renamed),
            configuration("other", renamed),
            configuration("labelled", renamed, **label),
            {"metadata": {"name": "empty"}},
        ],
    )
    at, url = Address("", "a", "b", 8443), Address("https://c/mutate")
    assert list(found) == [
        Webhook("pods.slurm-extender.io", f"{MUTATING}/copy", at, "/mutate", "x", True),
        Webhook("x.example.io", f"{MUTATING}/labelled", url, "/", "", False),
    ]


@pytest.fixture
def kubernetes() -> InMemoryKubernetes:
    found = InMemoryKubernetes()
    found.put("services", {"metadata": {"namespace": "slurm", "name": "slurm-extender"}, **PORTS})
    return found


async def test_each_address_is_called_once(kubernetes: InMemoryKubernetes) -> None:
    kubernetes.answering["slurm", "slurm-extender"] = 405
    hooks = [webhook(), webhook(kind="validating"), webhook("gone/first")]
    answers = [each.answer for each in (await called(hooks, kubernetes)).values()]
    assert answers == [Answer.YES, Answer.YES, Answer.NO_SERVICE]
    assert len([call for call in kubernetes.calls if call.startswith("call_service")]) == 2


async def test_all_addresses_are_called_in_parallel(kubernetes: InMemoryKubernetes) -> None:
    names = [f"gone/{name}" for name in "abc"]
    all_are_asked = asyncio.Barrier(len(names))
    for name in names:
        kubernetes.before_next(f"call_service {name}/mutate", all_are_asked.wait)
    async with asyncio.timeout(10):
        assert len(await called([webhook(name) for name in names], kubernetes)) == len(names)


async def test_service_without_pods_or_of_another_program_is_reported(
    kubernetes: InMemoryKubernetes,
) -> None:
    told = (await called([webhook()], kubernetes))[webhook()]
    assert told.answer is Answer.NO
    assert 'no endpoints available for service "slurm-extender"' in told.words
    kubernetes.answering["slurm", "slurm-extender"] = 404
    told = (await called([webhook()], kubernetes))[webhook()]
    assert (told.answer, "is not slurm-extender" in told.words) == (Answer.NO, True)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Unavailable(503, "error trying to reach service: connection refused"), Answer.NO),
        (Unavailable(503, "remote error: tls: certificate required"), Answer.YES),
        (Unavailable(429, "too many requests"), Answer.UNKNOWN),
        (Unavailable(500, "etcdserver: request timed out"), Answer.UNKNOWN),
        (Rejected(403, "services/proxy is forbidden"), Answer.UNKNOWN),
    ],
)
async def test_error_of_the_call_decides_the_answer(
    error: KubernetesError, answer: Answer, kubernetes: InMemoryKubernetes
) -> None:
    kubernetes.outage(error, "call_service")
    assert (await called([webhook()], kubernetes))[webhook()].answer is answer


@pytest.mark.parametrize(
    ("cause", "answer"),
    [
        (httpx.ReadTimeout("no reply within 10 s"), Answer.NO),
        (httpx.PoolTimeout("all connections were busy for 10 s"), Answer.UNKNOWN),
        (httpx.ConnectError("Connection refused"), Answer.UNKNOWN),
        (httpx.ReadError("the server had closed it"), Answer.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_only_a_read_timeout_counts_as_no_answer(
    cause: Exception, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PooledTransport, "handle_async_request", AsyncMock(side_effect=cause))
    told = await ask_kube_apiserver(access_of("http://127.0.0.1:1"))
    assert told.answer is answer
    assert ("kube-apiserver" in told.words, str(cause) in told.words) == (True, answer is Answer.UNKNOWN)


async def test_answer_of_a_service_is_unknown_without_a_token() -> None:
    async def headers() -> dict[str, str]:
        raise FileNotFoundError("no token")

    told = await ask_kube_apiserver(replace(access_of("http://127.0.0.1:1"), headers=headers))
    assert told == Called(Answer.UNKNOWN, "was not called: kube-apiserver does not answer: no token")


async def ask_kube_apiserver(access: Access) -> Called:
    api = KubernetesRest(access)
    try:
        return (await called([webhook()], api))[webhook()]
    finally:
        await api.aclose()


AUTHORITY = trustme.CA()


@contextmanager
def server(authority: ssl.VerifyMode = ssl.CERT_NONE) -> Iterator[str]:
    """Serves on loopback, with a certificate from the CA of the tests. Yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(405 if self.path == "/mutate" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    AUTHORITY.configure_trust(context)
    context.verify_mode = authority
    listening = HTTPServer(("127.0.0.1", 0), Handler)
    listening.socket = context.wrap_socket(
        listening.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


async def ask(url: str, authority: bytes = AUTHORITY.cert_pem.bytes()) -> Called:
    hook = Webhook("x", "y", Address(url), "/", b64encode(authority).decode(), True)
    return (await called([hook], InMemoryKubernetes()))[hook]


async def test_a_url_is_called_and_its_certificate_checked() -> None:
    with server() as url:
        assert (await ask(f"{url}/mutate")).answer is Answer.YES
        assert (await ask(f"{url}/other")).answer is Answer.NO
        told = await ask(f"{url}/mutate", trustme.CA().cert_pem.bytes())
        assert told.answer is Answer.NO
        assert "has a certificate that kube-apiserver does not trust" in told.words
    assert await ask(f"{url}/mutate") == Called(
        Answer.UNKNOWN, "does not answer from here: Connection refused"
    )


@pytest.mark.parametrize("bundle", [b"\n", b"placeholder", b"\xff\xfe"])
async def test_a_ca_bundle_without_a_certificate_is_reported(bundle: bytes) -> None:
    told = await ask("https://127.0.0.1:1", bundle)
    assert told == Called(Answer.NO, "has an invalid caBundle: kube-apiserver cannot call it")


async def test_a_ca_bundle_may_have_comments_in_any_encoding() -> None:
    with server() as url:
        told = await ask(f"{url}/mutate", b"# \xc3\xa9 \xff\n" + AUTHORITY.cert_pem.bytes())
    assert told.answer is Answer.YES


async def test_a_url_with_an_impossible_port_is_reported() -> None:
    told = await ask("https://127.0.0.1:99999/mutate")
    assert told.answer is Answer.NO
    assert told.words.startswith("has a URL that kube-apiserver cannot call: ")


async def test_server_that_requires_a_client_certificate_answers() -> None:
    with server(ssl.CERT_REQUIRED) as url:
        assert (await ask(f"{url}/mutate")).answer is Answer.YES


@pytest.mark.parametrize(
    ("mode", "answer"), [(ssl.CERT_REQUIRED, Answer.YES), (ssl.CERT_NONE, Answer.UNKNOWN)]
)
async def test_broken_connection_is_an_answer_if_a_certificate_is_required(
    mode: ssl.VerifyMode, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = AsyncMock(side_effect=httpx.ReadError("[Errno 32] Broken pipe"))
    monkeypatch.setattr(PooledTransport, "handle_async_request", broken)
    with server(mode) as url:
        assert (await ask(f"{url}/mutate")).answer is answer
