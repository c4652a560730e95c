"""Tests of a Node that serves GPUs by Dynamic Resource Allocation (DRA). kube-scheduler would choose the
GPUs of a Pod, so the extender keeps Pods with GPUs off the Node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from extender.explain.wording import NO_DRA, NOT_SERVED
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually

pytestmark = pytest.mark.real

GPU = "nvidia.com/gpu"
NODE = "node-1"
HERE = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
DRIVER = "gpu.example.com"
API = {"apiVersion": "resource.k8s.io/v1"}
CLASS: Manifest = API | {
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "extendedResourceName": GPU,
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
    },
}
SLICE: Manifest = API | {
    "kind": "ResourceSlice",
    "metadata": {"name": f"{NODE}-{DRIVER}"},
    "spec": {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(4)],
    },
}
SINCE = (1, 36)
"""The first release of Kubernetes that serves extended resources by DRA by default."""


@pytest.fixture
def dra(actors: Actors) -> Iterator[Actors]:
    """Actors of a cluster with a DRA driver beside the kubelet of a Node. Both may serve the GPUs of the
    Node."""
    if actors.kubernetes() < SINCE:
        pytest.skip("this Kubernetes serves no extended resources by DRA")
    for made in (CLASS, SLICE):
        actors.cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield actors
    kubelet_counts(actors, "4")
    unlocked = json.dumps({"metadata": {"finalizers": None}})
    for name in claims(actors):
        actors.kubectl("patch", "resourceclaim", name, "--type=merge", "-p", unlocked)
        actors.kubectl("delete", "resourceclaim", name, "--ignore-not-found")
    for made in (CLASS, SLICE):
        actors.cluster.kubectl("delete", "-f", "-", stdin=json.dumps(made))


def kubelet_counts(actors: Actors, gpus: str | None) -> None:
    """Plays the kubelet: reports a number of GPUs on the Node. None means that no device plugin has ever
    registered GPUs."""
    amounts = {kind: {GPU: gpus} for kind in ("capacity", "allocatable")}
    patch = json.dumps({"status": amounts})
    actors.cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)


def claims(actors: Actors) -> list[str]:
    shown = actors.kubectl("get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.name}")
    return shown.stdout.split()


def test_managed_pod_gets_no_gpus_chosen_by_kube_scheduler(dra: Actors) -> None:
    kubelet_counts(dra, None)
    dra.create("hole", gpus=1, scheduler="default-scheduler", **HERE)
    assert dra.bound("hole") == NODE
    assert len(claims(dra)) == 1, "kube-scheduler chooses the GPU of a Pod that is not Slurm's"
    dra.create("p", gpus=1, **HERE)
    eventually(lambda: dra.condition("p").get("reason") == "NoEligibleNode", "no Node is open")
    message = dra.condition("p")["message"]
    assert f"1 has no allocatable {GPU} ({NO_DRA})" in message
    assert "3 do not match node selector" in message
    dra.create("elsewhere", gpus=1)
    assert dra.bound("elsewhere") != NODE
    dra.create("plain", **HERE)
    assert dra.bound("plain") == NODE
    assert dra.node_of("p") is None
    assert dra.job_of("p") is None
    kubelet_counts(dra, "4")  # as after the registration of the GPUs by the node agent
    assert dra.bound("p") == NODE
    assert len(claims(dra)) == 1


def test_pod_waits_if_the_kubelet_loses_its_gpus_after_the_grant(dra: Actors) -> None:
    dra.cluster.stop("kube-scheduler")
    dra.create("p", gpus=1, **HERE)

    def is_granted() -> bool:
        return not ((dra.see("p") or {})["spec"].get("schedulingGates"))

    eventually(is_granted, "Slurm has granted the Node")
    kubelet_counts(dra, "0")
    dra.cluster.start("kube-scheduler")
    refused = f"1 {NOT_SERVED}"
    eventually(lambda: refused in dra.condition("p", "PodScheduled").get("message", ""), "refused")
    eventually(lambda: NOT_SERVED in dra.condition("p").get("message", ""), "the author is told why")
    assert dra.node_of("p") is None
    assert claims(dra) == []
    kubelet_counts(dra, "4")
    assert dra.bound("p") == NODE
    assert claims(dra) == []
