"""The Pods of a workload: look-ups, counts, and the division of the workload's slots."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress, count, filterfalse
from operator import is_not
from typing import Any, Self

from extender.jobs.overlap import common
from extender.pod_request.pod import Pod
from extender.record.member import Member
from extender.record.states import State
from wellknown.allocation import Allocation

IsSo = Callable[[Member], bool]


def is_bound(member: Member) -> bool:
    """Returns True if the member's Pod is bound."""
    return member.pod.life.node is not None


def is_written(member: Member) -> bool:
    """Returns True if the write that the record's state requires is done on the member's Pod."""
    return member.write.done


def is_in_flight(member: Member) -> bool:
    """Returns True while a write onto the member's Pod is under way."""
    return member.write.in_flight


def is_unlisted(member: Member) -> bool:
    """Returns True if the member's Pod was missing from the last list of all Pods."""
    return member.unlisted


def shows_rejection(member: Member) -> bool:
    """Returns True if the member's Pod shows that kube-scheduler rejected a Node."""
    scheduling = member.pod.scheduling
    return bool(scheduling.node_rejection) or scheduling.feasible_nodes is not None


class Members(tuple[Member, ...]):  # noqa: SLOT001 -- a tuple cannot have slots, except empty ones
    """The members of a workload, in the order of their ranks.

    A gang may have 2,048 members, and most events change one member. The next version then shares the
    index of this version, and adjusts the counts of this version. So such an event does not look at the
    other members.
    """

    _places: Mapping[str, int] | None
    _counts: Mapping[IsSo, int]

    def __new__(
        cls,
        members: Iterable[Member] = (),
        places: Mapping[str, int] | None = None,
        counts: Mapping[IsSo, int] | None = None,
    ) -> Self:
        """`places` has the place of each member, by the uid of its Pod, if already known. `counts` has
        the counts that `count` has returned so far."""
        self = super().__new__(cls, members)
        self._places, self._counts = places, counts or {}
        return self

    def get(self, uid: str) -> Member | None:
        """Returns the member with a Pod's uid; None if the Pod is no member."""
        place = self._place_of(uid)
        return None if place is None else self[place]

    def count(self, is_so: IsSo) -> int:
        """Returns the number of members for which `is_so` returns True."""
        number = self._counts.get(is_so)
        if number is None:
            number = sum(map(is_so, self))
            self._counts = {**self._counts, is_so: number}
        return number

    def with_one(self, uid: str, /, **changes: Any) -> Self:
        """Returns the members with changed fields of the member with a Pod's uid, if there is one."""
        member = self.get(uid)
        return self if member is None else self.with_versions([member._replace(**changes)])

    def with_versions(self, changed: Iterable[Member]) -> Self:
        """Returns the members with other versions of some members. A version belongs to the member with
        the same Pod. Each Pod is a member's."""
        members, counts = list(self), dict(self._counts)
        for after in changed:
            place = self._place_of(after.pod.uid)
            assert place is not None
            before, members[place] = members[place], after
            counts = {is_so: n + is_so(after) - is_so(before) for is_so, n in counts.items()}
        return type(self)(members, self._places, counts)

    def with_all(self, **changes: Any) -> Self:
        """Returns the members with changed fields of all members."""
        return type(self)(each._replace(**changes) for each in self)

    def _place_of(self, uid: str) -> int | None:
        if self._places is None:
            self._places = {each.pod.uid: place for place, each in enumerate(self)}
        return self._places.get(uid)


def changed_members(
    before: Sequence[Member], after: Sequence[Member]
) -> list[tuple[Member, Member]] | None:
    """Returns each changed member as a pair: before and after the change. Returns None if the members
    have other Pods now."""
    if before is after:
        return []
    if len(before) != len(after):
        return None
    changed = list(compress(zip(before, after, strict=True), map(is_not, before, after)))
    return None if any(old.pod.uid != new.pod.uid for old, new in changed) else changed


def new_slots(before: Sequence[Member], after: Sequence[Member]) -> list[Allocation]:
    """Returns the slots that the members have in `after`, but did not have in `before`."""
    changed = changed_members(before, after)
    got = after if changed is None else [new for old, new in changed if new.slot is not old.slot]
    return [each.slot for each in got if each.slot is not None]


def with_slots(
    members: Iterable[Member], slots: Iterable[Allocation], *, bound: bool = False
) -> Members:
    """Gives one slot to each member, and returns the members. If possible, a member keeps its slot, or
    gets another slot on its Node, because the slot may already be written onto the Pod. The other
    members get the remaining slots in order. In a `bound` gang, only an unbound Pod gets a remaining
    slot, which no bound Pod still uses; None without such a slot. The other members of a bound gang keep
    their old slots."""
    members, free = tuple(members), defaultdict[str, list[Allocation]](list)
    for slot in slots:
        free[slot.node].append(slot)
    given: dict[str, Allocation | None] = _on_own_nodes(members, free)
    used = [each.pod.scheduling.allocation for each in members if bound and each.pod.life.node]
    rest = (
        slot
        for slot in chain.from_iterable(free.values())
        if not any(other is not None and common(slot, other) for other in used)
    )
    for each in members:
        if each.pod.uid not in given and not (bound and each.pod.life.node is not None):
            given[each.pod.uid] = next(rest, None if bound else each.slot)
    return _ranked([each._replace(slot=given.get(each.pod.uid, each.slot)) for each in members])


def _ranked(members: Sequence[Member]) -> Members:
    """Returns the members of a gang with a rank in each slot. A bound Pod keeps the rank on the Pod,
    because the Pod's containers have read this rank. The other members get the remaining ranks in
    order."""
    if not members or members[0].pod.group is None:
        return Members(members)
    kept = [_rank_of_containers(each.pod) for each in members]
    free = filterfalse({*kept}.__contains__, count())
    ranks = [next(free) if rank is None else rank for rank in kept]
    return Members(map(_with_rank, members, ranks))


def _rank_of_containers(pod: Pod) -> int | None:
    """Returns the rank that a bound Pod's containers have read; None for an unbound Pod."""
    on_pod = pod.scheduling.allocation
    return None if on_pod is None or pod.life.node is None else on_pod.rank


def _with_rank(member: Member, rank: int) -> Member:
    slot = member.slot
    if slot is None or slot.rank == rank:
        return member
    return member._replace(slot=replace(slot, rank=rank))


def _on_own_nodes(
    members: Sequence[Member], free: Mapping[str, list[Allocation]]
) -> dict[str, Allocation | None]:
    """Returns, by uid, the slots of members that keep their slots, or get other slots on their Nodes.
    Removes these slots from the free slots of each Node."""
    given = dict[str, Allocation | None]()
    there = {each.pod.uid: free.get(each.node_in(State.ALLOCATED) or "", []) for each in members}
    for each in members:
        own = (each.slot, each.pod.scheduling.allocation)
        kept = next((slot for slot in own if slot in there[each.pod.uid]), None)
        if kept is not None:
            there[each.pod.uid].remove(kept)
            given[each.pod.uid] = kept
    for each in members:
        if there[each.pod.uid] and each.pod.uid not in given:
            given[each.pod.uid] = moved = each.nearest(there[each.pod.uid])
            there[each.pod.uid].remove(moved)
    return given
