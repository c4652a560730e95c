"""Finds the cores that a Pod shares with a native job or with another Pod. The functions are pure.

Slurm gives the cores of a suspended job to the next job, and lets the first job resume on the same cores
(extender.node_sync.overlaps). In a partition that shares cores (OverSubscribe), Slurm also gives the
same cores to several jobs. The Node does not know a job's partition, so the agent reports these cores,
too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter

from wellknown import number_list

Holders = tuple[str, ...]
"""Names of Pods and native jobs with the same CPUs. Pods come first, each group in alphabetical
order."""


def overlaps(
    pods: Iterable[tuple[str, Collection[int]]], jobs: Mapping[str, Collection[int]]
) -> Mapping[Holders, list[int]]:
    """Returns the CPUs that Pods share, in ascending order, by the names of their holders. Parameters
    `pods` and `jobs` map each name to its CPUs, by the machine's numbers. CPUs that only native jobs
    share are left out."""
    holders: defaultdict[int, Holders] = defaultdict(tuple)
    for name, cpus in sorted(pods, key=itemgetter(0)):
        for cpu in cpus:
            holders[cpu] += (f"Pod {name}",)
    for name, cpus in sorted(jobs.items(), key=itemgetter(0)):
        for cpu in holders.keys() & cpus:
            holders[cpu] += (name,)
    shared: defaultdict[Holders, list[int]] = defaultdict(list)
    for cpu, names in sorted(holders.items()):
        if len(names) > 1:
            shared[names].append(cpu)
    return shared


def words(shared: Mapping[Holders, Collection[int]]) -> str:
    """Returns a message about shared CPUs, or "" if no CPU is shared."""
    return "; ".join(
        f"{' and '.join(holders)} have the same CPUs: {number_list.compress(cpus)}"
        for holders, cpus in sorted(shared.items())
    )
