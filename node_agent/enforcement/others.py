"""Finds the cores for Pods without a Slurm job (Pods of DaemonSets, static Pods, the agent's own Pod).
The functions are pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Self

from node_agent.enforcement.limits import listed
from node_agent.machine.cpus import Cpus
from node_agent.pods.claims import Claim
from wellknown import number_list


class Native(NamedTuple):
    """Native jobs of the Node, as far as known."""

    cpus: AbstractSet[int] = frozenset()
    """CPUs of native jobs, in the machine's numbers."""
    pods: AbstractSet[str] = frozenset()
    """Uids of slurmd's Pods. Native jobs run inside these Pods."""


class CpuSplit(NamedTuple):
    """The CPUs of the machine, and the CPUs that jobs leave to other Pods, in the machine's numbers."""

    every: tuple[int, ...]
    left: tuple[int, ...]
    """The CPUs of cores that no job has."""

    @classmethod
    def of(cls, cpus: Cpus, claims: Iterable[Claim], native: AbstractSet[int]) -> Self:
        """Returns the split. The jobs of Pods take their cores, and native jobs take the cores of the
        CPUs `native`. All other cores are left."""
        taken = {*cpus.cores_of(native), *(core for claim in claims for core in claim.cores)}
        left = (core for number, core in enumerate(cpus.cores) if number not in taken)
        return cls(_in_order(cpus.cores), _in_order(left))

    def correction(self, now: str, *, keeps_all: bool) -> str:
        """Returns the text to write into a Pod's cpuset.cpus, or "" if the file is right. Parameter
        `now` is the present text. If no core is left, the Pod keeps all cores. `keeps_all` is True for a
        Pod that always keeps all cores: an adopted Pod, or a Pod with slurmd, because native jobs run
        below the Pod's cgroup. For all cores, the text lists all CPUs. An empty text would mean the
        same, but a kernel may refuse to empty the file of a cgroup with processes (ENOSPC)."""
        wanted = self.every if keeps_all else self.left or self.every
        return "" if (listed(now) or self.every) == wanted else number_list.compress(wanted)


def of_no_job(uid: str, claims: Mapping[str, Claim]) -> bool:
    """Returns True for a Pod without a job. For a Pod that kube-apiserver does not know, returns True
    only if the Pod is static, because any other Pod may have a job. For an adopted Pod, returns False,
    although the Node does not know the resources of the Pod's job."""
    claim = claims.get(uid)
    return _is_static(uid) if claim is None else not (claim.of_job or claim.adopted)


def _is_static(uid: str) -> bool:
    """Returns True for a static Pod, from a file of the kubelet. The uid of such a Pod is a hash, and
    kube-apiserver's copy of the Pod has another uid."""
    return "-" not in uid


def _in_order(cores: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in cores for cpu in core))
