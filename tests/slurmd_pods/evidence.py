"""What the tests of pools found, in figures: `make test-pools` leaves it in build/pools.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def percentile(samples: Sequence[float], percent: float) -> float | None:
    """Returns it by nearest rank; None where nothing was measured."""
    ordered = sorted(samples)
    rank = math.ceil(percent / 100 * len(ordered))
    return round(ordered[max(0, rank - 1)], 2) if ordered else None


@dataclass
class Evidence:
    """Of both releases of Slurm together. What was not measured is null."""

    joined_s: list[float] = field(default_factory=list)
    """From the start of a slurmd until the node that it made took jobs."""
    back_s: list[float] = field(default_factory=list)
    """The same where the node was there, and drained by the pool."""
    resume_to_first_line_s: list[float] = field(default_factory=list)
    """From srun on a node that Slurm has powered down until it has ended. slurmctld looks
    every 30 s whether the nodes of a job have booted (PERIODIC_TIMEOUT)."""
    resume_to_slurmd_s: list[float] = field(default_factory=list)
    """The same until the start of the node's slurmd."""
    roll_outs: int = 0
    """Of those under load, until all nodes took jobs again."""
    replaced: int = 0
    """Nodes whose slurmd was ended by these."""
    replaced_busy: int = 0
    """Of them those that had a native job at that moment."""
    beyond_limit: int = 0
    """How many looks saw more nodes out of service than `maxUnavailable`."""
    looks: int = 0
    jobs: int = 0
    """Native jobs that came meanwhile."""
    waited: int = 0
    """How many looks saw a node that was waited for."""
    jobs_lost: list[str] = field(default_factory=list)
    """Those that Slurm did not say to be COMPLETED, or that did not write their last line."""
    crash_loop_stopped_after: list[int] = field(default_factory=list)
    """On how many Nodes a template that crashes was tried, each time."""
    thousand: Mapping[str, float | None] = field(default_factory=dict)
    """See test_thousand.py."""

    def write(self, path: Path) -> None:
        told = {
            "joined_s_p50": percentile(self.joined_s, 50),
            "joined_s_p99": percentile(self.joined_s, 99),
            "back_s_p50": percentile(self.back_s, 50),
            "back_s_p99": percentile(self.back_s, 99),
            "resume_to_first_line_s": max(self.resume_to_first_line_s, default=None),
            "resume_to_slurmd_s": max(self.resume_to_slurmd_s, default=None),
            "roll_outs": self.roll_outs,
            "replaced_nodes": self.replaced,
            "replaced_busy_nodes": self.replaced_busy if self.replaced else None,
            "looks": self.looks,
            "looks_beyond_max_unavailable": self.beyond_limit if self.looks else None,
            "looks_at_busy_nodes_that_wait": self.waited,
            "jobs": self.jobs,
            "jobs_lost": len(self.jobs_lost) if self.jobs else None,
            "crash_loop_stopped_after": max(self.crash_loop_stopped_after, default=None),
            "thousand_members": dict(self.thousand) or None,
        }
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(told, indent=2) + "\n")
