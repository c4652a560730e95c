"""A missing right to Pods in scope is a problem of every replica until a role grants the right."""

import asyncio
from pathlib import Path

import pytest

from extender.execution.rights_check import PART, RightsCheck
from extender.preflight.rights import to_pods_in_scope
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Right
from service.health import Health

RETRY = "extender.execution.rights_check.RETRY_S"
PATCH = Right("patch", "pods", namespace="team-a")


async def test_each_missing_right_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRY, 0.0)
    settings = Settings(slurm_token_file=Path("token"), scope=("team-a", "team-b"))
    rights = to_pods_in_scope(settings)
    assert {right.namespace for right in rights} == {"team-a", "team-b"}
    kubernetes, health = InMemoryKubernetes(), Health()
    check = RightsCheck(kubernetes, health, rights)
    await check.look()
    assert health.troubles() == {}
    for right in rights:
        kubernetes.lacking = {right}
        await check.look()
        assert f"lacks rights ({right}). " in health.troubles()[PART]
        assert "remove the namespace from scheduler.scope.namespaces" in health.troubles()[PART]
    kubernetes.lacking = set()
    await check.look()
    assert health.troubles() == {}


@pytest.mark.parametrize(("retry_s", "reported"), [(1000.0, False), (0.0, True)])
async def test_replica_reports_a_refusal_only_if_it_lasts(
    retry_s: float, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kube-apiserver that starts forbids for a moment what it allows."""
    monkeypatch.setattr(RETRY, retry_s)
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.lacking = {PATCH}
    checking = asyncio.create_task(RightsCheck(kubernetes, health, [PATCH]).look())
    for _ in range(20):
        await asyncio.sleep(0)
    checking.cancel()
    assert (PART in health.troubles()) == reported
