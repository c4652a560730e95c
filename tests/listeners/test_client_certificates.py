"""Tests of TLS handshakes with the program's listeners: callers with and without a client
certificate."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import IncompleteReadError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from extender.app import Extender
from extender.leader.replica import Replica
from extender.policy.current import CurrentPolicy
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.protocol import Slurm
from tests.eventually import until
from tests.listeners.test_limits import LIMITS, Site, head, site
from tests.verbs.callers import FakeSlurm

MUTATE = b'{"request": {"uid": "u", "kind": {"kind": "Pod"}, "object": {"metadata": {}, "spec": {}}}}'
PREEMPT = b'{"Pod": {"metadata": {"name": "p"}, "spec": {}}}'


class Authorities:
    """The CA of the listeners' certificate, and the CA of the callers' certificates."""

    def __init__(self, folder: Path) -> None:
        self.servers, self.callers = trustme.CA(), trustme.CA()
        self.clients_file = folder / "clients.pem"
        self.trusts(self.callers)
        own = self.servers.issue_cert("127.0.0.1")
        own.private_key_pem.write_to_path(folder / "tls.key")
        own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
        self.files: dict[str, Any] = {
            "tls_cert_file": folder / "tls.crt",
            "tls_key_file": folder / "tls.key",
        }

    def trusts(self, callers: trustme.CA) -> None:
        callers.cert_pem.write_to_path(self.clients_file)

    def caller(self, signed_by: trustme.CA | None) -> ssl.SSLContext:
        """Returns the TLS context of a caller; without a client certificate if `signed_by` is None."""
        context = ssl.create_default_context(cadata=self.servers.cert_pem.bytes().decode())
        if signed_by is not None:
            signed_by.issue_cert("caller.example.org").configure_cert(context)
        return context


class Program:
    """The extender's listener with this number, and the listener's certificate."""

    def __init__(self, authorities: Authorities, number: int, **given: Any) -> None:
        settings = Settings(
            slurm_token_file=Path("token"),
            policy="open",
            listen_address="127.0.0.1",
            **authorities.files,
            **given,
        )
        kubernetes, slurm = InMemoryKubernetes(), cast(Slurm, FakeSlurm())
        extender = Extender(Replica(settings, kubernetes, slurm, CurrentPolicy(None, "open")))
        self.server = extender.servers()[number]
        self.server.config.port = 0
        assert extender.certificate is not None
        self.certificate = extender.certificate
        self.health = extender.replica.health
        self.extender = extender


@asynccontextmanager
async def program(authorities: Authorities, number: int, **given: Any) -> AsyncIterator[Any]:
    running = Program(authorities, number, **given)
    await running.certificate.look()
    async with site(server=running.server) as there:
        yield running, there


async def answer(there: Site, context: ssl.SSLContext | None, path: str, body: bytes) -> int | None:
    """Returns the HTTP status; None if no reply comes."""
    try:
        peer = await there.opens(context)
        return (await peer.asks(body, path))[0]
    except (ConnectionError, IncompleteReadError, ssl.SSLError):
        return None


async def test_kube_scheduler_needs_a_certificate_if_a_client_ca_is_set(tmp_path: Path) -> None:
    own = Authorities(tmp_path)
    async with program(own, 0, scheduler_client_ca_file=own.clients_file) as (_, there):
        called = [own.caller(own.callers), own.caller(None), own.caller(trustme.CA()), None]
        answers = [await answer(there, context, "/scheduler/preempt", PREEMPT) for context in called]
        assert answers == [200, None, None, None]


async def test_kube_apiserver_needs_a_certificate_if_a_client_ca_is_set(tmp_path: Path) -> None:
    own = Authorities(tmp_path)
    async with program(own, 3, admission_client_ca_file=own.clients_file) as (_, there):
        called = [own.caller(own.callers), own.caller(None), own.caller(trustme.CA()), None]
        assert [await answer(there, c, "/mutate", MUTATE) for c in called] == [200, None, None, None]


async def test_kube_apiserver_needs_no_certificate_without_a_client_ca(tmp_path: Path) -> None:
    own = Authorities(tmp_path)
    async with program(own, 3) as (_, there):
        assert await answer(there, own.caller(None), "/mutate", MUTATE) == 200


async def test_replaced_client_ca_is_not_trusted_any_more(tmp_path: Path) -> None:
    own, others = Authorities(tmp_path), trustme.CA()
    async with program(own, 3, admission_client_ca_file=own.clients_file) as (running, there):
        own.trusts(others)
        await running.certificate.look()
        called = [own.caller(own.callers), own.caller(others)]
        assert [await answer(there, context, "/mutate", MUTATE) for context in called] == [None, 200]


async def test_broken_ca_file_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    own = Authorities(tmp_path)
    async with program(own, 3, admission_client_ca_file=own.clients_file) as (running, there):
        own.clients_file.write_text("")
        await running.certificate.look()
        called = [own.caller(own.callers), own.caller(None)]
        assert [await answer(there, context, "/mutate", MUTATE) for context in called] == [200, None]
        assert running.health.parts() == {"webhook certificate": True}


async def test_listener_refuses_all_callers_until_the_ca_file_is_read(tmp_path: Path) -> None:
    own = Authorities(tmp_path)
    own.clients_file.unlink()
    async with program(own, 3, admission_client_ca_file=own.clients_file) as (running, there):
        assert await answer(there, own.caller(own.callers), "/mutate", MUTATE) is None
        own.trusts(own.callers)
        await running.certificate.look()
        await running.certificate.usable()
        assert await answer(there, own.caller(own.callers), "/mutate", MUTATE) == 200


@pytest.mark.parametrize("listener", ["scheduler", "admission"])
async def test_replica_with_a_broken_ca_file_waits_for_a_valid_file(
    tmp_path: Path, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the file is valid, the replica does not become the leader, because no caller could reach
    this leader."""
    own, goes_on = Authorities(tmp_path), asyncio.Event()

    async def follow(_: Replica) -> None:
        goes_on.set()
        raise asyncio.CancelledError  # the replica has started

    monkeypatch.setattr(Replica, "run", follow)
    own.clients_file.write_text("")
    running = Program(own, 0, **{f"{listener}_client_ca_file": own.clients_file})
    replica = asyncio.ensure_future(running.extender.run())
    try:
        await until(running.health.parts)
        assert (running.health.ready, goes_on.is_set()) == (False, False)
        own.trusts(own.callers)
        async with asyncio.timeout(5):
            await goes_on.wait()
    finally:
        replica.cancel()
        await asyncio.gather(replica, return_exceptions=True)


async def test_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    own, later = Authorities(tmp_path), tmp_path / "later"
    async with program(own, 3, admission_client_ca_file=own.clients_file) as (running, there):
        earlier = await there.opens(own.caller(own.callers))
        assert (await earlier.asks(MUTATE, "/mutate"))[0] == 200
        later.mkdir()
        renewed = Authorities(later)
        for name, path in renewed.files.items():
            own.files[name].write_bytes(path.read_bytes())
        await running.certificate.look()
        assert await answer(there, renewed.caller(own.callers), "/mutate", MUTATE) == 200
        assert (await earlier.asks(MUTATE, "/mutate"))[0] == 200


# Before and during the handshake


def tls(folder: Path) -> Any:
    own = Authorities(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.files["tls_cert_file"], own.files["tls_key_file"])
    return own, lambda: context


async def test_stalled_handshake_is_closed_after_the_time_limit(tmp_path: Path) -> None:
    _, serves = tls(tmp_path)
    async with site(tls=serves) as there:
        silent, noisy = await there.opens(), await there.opens()
        noisy.sends(b"\x16\x03\x01\x02\x00")  # the beginning of a ClientHello
        assert [await peer.all_of_it() for peer in (silent, noisy)] == [b"", b""]
        assert there.rejected == ["too slow", "too slow"]


async def test_connection_without_tls_is_refused(tmp_path: Path) -> None:
    _, serves = tls(tmp_path)
    async with site(tls=serves, owes_s=30.0) as there:
        peer = await there.opens()
        peer.sends(head(length=0))
        await peer.all_of_it()
        assert there.rejected == ["TLS handshake failed"]


async def test_caller_that_distrusts_the_certificate_is_counted(tmp_path: Path) -> None:
    """kube-apiserver also ends the handshake if the configuration of the webhook has another CA."""
    own, serves = tls(tmp_path)
    own.servers = trustme.CA()
    async with site(tls=serves) as there:
        with pytest.raises(ssl.SSLCertVerificationError):
            await there.opens(own.caller(None))
        await until(lambda: there.rejected)
        assert there.rejected == ["TLS handshake failed"]


async def test_stalled_handshakes_do_not_block_other_callers(tmp_path: Path) -> None:
    own, serves = tls(tmp_path)
    async with site(tls=serves, connections=10, owes_s=30.0) as there:
        for _ in range(40):
            await there.opens()
        async with asyncio.timeout(5):
            assert await answer(there, own.caller(None), "/length", b"x") == 200
        assert set(there.rejected) == {"too many connections"}


async def test_request_over_tls_has_the_same_size_limit(tmp_path: Path) -> None:
    own, serves = tls(tmp_path)
    async with site(tls=serves) as there:
        assert await answer(there, own.caller(None), "/length", b"x" * LIMITS.body()) == 200
        assert await answer(there, own.caller(None), "/length", b"x" * (1 << 20)) == 413
