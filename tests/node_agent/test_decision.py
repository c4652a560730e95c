"""Tests of access to devices, for all kinds of Pods, cgroups and entries in the kernel's map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.enforcement.decision import Decision, Entry, decide
from node_agent.machine.devices import Device, Number
from node_agent.machine.numbered import Machine
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim, Stage
from tests.node_agent.machines import look

if TYPE_CHECKING:
    from collections.abc import Iterable


GPUS = Machine([Device("gpu", "h100", (f"/dev/d{number}",)) for number in range(4)], look)
MIG = Machine([Device("gpu", "1g", ("/dev/d0", f"/dev/d{cap}")) for cap in (7, 8)], look)
SHARED = Machine(
    [Device("gpu", "h100", (f"/dev/d{n}",), shared={"shard": 4, "mps": 100}) for n in range(4)], look
)


def claim(uid: str, *gpus: int) -> Claim:
    return Claim(uid, f"ml/{uid}", {"gpu": gpus} if gpus else {}, job=7)


def in_part(uid: str, *gpus: int, name: str = "shard") -> Claim:
    return Claim(uid, f"ml/{uid}", {name: gpus}, job=7)


def entries(cgroup: int, *minors: int, in_part: bool = False) -> set[Entry]:
    return {Entry(cgroup, Number(60, minor), in_part) for minor in minors}


def decided(
    claims: Iterable[Claim], cgroups: Iterable[PodCgroup], known: set[Entry], machine: Machine = GPUS
) -> Decision:
    return decide({each.uid: each for each in claims}, list(cgroups), known, machine)


A, B = PodCgroup("a", 1, populated=True), PodCgroup("b", 2, populated=True)
C, D = PodCgroup("c", 3, populated=True), PodCgroup("d", 4, populated=True)
EMPTY_A = A._replace(populated=False)


def test_each_pod_gets_access_to_its_own_devices() -> None:
    found = decided([claim("a", 0, 2), claim("b", 1), claim("c")], [A, B], set())
    assert found == Decision(frozenset(entries(1, 0, 2) | entries(2, 1)), {}, frozenset())


def test_pod_with_devices_and_without_a_cgroup_is_awaited() -> None:
    assert decided([claim("a", 0), claim("b")], [], set()) == Decision(frozenset(), {}, frozenset({"a"}))


def test_pod_in_deletion_is_not_awaited() -> None:
    assert decided([claim("a", 0)._replace(stage=Stage.LEAVES)], [], set()).awaited == set()


@pytest.mark.parametrize(
    ("claims", "cgroups", "known", "expected"),
    [
        ([], [A], set(), set()),  # an unknown Pod
        ([claim("a", 0)], [B], entries(1, 0), set()),  # a cgroup that is gone
        ([claim("b", 0), claim("a", 0)], [B, A], set(), entries(1, 0)),  # the older Pod has priority
        ([claim("a", 0), claim("b", 0, 1)], [A, B], entries(1, 0), entries(1, 0)),  # all devices or none
    ],
)
def test_free_devices_go_to_the_oldest_known_pod(
    claims: list[Claim], cgroups: list[PodCgroup], known: set[Entry], expected: set[Entry]
) -> None:
    assert decided(claims, cgroups, known).entries == expected


@pytest.mark.parametrize(
    ("former", "words"),
    [
        ([], "processes of a Pod that is gone have a device of its job"),  # a Pod deleted by force
        ([claim("a")], "Pod ml/a has a device of its job"),  # a Pod that ended
    ],
)
def test_pod_keeps_its_device_until_its_last_process_ends(former: list[Claim], words: str) -> None:
    waiting = decided([*former, claim("b", 0)], [A, B], entries(1, 0))
    assert waiting.entries == entries(1, 0)
    assert waiting.problems == {"b": words}
    assert decided([*former, claim("b", 0)], [EMPTY_A, B], entries(1, 0)).entries == entries(2, 0)


def test_holder_of_a_device_keeps_the_device() -> None:
    found = decided([claim("a", 0), claim("b", 0)], [A, B], entries(2, 0))
    assert found.entries == entries(2, 0)
    assert found.problems == {"a": "Pod ml/b has a device of its job"}


def test_instances_share_the_file_of_their_gpu() -> None:
    found = decided([claim("a", 0), claim("b", 1)], [A, B], set(), MIG)
    assert found == Decision(frozenset(entries(1, 0, 7) | entries(2, 0, 8)), {}, frozenset())
    held = entries(1, 0, 7)
    assert decided([claim("a", 0), claim("b", 0)], [A, B], held, MIG).entries == held


def test_message_distinguishes_an_earlier_pod_of_the_same_name() -> None:
    again = claim("b", 0)._replace(pod="ml/a")
    found = decided([claim("a", 0), again], [A, B], entries(1, 0))
    assert found.problems == {"b": "the Pod of this name before it has a device of its job yet"}


def test_running_pod_gets_no_devices_of_a_changed_grant() -> None:
    """The grant changes if slurmd lists other devices, or if Slurm creates the job again. The Pod cannot
    have the devices of both grants."""
    found = decided([claim("a", 1)], [A], entries(1, 0))
    assert found.entries == entries(1, 0)
    assert "delete it" in found.problems["a"]
    other = decided([claim("a", 1), claim("b", 0)], [A, B], entries(1, 0))
    assert other.problems["b"] == "Pod ml/a has a device of its job"


def test_renumbered_device_of_an_earlier_job_is_not_given() -> None:
    claims = {each.uid: each for each in (claim("a", 0), claim("b", 1), claim("c", 2))}
    found = decide(claims, [A, B, C], entries(1, 0), GPUS, held={Number(60, 0), Number(60, 1)})
    assert found.entries == entries(1, 0) | entries(3, 2)
    assert found.problems.keys() == found.awaited == {"b"}
    assert "a job from before slurmd renumbered the devices" in found.problems["b"]


def test_leaving_pod_of_the_agent_delays_no_pod() -> None:
    agent = Claim("a", "kube-system/agent", stage=Stage.LEAVES)
    found = decided([agent, claim("b", 0)], [A, B], entries(1, 0, 1, 2, 3))
    assert found == Decision(frozenset(entries(2, 0)), {}, frozenset())


def test_missing_device_is_a_problem() -> None:
    words = "Slurm gave it gpu 4, and this machine has 4"
    assert decided([claim("a", 0, 4)], [A], set()) == Decision(frozenset(), {"a": words}, frozenset())
    shard = decided([in_part("a", 0)], [A], set(), GPUS)
    assert shard.problems == {"a": "Slurm gave it shard 0, and this machine has 0"}


def test_running_pod_with_an_unreadable_grant_keeps_its_devices() -> None:
    unknown = Claim("a", "ml/a", job=7, problem="what Slurm granted it cannot be read")
    found = decided([unknown], [A], entries(1, 0))
    assert found.entries == entries(1, 0)
    assert found.problems == {"a": unknown.problem}


@pytest.mark.parametrize("numbers", [(), (0,)])
def test_gres_without_device_numbers_needs_no_device(numbers: tuple[int, ...]) -> None:
    found = decided([Claim("a", "ml/a", {"nic": numbers})], [A], set())
    assert found.problems == ({"a": "Slurm gave it nic 0, and this machine has 0"} if numbers else {})


def test_several_pods_have_parts_of_one_device() -> None:
    claims = [in_part("a", 0), in_part("b", 0, 1), in_part("c", 0, name="mps"), claim("d", 2)]
    found = decided(claims, [A, B, C, D], set(), SHARED)
    parts = entries(1, 0, in_part=True) | entries(2, 0, 1, in_part=True) | entries(3, 0, in_part=True)
    assert found == Decision(frozenset(parts | entries(4, 2)), {}, frozenset())


def test_pod_with_whole_device_waits_for_all_pods_with_parts() -> None:
    parts = entries(1, 0, in_part=True) | entries(2, 0, in_part=True)
    for cgroups in ([A, B, C], [A, B._replace(populated=False), C]):
        waiting = decided([claim("c", 0)], cgroups, parts, SHARED)
        assert waiting.problems == {"c": "processes of a Pod that is gone have a device of its job"}
        assert waiting.awaited == {"c"}
        assert waiting.entries <= parts
    assert decided([claim("c", 0)], [EMPTY_A, C], parts, SHARED).entries == entries(3, 0)


def test_pods_with_parts_wait_for_the_pod_with_the_whole_device() -> None:
    claims = [in_part("b", 0), in_part("c", 0)]
    waiting = decided(claims, [A, B, C], entries(1, 0), SHARED)
    assert waiting.entries == entries(1, 0)
    assert waiting.problems.keys() == {"b", "c"}
    found = decided(claims, [EMPTY_A, B, C], entries(1, 0), SHARED)
    assert found.entries == entries(2, 0, in_part=True) | entries(3, 0, in_part=True)


def test_pod_gets_a_part_beside_a_part_of_a_removed_pod() -> None:
    parts = entries(1, 0, in_part=True)
    found = decided([in_part("b", 0)], [A, B], parts, SHARED)
    assert found == Decision(frozenset(parts | entries(2, 0, in_part=True)), {}, frozenset())


def test_running_pod_cannot_change_between_part_and_whole_device() -> None:
    for has, wants in ((True, claim("a", 0)), (False, in_part("a", 0))):
        found = decided([wants], [A], entries(1, 0, in_part=has), SHARED)
        assert found.entries == entries(1, 0, in_part=has)
        assert "delete it" in found.problems["a"]
        empty = decided([wants], [EMPTY_A], entries(1, 0, in_part=has), SHARED)
        assert empty.entries == entries(1, 0, in_part=not has)


def test_device_granted_whole_and_in_part_counts_as_whole() -> None:
    both = Claim("a", "ml/a", {"shard": (0, 1), "gpu": (0,)}, job=7)
    found = decided([both], [A], set(), SHARED)
    assert found.entries == entries(1, 0) | entries(1, 1, in_part=True)


CLAIMS = st.lists(
    st.builds(
        lambda uid, gpus, of: of(uid, *gpus),
        st.sampled_from("abcd"),
        st.sets(st.integers(0, 3)),
        st.sampled_from([claim, in_part]),
    ),
    max_size=5,
)
CGROUPS = st.lists(
    st.builds(PodCgroup, st.sampled_from("abcde"), st.integers(1, 6), st.booleans(), st.just(Path())),
    max_size=6,
    unique_by=lambda each: each.number,
)
KNOWN = st.dictionaries(
    st.tuples(st.integers(1, 8), st.builds(Number, st.just(60), st.integers(0, 3))),
    st.booleans(),
    max_size=6,
).map(lambda known: {Entry(*key, in_part) for key, in_part in known.items()})


def clashes(entries: Iterable[Entry]) -> set[frozenset[Entry]]:
    """Returns the pairs of entries that give a device to two cgroups, except two parts of the device."""
    return {
        frozenset({one, other})
        for one in entries
        for other in entries
        if one.number == other.number
        and one.cgroup != other.cgroup
        and not (one.in_part and other.in_part)
    }


@settings(max_examples=1000)
@given(CLAIMS, CGROUPS, KNOWN)
def test_device_has_one_holder(claims: list[Claim], cgroups: list[PodCgroup], known: set[Entry]) -> None:
    found = decided(claims, cgroups, known, SHARED)
    assert clashes(found.entries) <= clashes(known), "a device has a second Pod"
    assert len({entry[:2] for entry in found.entries}) == len(found.entries), "one key, one value"
    populated = {each.number for each in cgroups if each.populated}
    assert {entry for entry in known if entry.cgroup in populated} <= found.entries
    looks = [found]
    for _ in range(len(cgroups) + 1):  # the next decision gives away the devices that a Pod has left
        looks.append(decided(claims, cgroups, set(looks[-1].entries), SHARED))
    assert looks[-1] == looks[-2], "the decision is final"
