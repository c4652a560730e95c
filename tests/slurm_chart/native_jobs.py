"""Native jobs that write lines to a file while they run, and slurmdbd's records of these jobs."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.eventually import eventually_not
from tests.meanwhile import meanwhile

DRAINS: Final = frozenset({"Duplicate jobid", "Prolog error"})
"""Reasons with which Slurm or the gate may drain a node after a kill of slurmctld. "Duplicate jobid":
slurmctld has given the id of a forgotten job to another job, and the node still has the first job.
"Prolog error": the gate has found that slurmctld forgot the job, but could not drain the node itself."""
OF_EXTENDER: Final = "slurm-extender: "
"""Beginning of the reasons of the extender's own drains. The extender clears these drains itself."""
ENDED: Final = "ended"
_SAYS: Final = """#!/bin/bash
until=$((SECONDS + {seconds}))
while
    echo "$SLURM_JOB_NAME $SLURM_JOB_ID.$$ $EPOCHREALTIME" >>{file}
    ((SECONDS < until))
do sleep 0.3; done
echo "$SLURM_JOB_NAME $SLURM_JOB_ID.$$ {ended}" >>{file}
"""
FORGETS_S: Final = 6.0
"""Age up to which slurmctld may forget an event at a kill, because slurmctld saves state only every 5
s."""
LAUNCHES_S: Final = 3.0
"""Longest time from Slurm's decision to start a job until the job's first line. The Prolog runs in this
time."""
ENDS_S: Final = 3.0
"""Longest time from a job's last line until slurmctld knows that the job has ended."""
SILENT_S: Final = 15.0
"""A job that writes no line for this time does not run, even on a busy machine."""
_FILE: Final = "said"
_LONG_S: Final = 3600
_EVERY_S: Final = 0.4
"""Pause between the submissions of two short jobs."""


@dataclass
class Run:
    """One run of a job: the times of the first and the last line (time.time()), and whether the run has
    reached its end."""

    first: float
    last: float
    ended: bool = False


@dataclass
class Submitted:
    """A job for which sbatch has printed an id."""

    name: str
    id: str
    at: float
    """Time when sbatch printed the id."""
    runs: list[Run] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """True if the last run of the job has written the line ENDED."""
        return bool(self.runs) and self.runs[-1].ended

    @property
    def last(self) -> float:
        """Time of the last line of the job's last run."""
        return self.runs[-1].last if self.runs else 0.0


class NativeJobs:
    """Long and short jobs of root."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._said = cluster.directory / "home/root" / _FILE
        self.submitted: dict[str, Submitted] = {}
        """Submitted jobs by name."""
        self.unanswered = 0
        """Number of failed attempts to submit a job."""
        self.drained = 0
        """Number of times that a drained node was resumed."""
        self.stale: set[str] = set()
        """Names of the jobs that `_cancel_stale` has cancelled, because slurmctld still showed them as
        running but no node ran them."""

    def submit(self, seconds: int = _LONG_S) -> str:
        """Submits a job and returns the job's name. Raises ClusterError if sbatch fails."""
        name = f"native-{next(self._numbers)}"
        script = _SAYS.format(seconds=seconds, file=f"/home/root/{_FILE}", ended=ENDED)
        options = ("--parsable", f"--job-name={name}", "--mem=10", "--output=/dev/null", "--chdir=/tmp")
        job = self._cluster.run_slurm("sbatch", *options, stdin=script).stdout.strip()
        self.submitted[name] = Submitted(name, job, time.time())
        return name

    @contextmanager
    def coming_and_going(self) -> Iterator[None]:
        """Submits short jobs until the block ends. Also resumes drained nodes, as a person would do."""
        with meanwhile(self._come, _EVERY_S):
            yield

    def read(self) -> list[Submitted]:
        """Returns all jobs with their runs."""
        runs: defaultdict[str, dict[str, Run]] = defaultdict(dict)
        for line in self._said.read_text().splitlines() if self._said.exists() else ():
            name, process, word = line.split()
            if word == ENDED:
                runs[name][process].ended = True
            else:
                run = runs[name].setdefault(process, Run(float(word), float(word)))
                run.last = float(word)
        for job in self.submitted.values():
            job.runs = sorted(runs[job.name].values(), key=lambda run: run.first)
        return list(self.submitted.values())

    def longest_pause_s(self) -> float:
        """Returns the longest time between the starts of two jobs."""
        starts = sorted(run.first for job in self.read() for run in job.runs)
        return max(later - earlier for earlier, later in itertools.pairwise(starts))

    def queue(self) -> dict[str, str]:
        """Returns the states of slurmctld's jobs, by name."""
        lines = self._cluster.run_slurm("squeue", "--noheader", "--format=%j|%T").stdout.splitlines()
        return dict(line.split("|", 1) for line in lines if line.startswith("native-"))

    def _hurry(self) -> None:
        """Starts requeued jobs at once. Otherwise Slurm delays requeued jobs for 2 minutes."""
        asked = ("--noheader", "--states=PENDING", "--format=%j|%i|%r")
        lines = self._cluster.run_slurm("squeue", *asked).stdout.splitlines()
        for _, job, reason in (line.split("|") for line in lines if line.startswith("native-")):
            if reason == "BeginTime":
                self._cluster.run_slurm("scontrol", "update", f"JobId={job}", "StartTime=now")

    def books(self) -> dict[str, set[str]]:
        """Returns the states that sacct shows for each job, by the job's name. sacct has a state for
        each run of a job."""
        asked = ("--noheader", "--parsable2", "--allocations", "--duplicates", "--starttime=now-1hours")
        lines = self._cluster.run_slurm("sacct", *asked, "--format=JobName,State").stdout.splitlines()
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name, state in (line.split("|", 1) for line in lines if line.startswith("native-")):
            found[name].add(state)
        return found

    def settle(self, long: Collection[str]) -> None:
        """Waits until all jobs except the jobs in `long` have ended."""

        def live() -> dict[str, str]:
            self._resume()
            self._hurry()
            self._cancel_stale()
            return {name: state for name, state in self.queue().items() if name not in long}

        eventually_not(live, "short jobs have ended", 150)

    def end_runaway_jobs(self) -> None:
        """Ends jobs that run for slurmdbd, but are unknown to slurmctld."""
        self._cluster.run_slurm("sacctmgr", "--immediate", "show", "runawayjobs")

    def _resume(self) -> None:
        """Resumes nodes that are drained for a reason in DRAINS, as a person would do after a kill."""
        asked = ("--noheader", "--Node", "--format=%N|%T|%E")
        lines = self._cluster.run_slurm("sinfo", *asked).stdout.splitlines()
        for node, state, reason in (line.split("|", 2) for line in lines):
            if "drain" not in state or reason.startswith(OF_EXTENDER):
                continue
            assert reason in DRAINS, (node, reason)
            with suppress(ClusterError):  # the node is resumed already, or slurmctld is away
                self._cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
                self.drained += 1

    def _cancel_stale(self) -> None:
        """Cancels jobs that hold resources in slurmctld but do not run on a node, as a person would do.
        slurmctld has forgotten the end of such a job, or has never launched the job."""
        now = time.time()
        asked = ("--noheader", "--states=RUNNING", "--format=%j|%i|%S")
        lines = self._cluster.run_slurm("squeue", *asked).stdout.splitlines()
        jobs = {job.name: job for job in self.read()}
        for name, number, began in (line.split("|") for line in lines if line.startswith("native-")):
            job = jobs[name]
            last = max(job.last, datetime.fromisoformat(began).timestamp())
            if last < now - (ENDS_S if job.ended else SILENT_S):
                self._cluster.run_slurm("scancel", number)
                self.stale.add(name)

    def _come(self) -> None:
        try:
            self._resume()
            self.submit(self._random.randint(1, 4))
        except ClusterError:
            self.unanswered += 1


def forgotten(killed: Sequence[float], at: float) -> bool:
    """Returns True if slurmctld may have forgotten an event at the time `at`, because a kill came before
    slurmctld saved the event."""
    return any(at - LAUNCHES_S <= each <= at + FORGETS_S for each in killed)


def met_by(killed: Sequence[float], job: Submitted) -> bool:
    """Returns True if the job has never run, or if a kill may have affected the start or the end of a
    run."""
    return not job.runs or any(forgotten(killed, at) for run in job.runs for at in (run.first, run.last))
