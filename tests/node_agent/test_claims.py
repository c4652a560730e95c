"""Tests of the claims of Pods, from the annotations."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.pods.claims import Claim, Stage, claim_of
from wellknown.allocation import Allocation
from wellknown.names import ADOPTED, GRANTED, JOB_ID, NODE


def manifest(gres: str = "", *, phase: str = "Pending", node: str = "n1", **annotations: str) -> Any:
    granted = Allocation(7, node, gres, "0-1", 512).annotations() | annotations
    metadata = {"uid": "u1", "namespace": "ml", "name": "p", "annotations": granted}
    return {"metadata": metadata, "status": {"phase": phase}}


JOB = Claim("u1", "ml/p", cores=(0, 1), memory_mb=512, job=7)
ENDED = Claim("u1", "ml/p", job=7, stage=Stage.ENDED)
OF_NO_JOB = {"metadata": {"uid": "u1", "namespace": "ml", "name": "p"}}


@pytest.mark.parametrize(
    ("pod", "claim"),
    [
        (
            manifest("gpu:h100:2(IDX:0,3),fpga:u250:1(IDX:0)"),
            JOB._replace(devices={"gpu": (0, 3), "fpga": (0,)}),
        ),
        (manifest(), JOB),
        (manifest("gpu:1(IDX:0)", phase="Succeeded"), ENDED),
        (manifest("gpu:1(IDX:0)", phase="Failed"), ENDED),
        (OF_NO_JOB, Claim("u1", "ml/p")),
    ],
)
def test_pod_has_the_resources_of_its_job_until_the_pod_ends(pod: Any, claim: Claim) -> None:
    assert claim_of(pod, "n1") == claim


@pytest.mark.parametrize(
    "told", ["shard:2(0/4,2/4),mps:50(0/100,50/100)", "shard:2(IDX:1),mps:50(IDX:1)"]
)
def test_parts_have_the_number_of_their_gpu(told: str) -> None:
    found = claim_of(manifest(told), "n1")
    assert found.devices == {"shard": (1,), "mps": (1,)}
    assert found.parts == {"shard": {1: 2}, "mps": {1: 50}}


def requesting(memory_mb: int, **resources: str) -> Any:
    """Returns a Pod with these requests, whose job has this memory."""
    pod = manifest() | {"spec": {"containers": [{"name": "c", "resources": {"requests": resources}}]}}
    pod["metadata"]["annotations"] |= Allocation(7, "n1", "", "0-1", memory_mb).annotations()
    return pod


@pytest.mark.parametrize(("memory_mb", "requested_mb"), [(64, 0), (0, 601)])
def test_memory_request_counts_if_the_job_has_no_memory(memory_mb: int, requested_mb: int) -> None:
    pod = requesting(memory_mb, memory="500Mi")
    pod["spec"] |= {"overhead": {"memory": "105000000"}}  # 100.1 MiB
    found = claim_of(pod, "n1")
    assert (found.memory_mb, found.requested_mb) == (memory_mb, requested_mb)


def test_pod_without_memory_request_or_without_job_has_no_limit() -> None:
    assert claim_of(requesting(0), "n1").requested_mb == 0
    pod = requesting(0, memory="500Mi")
    pod["metadata"]["annotations"] = {}
    assert claim_of(pod, "n1").requested_mb == 0


def test_pod_in_deletion_keeps_its_devices() -> None:
    pod = manifest("gpu:1(IDX:0)")
    pod["metadata"]["deletionTimestamp"] = "2026-11-26T08:00:00Z"
    found = claim_of(pod, "n1")
    assert (found.devices, found.stage) == ({"gpu": (0,)}, Stage.LEAVES)


def without_granted() -> Any:
    pod = manifest("gpu:1(IDX:0)")
    del pod["metadata"]["annotations"][GRANTED]
    return pod


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (manifest("shard:2(many)"), "shard:2(many) does not say which devices they are"),
        (manifest("gpu:2"), '"gpu:2" are no devices of a job'),
        (manifest("gpu:1(IDX:0)", node="n2"), "what Slurm granted it is on Node n2"),
        (manifest(**{GRANTED: '{"v":9}'}), "what Slurm granted it cannot be read"),
        (manifest(**{NODE: ""}), "what Slurm granted it cannot be read"),
        (without_granted(), "what Slurm granted it cannot be read"),
    ],
)
def test_malformed_grant_is_reported(pod: Any, words: str) -> None:
    assert claim_of(pod, "n1") == Claim("u1", "ml/p", problem=words, job=7)


def test_pod_with_an_unreadable_job_id_is_a_pod_of_a_job() -> None:
    found = claim_of(manifest(**{JOB_ID: "x"}), "n1")
    assert found == Claim("u1", "ml/p", problem="what Slurm granted it cannot be read", job=0)
    assert found.of_job


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_adopted_pod_differs_from_a_pod_of_no_job(phase: str) -> None:
    pod = manifest(phase=phase)
    for own, job in ((None, None), ({ADOPTED: "7"}, 7)):
        pod["metadata"]["annotations"] = own
        found = claim_of(pod, "n1")
        assert (found.job, found.adopted, found.of_job) == (job, job is not None, False)
