"""Finds the native jobs of this Node by the cgroups that Slurm makes for jobs (cgroup.conf(5),
cgroup/v2).

A placeholder (the extender's job for a Pod) has such a cgroup only if Slurm runs a step for the
placeholder. Slurm does so if the placeholder is a batch job (24.11), or with PrologFlags=Contain. Slurm
limits such a placeholder like any job.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from node_agent.enforcement import constraints
from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.lasting import Lasting
from node_agent.enforcement.limits import listed
from node_agent.enforcement.numbering import Holder
from node_agent.enforcement.others import Native, of_no_job
from node_agent.kernel import bpf
from node_agent.pods.cgroups import (
    CPUS,
    CPUS_IN_FORCE,
    EVENTS,
    PodCgroups,
    has_processes,
    limits_now,
    read,
)
from node_agent.pods.claims import Claim

_SCOPE: Final = "slurmstepd.scope"
"""End of the name of the cgroup that contains all jobs of a slurmd."""
_DEEPEST: Final = 3
"""Number of levels to search for this cgroup, below the machine's root or below a Pod. The cgroup may be
inside the cgroups of a container and of a slice."""
_STEP: Final = "step_"
_REMOVED: Final = (errno.ENOENT, errno.ENODEV)
"""The kernel's errors for a removed cgroup, and for an open file of a removed cgroup."""


class Scope(NamedTuple):
    """The cgroup that contains all jobs of a slurmd."""

    place: Path
    pod: str = ""
    """Uid of slurmd's Pod, or "" if slurmd runs on the host."""

    def jobs(self) -> Iterator[Path]:
        """Yields the cgroups of running jobs. The names are like `job_33` (24.11), or contain the SLUID
        (26.05). Raises OSError."""
        yield from filter(_runs, _folders(self.place))


def cgroup_of(job: int) -> str:
    """Returns the name of a job's cgroup on 24.11, and on 26.05 with CgroupJobIdPaths
    (cgroup.conf(5))."""
    return f"job_{job}"


def scopes(cgroups: PodCgroups, claims: Mapping[str, Claim]) -> Iterator[Scope]:
    """Yields the scopes of the Node. slurmd runs on the host, or in a Pod without a job. So a cgroup
    below a job's Pod does not count as a scope, even if the name fits. Raises OSError."""
    yield from map(Scope, _scopes(cgroups.root, cgroups.places))
    for pod in cgroups.pods():
        if of_no_job(pod.uid, claims):
            yield from (Scope(place, pod.uid) for place in _scopes(pod.place))


def has_run_slurmd(pod: Path) -> bool:
    """Returns True if a slurmd has made its cgroup for jobs below the cgroup of a Pod."""
    return any(_scopes(pod))


def counted(claims: Mapping[str, Claim], devices: Collection[object]) -> Counted:
    """Returns the resources that Slurm counts here, as the claims of Pods and slurmd's list of devices
    show."""
    return Counted(any(claim.memory_mb for claim in claims.values()), bool(devices))


def missing(job: Path, what: Counted) -> dict[str, str]:
    """Reads a job's cgroup, and returns Slurm's limits that are not in force (constraints.missing). For
    a removed cgroup, no limit counts as missing. Raises OSError."""
    try:
        has_program = not what.devices or _has_program(job)
        return constraints.missing(limits_now(job), what, has_program=has_program)
    except OSError as error:
        if error.errno in _REMOVED:
            return {}
        raise


class NativeJobs:
    """Checks whether Slurm's limits are in force for the native jobs."""

    def __init__(self, cgroups: PodCgroups, clock: Callable[[], float] = time.monotonic) -> None:
        self._cgroups = cgroups
        self._missing = Lasting[tuple[Path, str]](clock)
        """Parameters of cgroup.conf(5) that are not in force for a job, each with the job's cgroup."""
        self.known: Native | None = None
        """Result of the last check."""
        self.scopes: Sequence[Scope] = ()
        """The scopes of the last search."""
        self.cpus: Mapping[str, frozenset[int]] = {}
        """CPUs on which each native job computed at the last check, by the name of the job's cgroup."""

    def jobs_in(self, pod: str) -> list[str]:
        """Returns the jobs with processes in a slurmd Pod, by the names of the jobs' cgroups. Parameter
        `pod` is the Pod's uid. Raises OSError."""
        places = (each.place for each in self._cgroups.pods() if each.uid == pod)
        found = (Scope(scope, pod) for place in places for scope in _scopes(place))
        return [job.name for scope in found for job in scope.jobs()]

    def search(self, claims: Mapping[str, Claim]) -> Sequence[Scope]:
        """Returns the scopes. Searches again if no scope is known, or if a scope was removed, because
        another slurmd may have started. Raises OSError."""
        if not self.scopes or not all(scope.place.is_dir() for scope in self.scopes):
            self.scopes = [*scopes(self._cgroups, claims)]
        return self.scopes

    def present(self, claims: Mapping[str, Claim]) -> Iterator[Holder]:
        """Yields the native jobs with processes. Raises OSError."""
        of_pods = _of_pods(claims)
        for job in (job for scope in scopes(self._cgroups, claims) for job in scope.jobs()):
            with suppress(FileNotFoundError):  # the cgroup was removed just now
                if job.name not in of_pods:
                    yield Holder(job.name, job.stat().st_ino, job)

    def look(self, claims: Mapping[str, Claim], devices: Collection[object]) -> str:
        """Checks all jobs. Returns a message about missing limits, or "" if no limit is missing. Raises
        OSError."""
        what, self.scopes = counted(claims, devices), [*scopes(self._cgroups, claims)]
        jobs = [job for scope in self.scopes for job in scope.jobs()]
        found = {(job, parameter): why for job in jobs for parameter, why in missing(job, what).items()}
        lasting: dict[str, dict[str, str]] = {}
        for job, parameter in self._missing.of(found):
            lasting.setdefault(job.name, {})[parameter] = found[job, parameter]
        cpus = frozenset(cpu for job in jobs for cpu in _cpus(job))
        self.known = Native(cpus, frozenset(scope.pod for scope in self.scopes if scope.pod))
        of_pods = _of_pods(claims)
        self.cpus = {job.name: _computes_on(job) for job in jobs if job.name not in of_pods}
        return constraints.words(lasting)


def _of_pods(claims: Mapping[str, Claim]) -> set[str]:
    """Returns the names of the cgroups of the Pods' own jobs."""
    return {cgroup_of(claim.job) for claim in claims.values() if claim.job}


def _runs(job: Path) -> bool:
    """Returns True for a job with a running step. Each step, also the step extern, has a slurmstepd
    (`step_*/slurm`). If the cgroup has no process, the job has ended and its cgroup remains, or the job
    is starting."""
    with suppress(FileNotFoundError):  # the cgroup was removed just now
        return any(step.name.startswith(_STEP) for step in _folders(job)) and has_processes(job)
    return False


def _cpus(job: Path, file: str = CPUS) -> tuple[int, ...]:
    try:
        return listed((job / file).read_text().strip())
    except OSError:  # the controller is off, or the job has ended
        return ()


def _computes_on(job: Path) -> frozenset[int]:
    """Returns the CPUs on which a job computes. Returns no CPU if Slurm does not limit the job to its
    cores. A suspended job computes on no CPU, because slurmstepd has frozen the processes of each step
    (proctrack_cgroup.c)."""
    computes = _cpus(job) and any(map(is_awake, job.glob(f"{_STEP}*/user")))
    return frozenset(_cpus(job, CPUS_IN_FORCE) if computes else ())


def is_awake(user: Path) -> bool:
    """Returns True if a step has processes that are not frozen."""
    with suppress(FileNotFoundError):  # the cgroup was removed just now
        events = read(user / EVENTS)
        return "populated 1" in events and "frozen 1" not in events
    return False


def _has_program(job: Path) -> bool:
    """Returns True if Slurm has attached a device program to the cgroup of the job, or to the cgroup of
    each step's processes. Programs on the cgroups above do not count, because they are foreign. If
    slurmd runs in a Pod, the agent's guard is such a program."""
    return bool(bpf.attached(job)) or all(map(bpf.attached, job.glob(f"{_STEP}*/user")))


def _scopes(folder: Path, leave: Collection[Path] = (), levels: int = _DEEPEST) -> Iterator[Path]:
    for place in _folders(folder):
        if place.name.endswith(_SCOPE):
            yield place
        elif levels > 1 and place not in leave:
            yield from _scopes(place, leave, levels - 1)


def _folders(place: Path) -> list[Path]:
    """Returns the folders below a cgroup, or [] for a removed cgroup."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as found:
        return [place / each.name for each in found if each.is_dir(follow_symlinks=False)]
    return []
