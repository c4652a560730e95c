"""Finds gone Pods that still have processes on the cores of their jobs.

A Pod is gone if kube-apiserver has removed the Pod, or reports that the Pod has ended. The cores of a
gone Pod are read from the kernel: only agents write the file cpuset.cpus of a Pod's own cgroup. So an
agent knows these cores also after a restart.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from node_agent.enforcement.limits import listed
from node_agent.enforcement.others import of_no_job
from node_agent.pods.cgroups import CPUS, PodCgroup, read
from node_agent.pods.claims import Claim, Stage


class GonePod(NamedTuple):
    """A gone Pod that still has processes on the cores of its job."""

    uid: str
    name: str
    """Namespace and name, or the uid if the name is unknown."""
    cpus: tuple[int, ...]
    """CPUs of the Pod's job, in the machine's numbers."""


def gone_pods(
    claims: Mapping[str, Claim],
    removed: Mapping[str, Claim],
    cgroups: Iterable[PodCgroup],
    has_slurmd: Callable[[PodCgroup], bool],
) -> list[GonePod]:
    """Returns the gone Pods that still have processes on the cores of their jobs. Parameter `claims` has
    the Pods of kube-apiserver by uid. Parameter `removed` has removed Pods whose claims are still known.
    An unknown Pod counts as a Pod of a job, unless the Pod is static or `has_slurmd` returns True.
    Raises OSError."""
    found = list[GonePod]()
    for cgroup in cgroups:
        uid = cgroup.uid
        claim = claims.get(uid) or removed.get(uid)
        if not cgroup.populated or (uid in claims and claims[uid].stage is not Stage.ENDED):
            continue
        if claim is None and (of_no_job(uid, claims) or has_slurmd(cgroup)):
            continue
        if (claim is None or claim.of_job) and (cpus := written_cpus(cgroup.place)):
            found.append(GonePod(uid, claim.pod if claim else uid, cpus))
    return found


def written_cpus(pod: Path) -> tuple[int, ...]:
    """Returns the CPUs that an agent has written into a Pod's own cgroup, in the machine's numbers.
    Returns () if no agent has written CPUs. Raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):  # the controller is off, or the Pod has ended
        return listed(read(pod / CPUS))
    return ()
