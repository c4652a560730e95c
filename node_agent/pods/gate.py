"""The Node's own answer for the Prolog's gate: is a Pod of an ended job still here?

The kernel knows best which Pods are here: a Pod that was deleted by force may still have processes. Only
Slurm knows whether the job of a remaining Pod has ended. In this case the gate must ask the extender.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim


class Answer(NamedTuple):
    """Word `clear`: no Pod of a job is here, and no process of such a Pod. Word `there`: these Pods
    should be gone, and still have processes. Word `ask`: the Node does not know."""

    word: str
    pods: tuple[str, ...] = ()


def answer(
    claims: Mapping[str, Claim], removed: Mapping[str, str], cgroups: Iterable[PodCgroup], *, heard: bool
) -> Answer:
    """Returns the answer. Parameter `claims` has the Node's Pods by uid, `removed` the names of Pods
    that kube-apiserver removed, by uid; `heard` is False while kube-apiserver is unreachable."""
    here = {cgroup.uid for cgroup in cgroups if cgroup.populated and not is_static(cgroup.uid)}
    leaving = {uid: claim.pod for uid, claim in claims.items() if claim.of_job and claim.leaves}
    there = sorted(name for uid, name in (leaving | dict(removed)).items() if uid in here)
    if there:
        return Answer("there", tuple(there))
    stay = any(claim.of_job and not claim.leaves for claim in claims.values())
    unknown = here - claims.keys() - removed.keys()
    return Answer("ask" if stay or unknown or not heard else "clear")


def is_static(uid: str) -> bool:
    """Returns True for a Pod from a file of the kubelet: its uid is a hash, and kube-apiserver's copy
    has another uid."""
    return "-" not in uid
