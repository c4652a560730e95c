"""How a condition is written into the status of a Pod or a Node, for a strategic merge patch."""

from datetime import UTC, datetime


def condition(
    kind: str, reason: str, message: str, now: datetime, *, holds: bool, changed: bool = True
) -> dict[str, str]:
    """Returns a condition. Where its status is not `changed` it keeps the time of its last transition,
    which the patch leaves as it is."""
    told = {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}
    return told | {"lastTransitionTime": timestamp(now)} if changed else told


def timestamp(moment: datetime) -> str:
    """Returns a moment as Kubernetes writes it: in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
