"""What a Pod may use of the cores and the memory of its Node, as files of its cgroup (v2): pure.

They are written to the Pod's own cgroup, above its containers'. The kubelet and the container runtime
write the containers' as they like: of a limit above and one below, the narrower counts.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Self

from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, MEMORY, SWAP, USED
from node_agent.pods.claims import Claim
from wellknown import number_list

UNLIMITED: Final = "max"
_MIB: Final = 1 << 20


class Limits(NamedTuple):
    """Of one Pod."""

    cpus: tuple[int, ...] = ()
    """By the machine's numbers; () where Slurm does not say which."""
    memory: int = 0
    """In bytes; 0: no limit."""
    problem: str = ""
    """Why its cores are not known."""
    grows: bool = False
    """Whether it gets more memory than it had, when there is more: slurmd's Pod."""
    requested: bool = False
    """True if `memory` is the Pod's request, and Slurm granted no memory."""

    def sparing(self, now: Mapping[str, str]) -> Self:
        """Returns the limits without memory if a request is less than the cgroup uses: the kernel would
        kill what runs. A kernel without swap reports no use of swap."""
        used = sum(_bytes(now.get(name, "0")) for name in USED)
        return self._replace(memory=0) if self.requested and used > self.memory else self

    def corrections(self, now: Mapping[str, str]) -> dict[str, str]:
        """Returns what to write into the files of a cgroup that say `now`; swap first, so that none is
        taken where there is less memory. Less memory than granted is the kubelet's decision: a limit of
        the Pod's author. A kernel without swap needs no limit of it."""
        wanted = dict[str, str]()
        if self.memory and not self.grows and _bytes(now.get(SWAP, "0")):
            wanted[SWAP] = "0"
        memory = _bytes(now.get(MEMORY, "0"))
        if self.memory and (memory > self.memory or (self.grows and 0 < memory < self.memory)):
            wanted[MEMORY] = str(self.memory)
        if self.cpus and listed(now.get(CPUS, "")) != self.cpus and CPUS in now:
            wanted[CPUS] = number_list.compress(self.cpus)
        return wanted

    def problems(self, now: Mapping[str, str]) -> list[str]:
        """Returns why limits cannot be in a cgroup whose files say `now`. A limit that Slurm did not
        grant is no reason to keep a Pod from starting."""
        wanted = {CPUS: self.cpus, MEMORY: 0 if self.requested else self.memory}
        absent = [name for name, limit in wanted.items() if limit and name not in now]
        return [*filter(None, [self.problem]), *map(_absent, absent)]


def cpus_instead(granted: Collection[int], asked: str) -> str:
    """Returns the CPUs that a container is to have in place of those that somebody asks for it, both by
    the machine's numbers, `asked` as a list of the kernel's: those `granted` to its Pod, where any of
    them are not among those asked for. Else "": it may ask for more, since its Pod's cgroup is above it;
    nothing asked for (""), and nothing known of the grant, are left as they are."""
    if not asked or not granted or {*granted} <= {*listed(asked)}:
        return ""
    return number_list.compress(granted)


def said(now: Mapping[str, str], name: str) -> str:
    """Returns what a file says. Raises ValueError where it is not there."""
    if name not in now:
        raise ValueError(_absent(name))
    return now[name]


def _absent(name: str) -> str:
    return f"its cgroup has no {name}: the controller is not enabled for Pods"


def limits_of(claim: Claim, cpus: Cpus | None) -> Limits:
    """Returns the limits of a Pod on this machine. Where its map of cores is not known there is none of
    cores, for no Pod: that is no problem of this one. If Slurm granted no memory, the limit is the Pod's
    request, except for a job that has, or may have, all cores of the machine."""
    requested = claim.memory_mb == 0 < claim.requested_mb and not _may_be_whole(claim, cpus)
    memory = (claim.requested_mb if requested else claim.memory_mb) * _MIB
    if cpus is None:
        return Limits((), memory, grows=claim.slurmd, requested=requested)
    if claim.cores and claim.cores[-1] >= len(cpus.cores):
        count = len(cpus.cores)
        words = f"Slurm gave it core {claim.cores[-1]}, and this machine has {count}"
        return Limits((), memory, words, requested=requested)
    own = sorted(cpu for core in claim.cores for cpu in cpus.cores[core])
    return Limits(tuple(own), memory, grows=claim.slurmd, requested=requested)


def _may_be_whole(claim: Claim, cpus: Cpus | None) -> bool:
    """Returns whether a job may have its Node for itself. Slurm reports only the job's cores."""
    return bool(claim.cores) and (cpus is None or len(claim.cores) >= len(cpus.cores))


def listed(text: str) -> tuple[int, ...]:
    """Returns the CPUs of a file's list, in order; none for what is no list."""
    try:
        return number_list.expand(text)
    except ValueError:
        return ()


def _bytes(text: str) -> float:
    return float("inf") if text == UNLIMITED else float(text or 0)
