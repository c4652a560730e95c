"""Has the images of the next slurmd Pod pulled while the previous slurmd still runs. The functions are
pure.

The kubelet pulls images only for Pods. A Node's status lists only the 50 largest images, so the status
does not show whether a certain image is on the Node. So the agent makes a Pod with the new images, and
reads from the Pod's status which images are on the Node. The containers of this Pod end at once. The
kubelet pulls the images with the template's secrets and policies.
"""

from collections.abc import Iterator
from typing import Any, Final

from kubernetes_client.protocol import Manifest
from node_agent.slurmd.manifest import owner_of
from wellknown.names import REVISION
from wellknown.slurmd_pod import Assignment, pull_pod_name

_NOT_YET: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_AFTER_THE_PULL: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
)
"""The kubelet's reasons why a container waits although its image is on the Node
(pkg/kubelet/kuberuntime, startContainer). For example, the image may lack the command /bin/true."""


def missing(template: Manifest, slurmd: Manifest) -> list[Manifest]:
    """Finds the images of a pool's template that the present slurmd Pod (`slurmd`) does not use. Returns
    a container of the template for each of these images."""
    has = {each.get("image") for each in _containers(slurmd["spec"])}
    new = {each["image"]: each for each in _containers(template["spec"]) if each.get("image")}
    return [each for image, each in new.items() if image not in has]


def _containers(spec: Manifest) -> Iterator[Manifest]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def pull_pod(
    assignment: Assignment, containers: list[Manifest], spec: Manifest, node: Manifest, namespace: str
) -> Manifest:
    """Returns the Pod that pulls the images of these containers of a template."""
    own = {
        "nodeName": node["name"],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [_puller(number, each) for number, each in enumerate(containers)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pull_pod_name(node["name"]),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "slurmd-images", REVISION: assignment.revision},
            "ownerReferences": [owner_of(node)],
        },
        "spec": {key: spec[key] for key in ("hostNetwork", "imagePullSecrets") if key in spec} | own,
    }


def _puller(number: int, container: Manifest) -> dict[str, Any]:
    policy = {key: container[key] for key in ("image", "imagePullPolicy") if key in container}
    return {"name": f"image-{number}", "command": ["/bin/true"], **policy}


def pulled(pod: Manifest) -> bool:
    """Returns True if all images are on the Node."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    there = [each for each in statuses if each.get("imageID") or _waits(each) in _AFTER_THE_PULL]
    return len(there) == len(pod["spec"]["containers"])


def problem(pod: Manifest) -> str:
    """Returns the reason why the images cannot be pulled, or "" while the pull may still succeed."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        if _waits(each) not in _NOT_YET | _AFTER_THE_PULL:
            waiting = each["state"]["waiting"]
            return f"{each['image']}: {waiting['reason']}: {waiting.get('message', '')}"
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"the Pod has ended: {status.get('reason', '')} {status.get('message', '')}".strip()
    return ""


def _waits(status: Manifest) -> str:
    state = (status.get("state") or {}).get("waiting") or {}
    return state.get("reason") or ""
