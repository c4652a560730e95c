"""The Pods on a Node, and the time until departing Pods are gone."""

from collections.abc import Iterable
from datetime import datetime
from math import inf

from kubernetes_client.protocol import Kubernetes, Manifest

RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of Pods that have not ended."""
_LATE_S = 5.0  # time for the kubelet after the grace period; a Pod that stays longer is stuck


async def pods_on(kubernetes: Kubernetes, node: str) -> list[Manifest]:
    """Returns the Pods on a Node that have not ended. Raises KubernetesError."""
    listed = await kubernetes.list("pods", f"spec.nodeName={node},{RUNNING}")
    return listed.get("items") or []


def vacated_in(pods: Iterable[Manifest], now: datetime, within: float) -> float:
    """Returns the seconds until the last departing Pod should be gone, or 0.0 if no Pod counts. A Pod
    with more than `within` seconds left does not count, because a deletion's grace period may be a day.
    A stuck Pod does not count either."""
    due = (gone_in(pod, now) for pod in pods)
    return max((left + _LATE_S for left in due if -_LATE_S < left <= within), default=0.0)


def gone_in(pod: Manifest, now: datetime) -> float:
    """Returns the remaining seconds of a Pod's grace period. The result is negative if the Pod is late,
    and infinity if the Pod is not being deleted. deletionTimestamp is the end of the grace period by
    kube-apiserver's clock (Kubernetes API, ObjectMeta). The clocks may differ, so the result is at most
    the whole grace period."""
    metadata = pod["metadata"]
    deletion = metadata.get("deletionTimestamp")
    if deletion is None:
        return inf
    left = (datetime.fromisoformat(deletion) - now).total_seconds()
    return min(left, float(metadata.get("deletionGracePeriodSeconds") or 0.0))
