"""Tests of `slurm-extender uninstall`: the extender's gate is removed from waiting Pods, and live jobs
of this cluster end. All other gates and jobs stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from extender.uninstall.leftovers import Done, StillLeads, end_jobs, lift_gates, no_leader
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.in_memory import InMemorySlurm, builders
from slurm_client.model import JobSpec
from tests.builders import RULES, TRANSLATION, pod_manifest
from wellknown.job_key import PlaceholderKey, job_name
from wellknown.names import GATE

OTHERS_GATE = "example.com/quota"
LEASE = {
    "metadata": {"name": "slurm-extender", "namespace": "kube-system"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 1},
}
NODES = ["n1", "n2"]


async def gates(kubernetes: InMemoryKubernetes, name: str) -> list[str]:
    manifest = await kubernetes.read_pod("default", name)
    assert manifest is not None
    return [gate["name"] for gate in manifest["spec"].get("schedulingGates") or ()]


async def test_only_the_gate_of_the_extender_is_removed() -> None:
    kubernetes, done = InMemoryKubernetes(), Done()
    for manifest in (
        pod_manifest("waits"),
        pod_manifest("waits-for-others-too", gates=(OTHERS_GATE, GATE)),
        pod_manifest("runs", gates=()),
    ):
        kubernetes.put("pods", manifest)
    await lift_gates(kubernetes, TRANSLATION.scheduler_name, done)
    assert await gates(kubernetes, "waits") == []
    assert await gates(kubernetes, "waits-for-others-too") == [OTHERS_GATE]
    assert (done.lifted, done.problems) == (2, [])


def slurm() -> InMemorySlurm:
    nodes = [builders.node(name, cpus=8, memory_mb=16_000) for name in NODES]
    return InMemorySlurm(nodes, [builders.partition("main", NODES, default=True)])


def asked(key: PlaceholderKey) -> JobSpec:
    spec = JobSpec(name=job_name(key.namespace, key.name), cpus=1, memory_mb=100)
    return replace(spec, admin_comment=str(key))


async def test_only_live_jobs_of_this_cluster_are_cancelled() -> None:
    world, done = slurm(), Done()
    ours = PlaceholderKey(RULES.cluster, "default", "p", "u1", 1)
    anothers = PlaceholderKey("another-cluster", "default", "p", "u2", 1)
    await world.connect()
    for key in (ours, anothers):
        await world.allocate(asked(key), key.job_id(RULES.ids))
    await end_jobs(world, RULES, done)
    states = await world.all_states()
    assert states[ours.job_id(RULES.ids)].ended
    assert not states[anothers.job_id(RULES.ids)].ended
    assert (done.ended, done.problems) == (1, [])


async def test_uninstall_stops_while_a_replica_leads() -> None:
    kubernetes = InMemoryKubernetes()
    await kubernetes.create_lease("kube-system", LEASE)

    async def renews() -> None:
        for number in count():
            lease: Any = await kubernetes.read_lease("kube-system", "slurm-extender")
            spec = {**lease["spec"], "renewTime": str(number)}
            await kubernetes.replace_lease("kube-system", "slurm-extender", {**lease, "spec": spec})
            await asyncio.sleep(0.01)

    leads = asyncio.ensure_future(renews())
    with pytest.raises(StillLeads, match="kube-system/slurm-extender"):
        await no_leader(kubernetes, "kube-system", 1, 0.5)
    leads.cancel()
    await no_leader(kubernetes, "kube-system", 1, 0.5)


async def test_extender_that_never_led_has_no_lease() -> None:
    await no_leader(InMemoryKubernetes(), "kube-system", 5, 0.0)
