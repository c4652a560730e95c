"""PodGroups of Kubernetes and of the plugin coscheduling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy.local.programs.kubernetes_binaries import kubernetes_binaries, version_of
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, Manifest

SINCE = (1, 37)
GATES = ("GenericWorkload",)


def gates() -> tuple[str, ...]:
    """Returns the feature gates for PodGroups; none if the Kubernetes of the tests has no PodGroups."""
    binaries = kubernetes_binaries(ClusterSpec().kubernetes_release, silent)
    has = (version_of(Path(binaries["kube-apiserver"])) or (0, 0)) >= SINCE
    return GATES if has else ()


def make_group(actors: Actors, name: str, policy: Manifest, **given: Any) -> Manifest:
    """Creates a PodGroup of Kubernetes. Returns the fields of the spec of the group's Pods."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": actors.full(name)},
        "spec": {"schedulingPolicy": policy, **given},
    }
    actors.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    return {"schedulingGroup": {"podGroupName": actors.full(name)}}
