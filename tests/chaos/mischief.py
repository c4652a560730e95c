"""Changes placeholders: administrators overwrite an AdminComment or suspend a job, and owners change
waiting jobs."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.chaos.checker import Causes
from tests.chaos.cluster_spec import HIGH, LOW
from tests.chaos.history import NAMESPACE, SeenJob, pod_of
from tests.chaos.observer import Observer
from tests.chaos.plan import Mischief, MischiefPlan

SETTLED_S = 5.0
"""Seconds after a Binding until the extender has surely read the job with its key. If a job loses the
key earlier, the extender does not take the job for the Pod's job."""
_WAITS_S = 10.0
_LOOKS_EVERY_S = 0.2
_OWNER = "alice"
_OF_RUNNING_PODS = frozenset({Mischief.REWRITE, Mischief.SUSPEND})
_FOR_A_MOMENT = {Mischief.SUSPEND: ("suspend", "resume"), Mischief.HOLD: ("hold", "release")}
_DENIAL = re.compile(rf"refuses (\S+{NAMESPACE})\b")


@dataclass(frozen=True, slots=True)
class Mischiefs:
    """Carries out plans for changes of placeholders. Safe to use from any thread."""

    cluster: Cluster
    observer: Observer
    causes: Causes
    done: Counter[str] = field(default_factory=Counter)

    def do(self, plan: MischiefPlan) -> None:
        """Changes a suitable job, as soon as such a job exists."""
        deadline = time.monotonic() + _WAITS_S
        while not (found := self._within_reach(plan.how)):
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOKS_EVERY_S)
        job = found[int(plan.choice * len(found))]
        self.causes.mischief.append((time.monotonic(), job.uid, plan.how))
        user = "root" if plan.how in _OF_RUNNING_PODS else _OWNER
        with suppress(ClusterError):
            if plan.how in _FOR_A_MOMENT:
                self._for_a_moment(job, plan.choice, *_FOR_A_MOMENT[plan.how], user=user)
            else:
                changes = _changes(plan.how, job)
                self.cluster.run_slurm("scontrol", "update", f"JobId={job.id}", *changes, user=user)
            self.done[plan.how] += 1

    def _for_a_moment(self, job: SeenJob, seconds: float, do: str, undo: str, *, user: str) -> None:
        self.cluster.run_slurm("scontrol", do, str(job.id), user=user)
        time.sleep(seconds)
        with suppress(ClusterError):  # the job may have been cancelled
            self.cluster.run_slurm("scontrol", undo, str(job.id), user=user)

    def _within_reach(self, how: Mischief) -> list[SeenJob]:
        jobs = self.observer.latest_jobs()
        if how in _OF_RUNNING_PODS:
            settled = self.observer.placed_before(time.monotonic() - SETTLED_S)
            mine = (job for job in jobs if job.running and job.uid in settled)
            return [job for job in mine if pod_of(job.name)]  # a renamed job without a key names no Pod
        placed = self.observer.placed_before(time.monotonic())
        hers = (job for job in jobs if job.uid and job.user == _OWNER and job.uid not in placed)
        wanted = [job for job in hers if job.state == "PENDING"]
        return [job for job in wanted if how in _FOR_A_MOMENT or _changes(how, job)]


def _changes(how: Mischief, job: SeenJob) -> tuple[str, ...]:
    """Returns arguments of `scontrol update` to change a job; empty if the job cannot become smaller."""
    match how:
        case Mischief.REWRITE:
            return ("AdminComment=belongs to project 7",)
        case Mischief.RENAME:
            return ("JobName=mine",)
        case Mischief.MOVE:
            return (f"Partition={HIGH if job.partition == LOW else LOW}",)
        case Mischief.SHRINK:
            gpus = ("TresPerNode=gres/gpu:1",) if job.gpus > 1 else ()
            return gpus or (("NumCPUs=1",) if job.cpus > 1 else ())
        case Mischief.SUSPEND | Mischief.HOLD:
            return ()


def denials(cluster: Cluster) -> list[int]:
    """Returns the number of rejections by job_submit.lua for each job name in slurmctld's log."""
    with (cluster.logs / "slurmctld.log").open(errors="replace") as log:
        denied = Counter(found[1] for line in log if (found := _DENIAL.search(line)))
    return list(denied.values())
