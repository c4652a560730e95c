"""The secret that the replicas share."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from extender.control.shared_secret import NAME, PART, known_secret, shared_secret
from kubernetes_client.errors import Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health

FORBIDDEN = Rejected(403, "secrets is forbidden")


async def shared(kubernetes: InMemoryKubernetes, health: Health | None = None) -> bytes:
    return await shared_secret(kubernetes, "ns", health or Health())


def kept(data: dict[str, Any] | None) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": NAME}, "data": data}


async def test_the_first_makes_it_and_the_others_read_it() -> None:
    kubernetes = InMemoryKubernetes()
    assert await known_secret(kubernetes, "ns") == b""
    first = await shared(kubernetes)
    assert len(first) == 32
    assert await shared(kubernetes) == await known_secret(kubernetes, "ns") == first


SHORT = b64encode(b"short").decode()


@pytest.mark.parametrize(
    "data", [None, {}, {"key": ""}, {"key": "x"}, {"key": SHORT}, {"other": "eA=="}]
)
async def test_what_is_none_is_made_anew(data: dict[str, Any] | None) -> None:
    kubernetes = InMemoryKubernetes()
    await kubernetes.write_secret(kept(data))
    assert await known_secret(kubernetes, "ns") == b""
    secret = await shared(kubernetes)
    assert len(secret) == 32
    assert await shared(kubernetes) == secret


async def test_who_is_slower_takes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes, made = InMemoryKubernetes(), list[bytes]()
    write = InMemoryKubernetes.write_secret

    async def late(self: InMemoryKubernetes, secret: dict[str, Any]) -> None:
        monkeypatch.setattr(InMemoryKubernetes, "write_secret", write)
        made.append(await shared(self))
        await write(self, secret)

    monkeypatch.setattr(InMemoryKubernetes, "write_secret", late)
    assert await shared(kubernetes) == made[0]


@pytest.mark.parametrize("call", ["read_secret", "write_secret"])
async def test_without_the_permission_there_is_none_and_that_is_said(call: str) -> None:
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.outage(FORBIDDEN, call)
    assert await shared(kubernetes, health) == b""
    assert "Pods of mapped users" in health.troubles()[PART]
    kubernetes.outage(None)
    assert await shared(kubernetes, health)
    assert health.troubles() == {}


async def test_an_outage_is_for_the_caller_to_wait_for() -> None:
    kubernetes = InMemoryKubernetes()
    kubernetes.outage(Unavailable(503, "not now"), "read_secret")
    with pytest.raises(Unavailable):
        await shared(kubernetes)
    with pytest.raises(Unavailable):
        await known_secret(kubernetes, "ns")
    kubernetes.outage(FORBIDDEN, "read_secret")
    assert await known_secret(kubernetes, "ns") == b""
