"""Makes conditions for the status of a Pod or a Node, for a strategic merge patch."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

AGENT_HEARTBEAT_S: Final = 300.0
"""Interval at which a node agent repeats its condition of the Node, as a kubelet repeats its
status."""


def condition(
    kind: str, reason: str, message: str, now: datetime, *, holds: bool, changed: bool = True
) -> dict[str, str]:
    """Returns a condition. If the status has not `changed`, the condition has no time, and the patch
    keeps the time of the last transition."""
    written = {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
    }
    return written | {"lastTransitionTime": timestamp(now)} if changed else written


def is_stale(entry: Mapping[str, str], now: float, after_s: float) -> bool:
    """Returns True if a condition was last written more than `after_s` seconds before `now`, in UNIX
    seconds. A condition without a heartbeat is never stale."""
    beat = entry.get("lastHeartbeatTime")
    return beat is not None and now - datetime.fromisoformat(beat).timestamp() > after_s


def timestamp(moment: datetime) -> str:
    """Returns a time in Kubernetes' format: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
