"""Tests of the Pods of a Node, as the agent follows the Pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.pods import node_pods
from node_agent.pods.node_pods import NodePods
from tests.eventually import until
from wellknown.allocation import Allocation


def pod(number: int) -> dict[str, Any]:
    annotations = Allocation(7, "n1", "", "0", 512).annotations()
    metadata = {"uid": f"u{number}", "namespace": "ml", "name": f"p{number}", "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}}


async def test_removals_are_bounded_on_a_node_whose_gate_never_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_pods, "_MAX_REMOVALS", 2)
    kubernetes = InMemoryKubernetes()
    pods = NodePods(kubernetes, "n1", lambda: None, lambda _: None)
    following = asyncio.create_task(pods.follow())
    try:
        for number in range(4):
            kubernetes.put("pods", pod(number))
            await until(lambda: pods.claims)
            kubernetes.remove("pods", f"p{number}", "ml")
            await until(lambda: pods.claims == {})
        everything = {f"u{number}" for number in range(4)}
        removals = pods.removals(everything)
        assert {uid: claim.pod for uid, claim in removals.items()} == {"u2": "ml/p2", "u3": "ml/p3"}
    finally:
        following.cancel()
