"""Tests of the slots of a job. A slot is the part of a job's grant that one Pod (member) of the job
gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.jobs.slots import in_topology, nodes_by, slots, whole_on_node
from slurm_client import gres
from slurm_client.model import Grant, JobSpec
from tests.builders import kube_node, moment, placeholder_job, pod, view
from wellknown import number_list
from wellknown.allocation import Allocation

VIEW = moment(*(kube_node(name) for name in ("n1", "n2", "n3"))).view
FOUR_GPUS = "gpu:h100:4(IDX:0-3)"


def packed(grant: Grant, members: int, cpus: int = 1, **asked: Any) -> list[Allocation]:
    """Returns the slots of packed members. Each core is one CPU, unless the grant has CPUs."""
    cores = tuple(len(number_list.expand(each)) for each in grant.cores)
    grant = grant if grant.cpus else replace(grant, cpus=cores)
    job = JobSpec("g", cpus, asked.pop("memory_mb", 0), tasks=members, **asked)
    return list(slots(grant, 7, job, members, nodes_by(VIEW)))


def even(grant: Grant, members: int, nodes: int) -> list[Allocation]:
    """Returns the slots of members with the same number of members on each node."""
    return list(slots(grant, 7, JobSpec("g", 1, 0, nodes=nodes), members, nodes_by(VIEW)))


def test_a_member_alone_on_a_node_gets_the_whole_grant_of_the_node() -> None:
    grant = Grant(("n2", "n1"), (FOUR_GPUS, ""), ("0-3", "1"), (4096, 100))
    assert even(grant, 2, nodes=2) == [
        Allocation(7, "n2", FOUR_GPUS, "0-3", 4096),
        Allocation(7, "n1", "", "1", 100),
    ]


def test_two_members_on_a_node_get_cores_and_gpus_of_their_own() -> None:
    grant = Grant(("n1",), (FOUR_GPUS,), ("0-3,8-11",), (4097,))
    halves = [
        Allocation(7, "n1", "gpu:h100:2(IDX:0-1)", "0-3", 2048),
        Allocation(7, "n1", "gpu:h100:2(IDX:2-3)", "8-11", 2048),
    ]
    assert packed(grant, 2, 4, gres=(("gpu:h100", 2),), memory_mb=2000) == halves
    assert even(grant, 2, nodes=1) == halves


def test_slots_carry_the_sockets_of_their_node() -> None:
    grant = Grant(("n1", "n2"), cores=("0-3", ""), sockets=("8x1", "2x4"))
    assert [each.sockets for each in even(grant, 2, nodes=2)] == ["8x1", ""]
    one = Grant(("n1",), cores=("0-3",), sockets=("8x1",))
    assert [each.sockets for each in packed(one, 2)] == ["8x1", "8x1"]


def test_packed_members_are_spread_by_the_cores_of_the_nodes() -> None:
    found = packed(Grant(("n1", "n2"), cores=("0-5", "0-1")), 4, cpus=2)
    assert [(each.node, each.cores) for each in found] == [
        ("n1", "0-1"),
        ("n1", "2-3"),
        ("n1", "4-5"),
        ("n2", "0-1"),
    ]


def nodes_of(found: list[Allocation]) -> list[str]:
    return [each.node for each in found]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpus": 2}, ["n1", "n1", "n1", "n1"]),
        ({"cpus": 2, "gres": (("gpu", 1),)}, ["n1", "n1", "n1", "n2"]),
        ({"cpus": 2, "memory_mb": 500}, ["n1", "n1", "n2", "n2"]),
    ],
    ids=["CPUs", "GPUs", "memory"],
)
def test_the_scarcest_amount_of_a_node_limits_its_members(
    asked: dict[str, Any], expected: list[str]
) -> None:
    grant = Grant(("n1", "n2"), ("gpu:3(IDX:0-2)", "gpu:2(IDX:0-1)"), ("0-8", "0-8"), (1200, 1200))
    assert nodes_of(packed(grant, 4, **asked)) == expected


def test_members_do_not_share_a_core_of_several_threads() -> None:
    """Six CPUs are three cores. Three CPUs need two cores."""
    grant = Grant(("n1", "n2"), cores=("0-2", "0-3"), cpus=(6, 8))
    found = packed(grant, 3, cpus=3)
    assert [(each.node, each.cores) for each in found] == [("n1", "0-2"), ("n2", "0-1"), ("n2", "2-3")]


def test_whole_nodes_are_divided_among_all_members_there() -> None:
    found = packed(Grant(("n1", "n2"), cores=("0-63", "0-63")), 3, cpus=32)
    assert [(each.node, each.cores) for each in found] == [
        ("n1", "0-31"),
        ("n1", "32-63"),
        ("n2", "0-63"),
    ]


def test_cores_that_cannot_be_divided_equally_stay_unused() -> None:
    assert [each.cores for each in packed(Grant(("n1",), cores=("0-4",)), 2)] == ["0-1", "2-3"]


def test_gpus_that_cannot_be_divided_equally_stay_unused() -> None:
    """Three members run on a whole node with eight GPUs, and on a node with two GPUs for others."""
    grant = Grant(("n1", "n2"), ("gpu:8(IDX:0-7)", "gpu:2(IDX:0-1)"), ("0-2", "0-2"))
    found = packed(grant, 6)
    assert [each.gres for each in found[:3]] == ["gpu:2(IDX:0-1)", "gpu:2(IDX:2-3)", "gpu:2(IDX:4-5)"]
    assert [each.gres for each in found[3:]] == ["", "", ""]


def test_with_a_node_for_each_member_no_node_is_divided() -> None:
    """A job may have whole nodes, and the nodes may differ in size."""
    found = even(Grant(("n1", "n2"), cores=("0-63", "0-1")), 2, nodes=2)
    assert [(each.node, each.cores) for each in found] == [("n1", "0-63"), ("n2", "0-1")]


@pytest.mark.parametrize(
    "grant",
    [
        Grant(("gone",), cores=("0-1",)),
        Grant(("n1",)),
        Grant(("n1",), cores=("0-1",), cpus=(2, 2)),
        Grant(("n1",), gres=("gpu:2",), cores=("0-1",)),
        Grant(("n1",), gres=("gpu:2(IDX:0)",), cores=("0-1",)),
        Grant(("n1",), gres=("shard:4(0/4,4/4)",), cores=("0-1",)),
        Grant(("n1",), cores=("0",)),
    ],
    ids=[
        "no Node",
        "no core is reported",
        "CPUs of other nodes",
        "GPUs without numbers",
        "fewer numbers than GPUs",
        "parts of GPUs",
        "one core",
    ],
)
def test_a_grant_that_cannot_be_divided_has_too_few_slots(grant: Grant) -> None:
    assert len(packed(grant, 2)) < 2
    assert len(even(grant, 2, nodes=1)) < 2 or grant.cpus


def test_a_grant_without_the_requested_gpus_has_too_few_slots() -> None:
    """Slurm 26.05 may grant packed tasks without their GPUs, and reports no error."""
    assert packed(Grant(("n1",), cores=("0-1",)), 2, gres=(("gpu", 1),)) == []


def test_counted_gres_are_divided_by_their_numbers() -> None:
    found = packed(Grant(("n1",), ("craynetwork(CNT:4),gpu:2(IDX:0,3)",), ("0-1",)), 2)
    assert [each.gres for each in found] == [
        "craynetwork(CNT:2),gpu:1(IDX:0)",
        "craynetwork(CNT:2),gpu:1(IDX:3)",
    ]


@given(
    per_node=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    cores=st.integers(1, 5),
    gpus=st.integers(0, 3),
    first=st.integers(0, 9),
)
def test_no_two_slots_of_a_node_have_the_same_core_or_gpu(
    per_node: list[int], cores: int, gpus: int, first: int
) -> None:
    names = tuple(f"n{number}" for number in range(1, len(per_node) + 1))
    gpus_on = [f"gpu:{n * gpus}(IDX:0-{n * gpus - 1})" if gpus else "" for n in per_node]
    cores_on = [f"{first}-{first + n * cores - 1}" for n in per_node]
    grant = Grant(names, tuple(gpus_on), tuple(cores_on), tuple(n * 100 for n in per_node))
    asked = {"gres": (("gpu", gpus),) if gpus else (), "memory_mb": 100}
    found = packed(grant, sum(per_node), cores, **asked)
    assert [each.node for each in found] == [
        name for name, n in zip(names, per_node, strict=True) for _ in range(n)
    ]
    for name, n in zip(names, per_node, strict=True):
        there = [each for each in found if each.node == name]
        taken = [core for each in there for core in number_list.expand(each.cores)]
        devices = [gpu for each in there for gpu in gres.numbers(each.gres).get("gpu", ())]
        assert sorted(taken) == list(range(first, first + n * cores))
        assert sorted(devices) == list(range(n * gpus))
        assert {len(number_list.expand(each.cores)) for each in there} == {cores}
        assert {each.memory_mb for each in there} == {100}


def test_whole_on_node_returns_the_full_grant_on_a_bound_pods_node() -> None:
    job = placeholder_job(pod(), nodes=("n1", "n2"), cores=("0-1", "4"))
    for node, cores in (("n1", "0-1"), ("n2", "4")):
        whole = whole_on_node(pod(node=node), job, VIEW)
        assert whole == Allocation(job.id, node, cores=cores)
    assert whole_on_node(pod(node="n3"), job, VIEW) is None
    assert whole_on_node(pod(), job, VIEW) is None


def test_slots_follow_the_tiers_of_the_nodes() -> None:
    """Slurm sorts the nodes by name, so the racks of this job alternate."""
    racks = {"n1": "rack-10", "n2": "rack-9", "n3": "rack-10", "n4": "rack-9", "n5": ""}
    nodes = [kube_node(name, labels={"spine": "s1", "rack": rack}) for name, rack in racks.items()]
    of_tiers = replace(view(*nodes, kube_node("n6")), tiers=("spine", "rack"))
    grant = Grant(("n1", "n2", "n3", "n4", "n5", "n6"), cores=("0", "1", "2", "3", "4", "5"))
    found = in_topology(grant, of_tiers)
    assert found.nodes == ("n2", "n4", "n1", "n3", "n5", "n6")
    assert found.cores == ("1", "3", "0", "2", "4", "5")
    assert (found.gres, in_topology(grant, view(*nodes))) == ((), grant)
