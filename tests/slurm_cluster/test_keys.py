"""Tests of the Secrets of the keys: the keys are created once, rotated in three steps, and never
overwritten."""

from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from deploy.local.cluster import Cluster
from kubernetes_client.errors import Conflict
from kubernetes_client.in_memory.kubernetes import InMemoryKubernetes
from kubernetes_client.protocol import Kubernetes
from kubernetes_client.rest import KubernetesRest
from slurm_cluster import jwks
from slurm_cluster.jwks import SLURM_JWKS, SLURM_KEY, Key, Stage, WrongKeys
from slurm_cluster.keys import secrets
from slurm_cluster.keys.secrets import JWT_KEY, Names, NotNow
from slurm_cluster.kubernetes_session import opaque_secret

NAMES = Names("default", "slurm-key", "slurm-jwt-key")
NOW = datetime(2026, 11, 27, tzinfo=UTC)
PAUSE = timedelta(minutes=5)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.real)])
async def kubernetes(
    request: pytest.FixtureRequest, shared_cluster_if_needed: Callable[[], Cluster]
) -> AsyncIterator[Kubernetes]:
    if request.param == "memory":
        yield InMemoryKubernetes()
        return
    cluster = shared_cluster_if_needed()
    client = await KubernetesRest.connect(cluster.kubeconfig)
    yield client
    await client.aclose()
    for name in (NAMES.slurm_key, NAMES.jwt_key):
        cluster.kubectl("delete", "secret", name, "--ignore-not-found", "--namespace=default")


async def data(kubernetes: Kubernetes, name: str) -> dict[str, bytes]:
    secret = await kubernetes.read_secret(NAMES.namespace, name)
    assert secret is not None
    return {key: b64decode(value) for key, value in secret["data"].items()}


async def test_missing_secrets_are_created_and_existing_secrets_stay(kubernetes: Kubernetes) -> None:
    assert await secrets.ensure(kubernetes, NAMES) == [
        "Secret slurm-key is created",
        "Secret slurm-jwt-key is created",
    ]
    first = [await data(kubernetes, name) for name in (NAMES.slurm_key, NAMES.jwt_key)]
    assert await secrets.ensure(kubernetes, NAMES) == [
        "Secret slurm-key exists already",
        "Secret slurm-jwt-key exists already",
    ]
    assert [await data(kubernetes, name) for name in (NAMES.slurm_key, NAMES.jwt_key)] == first
    (key,) = jwks.parse(first[0][SLURM_JWKS])
    assert (key.value, key.signs) == (first[0][SLURM_KEY], True)
    assert len(first[0][SLURM_KEY]) == len(first[1][JWT_KEY]) == 64


async def test_a_rotation_has_three_steps_and_a_pause_between_them(kubernetes: Kubernetes) -> None:
    await secrets.ensure(kubernetes, NAMES)
    old = (await data(kubernetes, NAMES.slurm_key))[SLURM_KEY]
    now, signing, known = NOW, [], []
    for _ in Stage:
        await secrets.rotate_slurm_key(kubernetes, NAMES, now, PAUSE)
        found = await data(kubernetes, NAMES.slurm_key)
        keys = jwks.parse(found[SLURM_JWKS])
        assert found[SLURM_KEY] == jwks.signing(keys).value
        signing.append(found[SLURM_KEY] == old)
        known.append(len(keys))
        if jwks.stage(keys) is not Stage.ADD:
            with pytest.raises(NotNow, match="wait another 60 s"):
                await secrets.rotate_slurm_key(kubernetes, NAMES, now + timedelta(minutes=4), PAUSE)
        now += PAUSE
    assert (signing, known) == ([True, False, False], [2, 2, 1])


async def test_a_secret_without_a_jwks_is_rotated(kubernetes: Kubernetes) -> None:
    await kubernetes.write_secret(
        opaque_secret({"namespace": "default", "name": NAMES.slurm_key}, {SLURM_KEY: b"x" * 64})
    )
    await secrets.rotate_slurm_key(kubernetes, NAMES, NOW, PAUSE)
    keys = jwks.parse((await data(kubernetes, NAMES.slurm_key))[SLURM_JWKS])
    assert [(key.value == b"x" * 64, key.signs) for key in keys] == [(True, True), (False, False)]


async def test_a_write_based_on_a_stale_secret_conflicts_after_a_rotation(
    kubernetes: Kubernetes,
) -> None:
    await secrets.ensure(kubernetes, NAMES)
    stale = await kubernetes.read_secret("default", NAMES.slurm_key)
    assert stale is not None
    await secrets.rotate_slurm_key(kubernetes, NAMES, NOW, PAUSE)
    with pytest.raises(Conflict):
        await kubernetes.write_secret(secrets._changed(stale, {SLURM_KEY: b""}, {}))


async def test_a_rotation_of_the_jwt_key_replaces_it_and_reports_the_next_step(
    kubernetes: Kubernetes,
) -> None:
    await secrets.ensure(kubernetes, NAMES)
    old = await data(kubernetes, NAMES.jwt_key)
    _, ends = await secrets.rotate_jwt_key(kubernetes, NAMES, NOW)
    assert ends.startswith("restart slurmdbd: until then slurmdbd accepts all tokens of the old key")
    assert await data(kubernetes, NAMES.jwt_key) != old


async def test_a_missing_secret_is_not_rotated(kubernetes: Kubernetes) -> None:
    for rotation in (
        secrets.rotate_slurm_key(kubernetes, NAMES, NOW, PAUSE),
        secrets.rotate_jwt_key(kubernetes, NAMES, NOW),
    ):
        with pytest.raises(NotNow, match="keys ensure"):
            await rotation


def test_keys_are_read_as_they_were_written() -> None:
    keys = (Key("a", bytes(range(64)), signs=True), Key("b", b"\xff" * 63))
    assert jwks.parse(jwks.render(keys)) == keys


@pytest.mark.parametrize("text", [b"", b"{}", b'{"keys": [{}]}', b'{"keys": 1}', b"[]"])
def test_an_invalid_jwks_is_rejected(text: bytes) -> None:
    with pytest.raises(WrongKeys):
        jwks.parse(text)
