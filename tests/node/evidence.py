"""Results of the tests on a Node. `make test-node` writes the results to build/node.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


def p99(samples: Sequence[float]) -> float | None:
    """Returns the 99th percentile by nearest rank; None if nothing was measured."""
    ordered = sorted(samples)
    return round(ordered[math.ceil(0.99 * len(ordered)) - 1], 1) if ordered else None


@dataclass
class Evidence:
    """Results of all guests together. A result without measurements is null in the file."""

    tried: int = 0
    """Number of attempts to escape, from a Pod and from a native job."""
    succeeded: list[str] = field(default_factory=list)
    came_and_went: int = 0
    """Number of Pods and native jobs with devices."""
    wrong: list[str] = field(default_factory=list)
    """Pods and jobs that opened other devices than granted, or a device that another holder had at the
    same time."""
    applied_ms: list[float] = field(default_factory=list)
    """Milliseconds from a container's first instruction until the limits are in force, measured inside
    the container."""
    applied_without_nri_ms: list[float] = field(default_factory=list)
    """Milliseconds from a container's first instruction until the limits are in force, without NRI."""
    changed: int = 0
    """Number of limits that a test changed on purpose."""
    repaired: int = 0
    """Number of changed limits that the agent repaired."""
    slowness: list[float] = field(default_factory=list)
    """Time of a Python loop in the guest, emulated by QEMU, divided by the loop's time on this machine.
    A time measured in the guest must be divided by this factor."""
    gate_ms: list[float] = field(default_factory=list)
    agent_rss_mb: list[float] = field(default_factory=list)
    agent_idle_cpu_percent: list[float] = field(default_factory=list)
    """Percent of one core of the guest."""
    slurmd_joined_s: list[float] = field(default_factory=list)
    """Seconds from the start of a slurmd Pod's container until the node takes jobs."""
    resumed_to_first_line_s: list[float] = field(default_factory=list)
    """Seconds from sbatch on a powered-down node until the first line of the job."""

    def write(self, path: Path) -> None:
        told = {
            "escapes_tried": self.tried,
            "escapes_succeeded": len(self.succeeded),
            "pods_and_jobs": self.came_and_went,
            "devices_wrong": len(self.wrong),
            "limits_applied_ms_p99": p99(self.applied_ms),
            "limits_applied_without_nri_ms_p99": p99(self.applied_without_nri_ms),
            "limits_changed": self.changed,
            "reverts_repaired": self.repaired,
            "emulated_times_slower": min(self.slowness, default=None),
            "gate_answer_ms_p99": p99(self.gate_ms),
            "agent_rss_mb": max(self.agent_rss_mb, default=None),
            "agent_idle_cpu_percent": max(self.agent_idle_cpu_percent, default=None),
            "slurmd_joined_s": max(self.slurmd_joined_s, default=None),
            "resumed_to_first_line_s": max(self.resumed_to_first_line_s, default=None),
        }
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(told, indent=2) + "\n")
