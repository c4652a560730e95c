"""The Prolog's gate as far as the Node itself knows: is a Pod still here whose own job has ended?

The kernel knows best who is gone: a Pod that was deleted by force may have processes yet. What only
Slurm can tell is whether the job of a Pod that stays has ended: then the extender is to be asked.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim


class Answer(NamedTuple):
    """`clear`: no Pod of a job is here, and no process of one. `there`: these Pods are to be gone, and
    have processes yet. `ask`: the Node does not know."""

    word: str
    pods: tuple[str, ...] = ()


def answer(
    claims: Mapping[str, Claim], removed: Mapping[str, str], cgroups: Iterable[PodCgroup], *, heard: bool
) -> Answer:
    """Answers by the Pods of this Node, by uid, the names of those that kube-apiserver has no more, and
    the cgroups that still are; `heard` tells whether kube-apiserver is heard of."""
    here = {cgroup.uid for cgroup in cgroups if cgroup.populated and not is_static(cgroup.uid)}
    leaving = {uid: claim.pod for uid, claim in claims.items() if claim.of_job and claim.leaves}
    there = sorted(name for uid, name in (leaving | dict(removed)).items() if uid in here)
    if there:
        return Answer("there", tuple(there))
    stay = any(claim.of_job and not claim.leaves for claim in claims.values())
    unknown = here - claims.keys() - removed.keys()
    return Answer("ask" if stay or unknown or not heard else "clear")


def is_static(uid: str) -> bool:
    """Tells a Pod that the kubelet has of a file: its uid is a hash, and kube-apiserver's copy has
    another."""
    return "-" not in uid
