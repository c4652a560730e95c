"""Limits of a Pod's cores and memory, as files of the Pod's cgroup (v2): pure.

The limits belong to the Pod's own cgroup, above the containers' cgroups. The kubelet and the container
runtime write the containers' limits. The narrower limit counts.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Self

from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, MEMORY, SWAP, USED
from node_agent.pods.claims import Claim
from wellknown import number_list

UNLIMITED: Final = "max"
_MIB: Final = 1 << 20
_STEP: Final = 256 * _MIB
"""Memory to free in one write of a limit: a step is short, and the next step counts with the limits of
that time."""


class Limits(NamedTuple):
    """Limits of one Pod."""

    cpus: tuple[int, ...] = ()
    """CPUs in the machine's numbers; () if Slurm does not name the cores."""
    memory: int = 0
    """Bytes of memory; 0 for no limit."""
    problem: str = ""
    """Reason for unknown cores."""
    grows: bool = False
    """True for slurmd's Pod, whose limit of memory also grows."""
    requested: bool = False
    """True if `memory` is the Pod's request, and Slurm granted no memory."""

    def sparing(self, now: Mapping[str, str]) -> Self:
        """Returns the limits without memory if a request is less than the cgroup uses: the kernel would
        kill what runs. A kernel without swap reports no use of swap."""
        used = sum(_bytes(now.get(name, "0")) for name in USED)
        return self._replace(memory=0) if self.requested and used > self.memory else self

    def corrections(self, now: Mapping[str, str]) -> dict[str, str]:
        """Returns the texts to write at once into the files with the texts `now`; swap first, so that a
        lower limit of memory uses no swap. A limit of memory below the grant is the author's limit, and
        stays. A kernel without swap needs no limit of swap."""
        wanted = dict[str, str]()
        if self.memory and not self.grows and _bytes(now.get(SWAP, "0")):
            wanted[SWAP] = "0"
        memory = _bytes(now.get(MEMORY, "0"))
        lower = memory > self.memory and not self.reduction(now)
        if self.memory and (lower or (self.grows and 0 < memory < self.memory)):
            wanted[MEMORY] = str(self.memory)
        if self.cpus and listed(now.get(CPUS, "")) != self.cpus and CPUS in now:
            wanted[CPUS] = number_list.compress(self.cpus)
        return wanted

    def reduction(self, now: Mapping[str, str]) -> int:
        """Returns the next limit of memory on the way to a limit below the use, in bytes; 0 without such
        a limit. The kernel frees the memory before a write returns. The use of slurmd's Pod can grow
        until the write."""
        memory, used = _bytes(now.get(MEMORY, "0")), _bytes(now.get(USED[0], "0"))
        if not 0 < self.memory < memory or not (self.grows or used > self.memory):
            return 0
        return max(self.memory, int(min(memory, used)) - _STEP)

    def problems(self, now: Mapping[str, str]) -> list[str]:
        """Returns the reasons why a cgroup with the files `now` cannot have the limits. A limit that
        Slurm did not grant must not keep a Pod from starting."""
        wanted = {CPUS: self.cpus, MEMORY: 0 if self.requested else self.memory}
        absent = [name for name, limit in wanted.items() if limit and name not in now]
        return [*filter(None, [self.problem]), *map(_absent, absent)]


def cpus_instead(granted: Collection[int], asked: str) -> str:
    """Returns the CPUs for a container in place of the requested CPUs, in the machine's numbers, or ""
    for no change. The CPUs `granted` to the Pod override `asked`, a list of the kernel, if `asked` lacks
    any of them. A request for more CPUs is harmless, because the Pod's cgroup is above the
    container's."""
    if not asked or not granted or {*granted} <= {*listed(asked)}:
        return ""
    return number_list.compress(granted)


def said(now: Mapping[str, str], name: str) -> str:
    """Returns the text of a file. Raises ValueError for a missing file."""
    if name not in now:
        raise ValueError(_absent(name))
    return now[name]


def _absent(name: str) -> str:
    return f"its cgroup has no {name}: the controller is not enabled for Pods"


def limits_of(claim: Claim, cpus: Cpus | None) -> Limits:
    """Returns the limits of a Pod on this machine. With an unknown map of cores, no Pod has a limit of
    cores, and the Pod has no problem. If Slurm granted no memory, the limit is the Pod's request, except
    for a job that has, or may have, all cores of the machine."""
    requested = claim.memory_mb == 0 < claim.requested_mb and not _may_be_whole(claim, cpus)
    memory = (claim.requested_mb if requested else claim.memory_mb) * _MIB
    limits = Limits((), memory, grows=claim.slurmd, requested=requested)
    if cpus is None:
        return limits
    if claim.cores and claim.cores[-1] >= len(cpus.cores):
        words = f"Slurm gave it core {claim.cores[-1]}, and this machine has {len(cpus.cores)}"
        return limits._replace(problem=words)
    own = sorted(cpu for core in claim.cores for cpu in cpus.cores[core])
    return limits._replace(cpus=tuple(own))


def _may_be_whole(claim: Claim, cpus: Cpus | None) -> bool:
    """Returns whether a job may have its Node for itself. Slurm reports only the job's cores."""
    return bool(claim.cores) and (cpus is None or len(claim.cores) >= len(cpus.cores))


def listed(text: str) -> tuple[int, ...]:
    """Returns the CPUs of a list in order, () for a text that is no list."""
    try:
        return number_list.expand(text)
    except ValueError:
        return ()


def _bytes(text: str) -> float:
    return float("inf") if text == UNLIMITED else float(text or 0)
