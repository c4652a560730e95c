"""The members of a workload: an event on one member does not look at the others."""

from hypothesis import given
from hypothesis import strategies as st

from extender.pod_request.workload import Workload
from extender.record.member import Member
from extender.record.members import Members, is_bound, is_in_flight, is_unlisted, is_written, with_slots
from tests.builders import changed, pod
from wellknown.allocation import Allocation

COUNTED = (is_bound, is_in_flight, is_unlisted, is_written)
PODS = [pod(f"p{number}", uid=f"u{number}") for number in range(4)]
CHANGES = (
    lambda member: {"unlisted": not member.unlisted},
    lambda member: {"write": member.write._replace(done=not member.write.done)},
    lambda member: {"write": member.write._replace(in_flight=not member.write.in_flight)},
    lambda member: {"pod": changed(member.pod, node=None if member.pod.life.node else "n1")},
)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())))
def test_counts_are_right_after_any_changes(changes: list[tuple[int, int, bool]]) -> None:
    members = Members(map(Member, PODS))
    for place, change, counts in changes:
        if counts:
            assert [members.count(each) for each in COUNTED] == [
                sum(map(each, members)) for each in COUNTED
            ]
        uid = PODS[place].uid
        found = members.get(uid)
        assert found is not None
        members = members.with_one(uid, **CHANGES[change](found))
    assert [members.count(each) for each in COUNTED] == [sum(map(each, members)) for each in COUNTED]
    assert [members.get(each.uid) for each in PODS] == list(members)


def test_members_without_the_pod_stay_the_same() -> None:
    members = Members([Member(PODS[0])])
    assert members.get("other") is None
    assert members.with_one("other", unlisted=True) is members


def test_a_change_of_one_member_looks_at_no_other_member() -> None:
    """The look-up and the counts of 2,048 members are shared by all versions."""
    looked: list[Member] = []

    def noted(member: Member) -> bool:
        looked.append(member)
        return member.unlisted

    members = Members(Member(pod(f"p{n}", uid=f"u{n}")) for n in range(64))
    assert members.count(noted) == 0
    looked.clear()
    after = members.with_one("u7", unlisted=True)
    assert (after.count(noted), members.count(noted)) == (1, 0)
    assert [each.pod.uid for each in looked] == ["u7", "u7"]


# Ranks

GANG = Workload("g", "default", "train", size=3)
SLOTS = [Allocation(7, node, cores="0") for node in ("n1", "n2", "n3")]


def member(number: int, rank: int | None = None) -> Member:
    """Returns a member of a gang: bound with a rank, or unbound without a rank."""
    own = pod(f"p{number}", uid=f"u{number}")._replace(group=GANG)
    if rank is None:
        return Member(own)
    slot = Allocation(7, SLOTS[rank].node, cores="0", rank=rank)
    return Member(changed(own, allocation=slot, node=slot.node), slot)


def ranks(members: Members) -> list[int | None]:
    return [None if each.slot is None else each.slot.rank for each in members]


def test_ranks_follow_the_order_of_the_members() -> None:
    placed = with_slots([member(0), member(1), member(2)], SLOTS)
    assert ranks(placed) == [0, 1, 2]
    assert placed[2].slot is not None
    assert placed[2].slot.annotations()["slurm-extender.io/rank"] == "2"


def test_replacement_gets_the_rank_of_the_lost_member_in_any_order_of_the_slots() -> None:
    """The order of the slots may change while a gang runs, because labels of Nodes may change."""
    for slots in (SLOTS, SLOTS[::-1]):
        placed = with_slots([member(0, 0), member(2, 2), member(9)], slots, bound=True)
        assert ranks(placed) == [0, 2, 1]


def test_single_pod_has_no_rank() -> None:
    (placed,) = with_slots([Member(PODS[0])], SLOTS[:1])
    assert placed.slot is not None
    assert "slurm-extender.io/rank" not in placed.slot.annotations()
