"""What the tests on a Node found, in figures: `make test-node` leaves it in build/node.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


def p99(samples: Sequence[float]) -> float | None:
    """Returns the 99th percentile by nearest rank; None where nothing was measured."""
    ordered = sorted(samples)
    return round(ordered[math.ceil(0.99 * len(ordered)) - 1], 1) if ordered else None


@dataclass
class Evidence:
    """Of all guests together. What was not measured is null."""

    tried: int = 0
    """Escapes, from a Pod and from a native job."""
    succeeded: list[str] = field(default_factory=list)
    came_and_went: int = 0
    """Pods and native jobs with devices."""
    wrong: list[str] = field(default_factory=list)
    """Devices that a process opened and its job did not have, or that two had at once."""
    applied_ms: list[float] = field(default_factory=list)
    """From a container's first instruction until its limits were in force, seen from inside."""
    applied_without_nri_ms: list[float] = field(default_factory=list)
    """The same, where the container runtime asks nobody."""
    changed: int = 0
    """Limits that somebody changed on purpose."""
    repaired: int = 0
    """Those that were put right."""
    slowness: list[float] = field(default_factory=list)
    """How many times longer a loop of Python takes in a guest, which QEMU emulates, than on the machine
    beneath it: what is measured in time there is to be divided by it."""
    gate_ms: list[float] = field(default_factory=list)
    agent_rss_mb: list[float] = field(default_factory=list)
    agent_idle_cpu_percent: list[float] = field(default_factory=list)
    """Of one of the guest's cores."""
    slurmd_joined_s: list[float] = field(default_factory=list)
    """From the start of the container of a slurmd Pod until its node took jobs."""
    resumed_to_first_line_s: list[float] = field(default_factory=list)
    """From sbatch on a node that Slurm has powered down until the job's first line."""

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
