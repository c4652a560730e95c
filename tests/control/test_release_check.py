"""A second release of the chart in the cluster is a problem of every replica until `helm uninstall`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.control.release_check import PART, ReleaseCheck
from kubernetes_client.errors import Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health


def policy(name: str, release: str, namespace: str | None) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": release}
    if namespace is not None:
        labels["slurm-extender.io/release-namespace"] = namespace
    return {"metadata": {"name": name, "labels": labels}}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (policy("b-bookkeeping", "b", "team-b"), "team-b/b (b-bookkeeping)"),
        (policy("b-bookkeeping", "b", "team-a"), "team-a/a (a-bookkeeping), team-a/b (b-bookkeeping)"),
    ],
    ids=["in another namespace", "in the same namespace"],
)
async def test_replica_reports_a_second_release_until_it_is_gone(
    second: dict[str, Any], words: str
) -> None:
    kubernetes, health = InMemoryKubernetes(), Health()
    check = ReleaseCheck(kubernetes, health, "team-a")
    own, others = policy("a-bookkeeping", "a", "team-a"), policy("x", "x", None)
    kubernetes.put("validatingadmissionpolicies", own, others, {"metadata": {"name": "y"}})
    await check.look()
    assert health.troubles() == {}
    kubernetes.put("validatingadmissionpolicies", second)
    await check.look()
    assert words in health.troubles()[PART]
    kubernetes.remove("validatingadmissionpolicies", second["metadata"]["name"])
    await check.look()
    assert health.troubles() == {}


@pytest.mark.parametrize(("retry_s", "reported"), [(1000.0, False), (0.0, True)])
async def test_replica_reports_a_refusal_only_if_it_lasts(
    retry_s: float, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kube-apiserver that starts forbids for a moment what it allows."""
    monkeypatch.setattr("extender.control.release_check._RETRY_S", retry_s)
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.outage(Rejected(403, "forbidden"), "list")
    looking = asyncio.create_task(ReleaseCheck(kubernetes, health, "team-a").run())
    for _ in range(20):
        await asyncio.sleep(0)
    looking.cancel()
    assert (PART in health.troubles()) == reported
