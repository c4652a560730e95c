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
    """Returns in how many seconds the last of a Node's departing Pods should be gone, 0.0 where none is
    departing in time. A Pod with more than `within` seconds left is not waited for: a deletion sets its
    own grace, which may be a day."""
    due = (gone_in(pod, now) for pod in pods)
    return max((left + _LATE_S for left in due if -_LATE_S < left <= within), default=0.0)


def gone_in(pod: Manifest, now: datetime) -> float:
    """Returns how much of its grace a Pod has left, in seconds: less than 0 where it is late, infinity
    where it is not being deleted. A deletionTimestamp is when the grace is over (Kubernetes API,
    ObjectMeta), by kube-apiserver's clock: where that clock differs from the extender's the result is
    no longer than the grace."""
    metadata = pod["metadata"]
    deletion = metadata.get("deletionTimestamp")
    if deletion is None:
        return inf
    left = (datetime.fromisoformat(deletion) - now).total_seconds()
    return min(left, float(metadata.get("deletionGracePeriodSeconds") or 0.0))
