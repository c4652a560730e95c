"""Collects the results of the demo's steps (story.py): comparisons with Slurm, observed events, and
measured times. Writes a summary of the results into a file."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Final

from deploy.local.demo.pods import Sighting
from deploy.local.demo.slurm import NodeUse, Queue

IDLE_P50_BUDGET_MS: Final = 50
"""Budget for the time until a Pod is bound on an idle cluster. The demo shows the budget, but an
exceeded budget does not change the exit status."""


def percentile(values: Collection[float], percent: float) -> float | None:
    """Returns the percentile: the smallest value for which at least `percent` % of all values are equal
    or smaller. Returns None if there are no values."""
    rank = max(1, ceil(len(values) * percent / 100))
    return sorted(values)[rank - 1] if values else None


def difference(pod: Sighting, queue: Queue) -> str | None:
    """Compares a bound Pod with squeue. Returns None if exactly one job has the Pod's name, and
    that job is RUNNING on the Pod's Node. Otherwise returns the difference."""
    job = queue.get(pod.job_id or 0)
    if job is None:
        return f"{pod.name} is bound to {pod.node}, but squeue does not list its job {pod.job_id}"
    if (job.name, job.state, job.node) != (f"{pod.name}@default", "RUNNING", pod.node):
        return f"{pod.name} is bound to {pod.node}, but squeue says {job}"
    if others := [each.id for each in queue.values() if each.name == job.name and each.id != job.id]:
        return f"{pod.name} has job {job.id} and also {others}"
    return None


def reason_difference(pod: Sighting, queue: Queue) -> str | None:
    """Compares a waiting Pod with squeue. Returns None if the Pod's condition has the
    reason that squeue shows (%r). Otherwise returns the difference."""
    job = queue.get(pod.job_id or 0)
    if job is None:
        return f"{pod.name} is not bound, and squeue lists no job of the Pod"
    if (job.state, job.reason) == ("PENDING", pod.reason):
        return None
    return f"{pod.name} waits for {pod.reason}, but squeue says {job}"


def overcommitment(node: NodeUse, pods: Sequence[Sighting], cpus: int = 0, gpus: int = 0) -> str | None:
    """Compares the use of a node with Slurm's allocations and with the node's size. `cpus` and `gpus`
    are the use by native jobs. Returns a message if Pods and native jobs use more than Slurm has
    allocated, or if the allocations exceed the node."""
    cpus += sum(pod.cpus for pod in pods if pod.node == node.name)
    gpus += sum(pod.gpus for pod in pods if pod.node == node.name)
    if cpus <= node.cpus_used <= node.cpus and gpus <= node.gpus_used <= node.gpus:
        return None
    return f"{cpus} CPUs and {gpus} GPUs are in use on the node, but Slurm reports {node}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expected event, whether the event was observed, and what was seen."""

    step: str
    expected: str
    observed: bool
    seen: str


@dataclass(slots=True)
class Findings:
    """Results that the demo collects during its steps. Times are in milliseconds unless a name says
    otherwise."""

    cluster_up_s: float = 0.0
    idle_ms: list[float] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)
    """Names of the bound Pods that were already compared with squeue."""
    differences: list[str] = field(default_factory=list)
    """One message for each comparison with a difference."""
    verdicts: list[Verdict] = field(default_factory=list)

    def compare(self, pod: Sighting, queue: Queue) -> None:
        """Compares a bound Pod with squeue."""
        self.compared.add(pod.name)
        self.note(difference(pod, queue))

    def note(self, found: str | None) -> None:
        """Records the result of a comparison: the difference, or None."""
        if found is not None:
            self.differences.append(found)

    @property
    def failed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.observed]

    @property
    def all_observed(self) -> bool:
        """True if the demo ran its steps, the expected event of every step was observed, and no
        comparison found a difference."""
        return bool(self.verdicts) and not self.failed and not self.differences

    def figures(self) -> dict[str, Any]:
        """Returns the content of build/demo.json."""
        return {
            "idle_pods": len(self.idle_ms),
            "idle_bound_ms_p50": _tenths(percentile(self.idle_ms, 50)),
            "idle_bound_ms_p50_budget": IDLE_P50_BUDGET_MS,
            "idle_bound_ms_p99": _tenths(percentile(self.idle_ms, 99)),
            "idle_bound_ms_max": _tenths(percentile(self.idle_ms, 100)),
            "pods": len(self.compared),
            "mismatches": len(self.differences),
            "cluster_up_s": _tenths(self.cluster_up_s),
            "observed": {verdict.step: verdict.observed for verdict in self.verdicts},
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.figures(), indent=2) + "\n")


def _tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
