"""What is left to the Node's slurmd Pod, and so to native jobs, by what the Pods of jobs have: pure.

Slurm itself gives native jobs nothing of that. The Pod's cgroup is narrowed all the same, above Slurm's
own cgroups of jobs: a job that gets out of its own finds no more there. But not in cores where slurmd
starts placeholders (24.11): task/affinity binds them to their cores, or has the node drained.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from node_agent.enforcement.decision import Entry
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Number
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim


def with_share(
    claims: Mapping[str, Claim], cpus: Cpus | None, memory_mb: int, *, every_core: bool = False
) -> Mapping[str, Claim]:
    """Returns the claims, with what is left of cores and memory as the slurmd Pod's. `memory_mb` is the
    machine's. It keeps `every_core`, or has those that Pods of jobs leave."""
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


def cgroups_of(claims: Mapping[str, Claim] | None, cgroups: Iterable[PodCgroup]) -> frozenset[int]:
    """Returns the cgroup of the slurmd Pod, by the kernel's number; none where there is no such Pod."""
    if claims is None:
        return frozenset()
    return frozenset(
        each.number for each in cgroups if (claim := claims.get(each.uid)) is not None and claim.slurmd
    )


def entries(
    slurmd: Iterable[int], closed: AbstractSet[Number], others: Iterable[Entry]
) -> frozenset[Entry]:
    """Returns who of these cgroups may open what: all that is closed and that nobody has whole. Of what
    Pods have in part native jobs may have other parts."""
    others = tuple(others)
    in_part = {each.number for each in others if each.in_part}
    free = closed - {each.number for each in others if not each.in_part}
    return frozenset(Entry(cgroup, number, number in in_part) for cgroup in slurmd for number in free)
