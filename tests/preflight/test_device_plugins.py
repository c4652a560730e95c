"""Tests of the search for the GPU vendors' device plugins among all Pods of a Node."""

from typing import Any

import pytest

from extender.preflight.device_plugins import device_plugins, is_device_plugin
from kubernetes_client.in_memory import InMemoryKubernetes

FOLDER = "/var/lib/kubelet/device-plugins"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"


def daemon(image: str, container: str = "c", folder: str = FOLDER, **changes: Any) -> dict[str, Any]:
    """Returns a Pod of a DaemonSet on the Node n1. `changes` replaces fields of the spec."""
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "sidecar"}, {"name": container, "image": image}],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "p", "hostPath": {"path": folder}}],
    }
    name = container + "-x"
    metadata = {"name": name, "namespace": "gpu", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec | changes, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("image", "container"),
    [
        (NVIDIA, "nvidia-device-plugin"),  # as in GPU Operator 26.7, assets/state-device-plugin
        ("registry.example.com:5000/mirror@sha256:12", "nvidia-device-plugin-ctr"),
        ("gke.gcr.io/nvidia-gpu-device-plugin@sha256:12", "c"),
        ("docker.io/rocm/k8s-device-plugin:latest", "amdgpu-dp-cntr"),
        ("intel/intel-gpu-plugin:0.34.0", "intel-gpu-plugin"),
    ],
)
def test_a_vendors_plugin_is_known_by_image_or_container(image: str, container: str) -> None:
    assert is_device_plugin(daemon(image, container))
    assert is_device_plugin(daemon(image, container, "/var/lib/k0s/kubelet/device-plugins/"))


@pytest.mark.parametrize(
    "pod",
    [
        daemon(NVIDIA, "gpu-feature-discovery", folder="/sys"),  # the plugin's image
        daemon("rocm/k8s-device-plugin:labeller-latest", volumes=None),
        daemon("ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9.0"),  # no GPUs
        daemon("registry.example.com/slurm-extender-node-agent:1", "node-agent"),
    ],
)
def test_other_pods_are_no_plugins_of_gpus(pod: dict[str, Any]) -> None:
    assert not is_device_plugin(pod)


async def test_plugins_that_run_are_found_by_node() -> None:
    api = InMemoryKubernetes(
        daemon(NVIDIA, "a"),
        daemon(NVIDIA, "b", nodeName="n2"),
        daemon(NVIDIA, "c", nodeName=None),
        daemon("busybox", "d", nodeName="n3"),
        daemon(NVIDIA, "e", nodeName="n4") | {"status": {"phase": "Failed"}},
    )
    assert await device_plugins(api) == {"n1": "gpu/a-x", "n2": "gpu/b-x"}
