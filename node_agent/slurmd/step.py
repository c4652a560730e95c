"""Finds the next step for a Node's slurmd Pod. The functions are pure."""

from collections.abc import Collection
from datetime import datetime
from enum import Enum, auto

from kubernetes_client.protocol import Manifest
from wellknown.names import REVISION
from wellknown.slurmd_pod import CONTAINER, Assignment

_MOST_SHOWN = 5
_LIST_WITHIN_S = 300.0
"""Time for the pool's scripts, which the slurmd Pod runs before slurmd's list of devices is written."""
ENDED = ("Failed", "Succeeded")
"""Phases of a Pod that has ended by itself."""


class Step(Enum):
    NOTHING = auto()
    MAKE = auto()
    END = auto()
    TAKE_AWAY = auto()
    """Remove a Pod that has ended by itself."""
    WAIT = auto()
    """Leave a Pod that should end, until the jobs in the Pod have ended. Only Slurm ends jobs."""


def step(assigned: Assignment | None, pod: Manifest | None, jobs: Collection[str]) -> Step:
    """Returns the next step. Parameter `pod` is the existing Pod, or None. Parameter `jobs` has Slurm's
    jobs with processes in the Pod."""
    revision = assigned.revision if assigned is not None else ""
    if pod is None:
        return Step.MAKE if revision else Step.NOTHING
    if "deletionTimestamp" in pod["metadata"]:
        return Step.NOTHING
    if (pod.get("status") or {}).get("phase") in ENDED:
        return Step.TAKE_AWAY
    if revision and (pod["metadata"].get("labels") or {}).get(REVISION) == revision:
        return Step.NOTHING
    return Step.WAIT if jobs else Step.END


def starts(pod: Manifest | None, now: datetime, up_s: float) -> bool:
    """Returns True while slurmd's first list of devices may be missing. The list may be missing if no
    container of slurmd runs, and in the container's first 5 minutes. Parameter `up_s` is the uptime of
    the machine. After a boot, the Pod's status may still have the start from before the boot. So the
    result is also True in the first 5 minutes after a boot."""
    if (since := began(pod)) is None:
        return True
    return min((now - since).total_seconds(), up_s) < _LIST_WITHIN_S


def began(pod: Manifest | None) -> datetime | None:
    """Returns the start of slurmd's container, in whole seconds, or None if the container does not
    run."""
    listed = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    own: Manifest = next((each for each in listed if each.get("name") == CONTAINER), {})
    at = ((own.get("state") or {}).get("running") or {}).get("startedAt")
    return None if at is None else datetime.fromisoformat(at)


def in_words(jobs: Collection[str]) -> str:
    """Returns the message why the agent does not end the slurmd Pod."""
    ordered = sorted(jobs)
    more = f" and {len(ordered) - _MOST_SHOWN} more" if len(ordered) > _MOST_SHOWN else ""
    names = ", ".join(ordered[:_MOST_SHOWN]) + more
    return f"the slurmd Pod is not ended, since Slurm's jobs run in it: {names}"


def in_words_of_orphans(uids: Collection[str]) -> str:
    """Returns the message why the agent makes no slurmd Pod while processes of earlier slurmd Pods
    run."""
    return (
        "the slurmd Pod is not created: processes of an earlier slurmd Pod, which was deleted by force,"
        f" still run on this Node (uid {', '.join(sorted(uids))}). Wait for their jobs, or end them"
    )
