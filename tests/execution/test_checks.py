"""Tests of the checks in every replica: a missing right to Pods in scope, or a second release of the
chart, is a problem."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from extender.execution import release_check, rights_check
from extender.execution.release_check import ReleaseCheck
from extender.execution.rights_check import RightsCheck
from extender.preflight.rights import to_pods_in_scope
from extender.settings import Settings
from kubernetes_client.errors import Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Right
from service.health import Health

RETRY = "extender.execution.rights_check.RETRY_S"
PATCH = Right("patch", "pods", namespace="team-a")
PARTS = {release_check.PART, rights_check.PART}


async def test_each_missing_right_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRY, 0.0)
    settings = Settings(slurm_token_file=Path("token"), scope=("team-a", "team-b"))
    rights = to_pods_in_scope(settings)
    assert {right.namespace for right in rights} == {"team-a", "team-b"}
    kubernetes, health = InMemoryKubernetes(), Health()
    check = RightsCheck(kubernetes, health, rights)
    await check.look()
    assert health.problems() == {}
    for right in rights:
        kubernetes.lacking = {right}
        await check.look()
        told = health.problems()[rights_check.PART]
        assert f"lacks rights ({right}). " in told
        assert "remove the namespace from scheduler.scope.namespaces" in told
    kubernetes.lacking = set()
    await check.look()
    assert health.problems() == {}


@pytest.mark.parametrize(("retry_s", "reported"), [(1000.0, False), (0.0, True)])
async def test_replica_reports_a_refusal_only_if_it_lasts(
    retry_s: float, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A starting kube-apiserver forbids allowed requests for a moment."""
    monkeypatch.setattr(RETRY, retry_s)
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.lacking = {PATCH}
    checking = asyncio.create_task(RightsCheck(kubernetes, health, [PATCH]).look())
    for _ in range(20):
        await asyncio.sleep(0)
    checking.cancel()
    assert (rights_check.PART in health.problems()) == reported


@pytest.mark.parametrize(("retry_s", "reported"), [(1000.0, set()), (0.0, PARTS)])
async def test_replica_reports_a_failed_check_only_if_the_failure_lasts(
    retry_s: float, reported: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.execution.each_minute.RETRY_S", retry_s)
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.outage(Rejected(403, "forbidden"), "list", "denied")
    checks = ReleaseCheck(kubernetes, health, "team-a"), RightsCheck(kubernetes, health, [PATCH])
    running = [asyncio.create_task(check.run()) for check in checks]
    for _ in range(20):
        await asyncio.sleep(0)
    for each in running:
        each.cancel()
    assert set(health.problems()) == reported


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
async def test_second_release_is_reported_until_gone(second: dict[str, Any], words: str) -> None:
    kubernetes, health = InMemoryKubernetes(), Health()
    check = ReleaseCheck(kubernetes, health, "team-a")
    own, others = policy("a-bookkeeping", "a", "team-a"), policy("x", "x", None)
    kubernetes.put("validatingadmissionpolicies", own, others, {"metadata": {"name": "y"}})
    await check.look()
    assert health.problems() == {}
    kubernetes.put("validatingadmissionpolicies", second)
    await check.look()
    assert words in health.problems()[release_check.PART]
    kubernetes.remove("validatingadmissionpolicies", second["metadata"]["name"])
    await check.look()
    assert health.problems() == {}
