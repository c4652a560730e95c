"""What is next for a Node's slurmd Pod: pure."""

from collections.abc import Collection
from datetime import datetime
from enum import Enum, auto

from kubernetes_client.protocol import Manifest
from wellknown.names import REVISION
from wellknown.slurmd_pod import CONTAINER, Assignment

_MOST_TOLD = 5
_TELLS_WITHIN_S = 300.0
"""So long its scripts may take before slurmd tells its devices."""
_ENDED = ("Failed", "Succeeded")


class Step(Enum):
    NOTHING = auto()
    MAKE = auto()
    END = auto()
    TAKE_AWAY = auto()
    """It has ended by itself."""
    WAIT = auto()
    """It is not to run any more, and jobs are there: nobody ends those but Slurm."""


def step(assigned: Assignment | None, pod: Manifest | None, jobs: Collection[str]) -> Step:
    """Returns it. `pod` is the one that there is, `jobs` those of Slurm that have processes in it."""
    revision = assigned.revision if assigned is not None else ""
    if pod is None:
        return Step.MAKE if revision else Step.NOTHING
    if "deletionTimestamp" in pod["metadata"]:
        return Step.NOTHING
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return Step.TAKE_AWAY
    if revision and (pod["metadata"].get("labels") or {}).get(REVISION) == revision:
        return Step.NOTHING
    return Step.WAIT if jobs else Step.END


def starts(pod: Manifest | None, now: datetime, up_s: float) -> bool:
    """Tells whether slurmd may yet be about to tell its devices for the first time: there is no Pod, or
    its container does not run, or has run for less than 5 minutes. `up_s` is how long the machine runs:
    what a Pod says of the time before is over."""
    listed = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    own: Manifest = next((each for each in listed if each.get("name") == CONTAINER), {})
    began = ((own.get("state") or {}).get("running") or {}).get("startedAt")
    if began is None:
        return True
    ran_s = (now - datetime.fromisoformat(began)).total_seconds()
    return min(ran_s, up_s) < _TELLS_WITHIN_S


def in_words(jobs: Collection[str]) -> str:
    """Returns why a slurmd Pod is not ended."""
    told = sorted(jobs)
    more = f" and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    names = ", ".join(told[:_MOST_TOLD]) + more
    return f"the slurmd Pod is not ended, since Slurm's jobs run in it: {names}"
