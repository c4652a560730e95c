"""Computes the limits of a Pod's cores and memory, as files of the Pod's cgroup (v2). The functions are
pure.

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
"""Largest amount of memory that the kernel must free during one write of a limit, so that each write is
short. The next step begins with the limit and the use at that time."""


class Limits(NamedTuple):
    """Limits of one Pod."""

    cpus: tuple[int, ...] = ()
    """CPUs in the machine's numbers, or () if Slurm does not name the cores."""
    memory: int = 0
    """Limit of memory in bytes, or 0 for no limit."""
    problem: str = ""
    """Reason why the cores are unknown, or ""."""
    grows: bool = False
    """True for slurmd's Pod. Only for this Pod, the agent also raises the limit of memory."""
    requested: bool = False
    """True if `memory` is the Pod's request, because Slurm granted no memory."""

    def sparing(self, now: Mapping[str, str]) -> Self:
        """Returns the limits. Leaves out the limit of memory if this limit is only the Pod's request and
        the cgroup already uses more memory, because the kernel would then kill running processes. A
        kernel without swap reports no use of swap."""
        used = sum(_bytes(now.get(name, "0")) for name in USED)
        return self._replace(memory=0) if self.requested and used > self.memory else self

    def corrections(self, now: Mapping[str, str]) -> dict[str, str]:
        """Returns the texts to write at once, by the name of the cgroup's file. Parameter `now` has the
        present texts. The limit of swap comes first, so that the kernel does not swap because of a lower
        limit of memory. If the present limit of memory is below the grant, the agent keeps the present
        limit, because the Pod's author has set this limit. A kernel without swap needs no limit of
        swap."""
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
        """Returns the limit of memory, in bytes, for the next step if the agent must lower the limit in
        steps. Returns 0 if no such step is needed. If the wanted limit is below the present use, steps
        are needed, because a write returns only after the kernel has freed the memory. For slurmd's Pod,
        the limit always goes down in steps, because the use can grow before the write."""
        memory, used = _bytes(now.get(MEMORY, "0")), _bytes(now.get(USED[0], "0"))
        if not 0 < self.memory < memory or not (self.grows or used > self.memory):
            return 0
        return max(self.memory, int(min(memory, used)) - _STEP)

    def problems(self, now: Mapping[str, str]) -> list[str]:
        """Returns the reasons why a cgroup with the files `now` cannot have the limits. A limit from the
        Pod's request is not checked, because such a limit must not keep a Pod from starting."""
        wanted = {CPUS: self.cpus, MEMORY: 0 if self.requested else self.memory}
        absent = [name for name, limit in wanted.items() if limit and name not in now]
        return [*filter(None, [self.problem]), *map(_absent, absent)]


def cpus_instead(granted: Collection[int], asked: str) -> str:
    """Returns the CPUs for a container that replace the requested CPUs, or "" for no change. The text is
    a list in the kernel's form, with the machine's numbers. Parameter `asked` is the request in the same
    form. If `asked` lacks any of the `granted` CPUs, the container gets the granted CPUs. A request for
    more CPUs is harmless, because the limit of the Pod's cgroup also applies to the container."""
    if not asked or not granted or {*granted} <= {*listed(asked)}:
        return ""
    return number_list.compress(granted)


def text_of(now: Mapping[str, str], name: str) -> str:
    """Returns the text of a cgroup's file. Raises ValueError if the file is missing."""
    if name not in now:
        raise ValueError(_absent(name))
    return now[name]


def _absent(name: str) -> str:
    return f"its cgroup has no {name}: the controller is not enabled for Pods"


def limits_of(claim: Claim, cpus: Cpus | None) -> Limits:
    """Returns the limits of a Pod on this machine. If the map of cores is unknown, the Pod has no limit
    of cores, and no problem. If Slurm granted no memory, the limit is the Pod's request. A job that has,
    or may have, all cores of the machine gets no such limit."""
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
    """Returns True if a job may have the whole Node for itself. Slurm reports only the job's cores, so a
    job with all cores may have the whole Node."""
    return bool(claim.cores) and (cpus is None or len(claim.cores) >= len(cpus.cores))


def listed(text: str) -> tuple[int, ...]:
    """Returns the CPUs of a list in order, or () if the text is not a list."""
    try:
        return number_list.expand(text)
    except ValueError:
        return ()


def _bytes(text: str) -> float:
    return float("inf") if text == UNLIMITED else float(text or 0)
