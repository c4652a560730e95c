"""Pods of the check: a Pod that Slurm must place, and a Pod that the webhook must refuse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wellknown.names import DEFAULT_PREFIX

LABEL: Final = {"app.kubernetes.io/name": "slurm-extender-check"}
"""Label of both Pods."""
_NOBODY: Final = 65534


@dataclass(frozen=True, slots=True)
class Wish:
    """Wanted properties of the placed Pod."""

    namespace: str = "default"
    image: str = "registry.k8s.io/pause:3.10"
    cpu: str = "1"
    memory: str = "64Mi"
    devices: Mapping[str, int] = field(default_factory=dict)
    """Number of each extended resource, like {"nvidia.com/gpu": 1}."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the extender, without the prefix, like {"partition": "main"}."""
    timeout_s: float = 120.0
    """Time limit for all steps together."""


def placed(name: str, wish: Wish, scheduler_name: str, prefix: str = DEFAULT_PREFIX) -> dict[str, Any]:
    """Returns the manifest of a Pod that Slurm places. The Pod meets the restricted Pod security
    standard. If the Pod is not deleted, the Pod ends at activeDeadlineSeconds."""
    requests = {"cpu": wish.cpu, "memory": wish.memory}
    devices = {resource: str(count) for resource, count in wish.devices.items()}
    manifest = _pod(name, wish, scheduler_name, {"requests": requests, "limits": devices})
    annotations = {prefix + name: value for name, value in wish.annotations.items()}
    manifest["metadata"]["annotations"] = annotations
    manifest["spec"]["activeDeadlineSeconds"] = max(1, int(wish.timeout_s))
    return manifest


def refused(name: str, wish: Wish, scheduler_name: str) -> dict[str, Any]:
    """Returns the manifest of a Pod without requests, which Slurm cannot place."""
    return _pod(name, wish, scheduler_name, {})


def _pod(name: str, wish: Wish, scheduler_name: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    container = {
        "name": "check",
        "image": wish.image,
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": wish.namespace, "labels": dict(LABEL)},
        "spec": {
            "schedulerName": scheduler_name,
            "containers": [container],
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        },
    }
