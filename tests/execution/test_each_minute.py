"""A check of Kubernetes that fails is a problem of the replica only if the failure lasts."""

import asyncio

import pytest

from extender.execution import release_check, rights_check
from extender.execution.release_check import ReleaseCheck
from extender.execution.rights_check import RightsCheck
from kubernetes_client.errors import Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Right
from service.health import Health

PARTS = {release_check.PART, rights_check.PART}


@pytest.mark.parametrize(("retry_s", "reported"), [(1000.0, set()), (0.0, PARTS)])
async def test_replica_reports_a_failed_check_only_if_the_failure_lasts(
    retry_s: float, reported: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kube-apiserver that starts forbids for a moment what it allows."""
    monkeypatch.setattr("extender.execution.each_minute.RETRY_S", retry_s)
    kubernetes, health = InMemoryKubernetes(), Health()
    kubernetes.outage(Rejected(403, "forbidden"), "list", "denied")
    checks = (
        ReleaseCheck(kubernetes, health, "team-a"),
        RightsCheck(kubernetes, health, [Right("patch", "pods", namespace="team-a")]),
    )
    running = [asyncio.create_task(check.run()) for check in checks]
    for _ in range(20):
        await asyncio.sleep(0)
    for each in running:
        each.cancel()
    assert set(health.troubles()) == reported
