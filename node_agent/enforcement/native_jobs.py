"""The native jobs of this Node, by the cgroups that Slurm keeps them in (cgroup.conf(5), cgroup/v2).

A placeholder of the extender has such a cgroup only where Slurm runs a step for it: as a batch job
(24.11), or with PrologFlags=Contain. Slurm holds such a job as it holds any other.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from node_agent.enforcement import constraints
from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.limits import listed
from node_agent.enforcement.others import Native, of_no_job
from node_agent.kernel import bpf
from node_agent.pods.cgroups import CPUS, PodCgroups, has_processes, limits_now
from node_agent.pods.claims import Claim

_SCOPE: Final = "slurmstepd.scope"
"""The end of the name of the cgroup that all jobs of a slurmd are in."""
_DEEPEST: Final = 3
"""Levels below the machine's root, or a Pod: it may be in a container and a slice."""
_STEP: Final = "step_"
_SETTLES_S: Final = 5.0
"""A job has its cgroup some milliseconds before its limits."""
_REMOVED: Final = (errno.ENOENT, errno.ENODEV)
"""The kernel's errors for a removed cgroup, and for an open file of a removed cgroup."""


class Scope(NamedTuple):
    """The cgroup that all jobs of a slurmd are in."""

    place: Path
    pod: str = ""
    """The uid of the Pod that slurmd runs in; "": slurmd runs on the host."""

    def jobs(self) -> Iterator[Path]:
        """Yields the cgroups of jobs: `job_33` (24.11), or by SLUID (26.05). Raises OSError."""
        yield from filter(_runs, _folders(self.place))


def scopes(cgroups: PodCgroups, claims: Mapping[str, Claim]) -> Iterator[Scope]:
    """Yields them. slurmd runs on the host, or in a Pod of no job: what a Pod of a job makes below its
    own cgroup is none, whatever its name. Raises OSError."""
    yield from map(Scope, _scopes(cgroups.root, cgroups.places))
    for pod in cgroups.pods():
        if of_no_job(pod.uid, claims):
            yield from (Scope(place, pod.uid) for place in _scopes(pod.place))


def counted(claims: Mapping[str, Claim], devices: Collection[object]) -> Counted:
    """Returns what Slurm counts here, by what it has granted to Pods and by slurmd's list of devices."""
    return Counted(any(claim.memory_mb for claim in claims.values()), bool(devices))


def missing(job: Path, what: Counted) -> dict[str, str]:
    """Returns which limits of Slurm are not in force for a job, by its cgroup (constraints.missing). One
    that is gone meanwhile misses none. Raises OSError."""
    try:
        has_program = not what.devices or _has_program(job)
        return constraints.missing(limits_now(job), what, has_program=has_program)
    except OSError as error:
        if error.errno in _REMOVED:
            return {}
        raise


class NativeJobs:
    """Looks now and then whether Slurm holds its jobs."""

    def __init__(self, cgroups: PodCgroups, clock: Callable[[], float] = time.monotonic) -> None:
        self._cgroups = cgroups
        self._clock = clock
        self._since: dict[tuple[Path, str], float] = {}
        """When a parameter was first not in force for a job, by its cgroup."""
        self.known: Native | None = None
        """What was seen at the last look."""

    def jobs_in(self, pod: str) -> list[str]:
        """Returns the names of the cgroups of jobs that have processes in a Pod that slurmd runs in, by
        its uid. Raises OSError."""
        places = (each.place for each in self._cgroups.pods() if each.uid == pod)
        found = (Scope(scope, pod) for place in places for scope in _scopes(place))
        return [job.name for scope in found for job in scope.jobs()]

    def look(self, claims: Mapping[str, Claim], devices: Collection[object]) -> str:
        """Returns what is not as it should be, in words; "" where all is. Raises OSError."""
        what, now = counted(claims, devices), self._clock()
        since: dict[tuple[Path, str], float] = {}
        lasting: dict[str, dict[str, str]] = {}
        found = list(scopes(self._cgroups, claims))
        jobs = [job for scope in found for job in scope.jobs()]
        for job in jobs:
            for parameter, why in missing(job, what).items():
                began = self._since.get((job, parameter), now)
                since[job, parameter] = began
                if now - began >= _SETTLES_S:
                    lasting.setdefault(job.name, {})[parameter] = why
        self._since = since
        cpus = frozenset(cpu for job in jobs for cpu in _cpus(job))
        self.known = Native(cpus, frozenset(scope.pod for scope in found if scope.pod))
        return constraints.words(lasting)


def _runs(job: Path) -> bool:
    """Tells a job by its steps. Each has a slurmstepd (in `step_*/slurm`), a step extern, too: where no
    process is, the job has ended and Slurm could not take its cgroup away, or it is not set up yet."""
    with suppress(FileNotFoundError):  # it goes just now
        return any(step.name.startswith(_STEP) for step in _folders(job)) and has_processes(job)
    return False


def _cpus(job: Path) -> tuple[int, ...]:
    try:
        return listed((job / CPUS).read_text().strip())
    except OSError:  # without the controller there is nothing to see, as of a job that is gone
        return ()


def _has_program(job: Path) -> bool:
    """Whether Slurm has attached one: to the cgroup of the job, or of each step's processes. Those above
    are of others, the agent's own guard among them where slurmd runs in a Pod."""
    return bool(bpf.attached(job)) or all(map(bpf.attached, job.glob(f"{_STEP}*/user")))


def _scopes(folder: Path, leave: Collection[Path] = (), levels: int = _DEEPEST) -> Iterator[Path]:
    for place in _folders(folder):
        if place.name.endswith(_SCOPE):
            yield place
        elif levels > 1 and place not in leave:
            yield from _scopes(place, leave, levels - 1)


def _folders(place: Path) -> list[Path]:
    """Returns what is below; nothing where it is gone."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as found:
        return [place / each.name for each in found if each.is_dir(follow_symlinks=False)]
    return []
