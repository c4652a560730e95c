"""Finds and ends steps that users start in the jobs of Pods.

With `srun --jobid=... --overlap`, the owner of a job can use the cores and devices of the job's Pod.
Such a step also gets the memory of the job, in addition to the memory of the Pod. Such steps exist only
on Slurm 24.11, because 26.05 starts no step in an EXTERNAL_JOB (proc_req.c).
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from node_agent.enforcement.native_jobs import Scope, cgroup_of
from node_agent.pods.cgroups import KILL, children, has_processes, write
from node_agent.pods.claims import Claim

_STEP: Final = re.compile("step_(?!(?:batch|extern)$).+")
"""Names of steps from users. Slurm itself runs the steps batch and extern."""
_REPORTED_S: Final = 300.0
"""Time for which an ended step is still reported, so that people can read the message."""


class PodSteps:
    """Finds steps in the jobs of Pods, and ends the steps if the settings say so."""

    def __init__(self, *, ends: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """If `ends` is False, the steps are only reported."""
        self._ends = ends
        self._clock = clock
        self._present = frozenset[Path]()
        """The cgroups of the steps at the last check."""
        self._reported: dict[str, float] = {}
        """Time at which a step was last seen, by the message about the job."""
        self.found = 0
        """Number of steps since the start of the agent."""

    def look(self, scopes: Iterable[Scope], claims: Iterable[Claim]) -> str:
        """Finds the steps, and ends them if the settings say so. Returns a message about the steps of
        the last five minutes, or "" if no step was found. Raises OSError."""
        now, jobs = self._clock(), {cgroup_of(claim.job): claim for claim in claims if claim.job}
        places = {scope.place / job: claim for scope in scopes for job, claim in jobs.items()}
        steps = {step: claim for place, claim in places.items() for step in _steps(place)}
        self.found += len(steps.keys() - self._present)
        self._present = frozenset(steps)
        self._reported |= {self._words(claim): now for claim in steps.values()}
        self._reported = {why: at for why, at in self._reported.items() if now - at < _REPORTED_S}
        if self._ends:
            for step in steps:
                _end(step)
        return "; ".join(sorted(self._reported))

    def _words(self, claim: Claim) -> str:
        ended = ": the node agent ends such steps" if self._ends else ""
        return f"a user ran srun in job {claim.job} of Pod {claim.pod}{ended}"


def _steps(job: Path) -> Iterator[Path]:
    """Yields the cgroups of a job's running steps. A running step has a slurmstepd."""
    for step in children(job, _STEP):
        with suppress(FileNotFoundError):  # the cgroup was removed just now
            if has_processes(step):
                yield step


def _end(step: Path) -> None:
    """Kills the processes of a step. The step's slurmstepd continues to run, and reports the end to
    Slurm."""
    with suppress(FileNotFoundError):  # the step has no processes yet, or has ended
        write(step / "user" / KILL, "1")
