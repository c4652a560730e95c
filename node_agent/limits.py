"""What a Pod may use of the cores and the memory of its Node, as files of its cgroup (v2): pure.

They are written to the Pod's own cgroup, above its containers'. The kubelet and the container runtime
write the containers' as they like: of a limit above and one below, the narrower counts.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from node_agent.claims import Claim
from node_agent.machine.cpus import Cpus
from wellknown import number_list

CPUS: Final = "cpuset.cpus"
MEMORY: Final = "memory.max"
SWAP: Final = "memory.swap.max"
_UNLIMITED: Final = "max"
_MIB: Final = 1 << 20


class Limits(NamedTuple):
    """Of one Pod."""

    cpus: tuple[int, ...] = ()
    """By the machine's numbers; () where Slurm does not say which."""
    memory: int = 0
    """In bytes; 0 where Slurm does not count memory."""

    def corrections(self, now: Mapping[str, str]) -> dict[str, str]:
        """Returns what to write into the files of a cgroup that say `now`. Less memory than granted is
        the kubelet's decision: a limit of the Pod's author. Raises ValueError where a limit cannot be:
        the file is not there. A kernel without swap needs no limit of it."""
        wanted = dict[str, str]()
        if self.cpus and _listed(_said(now, CPUS)) != self.cpus:
            wanted[CPUS] = number_list.compress(self.cpus)
        if self.memory:
            if _bytes(_said(now, MEMORY)) > self.memory:
                wanted[MEMORY] = str(self.memory)
            if _bytes(now.get(SWAP, "0")):
                wanted[SWAP] = "0"
        return wanted


def _said(now: Mapping[str, str], name: str) -> str:
    if name not in now:
        raise ValueError(f"its cgroup has no {name}: the controller is not enabled for Pods")
    return now[name]


def limits_of(claim: Claim, cpus: Cpus) -> Limits:
    """Returns the limits of a Pod on this machine. Raises ValueError where it has no such cores."""
    if claim.cores and claim.cores[-1] >= len(cpus.cores):
        count = len(cpus.cores)
        raise ValueError(f"Slurm gave it core {claim.cores[-1]}, and this machine has {count}")
    own = sorted(cpu for core in claim.cores for cpu in cpus.cores[core])
    return Limits(tuple(own), claim.memory_mb * _MIB)


def _listed(text: str) -> tuple[int, ...]:
    try:
        return number_list.expand(text)
    except ValueError:
        return ()


def _bytes(text: str) -> float:
    return float("inf") if text == _UNLIMITED else float(text or 0)
