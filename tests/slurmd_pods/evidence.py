"""Results of the tests of pools. `make test-pools` writes the results to build/pools.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def percentile(samples: Sequence[float], percent: float) -> float | None:
    """Returns the percentile by nearest rank; None if nothing was measured."""
    ordered = sorted(samples)
    rank = math.ceil(percent / 100 * len(ordered))
    return round(ordered[max(0, rank - 1)], 2) if ordered else None


@dataclass
class Evidence:
    """Results for both releases of Slurm together. In the file, a result that was not measured is
    null."""

    joined_s: list[float] = field(default_factory=list)
    """Seconds from the start of a slurmd until the new node of this slurmd takes jobs."""
    back_s: list[float] = field(default_factory=list)
    """Seconds from the start of a slurmd until its node takes jobs again. The node existed before, and
    the pool had drained the node."""
    resume_to_first_line_s: list[float] = field(default_factory=list)
    """Seconds from the start of srun until the end of srun, for a node that was powered down. slurmctld
    checks only every 30 s whether the nodes of a job have booted (PERIODIC_TIMEOUT)."""
    resume_to_slurmd_s: list[float] = field(default_factory=list)
    """Seconds from the start of srun until the node's slurmd starts, for a node that was powered
    down."""
    roll_outs: int = 0
    """Number of completed roll-outs under load."""
    replaced: int = 0
    """Number of slurmds replaced by the roll-outs under load."""
    replaced_busy: int = 0
    """Number of slurmds that ended while a native job was on the node."""
    beyond_limit: int = 0
    """Number of observations with more nodes out of service than `maxUnavailable`."""
    looks: int = 0
    jobs: int = 0
    """Number of native jobs submitted during the roll-outs under load."""
    waited: int = 0
    """Number of observations with a draining node, which still has native jobs."""
    jobs_lost: list[str] = field(default_factory=list)
    """Native jobs that Slurm does not show as COMPLETED, or that did not write their last line."""
    crash_loop_stopped_after: list[int] = field(default_factory=list)
    """For each roll-out of a template whose slurmd crashes: number of Nodes that got the template before
    the roll-out stopped."""
    thousand: Mapping[str, float | None] = field(default_factory=dict)
    """Results of test_thousand.py."""

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
