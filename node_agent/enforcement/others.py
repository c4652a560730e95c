"""Pods of no Slurm job (DaemonSets, static Pods, the agent's own), and which cores are left to them:
pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Self

from node_agent.enforcement.limits import listed
from node_agent.machine.cpus import Cpus
from node_agent.pods.claims import Claim
from node_agent.pods.gate import is_static
from wellknown import number_list


class Native(NamedTuple):
    """What is known of the native jobs of the Node."""

    cpus: AbstractSet[int] = frozenset()
    """Those that Slurm holds them to, by the machine's numbers."""
    pods: AbstractSet[str] = frozenset()
    """The uids of the Pods that slurmd runs in: its jobs are in them."""


class Room(NamedTuple):
    """The CPUs of the machine, by its numbers, in order."""

    every: tuple[int, ...]
    left: tuple[int, ...]
    """Those of the cores of which no job has any part."""

    @classmethod
    def of(cls, cpus: Cpus, claims: Iterable[Claim], native: AbstractSet[int]) -> Self:
        """Returns what is left beside the jobs that Pods have, and native jobs."""
        taken = {*cpus.cores_of(native), *(core for claim in claims for core in claim.cores)}
        left = (core for number, core in enumerate(cpus.cores) if number not in taken)
        return cls(_in_order(cpus.cores), _in_order(left))

    def correction(self, now: str, *, keeps_all: bool) -> str:
        """Returns what to write into a Pod's cpuset.cpus that says `now`; "" where it is right. Where no
        core is left the Pod keeps all; so does one that `keeps_all`: with slurmd, whose jobs are below
        it, or adopted. All are written as numbers: a kernel may refuse to empty the file while processes
        are there (ENOSPC)."""
        wanted = self.every if keeps_all else self.left or self.every
        return "" if (listed(now) or self.every) == wanted else number_list.compress(wanted)


def of_no_job(uid: str, claims: Mapping[str, Claim]) -> bool:
    """Tells a Pod that has nothing of Slurm. One that kube-apiserver does not know may be of a job; what
    an adopted Pod has is its job's, though nobody tells the Node what that is."""
    claim = claims.get(uid)
    return is_static(uid) if claim is None else not (claim.of_job or claim.adopted)


def _in_order(cores: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in cores for cpu in core))
