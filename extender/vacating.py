"""When a Node will be clear of the Pods that are leaving it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from extender.kubernetes_api import Manifest

_LATE_S = 5.0  # a kubelet needs a moment after the grace is over; a Pod that stays longer is stuck


def vacated_in(pods: Iterable[Manifest], now: datetime) -> float:
    """Returns in how many seconds the last of a Node's departing Pods should be gone, 0.0 where none
    is departing in time. A deletionTimestamp is when the grace is over (Kubernetes API, ObjectMeta), by
    kube-apiserver's clock: one that differs from ours makes it no longer than the grace."""
    due = (_seconds(pod["metadata"], now) for pod in pods)
    return max(0.0, *due, 0.0)


def _seconds(metadata: Manifest, now: datetime) -> float:
    deletion = metadata.get("deletionTimestamp")
    if deletion is None:
        return 0.0
    left = (datetime.fromisoformat(deletion) - now).total_seconds()
    return min(left, float(metadata.get("deletionGracePeriodSeconds") or 0.0)) + _LATE_S
