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
Entry = tuple[int, Number]
"""A cgroup, by its number, that was let in to a device."""


class Decision(NamedTuple):
    """How it should be."""

    entries: frozenset[Entry]
    problems: dict[str, str]
    """Why a Pod, by its namespace and name, has less than its job."""
    awaited: frozenset[str]
    """The Pods, by uid, that have devices and no cgroup yet, or wait for another's last process."""


def decide(
    claims: Mapping[str, Claim],
    cgroups: Sequence[PodCgroup],
    known: AbstractSet[Entry],
    machine: Machine,
) -> Decision:
    """Decides by what the Pods have, by uid, and by what the kernel knows now."""
    problems = {claim.pod: claim.problem for claim in claims.values() if claim.problem}
    parts = dict[str, list[Part]]()
    for uid, claim in claims.items():
        try:
            parts[uid] = machine.parts(claim.devices)
        except ValueError as error:
            problems[claim.pod] = str(error)
    wanted = {cgroup.number: _numbers(parts.get(cgroup.uid, ())) for cgroup in cgroups}
    populated = {cgroup.number for cgroup in cgroups if cgroup.populated}
    entries = {
        (cgroup, number)
        for cgroup, number in known
        if cgroup in populated or number in wanted.get(cgroup, ())
    }
    hands = {number: cgroup for cgroup, number in entries}
    uids = {cgroup.number: cgroup.uid for cgroup in cgroups}
    waiting = set[str]()
    for cgroup in sorted(uids):  # the older first
        own = {number for part in parts.get(uids[cgroup], ()) for number in part.own}
        others = {hands[number] for number in own if number in hands} - {cgroup}
        if others:
            holder = claims.get(uids[min(others)])
            words = f"Pod {holder.pod} has a device of its job" if holder else _GONE
            problems[claims[uids[cgroup]].pod] = words
            waiting.add(uids[cgroup])
            continue
        entries |= {(cgroup, number) for number in wanted[cgroup]}
        hands |= dict.fromkeys(own, cgroup)
    awaited = {uid for uid, of in parts.items() if of and not claims[uid].leaves} - {*uids.values()}
    return Decision(frozenset(entries), problems, frozenset(awaited | waiting))


def _numbers(parts: Iterable[Part]) -> frozenset[Number]:
    return frozenset(number for part in parts for number in part.numbers)
