"""The members of a workload: an event on one member does not look at the others."""

from hypothesis import given
from hypothesis import strategies as st

from extender.record.member import Member
from extender.record.members import Members, is_bound, is_in_flight, is_unlisted, is_written
from tests.builders import changed, pod

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
