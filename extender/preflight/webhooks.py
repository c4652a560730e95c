"""Calls the webhooks of slurm-extender, for all installations that kube-apiserver knows.

If a webhook has a Service, kube-apiserver makes the call (services/proxy). So preflight gets the same
answer in a Pod and on a laptop. If a webhook has a URL, preflight itself makes the call.
"""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import httpx

from extender.preflight.facts import Address, Answer, Called, Webhook
from kubernetes_client.errors import KubernetesError, NotFound, Unavailable
from kubernetes_client.protocol import Kubernetes, Manifest
from service.http.pool import LOST, Endpoint, PooledTransport

CONFIGURATIONS: Final = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
_LABEL: Final = ("app.kubernetes.io/name", "slurm-extender")
_DOMAIN: Final = ".slurm-extender.io"
_ASKS_FOR_CERTIFICATE: Final = "certificate required"
"""Message of OpenSSL and Go for a caller without a certificate. The extender requires
kube-apiserver's certificate if SLURM_EXTENDER_ADMISSION_CLIENT_CA_FILE is set."""
_SERVICE_UNAVAILABLE: Final = 503
"""kube-apiserver's status if no Pod of a Service answers. Other statuses concern kube-apiserver itself,
like 429 for overload."""
_WITHIN_S: Final = 5.0
_ALERT_S: Final = 1.0
"""Seconds that preflight waits for a server to reject a connection without a certificate."""


def webhooks_of(kind: str, configurations: Iterable[Manifest]) -> Iterator[Webhook]:
    """Yields all webhooks of slurm-extender. `kind` is a value of CONFIGURATIONS."""
    label, ours = _LABEL
    for each in configurations:
        labelled = (each["metadata"].get("labels") or {}).get(label) == ours
        for webhook in each.get("webhooks") or ():
            if labelled or webhook["name"].endswith(_DOMAIN):
                yield _parsed(f"{kind}/{each['metadata']['name']}", webhook)


def _parsed(configuration: str, webhook: Manifest) -> Webhook:
    client = webhook["clientConfig"]
    service = client.get("service") or {}
    address = Address(
        client.get("url") or "",
        service.get("namespace", ""),
        service.get("name", ""),
        service.get("port", 443),
    )
    return Webhook(
        webhook["name"],
        configuration,
        address,
        service.get("path") or "/",
        client.get("caBundle") or "",
        webhook.get("failurePolicy") != "Ignore",
    )


async def called(webhooks: Iterable[Webhook], kubernetes: Kubernetes) -> Mapping[Webhook, Called]:
    """Returns the answer for each webhook. Calls each address once, and all addresses in parallel."""
    at = {webhook: webhook.address for webhook in webhooks}
    one = {address: webhook for webhook, address in at.items()}
    answers = await asyncio.gather(*(_call(webhook, kubernetes) for webhook in one.values()))
    found = dict(zip(one, answers, strict=True))
    return {webhook: found[address] for webhook, address in at.items()}


async def _call(webhook: Webhook, kubernetes: Kubernetes) -> Called:
    address = webhook.address
    if address.url:
        return await _call_url(address.url, webhook.ca)
    try:
        return _answered(
            await kubernetes.call_service(address.namespace, address.service, address.port, webhook.path)
        )
    except NotFound:
        return Called(Answer.NO_SERVICE, "does not exist")
    except Unavailable as error:
        if _ASKS_FOR_CERTIFICATE in error.message:
            return Called(Answer.YES, "answers")
        if error.status == _SERVICE_UNAVAILABLE:
            return Called(Answer.NO, f"does not answer kube-apiserver: {error.message}")
        if isinstance(error.__cause__, httpx.ReadTimeout):
            return Called(Answer.NO, "does not answer kube-apiserver: no answer in time")
        return Called(Answer.UNKNOWN, f"was not called: {error.message}")
    except KubernetesError as error:
        return Called(Answer.UNKNOWN, f"was not called: {error}")


def _answered(status: int) -> Called:
    if status == 404:
        return Called(Answer.NO, "is not slurm-extender's: it does not know the path of the webhook")
    return Called(Answer.YES, "answers")


async def _call_url(url: str, ca: str) -> Called:
    try:
        tls = _trusting(ca)
    except (ssl.SSLError, ValueError):
        return Called(Answer.NO, "has an invalid caBundle: kube-apiserver cannot call it")
    try:
        endpoint = Endpoint.parse(url, lambda: tls)
    except ValueError as error:
        return Called(Answer.NO, f"has a URL that kube-apiserver cannot call: {error}")
    try:
        return await _exchanged(endpoint)
    except httpx.TransportError as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            why = error.__cause__.verify_message
            return Called(Answer.NO, f"has a certificate that kube-apiserver does not trust: {why}")
        return Called(Answer.UNKNOWN, f"does not answer from here: {error}")


def _trusting(ca: str) -> ssl.SSLContext:
    """Returns a TLS context that trusts the CAs of a caBundle. Without a caBundle, the context trusts
    the system's CAs. The PEM may have comments in any encoding. Raises ssl.SSLError or ValueError for a
    caBundle without a certificate."""
    pem = b64decode(ca).decode("ascii", "ignore") + "\n"
    return ssl.create_default_context(cadata=pem if ca else None)


async def _exchanged(endpoint: Endpoint) -> Called:
    """Returns the answer to a call. Raises httpx.TransportError."""
    try:
        async with httpx.AsyncClient(
            transport=PooledTransport(endpoint, 1), timeout=_WITHIN_S
        ) as client:
            return _answered((await client.get(endpoint.url)).status_code)
    except LOST as error:
        if _ASKS_FOR_CERTIFICATE in str(error).lower() or await _asks_for_certificate(endpoint):
            return Called(Answer.YES, "answers")
        raise


async def _asks_for_certificate(endpoint: Endpoint) -> bool:
    """Returns True if the server asks for a client certificate. Connects and sends nothing, because the
    server's alert would be lost during a request."""
    try:
        async with asyncio.timeout(_ALERT_S):
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=endpoint.tls
            )
            try:
                await reader.read(1)
            finally:
                writer.close()
    except OSError as error:  # also TimeoutError
        return _ASKS_FOR_CERTIFICATE in str(error).lower()
    return False
