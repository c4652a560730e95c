"""Steps in the jobs of Pods: `srun --jobid=... --overlap` gives the owner of a job the cores and devices
of its Pod, and the memory a second time.

Slurm has such steps only on 24.11: 26.05 starts no step in an EXTERNAL_JOB (proc_req.c).
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
"""Slurm itself runs the steps batch and extern."""
_REPORTED_S: Final = 300.0
"""Time for a person to read of a step that is gone."""


class PodSteps:
    """Finds steps in the jobs of Pods, and ends the steps."""

    def __init__(self, *, ends: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """With `ends` False, the steps are only found."""
        self._ends = ends
        self._clock = clock
        self._present = frozenset[Path]()
        """The cgroups of steps of the last look."""
        self._reported: dict[str, float] = {}
        """Time of the last step, by the message about the job."""
        self.found = 0
        """Number of steps since the start of the agent."""

    def look(self, scopes: Iterable[Scope], claims: Iterable[Claim]) -> str:
        """Returns a message about the steps of the last five minutes, "" without steps. Raises
        OSError."""
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
    """Yields the cgroups of a job's running steps, of which each has a slurmstepd."""
    for step in children(job, _STEP):
        with suppress(FileNotFoundError):  # the cgroup was removed just now
            if has_processes(step):
                yield step


def _end(step: Path) -> None:
    """Kills the processes of a step. The step's slurmstepd lives on, and reports the end to Slurm."""
    with suppress(FileNotFoundError):  # the step has no processes yet, or has ended
        write(step / "user" / KILL, "1")
