"""The agent's condition on its Node. This module calls no other system.

The status is True while a reason applies (`Reason`), except the reasons about jobs (`_OF_JOBS`).
Examples: a device that Slurm counts is not usable or not closed to other Pods, or Slurm and the kubelet
count differently. While the status is True, the extender drains the node in Slurm
(SLURM_EXTENDER_DRAIN_CONDITIONS).

Reason and message also report problems with jobs. For such a problem, the status stays False, so that
the owner of a job cannot cause a drain.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kubernetes_client.protocol import Manifest
from wellknown.conditions import condition, timestamp
from wellknown.names import DEVICE_PROBLEM, DEVICES

WITHDRAWN: Final[Manifest] = {
    "metadata": {"annotations": {DEVICES: None}},
    "status": {"conditions": [{"type": DEVICE_PROBLEM, "$patch": "delete"}]},
}
"""Patch of a Node's status that removes the agent's condition and annotation."""
_LONGEST: Final = 1000
_FINE: Final = "every device that Slurm counts can be used"


class Reason(StrEnum):
    """Reason of the condition. If several reasons apply, the first in this order counts."""

    NOT_GUARDED = "NotGuarded"
    LIST_UNREADABLE = "ListUnreadable"
    RENUMBERED = "Renumbered"
    CORES_UNKNOWN = "CoresUnknown"
    DEVICES_HELD = "DevicesHeld"
    DEVICE_FAILED = "DeviceFailed"
    COUNTS_DIFFER = "CountsDiffer"
    CORES_SHARED = "CoresShared"
    STEP_IN_JOB_OF_POD = "StepInJobOfPod"


_OF_JOBS: Final = (Reason.CORES_SHARED, Reason.STEP_IN_JOB_OF_POD)
"""Reasons about jobs, which leave the status False. These reasons come last in the order."""


class Condition(NamedTuple):
    """Content of the condition. Status True means a problem, as with DiskPressure."""

    problem: bool
    reason: str
    message: str

    @classmethod
    def of(
        cls,
        failed: Mapping[str, str],
        counts: Iterable[str],
        problems: Mapping[Reason, str] = MappingProxyType({}),
    ) -> "Condition":
        """Returns the condition. Parameter `failed` has the problems of devices by Slurm's numbers.
        Parameter `counts` has texts about resources that Slurm and the kubelet count differently.
        Parameter `problems` has the problems of all devices together, and of jobs."""
        found = [(reason, words) for reason, words in problems.items() if words]
        found += [(Reason.DEVICE_FAILED, f"{of}: {why}") for of, why in sorted(failed.items())]
        found += [(Reason.COUNTS_DIFFER, words) for words in counts]
        if not found:
            return cls(False, "DevicesUsable", _FINE)
        found.sort(key=lambda each: [*Reason].index(each[0]))
        problem = found[0][0] not in _OF_JOBS
        return cls(problem, found[0][0].value, "; ".join(words for _, words in found)[:_LONGEST])

    @classmethod
    def on(cls, node: Manifest) -> "Condition | None":
        """Returns the condition on a Node, or None if the Node has no such condition."""
        listed = (node.get("status") or {}).get("conditions") or ()
        entry = next((each for each in listed if each["type"] == DEVICE_PROBLEM), None)
        if entry is None:
            return None
        return cls(entry.get("status") == "True", entry.get("reason", ""), entry.get("message", ""))

    def patch(self, before: "Condition | None") -> dict[str, Any]:
        """Returns the patch that writes this condition. Parameter `before` is the Node's present
        condition."""
        now, changed = datetime.now(UTC), before is None or before.problem != self.problem
        entry = condition(
            DEVICE_PROBLEM, self.reason, self.message, now, holds=self.problem, changed=changed
        )
        return {"status": {"conditions": [entry | {"lastHeartbeatTime": timestamp(now)}]}}


def differences(node: Manifest, counted: Mapping[str, int]) -> list[str]:
    """Returns a text for each resource that the kubelet and Slurm count differently. A resource that the
    kubelet does not know is not a difference, because the kubelet may have just started."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return [
        f"the kubelet counts {capacity[resource]} {resource}, and Slurm {number}"
        for resource, number in sorted(counted.items())
        if resource in capacity and str(capacity[resource]) != str(number)
    ]
