"""Tests of README's first Pod: after the Pod's admission by the extender, the Pod fits on a node of
`make demo`."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
import yaml

from deploy.local.demo.story import NODES, cluster_of
from deploy.local.spec import ClusterSpec
from extender.pod_request.pod import parse_pod
from slurm_client.errors import InvalidRequest
from slurm_client.in_memory import InMemorySlurm, builders
from slurm_client.model import JobSpec
from tests.builders import TRANSLATION
from tests.readme import first_pod, seen_of_the_first_pod
from tests.verbs.callers import Listeners, body
from tests.verbs.test_mutate import patched

FIRST_ID = 1 << 25


async def asked_of_slurm(pod: dict[str, Any]) -> JobSpec:
    """Returns the job that the extender requests for a Pod after the extender's webhook has admitted the
    Pod."""
    sent = body("mutate")
    sent["request"]["object"] = pod
    allowing = Listeners(shared_gpus="allow")  # like the cluster of `make demo`
    response = (await allowing.ask("mutate", sent))["response"]
    assert response["allowed"], response
    request = parse_pod(patched(pod, json.loads(b64decode(response["patch"]))), TRANSLATION).request
    assert not request.problems
    return request.job


async def granted(job: JobSpec, spec: ClusterSpec) -> str:
    """Returns the node that Slurm allocates to the job. Raises InvalidRequest if the nodes are too
    small."""
    nodes = [
        builders.node(
            name,
            cpus=spec.slurm_cpus,
            memory_mb=spec.memory_mb,
            gres=f"gpu:h100:{spec.gpus_per_node}",
        )
        for name in spec.node_names
    ]
    slurm = InMemorySlurm(nodes, [builders.partition("main", spec.node_names, default=True)])
    await slurm.allocate(job, FIRST_ID)
    found = await slurm.job(FIRST_ID)
    assert found is not None
    return found.nodes[0]


async def test_first_pod_gets_a_node_of_the_demo() -> None:
    job = await asked_of_slurm(yaml.safe_load(first_pod()))
    assert job.partition == "main"
    assert dict(job.gres) == {"gpu": 2}
    assert await granted(job, cluster_of(NODES)) == "node-1"


async def test_pod_too_large_for_the_demo_gets_no_node() -> None:
    larger = first_pod().replace("8Gi", "16Gi")
    assert larger != first_pod()
    with pytest.raises(InvalidRequest):
        await granted(await asked_of_slurm(yaml.safe_load(larger)), cluster_of(NODES))


def test_shown_output_of_kubectl_and_squeue_names_the_first_pod() -> None:
    (get, pods), (squeue, jobs) = seen_of_the_first_pod()
    name = yaml.safe_load(first_pod())["metadata"]["name"]
    assert get.startswith(f"kubectl get pod {name} ")
    assert squeue.startswith("squeue")
    assert f"{name} " in pods
    assert f" {name}@default " in jobs
