"""Holds Pods to the cores and the memory of their jobs, through the files of the Pods' cgroups."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from node_agent.enforcement.limits import Limits, limits_of
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import MEMORY, PodCgroup, limits_now, write
from node_agent.pods.claims import Claim


class PodLimits:
    """Corrects wrong files, and counts files changed by other programs."""

    def __init__(self) -> None:
        self.repaired = 0
        """Number of limits that other programs have changed."""
        self._limited = dict[int, Limits]()
        """The last limits of each cgroup, by the kernel's number of the cgroup."""
        self.reductions = dict[Path, int]()
        """The next limits of memory to write, in bytes, by the path of the file. Writing such a limit
        may take long."""

    def hold(
        self, claims: Mapping[str, Claim], cgroups: Sequence[PodCgroup], cpus: Cpus | None
    ) -> dict[str, str]:
        """Writes all limits that the kernel accepts at once, and notes the other limits in `reductions`.
        Returns the reasons why limits failed, by the uid of the Pod."""
        problems: dict[str, str] = {}
        self.reductions = {}
        for cgroup in cgroups:
            claim = claims.get(cgroup.uid)
            if claim is None:
                continue
            try:
                found = self._hold(cgroup, claim, cpus)
            except (FileNotFoundError, NotADirectoryError):  # the cgroup was removed just now
                continue
            if found:
                problems[cgroup.uid] = "; ".join(found)
        here = {cgroup.number for cgroup in cgroups}
        self._limited = {cgroup: limits for cgroup, limits in self._limited.items() if cgroup in here}
        return problems

    def _hold(self, cgroup: PodCgroup, claim: Claim, cpus: Cpus | None) -> list[str]:
        now = limits_now(cgroup.place)
        limits = limits_of(claim, cpus).sparing(now)
        found = limits.problems(now)
        for name, text in limits.corrections(now).items():
            try:
                write(cgroup.place / name, text)
            except (FileNotFoundError, NotADirectoryError):
                raise
            except OSError as error:
                found.append(f"{name}: {error.strerror}")
            else:
                self.repaired += self._limited.get(cgroup.number) == limits
        if reduction := limits.reduction(now):
            self.reductions[cgroup.place / MEMORY] = reduction
        self._limited[cgroup.number] = limits
        return found
