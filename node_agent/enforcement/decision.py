"""Decides about the access of Pods to devices. The functions are pure.

A Pod holds a device from the Pod's first access until the Pod's last process ends. kube-apiserver's
reports do not change this, because a Pod that was deleted by force may continue to compute. A device
belongs either to a single Pod as a whole, or to several Pods in parts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Self

from node_agent.machine.devices import Number
from node_agent.machine.numbered import Machine, Part
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim
from wellknown.names import DEVICE_PROBLEM

_REMOVED = "processes of a Pod that is gone have a device of its job"
_BEFORE = "the Pod of this name before it has a device of its job yet"
_MOVED = (
    "its processes have devices that are no more its job's by slurmd's list or by what Slurm granted:"
    " delete it"
)
_HELD = (
    "a job from before slurmd renumbered the devices may have a device of this Pod's job (see the Node's"
    f" condition {DEVICE_PROBLEM})"
)


class Entry(NamedTuple):
    """Access of a cgroup to a device. The kernel's numbers identify both."""

    cgroup: int
    number: Number
    in_part: bool = False
    """True if other cgroups may have other parts of the device."""


class Decision(NamedTuple):
    """The access that Pods should have, and the waiting Pods."""

    entries: frozenset[Entry]
    problems: dict[str, str]
    """Reasons why Pods have less than their jobs, by the Pod's uid."""
    awaited: frozenset[str]
    """Uids of waiting Pods. Such a Pod has devices but no cgroup yet, or cannot get its devices yet."""

    def with_problems(self, more: Mapping[str, str]) -> Self:
        """Returns the decision with additional problems. Parameter `more` has the problems by the Pod's
        uid. In the text of a Pod, these problems follow the problems of devices."""
        uids = {*self.problems, *more}
        both = {uid: filter(None, (self.problems.get(uid), more.get(uid))) for uid in uids}
        return self._replace(problems={uid: "; ".join(words) for uid, words in both.items()})

    def with_waits(self, waits: Mapping[str, str]) -> Self:
        """Returns the decision with additional Pods that wait. Parameter `waits` has the reasons by the
        Pod's uid."""
        return self.with_problems(waits)._replace(awaited=self.awaited.union(waits))


def decide(
    claims: Mapping[str, Claim],
    cgroups: Sequence[PodCgroup],
    known: AbstractSet[Entry],
    machine: Machine,
    *,
    closed: str = "",
    held: AbstractSet[Number] = frozenset(),
) -> Decision:
    """Returns the decision. Parameter `claims` has the Pods by uid. Parameter `known` is the present
    access in the kernel. Parameter `closed` is the reason why no Pod gets further devices, or "" if Pods
    can get devices. Parameter `held` has renumbered devices that jobs from before the renumbering may
    still have. No Pod gets these devices."""
    problems = {uid: claim.problem for uid, claim in claims.items() if claim.problem}
    parts = dict[str, list[Part]]()
    for uid, claim in claims.items():
        try:
            parts[uid] = machine.parts(claim.devices)
        except ValueError as error:
            problems[uid] = str(error)
    uids = {cgroup.number: cgroup.uid for cgroup in cgroups}
    wanted = {number: _entries(number, parts.get(uid, ())) for number, uid in uids.items()}
    populated = {cgroup.number for cgroup in cgroups if cgroup.populated}
    holders = DeviceHolders(
        entry
        for entry in known
        if (entry.cgroup in populated and not _is_of_no_job(claims, uids[entry.cgroup]))
        or entry in wanted.get(entry.cgroup, ())
    )
    moved = {entry.cgroup for entry in holders.entries if entry not in wanted[entry.cgroup]}
    waiting = set[str]()
    for cgroup, uid in sorted(uids.items()):  # older cgroups first
        own = {number for part in parts.get(uid, ()) for number in part.own}
        others = holders.others({entry for entry in wanted[cgroup] if entry.number in own})
        if others:
            problems[uid] = _holder(claims, uid, uids[min(others)])
            waiting.add(uid)
            if cgroup not in populated:  # two Pods had access: the Pod without processes loses access
                holders.drop(wanted[cgroup])
        elif own and cgroup in moved:
            problems[uid] = _MOVED
        elif not wanted[cgroup] <= known and (why := closed or ("" if held.isdisjoint(own) else _HELD)):
            problems[uid] = why
            waiting.add(uid)
        else:
            holders.take(wanted[cgroup])
    awaited = {uid for uid, of in parts.items() if of and not claims[uid].leaves} - {*uids.values()}
    return Decision(frozenset(holders.entries), problems, frozenset(awaited | waiting))


class DeviceHolders:
    """The cgroups that hold each device."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = set[Entry]()
        self._of: defaultdict[Number, set[Entry]] = defaultdict(set)
        self.take(entries)

    def take(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.add(entry)
            self._of[entry.number].add(entry)

    def drop(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.discard(entry)
            self._of[entry.number].discard(entry)

    def others(self, wanted: Iterable[Entry]) -> set[int]:
        """Returns the other cgroups whose access rules out the wanted access. Cgroups with parts of a
        device can share the device. A cgroup with the whole device shares with no other cgroup."""
        return {
            has.cgroup
            for each in wanted
            for has in self._of[each.number]
            if has.cgroup != each.cgroup and not (has.in_part and each.in_part)
        }


def _is_of_no_job(claims: Mapping[str, Claim], uid: str) -> bool:
    """Returns True for a known Pod without a job. If such a Pod has access to devices, the Pod belongs
    to an earlier agent that is ending."""
    claim = claims.get(uid)
    return claim is not None and not claim.of_job


def _holder(claims: Mapping[str, Claim], uid: str, other: str) -> str:
    """Returns the reason why a Pod waits: another Pod holds a device of the waiting Pod's job."""
    holder = claims.get(other)
    if holder is None:
        return _REMOVED
    return _BEFORE if holder.pod == claims[uid].pod else f"Pod {holder.pod} has a device of its job"


def _entries(cgroup: int, parts: Iterable[Part]) -> frozenset[Entry]:
    """Returns the access that a cgroup should have. If a Pod has both a whole device and a part of the
    same device, the whole device counts."""
    in_part = dict[Number, bool]()
    for part in parts:
        for number in part.numbers:
            in_part[number] = part.in_part and in_part.get(number, True)
    return frozenset(Entry(cgroup, number, of) for number, of in in_part.items())
