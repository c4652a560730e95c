"""Conditions of a Pod's or a Node's status, for a strategic merge patch."""

from datetime import UTC, datetime


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


def timestamp(moment: datetime) -> str:
    """Returns a time in Kubernetes' format: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
