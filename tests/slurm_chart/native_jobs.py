"""Native jobs that say of themselves when they run, and what slurmdbd has of them."""

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
"""Why nodes are drained after slurmctld was killed: it gave an id again to another job, and that job's
node has the first one; or the gate found a job forgotten, and could not drain the node by itself."""
OF_EXTENDER: Final = "slurm-extender: "
"""How reasons begin that the extender takes back."""
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
"""slurmctld writes its state every 5 s."""
LAUNCHES_S: Final = 3.0
"""From Slurm's decision to a job's first word: Prolog runs before."""
ENDS_S: Final = 3.0
"""From a job's last word until slurmctld knows its end."""
SILENT_S: Final = 15.0
"""A job that has said nothing for so long does not run, however busy the machine is."""
_FILE: Final = "said"
_LONG_S: Final = 3600
_EVERY_S: Final = 0.4
"""Short jobs come one after the other."""


@dataclass
class Run:
    """One time that a job ran, by the clock on the wall."""

    first: float
    last: float
    ended: bool = False


@dataclass
class Submitted:
    """A job whose id sbatch has said."""

    name: str
    id: str
    at: float
    """When it was said."""
    runs: list[Run] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether its last run came to its end."""
        return bool(self.runs) and self.runs[-1].ended

    @property
    def last(self) -> float:
        """When it said its last word."""
        return self.runs[-1].last if self.runs else 0.0


class NativeJobs:
    """Jobs of root's, long ones and short ones."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._said = cluster.directory / "home/root" / _FILE
        self.submitted: dict[str, Submitted] = {}
        """By name."""
        self.unanswered = 0
        """How often sbatch gave up."""
        self.drained = 0
        """How often nodes had to be resumed."""
        self.stale: set[str] = set()
        """Those that were cancelled since they ran according to slurmctld, and did not."""

    def submit(self, seconds: int = _LONG_S) -> str:
        """Returns the job's name. Raises ClusterError where sbatch gives up."""
        name = f"native-{next(self._numbers)}"
        script = _SAYS.format(seconds=seconds, file=f"/home/root/{_FILE}", ended=ENDED)
        options = ("--parsable", f"--job-name={name}", "--mem=10", "--output=/dev/null", "--chdir=/tmp")
        job = self._cluster.run_slurm("sbatch", *options, stdin=script).stdout.strip()
        self.submitted[name] = Submitted(name, job, time.time())
        return name

    @contextmanager
    def coming_and_going(self) -> Iterator[None]:
        """Short ones are submitted while the block runs, and a person resumes nodes."""
        with meanwhile(self._come, _EVERY_S):
            yield

    def read(self) -> list[Submitted]:
        """All of them, with the times that they ran."""
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
        """For how long no job began, at most."""
        starts = sorted(run.first for job in self.read() for run in job.runs)
        return max(later - earlier for earlier, later in itertools.pairwise(starts))

    def queue(self) -> dict[str, str]:
        """The states of those that slurmctld has, by name."""
        lines = self._cluster.run_slurm("squeue", "--noheader", "--format=%j|%T").stdout.splitlines()
        return dict(line.split("|", 1) for line in lines if line.startswith("native-"))

    def _hurry(self) -> None:
        """Those that are to run again need not wait for the 2 minutes that Slurm gives them."""
        asked = ("--noheader", "--states=PENDING", "--format=%j|%i|%r")
        lines = self._cluster.run_slurm("squeue", *asked).stdout.splitlines()
        for _, job, reason in (line.split("|") for line in lines if line.startswith("native-")):
            if reason == "BeginTime":
                self._cluster.run_slurm("scontrol", "update", f"JobId={job}", "StartTime=now")

    def books(self) -> dict[str, set[str]]:
        """The states that sacct has, by name: one for each time that the job ran."""
        asked = ("--noheader", "--parsable2", "--allocations", "--duplicates", "--starttime=now-1hours")
        lines = self._cluster.run_slurm("sacct", *asked, "--format=JobName,State").stdout.splitlines()
        found: defaultdict[str, set[str]] = defaultdict(set)
        for name, state in (line.split("|", 1) for line in lines if line.startswith("native-")):
            found[name].add(state)
        return found

    def settle(self, long: Collection[str]) -> None:
        """Waits until all but these jobs have ended."""

        def live() -> dict[str, str]:
            self._resume()
            self._hurry()
            self._cancel_stale()
            return {name: state for name, state in self.queue().items() if name not in long}

        eventually_not(live, "short jobs have ended", 150)

    def end_runaway_jobs(self) -> None:
        """Ends what slurmdbd takes for running, and slurmctld does not know."""
        self._cluster.run_slurm("sacctmgr", "--immediate", "show", "runawayjobs")

    def _resume(self) -> None:
        """As a person does: nodes that slurmctld has drained for what it forgot."""
        asked = ("--noheader", "--Node", "--format=%N|%T|%E")
        lines = self._cluster.run_slurm("sinfo", *asked).stdout.splitlines()
        for node, state, reason in (line.split("|", 2) for line in lines):
            if "drain" not in state or reason.startswith(OF_EXTENDER):
                continue
            assert reason in DRAINS, (node, reason)
            with suppress(ClusterError):  # it is resumed, or asked of a slurmctld that is not there
                self._cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")
                self.drained += 1

    def _cancel_stale(self) -> None:
        """As a person does: those whose ends slurmctld forgot, or never launched, and keeps room for."""
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
    """Whether slurmctld was killed before it had to have written down what happened at that time."""
    return any(at - LAUNCHES_S <= each <= at + FORGETS_S for each in killed)


def met_by(killed: Sequence[float], job: Submitted) -> bool:
    """Whether slurmctld was killed when the job began or ended, or so that it never began."""
    return not job.runs or any(forgotten(killed, at) for run in job.runs for at in (run.first, run.last))
