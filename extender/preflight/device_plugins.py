"""Finds the Pods of GPU vendors' device plugins.

If several device plugins register a resource, the kubelet asks the plugin that registered last. So a
vendor's device plugin beside the node agent can give Pods other devices than Slurm granted
(docs/tasks/beside-the-gpu-operator.md)."""

from collections.abc import Iterator
from typing import Final

from extender.node_view.pods_on_node import RUNNING
from kubernetes_client.protocol import Kubernetes, Manifest

_FOLDER: Final = "/device-plugins"
"""End of the path of the kubelet's folder on the host. Device plugins register through a socket in this
folder. Other Pods of a vendor, such as gpu-feature-discovery and AMD's node labeller, have the same
image, but do not mount the folder."""
_NAMES: Final = frozenset(
    {
        "k8s-device-plugin",  # image of NVIDIA/k8s-device-plugin and of ROCm/k8s-device-plugin
        "nvidia-device-plugin",  # container of the GPU Operator
        "nvidia-device-plugin-ctr",  # container of NVIDIA's Helm chart
        "nvidia-gpu-device-plugin",  # image and container of GKE
        *("amdgpu-dp-cntr", "amd-gpu-dp-cntr"),  # containers of AMD's manifest and Helm chart
        "intel-gpu-plugin",  # image and container of intel/intel-device-plugins-for-kubernetes
    }
)
"""Names of images, without registry and tag, and names of containers."""


async def device_plugins(kubernetes: Kubernetes) -> dict[str, str]:
    """Returns the Pod of a vendor's device plugin ("namespace/name") for each Node that has such a Pod.
    Raises KubernetesError."""
    found: dict[str, str] = {}
    async for page in kubernetes.pages("pods", RUNNING):
        for pod in page.get("items") or ():
            node, metadata = pod["spec"].get("nodeName"), pod["metadata"]
            if node is not None and is_device_plugin(pod):
                found.setdefault(node, f"{metadata['namespace']}/{metadata['name']}")
    return found


def is_device_plugin(pod: Manifest) -> bool:
    """Returns True for a Pod of a device plugin from a known vendor."""
    volumes = pod["spec"].get("volumes") or ()
    folders = ((each.get("hostPath") or {}).get("path") or "" for each in volumes)
    mounts_it = any(folder.rstrip("/").endswith(_FOLDER) for folder in folders)
    return mounts_it and not _NAMES.isdisjoint(_names(pod))


def _names(pod: Manifest) -> Iterator[str]:
    """Yields the names of containers and of images. For example, the image
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0@sha256:..." has the name "k8s-device-plugin"."""
    for container in pod["spec"].get("containers") or ():
        yield container.get("name") or ""
        image = (container.get("image") or "").partition("@")[0]
        yield image.rpartition("/")[2].partition(":")[0]
