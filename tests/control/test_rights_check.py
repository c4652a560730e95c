"""A missing right to Pods in scope is a problem of every replica until a role grants the right."""

from __future__ import annotations

from pathlib import Path

from extender.control.rights_check import PART, RightsCheck
from extender.preflight.rights import to_pods_in_scope
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health


async def test_replica_reports_each_right_to_pods_that_it_lacks() -> None:
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
    kubernetes.lacking = set()
    await check.look()
    assert health.troubles() == {}
