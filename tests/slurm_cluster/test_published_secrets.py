"""Tests of published Secrets: Slurm's token and files are written into Secrets of other namespaces, and
the other keys of these Secrets stay."""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from kubernetes_client.errors import Conflict
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_cluster.programs import ProgramFailed
from slurm_cluster.published_secrets import password, writer
from slurm_cluster.published_secrets.places import Copy, Place
from slurm_cluster.published_secrets.writer import Missing, Wanted, mint, publish

TOKEN = Place("slurm-extender", "slurm-token", "token")


@pytest.fixture
def kubernetes() -> InMemoryKubernetes:
    made = InMemoryKubernetes()
    for namespace, name in (("slurm-extender", "slurm-token"), ("slurm-nodes", "slurmd")):
        data = {"other": b64encode(b"kept").decode()}
        made.put("secrets", {"metadata": {"namespace": namespace, "name": name}, "data": data})
    return made


@pytest.fixture(autouse=True)
def slurm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replaces scontrol with a function that prints a token. Returns the list to which this function
    adds the arguments of each call."""
    asked: list[tuple[str, ...]] = []

    def mint_one(lifespan_s: int, within_s: float) -> str:
        def scontrol(*command: str) -> str:
            asked.append(command)
            return "SLURM_JWT=e30.e30.x\n"

        return mint(lifespan_s, within_s, scontrol)

    monkeypatch.setattr(writer, "mint", mint_one)
    return asked


async def contents(kubernetes: InMemoryKubernetes, namespace: str, name: str) -> dict[str, bytes]:
    secret = await kubernetes.read_secret(namespace, name)
    assert secret is not None
    return {key: b64decode(text) for key, text in secret["data"].items()}


async def test_token_is_written_beside_other_keys(
    kubernetes: InMemoryKubernetes, slurm: list[tuple[str, ...]]
) -> None:
    said = await publish(kubernetes, Wanted(token=TOKEN, lifespan_s=3600))
    assert said == ["Secret slurm-extender/slurm-token is written: token"]
    found = await contents(kubernetes, "slurm-extender", "slurm-token")
    assert found == {"other": b"kept", "token": b"e30.e30.x"}
    assert slurm == [("scontrol", "token", "username=slurm", "lifespan=3600")]


async def test_files_are_copied_and_removed(kubernetes: InMemoryKubernetes, tmp_path: Path) -> None:
    key, jwks = tmp_path / "slurm.key", tmp_path / "slurm.jwks"
    key.write_bytes(b"\0key")
    copies = [Copy.parse(f"slurm-nodes/slurmd/{path.name}={path}") for path in (key, jwks)]
    kept = {"other": b"kept"}
    await publish(kubernetes, Wanted(copies=copies))
    assert await contents(kubernetes, "slurm-nodes", "slurmd") == kept | {"slurm.key": b"\0key"}
    jwks.write_text("{}")
    key.unlink()
    await publish(kubernetes, Wanted(copies=copies))
    assert await contents(kubernetes, "slurm-nodes", "slurmd") == kept | {"slurm.jwks": b"{}"}
    said = await publish(kubernetes, Wanted(copies=copies))
    assert said == ["Secret slurm-nodes/slurmd is up to date"]


async def test_a_missing_secret_is_named_in_the_error(kubernetes: InMemoryKubernetes) -> None:
    with pytest.raises(Missing, match="elsewhere/slurm-token"):
        await publish(kubernetes, Wanted(token=TOKEN._replace(namespace="elsewhere")))


async def test_a_secret_is_read_again_after_a_conflict(
    kubernetes: InMemoryKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = kubernetes.write_secret, [Conflict(409, "changed")]

    async def write_later(secret: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        await write(secret)

    monkeypatch.setattr(kubernetes, "write_secret", write_later)
    await publish(kubernetes, Wanted(token=TOKEN))
    assert "token" in await contents(kubernetes, "slurm-extender", "slurm-token")


def test_the_creation_of_a_token_waits_for_slurmctld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_EACH_S", 0.01)
    away = ProgramFailed(("scontrol",), "no slurmctld")
    answers: list[str | ProgramFailed] = [away, "SLURM_JWT=a.b.c\n"]

    def scontrol(*_: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, ProgramFailed):
            raise answer
        return answer

    assert mint(60, 60.0, scontrol) == "a.b.c"
    answers.append(away)
    with pytest.raises(ProgramFailed, match="no slurmctld"):
        mint(60, 0.0, scontrol)
    answers.append("nothing")
    with pytest.raises(ProgramFailed, match="no token"):
        mint(60, 60.0, scontrol)


async def test_a_password_is_created_once() -> None:
    kubernetes, place = InMemoryKubernetes(), Place("slurm", "mariadb", "password")
    assert await password.ensure(kubernetes, place) == "Secret mariadb is created"
    first = await contents(kubernetes, "slurm", "mariadb")
    assert len(first["password"]) == 64
    assert await password.ensure(kubernetes, place) == "Secret mariadb exists already"
    assert await contents(kubernetes, "slurm", "mariadb") == first


@pytest.mark.parametrize("text", ["a/b", "a/b/c/d", "a//c", ""])
def test_an_invalid_place_of_a_secret_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAMESPACE/SECRET/KEY"):
        Place.parse(text)
    with pytest.raises(ValueError, match="is not NAMESPACE/SECRET/KEY"):
        Copy.parse(text)
