"""Computes the share of the Node's slurmd Pod, and so of native jobs: all resources that Pods of jobs do
not have. The functions are pure.

Slurm itself does not give the resources of Pods to native jobs. In addition, the limits of slurmd's Pod
apply to all cgroups of jobs below this Pod. So a job that escapes from its own cgroup still gets none of
the Pods' resources.

If slurmd starts placeholders (24.11), slurmd's Pod keeps all cores. The reason is task/affinity, which
binds placeholders to their cores, and drains the node if this fails.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from node_agent.enforcement.decision import Entry
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Number
from node_agent.machine.numbered import Part
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim


def with_share(
    claims: Mapping[str, Claim], cpus: Cpus | None, memory_mb: int, *, every_core: bool = False
) -> Mapping[str, Claim]:
    """Returns the claims. The claim of slurmd's Pod has the cores and the memory that the other Pods
    leave. Parameter `memory_mb` is the machine's memory. If `every_core` is True, slurmd's Pod keeps all
    cores."""
    slurmd = next((claim for claim in claims.values() if claim.slurmd), None)
    if slurmd is None:
        return claims
    taken = () if every_core else {core for claim in claims.values() for core in claim.cores}
    every = range(len(cpus.cores)) if cpus is not None else ()
    left = memory_mb - sum(claim.memory_mb for claim in claims.values())
    share = slurmd._replace(
        cores=tuple(core for core in every if core not in taken), memory_mb=max(1, left)
    )
    return {**claims, slurmd.uid: share}


def entries(
    slurmd: Iterable[int], closed: AbstractSet[Number], others: Iterable[Entry]
) -> frozenset[Entry]:
    """Returns the access of slurmd's cgroups: all guarded devices (`closed`) except the devices that a
    Pod has as a whole. If Pods have parts of a device, native jobs may have other parts of the same
    device."""
    others = tuple(others)
    in_part = {each.number for each in others if each.in_part}
    free = closed - {each.number for each in others if not each.in_part}
    return frozenset(Entry(cgroup, number, number in in_part) for cgroup in slurmd for number in free)


def held_by_gone(
    claims: Mapping[str, Claim],
    cgroups: Sequence[PodCgroup],
    entries: Iterable[Entry],
    numbered: Mapping[str, Part],
) -> Mapping[str, Sequence[str]]:
    """Returns the devices that gone Pods still hold, by the uid of the Pod. A Pod is gone if
    kube-apiserver does not have the Pod. A device is named by Slurm's number, for example "gpu 3".
    Parameter `numbered` has all devices by these names."""
    gone = {each.number: each.uid for each in cgroups if each.uid not in claims}
    whole = [each for each in entries if each.cgroup in gone and not each.in_part]
    found: defaultdict[str, list[str]] = defaultdict(list)
    for of, part in numbered.items():
        for uid in sorted({gone[each.cgroup] for each in whole if each.number in part.own}):
            found[uid].append(of)
    return found
