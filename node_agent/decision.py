"""Who may open which device: pure.

A device is in the hands of a Pod from when it is let in until its last process is gone, whatever
kube-apiserver says meanwhile: a Pod may be deleted by force, and compute on.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from node_agent.claims import Claim
from node_agent.machine.numbered import Machine, Number, Part


class PodCgroup(NamedTuple):
    """A Pod's cgroup."""

    uid: str
    number: int
    """The kernel's: it is never used again."""
    populated: bool
    """Whether there are processes in it."""
    place: Path = Path()


_GONE = "processes of a Pod that is gone have a device of its job"
_BEFORE = "the Pod of this name before it has a device of its job yet"
_MOVED = (
    "its processes have devices that are no more its job's by slurmd's list or by what Slurm granted:"
    " delete it"
)
Entry = tuple[int, Number]
"""A cgroup, by its number, that was let in to a device."""


class Decision(NamedTuple):
    """How it should be."""

    entries: frozenset[Entry]
    problems: dict[str, str]
    """Why a Pod, by its uid, has less than its job."""
    awaited: frozenset[str]
    """The Pods, by uid, that have devices and no cgroup yet, or wait for another's last process."""


def decide(
    claims: Mapping[str, Claim],
    cgroups: Sequence[PodCgroup],
    known: AbstractSet[Entry],
    machine: Machine,
) -> Decision:
    """Decides by what the Pods have, by uid, and by what the kernel knows now."""
    problems = {uid: claim.problem for uid, claim in claims.items() if claim.problem}
    parts = dict[str, list[Part]]()
    for uid, claim in claims.items():
        try:
            parts[uid] = machine.parts(claim.devices)
        except ValueError as error:
            problems[uid] = str(error)
    uids = {cgroup.number: cgroup.uid for cgroup in cgroups}
    wanted = {number: _numbers(parts.get(uid, ())) for number, uid in uids.items()}
    populated = {cgroup.number for cgroup in cgroups if cgroup.populated}
    entries = {
        (cgroup, number)
        for cgroup, number in known
        if (cgroup in populated and not _is_of_no_job(claims, uids[cgroup]))
        or number in wanted.get(cgroup, ())
    }
    moved = {cgroup for cgroup, number in entries if number not in wanted[cgroup]}
    hands = {number: cgroup for cgroup, number in sorted(entries)}
    waiting = set[str]()
    for cgroup, uid in sorted(uids.items()):  # the older first
        own = {number for part in parts.get(uid, ()) for number in part.own}
        others = {hands[number] for number in own if number in hands} - {cgroup}
        if others:
            problems[uid] = _holder(claims, uid, uids[min(others)])
            waiting.add(uid)
            if cgroup not in populated:  # two had it: only processes keep it
                entries -= {(cgroup, number) for number in wanted[cgroup]}
        elif own and cgroup in moved:
            problems[uid] = _MOVED
        else:
            entries |= {(cgroup, number) for number in wanted[cgroup]}
            hands |= dict.fromkeys(own, cgroup)
    awaited = {uid for uid, of in parts.items() if of and not claims[uid].leaves} - {*uids.values()}
    return Decision(frozenset(entries), problems, frozenset(awaited | waiting))


def _is_of_no_job(claims: Mapping[str, Claim], uid: str) -> bool:
    """Tells a Pod that had devices otherwise: an agent's, that is to be gone."""
    claim = claims.get(uid)
    return claim is not None and not claim.of_job


def _holder(claims: Mapping[str, Claim], uid: str, other: str) -> str:
    """Returns why a Pod waits, for another that has a device of its job."""
    holder = claims.get(other)
    if holder is None:
        return _GONE
    return _BEFORE if holder.pod == claims[uid].pod else f"Pod {holder.pod} has a device of its job"


def _numbers(parts: Iterable[Part]) -> frozenset[Number]:
    return frozenset(number for part in parts for number in part.numbers)
