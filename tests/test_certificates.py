"""Tests of the certificate of the extender's webhooks, by TLS handshakes."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from starlette.applications import Starlette

from extender.certificates import Certificate, Files, KeyPair, SelfSigned, Source
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Manifest
from service.health import Health
from service.http.connections import Limits
from service.http.listener import Server
from tests.eventually import until

NOW = datetime.now(UTC)
END = b"-----END CERTIFICATE-----\n"
NAMES = ("slurm-extender.kube-system.svc", "127.0.0.1")


class Secrets(InMemoryKubernetes):
    """A kube-apiserver with the Secret of the certificate, and with a webhook configuration that gets
    the CA bundle."""

    def __init__(self) -> None:
        super().__init__()
        webhook = {"name": "mutate.slurm-extender.io", "clientConfig": {}}
        self.put("mutatingwebhookconfigurations", {"metadata": {"name": "c"}, "webhooks": [webhook]})

    @property
    def kept(self) -> Manifest:
        return self.read("secrets", "s", "kube-system")

    @property
    def trusted(self) -> bytes:
        """Returns the current CA: the first certificate of the CA bundle."""
        (webhook,) = self.read("mutatingwebhookconfigurations", "c")["webhooks"]
        first, end, _ = b64decode(webhook["clientConfig"]["caBundle"]).partition(END)
        return first + end

    def replica(self) -> tuple[Shown, Health]:
        health = Health()
        return Shown(SelfSigned(self, "kube-system", "s", NAMES, "c"), health), health


class Shown(Certificate):
    """A certificate as one listener shows it to clients."""

    def __init__(self, source: Source, health: Health) -> None:
        super().__init__(source, health)
        self.shown = self.tls()


@asynccontextmanager
async def served(certificate: Shown) -> AsyncIterator[int]:
    """Starts a listener that shows a certificate, and yields the listener's port."""
    limits = Limits(connections=9, body=lambda: 0)
    server = Server(Starlette(), ("127.0.0.1", 0), limits, print, lambda: certificate.shown.context)
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def shown_to(port: int, authority: bytes, name: str = "127.0.0.1") -> bytes:
    """Returns the certificate (DER) that the listener shows to a client that trusts this CA. Raises
    ssl.SSLError."""
    client = ssl.create_default_context(cadata=authority.decode())
    connecting = asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
    _, writer = await connecting
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return cast(bytes, shown)


async def test_first_replica_creates_the_certificate_that_other_replicas_use() -> None:
    secrets = Secrets()
    (one, _), (other, _) = secrets.replica(), secrets.replica()
    await one.look()
    await other.look()
    assert secrets.writes("secrets") == 1
    async with served(one) as first, served(other) as second:
        shown = [
            await shown_to(port, secrets.trusted, name) for port in (first, second) for name in NAMES
        ]
    assert len(set(shown)) == 1


async def test_lifetime_of_the_certificate_in_use_is_reported() -> None:
    secrets = Secrets()
    one, _ = secrets.replica()
    assert one.lifetime() == (None, None)
    await one.look()
    issued, ends = one.lifetime()
    assert issued is not None
    assert ends is not None
    assert timedelta(days=364) < timedelta(seconds=ends - NOW.timestamp()) < timedelta(days=366)
    assert timedelta(0) < timedelta(seconds=NOW.timestamp() - issued) < timedelta(hours=2)


async def test_replicas_that_start_together_use_the_same_certificate() -> None:
    secrets = Secrets()
    (one, _), (other, _) = secrets.replica(), secrets.replica()
    secrets.before_next("write_secret", other.look)
    await one.look()
    assert secrets.writes("secrets") == 1
    async with served(one) as first, served(other) as second:
        assert await shown_to(first, secrets.trusted) == await shown_to(second, secrets.trusted)


async def test_old_certificate_is_renewed_by_the_same_ca() -> None:
    secrets = Secrets()
    old = KeyPair.ca(NOW - timedelta(days=400))
    worn = old.signs(NAMES, NOW - timedelta(days=250))
    files = {"ca.crt": old.certificate, "ca.key": old.key}
    files |= {"tls.crt": worn.certificate, "tls.key": worn.key}
    data = {name: b64encode(content).decode() for name, content in files.items()}
    secrets.put("secrets", {"metadata": {"name": "s", "namespace": "kube-system"}, "data": data})
    replica, _ = secrets.replica()
    async with served(replica) as port:
        await replica.look()
        fresh = await shown_to(port, old.certificate)
        assert fresh != ssl.PEM_cert_to_DER_cert(worn.certificate.decode())
        assert secrets.trusted == old.certificate
        await replica.look()
        assert await shown_to(port, old.certificate) == fresh
    assert secrets.writes("secrets") == 2


async def test_a_certificate_for_other_names_is_replaced() -> None:
    authority = KeyPair.ca(NOW)
    pair = authority.signs(NAMES[:1], NOW)
    assert pair.serves(NAMES[:1], NOW)
    assert not pair.serves(NAMES, NOW)
    assert not pair.serves(NAMES[:1], NOW + timedelta(days=300))


async def test_lost_secret_is_recreated_while_the_old_certificate_serves() -> None:
    secrets = Secrets()
    replica, health = secrets.replica()
    await replica.look()
    first = secrets.trusted
    secrets.outage(Unavailable(0, "kube-apiserver does not answer"))
    async with served(replica) as port:
        await replica.look()
        assert "does not answer" in str(health.problems())
        assert await shown_to(port, first)
        secrets.outage(None)
        secrets.remove("secrets", "s", "kube-system")
        await replica.look()
        assert health.problems() == {}
        assert secrets.trusted != first
        assert await shown_to(port, secrets.trusted)


async def test_broken_secret_is_reported_and_not_overwritten() -> None:
    secrets = Secrets()
    replica, health = secrets.replica()
    await replica.look()
    broken = {"data": {"tls.crt": secrets.kept["data"]["tls.key"]}}
    secrets.edit("secrets", "s", broken, "kube-system")
    await replica.look()
    assert "webhook certificate" in health.problems()
    assert secrets.kept["data"]["tls.crt"] == secrets.kept["data"]["tls.key"]


async def test_changed_files_are_read_and_a_mismatched_pair_is_ignored(tmp_path: Path) -> None:
    authority = KeyPair.ca(NOW)
    pairs = [authority.signs(NAMES, NOW) for _ in range(2)]
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    health = Health()
    followed = Shown(Files(certificate, key), health)
    await followed.look()
    assert "No such file" in str(health.problems())
    async with served(followed) as port:
        shown = []
        for content in (pairs[0], KeyPair(pairs[1].certificate, pairs[0].key), pairs[1]):
            certificate.write_bytes(content.certificate)
            key.write_bytes(content.key)
            await followed.look()
            shown.append((await shown_to(port, authority.certificate), bool(health.problems())))
    ders = [ssl.PEM_cert_to_DER_cert(pair.certificate.decode()) for pair in pairs]
    assert shown == [(ders[0], False), (ders[0], True), (ders[1], False)]


async def test_handshake_fails_with_another_ca() -> None:
    secrets = Secrets()
    replica, _ = secrets.replica()
    await replica.look()
    async with served(replica) as port:
        with pytest.raises(ssl.SSLError):
            await shown_to(port, KeyPair.ca(NOW).certificate)


async def test_certificate_is_stored_in_a_tls_secret() -> None:
    secrets = Secrets()
    await secrets.replica()[0].look()
    assert secrets.kept["type"] == "kubernetes.io/tls"
    assert b64decode(secrets.kept["data"]["ca.crt"]) == secrets.trusted
