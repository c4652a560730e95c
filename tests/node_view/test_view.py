"""Tests of the view of Kubernetes Nodes and Slurm nodes."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.node_view.view import ClusterView, Wish
from extender.pod_request.constraints.node_constraints import NodeConstraints
from slurm_client import hostlist
from slurm_client.model import JobSpec, Partition
from tests.builders import kube_node, view
from tests.clock import CpuClock
from tests.memory import kept

ANY = NodeConstraints.parse({})
ZONE_A = NodeConstraints.parse({"nodeSelector": {"zone": "a"}})


# Names


def test_a_label_makes_a_node_stand_for_another() -> None:
    node = kube_node("n1", labels={"slurm": "gpu-01"})
    assert view(node).node_of("gpu-01") is node
    assert view(node).node_of("n1") is None
    unlabelled = kube_node("n1")
    assert view(unlabelled).node_of("n1") is unlabelled
    assert view(unlabelled).node_of("native-01") is None


def test_two_nodes_may_stand_for_each_others_names() -> None:
    first, second = kube_node("n1", labels={"slurm": "n2"}), kube_node("n2", labels={"slurm": "n1"})
    crossed = view(first, second)
    assert (crossed.node_of("n1"), crossed.node_of("n2")) == (second, first)


# Partitions


def test_a_job_without_a_partition_goes_to_the_default_one() -> None:
    two = view(partitions=[Partition("a", ()), Partition("b", (), default=True)])
    assert two.partition_name(None) == "b"
    assert two.partition_name("a") == "a"
    assert two.partition_name("unheard-of") == "unheard-of"
    assert ClusterView().partition_name(None) == ""


# Preemption


def tiers(own: int, other: int, *, shared: bool = True, preemption: bool = True) -> ClusterView:
    """Returns a view of a Slurm whose partition `mine` is beside a partition of another tier."""
    mine = Partition("mine", ("n1", "n2"), priority_tier=own)
    theirs = Partition("theirs", ("n2", "n3") if shared else ("n3",), priority_tier=other)
    return view(partitions=[mine, theirs], preemption=preemption)


@pytest.mark.parametrize(
    ("known", "partition", "may"),
    [
        (tiers(2, 1), "mine", True),
        (tiers(1, 1), "mine", False),
        (tiers(1, 2), "mine", False),
        (tiers(2, 1, shared=False), "mine", False),
        (tiers(2, 1, preemption=False), "mine", False),
        (view(preemption=False), "unheard-of", False),
        (replace(tiers(1, 1), qos_preemption=True), "mine", True),
        (tiers(1, 1), "unheard-of", True),
        (ClusterView(), "main", True),
    ],
)
def test_job_may_preempt_lower_tiers(known: ClusterView, partition: str, may: bool) -> None:
    assert known.may_preempt(partition) is may


@pytest.mark.alone
def test_preemption_of_a_partition_is_computed_once() -> None:
    names = tuple(f"n{n}" for n in range(5_000))
    known = view(partitions=[Partition(f"p{n}", names) for n in range(10)])
    assert not known.may_preempt("p0")
    clock = CpuClock()
    for _ in range(1_000):
        assert not known.may_preempt("p0")
    assert clock.read() < 0.05, "it took a millisecond each time"


# GraceTime


def grace(of: JobSpec, *, preemption: bool = True, qos: tuple[str, ...] = ()) -> bool:
    partitions = [Partition("main", (), default=True), Partition("slow", (), grace_time_s=60)]
    known = view(partitions=partitions, preemption=preemption)
    seen = replace(known, graceful_qos=frozenset(qos))
    return seen.has_grace(of) and seen.gives_grace


@pytest.mark.parametrize(
    ("partition", "has"),
    [("slow", True), ("main,slow", True), ("main", False), (None, False), ("x", False)],
)
def test_a_job_has_the_grace_time_of_its_partition(partition: str | None, has: bool) -> None:
    job = JobSpec("j", 1, 1, partition=partition)
    assert grace(job) is has
    assert not grace(job, preemption=False)


@pytest.mark.parametrize(
    ("qos", "has"), [("patient", True), ("low,patient", True), ("low", False), (None, True)]
)
def test_job_has_the_grace_time_of_its_qos_or_its_users(qos: str | None, has: bool) -> None:
    job = JobSpec("j", 1, 1, qos=qos)
    assert grace(job, qos=("patient",)) is has
    assert not grace(job)


def test_view_gives_no_grace_without_grace_time_or_preemption() -> None:
    assert not view(partitions=[Partition("main", ())]).gives_grace
    assert not view(partitions=[Partition("main", (), grace_time_s=9)], preemption=False).gives_grace


# Excluded nodes


def zones(*partitions: Partition, **zone: str) -> ClusterView:
    nodes = (kube_node(name, labels={"zone": each}) for name, each in zone.items())
    return view(*nodes, partitions=partitions) if partitions else view(*nodes)


NAMED = view(kube_node("n1", labels={"slurm": "s1"}), kube_node("n2", labels={"slurm": "s2"}))
CLOSED = view(
    kube_node("n1", unschedulable=True),
    kube_node("n2", taints=[{"key": "x", "effect": "NoSchedule"}]),
    kube_node("n3"),
)
ALONE, OTHER = Partition("main", ("n1",)), Partition("other", ("n2",))
LISTS = Partition("a", ("n1", "native-01")), Partition("b", ("native-02",))


@pytest.mark.parametrize(
    ("cluster", "constraints", "partition", "avoid", "names"),
    [
        (zones(n1="a", n2="b"), ZONE_A, "main", (), ("n2",)),
        (zones(n1="a", n2="b"), ANY, "main", (), ()),
        (NAMED, ANY, "main", {"n2"}, ("s2",)),
        (zones(Partition("main", ("native-01", "n1")), n1="a"), ANY, "main", (), ("native-01",)),
        # If the exclusion contains an unknown name, Slurm rejects the job.
        (zones(ALONE, OTHER, n1="b", unknown="b"), ZONE_A, "main", {"unknown"}, ("n1",)),
        (zones(n1="b"), ZONE_A, "unheard-of", (), ()),
        # sbatch(1) --partition accepts a list, and Slurm uses the partition with the earliest start.
        (zones(*LISTS, n1="a"), ZONE_A, "a,b", (), ("native-01", "native-02")),
        (CLOSED, ANY, "main", (), ("n1", "n2")),
    ],
)
def test_nodes_that_a_pod_cannot_use_are_excluded(
    cluster: ClusterView,
    constraints: NodeConstraints,
    partition: str,
    avoid: Iterable[str],
    names: tuple[str, ...],
) -> None:
    wish = Wish(constraints, partition, avoid=frozenset(avoid))
    assert hostlist.names(cluster.exclusion(wish).nodes) == names


# Cached answers


@given(
    st.sets(st.sampled_from(["n1", "n2", "n3", "unknown"])),
    st.sampled_from(["main", "small", "main,small", "empty", "unheard-of"]),
    st.sets(st.sampled_from(["s1", "s2", "native", "unknown"])),
    st.sets(st.sampled_from(["s1", "s2", "native", "unknown"])),
    st.sampled_from([ANY, ZONE_A]),
)
def test_leaves_any_of_agrees_with_the_exclusion_of_other_nodes(
    offered: set[str],
    partition: str,
    excluded: set[str],
    required: set[str],
    constraints: NodeConstraints,
) -> None:
    zones = {"s1": "a", "s2": "b", "s3": "a"}
    nodes = (kube_node(f"n{s[1]}", labels={"slurm": s, "zone": zone}) for s, zone in zones.items())
    partitions = Partition("main", ("s1", "s2", "native")), Partition("small", ("s3",))
    cluster = view(*nodes, partitions=[*partitions, Partition("empty", ())])
    wish = Wish(constraints, partition, tuple(sorted(excluded)), tuple(sorted(required)))
    alone = cluster.exclusion(wish._replace(feasible_nodes=tuple(offered)))
    assert cluster.leaves_any_of(offered, wish) is not alone.leaves_none


def test_partition_lists_are_cached_by_existing_partitions() -> None:
    cluster = view(kube_node("n1"))
    assert all(
        cluster.slurm_nodes(f"zz{n},main,main") is cluster.slurm_nodes("main") for n in range(100)
    )


def test_number_of_cached_partition_lists_is_limited() -> None:
    partitions = [Partition(f"p{p}", tuple(f"n{p}-{n}" for n in range(200))) for p in range(10)]
    cluster = view(partitions=partitions)
    lists = [",".join(f"p{p}" for p in range(10) if n >> p & 1) for n in range(1, 1 << 10)]
    assert kept(lambda: [len(cluster.slurm_nodes(each)) for each in lists]) < 2_000_000


@pytest.mark.parametrize("of", ["QOS", "partitions"])
def test_number_of_cached_answers_is_limited(of: str) -> None:
    """Pod authors choose the names, so very many names are possible. A version of the cluster view may
    last for weeks."""
    cluster = view(partitions=[Partition("main", ("n1",), default=True, grace_time_s=30)])

    def ask() -> None:
        for number in range(10_000):
            name = f"{number:01000}"
            qos, partition = (name, None) if of == "QOS" else (None, name)
            cluster.has_grace(JobSpec("p@default", 1, 1, qos=qos, partition=partition))
            cluster.may_preempt(name)

    assert kept(ask) < 5_000_000
