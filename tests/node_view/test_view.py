"""Both systems' nodes side by side."""

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


def excluded(
    cluster: ClusterView, constraints: NodeConstraints, partition: str, avoid: Iterable[str] = ()
) -> tuple[str, ...]:
    wish = Wish(constraints, partition, avoid=frozenset(avoid))
    return hostlist.names(cluster.exclusion(wish).nodes)


# Names


def test_a_node_stands_for_the_slurm_node_of_its_name() -> None:
    node = kube_node("n1")
    assert view(node).node_of("n1") is node


def test_a_label_makes_a_node_stand_for_another() -> None:
    node = kube_node("n1", labels={"slurm": "gpu-01"})
    assert view(node).node_of("gpu-01") is node
    assert view(node).node_of("n1") is None


def test_two_nodes_may_stand_for_each_others_names() -> None:
    first, second = kube_node("n1", labels={"slurm": "n2"}), kube_node("n2", labels={"slurm": "n1"})
    crossed = view(first, second)
    assert (crossed.node_of("n1"), crossed.node_of("n2")) == (second, first)


def test_no_node_stands_for_a_slurm_node_of_its_own() -> None:
    assert view(kube_node("n1")).node_of("native-01") is None


# Partitions


def test_a_job_without_a_partition_goes_to_the_default_one() -> None:
    two = view(partitions=[Partition("a", ()), Partition("b", (), default=True)])
    assert two.partition_name(None) == "b"
    assert two.partition_name("a") == "a"
    assert two.partition_name("unheard-of") == "unheard-of"


def test_without_a_default_partition_it_has_no_name() -> None:
    assert ClusterView().partition_name(None) == ""


# Preemption


def tiers(own: int, other: int, *, shared: bool = True, preemption: bool = True) -> bool:
    """Whether a job of `mine` may preempt, beside a partition of another tier."""
    mine = Partition("mine", ("n1", "n2"), priority_tier=own)
    theirs = Partition("theirs", ("n2", "n3") if shared else ("n3",), priority_tier=other)
    return view(partitions=[mine, theirs], preemption=preemption).may_preempt("mine")


def test_a_lower_tier_on_a_shared_node_can_be_preempted() -> None:
    assert tiers(2, 1)


@pytest.mark.parametrize(("own", "other"), [(1, 1), (1, 2)])
def test_an_equal_or_higher_tier_cannot(own: int, other: int) -> None:
    assert not tiers(own, other)


def test_a_lower_tier_elsewhere_cannot() -> None:
    assert not tiers(2, 1, shared=False)


@pytest.mark.alone
def test_whether_a_partition_may_preempt_is_worked_out_once() -> None:
    names = tuple(f"n{n}" for n in range(5_000))
    known = view(partitions=[Partition(f"p{n}", names) for n in range(10)])
    assert not known.may_preempt("p0")
    clock = CpuClock()
    for _ in range(1_000):
        assert not known.may_preempt("p0")
    assert clock.read() < 0.05, "it took a millisecond each time"


def test_nothing_is_preempted_where_slurm_never_does() -> None:
    assert not tiers(2, 1, preemption=False)
    assert not view(preemption=False).may_preempt("unheard-of")


def test_where_the_qos_decides_any_job_may_preempt() -> None:
    alike = replace(view(partitions=[Partition("main", ("n1",))]), qos_preemption=True)
    assert alike.may_preempt("main")


def test_what_is_not_known_may_preempt() -> None:
    assert view(partitions=[Partition("main", ("n1",))]).may_preempt("unheard-of")
    assert ClusterView().may_preempt("main")


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


def test_where_nothing_has_a_grace_time_nobody_has_one() -> None:
    assert not view(partitions=[Partition("main", ())]).gives_grace
    assert not view(partitions=[Partition("main", (), grace_time_s=9)], preemption=False).gives_grace


# Excluded nodes


def test_nodes_that_the_pod_may_not_use_are_excluded() -> None:
    cluster = view(kube_node("n1", labels={"zone": "a"}), kube_node("n2", labels={"zone": "b"}))
    assert excluded(cluster, ZONE_A, "main") == ("n2",)
    assert excluded(cluster, ANY, "main") == ()


def test_nodes_that_refused_the_pod_are_excluded_by_their_own_names() -> None:
    cluster = view(kube_node("n1", labels={"slurm": "s1"}), kube_node("n2", labels={"slurm": "s2"}))
    assert excluded(cluster, ANY, "main", avoid={"n2"}) == ("s2",)


def test_slurm_nodes_without_a_node_are_excluded() -> None:
    main = Partition("main", ("native-01", "n1"))
    assert excluded(view(kube_node("n1"), partitions=[main]), ANY, "main") == ("native-01",)


def test_only_nodes_that_slurm_knows_in_the_partition_are_named() -> None:
    """An unknown name in the list makes Slurm refuse the job."""
    cluster = view(
        kube_node("n1", labels={"zone": "b"}),
        kube_node("unknown", labels={"zone": "b"}),
        partitions=[Partition("main", ("n1",)), Partition("other", ("n2",))],
    )
    assert excluded(cluster, ZONE_A, "main", avoid={"unknown"}) == ("n1",)


def test_nothing_is_excluded_of_a_partition_that_is_not_known() -> None:
    assert excluded(view(kube_node("n1")), ZONE_A, "unheard-of") == ()


def test_a_list_of_partitions_excludes_from_each() -> None:
    """sbatch(1) --partition takes a list, and Slurm starts the job where it can soonest."""
    cluster = view(
        kube_node("n1", labels={"zone": "a"}),
        partitions=[Partition("a", ("n1", "native-01")), Partition("b", ("native-02",))],
    )
    assert set(excluded(cluster, ZONE_A, "a,b")) == {"native-01", "native-02"}


def test_a_cordoned_or_tainted_node_is_excluded() -> None:
    taint = {"key": "x", "effect": "NoSchedule"}
    cluster = view(kube_node("n1", unschedulable=True), kube_node("n2", taints=[taint]), kube_node("n3"))
    assert excluded(cluster, ANY, "main") == ("n1", "n2")


# Answers


@given(
    st.sets(st.sampled_from(["n1", "n2", "n3", "unknown"])),
    st.sampled_from(["main", "small", "main,small", "empty", "unheard-of"]),
    st.sets(st.sampled_from(["s1", "s2", "native", "unknown"])),
    st.sets(st.sampled_from(["s1", "s2", "native", "unknown"])),
    st.sampled_from([ANY, ZONE_A]),
)
def test_nodes_are_left_as_if_only_they_counted(
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


def test_lists_of_partitions_are_kept_by_the_partitions_that_exist() -> None:
    cluster = view(kube_node("n1"))
    assert all(
        cluster.slurm_nodes(f"zz{n},main,main") is cluster.slurm_nodes("main") for n in range(100)
    )


def test_no_more_than_so_many_lists_of_partitions_are_kept() -> None:
    partitions = [Partition(f"p{p}", tuple(f"n{p}-{n}" for n in range(200))) for p in range(10)]
    cluster = view(partitions=partitions)
    lists = [",".join(f"p{p}" for p in range(10) if n >> p & 1) for n in range(1, 1 << 10)]
    assert kept(lambda: [len(cluster.slurm_nodes(each)) for each in lists]) < 2_000_000


@pytest.mark.parametrize("of", ["QOS", "partitions"])
def test_no_more_than_so_many_answers_are_kept_whatever_pods_name(of: str) -> None:
    """The names are their authors', and a version of the read model may last for weeks."""
    cluster = view(partitions=[Partition("main", ("n1",), default=True, grace_time_s=30)])

    def ask() -> None:
        for number in range(10_000):
            name = f"{number:01000}"
            qos, partition = (name, None) if of == "QOS" else (None, name)
            cluster.has_grace(JobSpec("p@default", 1, 1, qos=qos, partition=partition))
            cluster.may_preempt(name)

    assert kept(ask) < 5_000_000
