"""A namespace in scope without the extender's Role is a problem of every replica until a Role exists."""

from __future__ import annotations

from extender.control.rights_check import PART, RightsCheck
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Right
from service.health import Health


async def test_replica_reports_namespaces_whose_pods_it_may_not_change() -> None:
    kubernetes, health = InMemoryKubernetes(), Health()
    check = RightsCheck(kubernetes, health, ["team-b", "team-a"])
    await check.look()
    assert health.troubles() == {}
    kubernetes.denied = {Right("patch", "pods", namespace="team-b")}
    await check.look()
    assert "may not change Pods of team-b: " in health.troubles()[PART]
    kubernetes.denied = set()
    await check.look()
    assert health.troubles() == {}
