"""The Pods that are bound to a Node, and the time when those that depart will be gone."""

from collections.abc import Iterable
from datetime import datetime
from math import inf

from kubernetes_client.protocol import Kubernetes, Manifest

RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of Pods that have not ended."""
_LATE_S = 5.0  # a kubelet needs a moment after the grace is over; a Pod that stays longer is stuck


async def pods_on(kubernetes: Kubernetes, node: str) -> list[Manifest]:
    """Returns the Pods that are bound to a Node and have not ended. Raises KubernetesError."""
    listed = await kubernetes.list("pods", f"spec.nodeName={node},{RUNNING}")
    return listed.get("items") or []


def vacated_in(pods: Iterable[Manifest], now: datetime, within: float) -> float:
    """Returns the seconds until the last departing Pod should be gone, 0.0 if none departs in time. A
    Pod with more than `within` seconds left is not waited for: a deletion's own grace may be a day."""
    due = (gone_in(pod, now) for pod in pods)
    return max((left + _LATE_S for left in due if -_LATE_S < left <= within), default=0.0)


def gone_in(pod: Manifest, now: datetime) -> float:
    """Returns the seconds of grace that a Pod has left: below 0 if late, infinity if not being deleted.
    A deletionTimestamp is the end of the grace by kube-apiserver's clock (Kubernetes API, ObjectMeta).
    If the clocks differ, the result is at most the grace."""
    metadata = pod["metadata"]
    deletion = metadata.get("deletionTimestamp")
    if deletion is None:
        return inf
    left = (datetime.fromisoformat(deletion) - now).total_seconds()
    return min(left, float(metadata.get("deletionGracePeriodSeconds") or 0.0))
