"""A second release of the chart in the cluster is a problem of every replica until `helm uninstall`."""

from typing import Any

import pytest

from extender.execution.release_check import PART, ReleaseCheck
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
async def test_second_release_is_reported_until_gone(second: dict[str, Any], words: str) -> None:
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
