"""Tests of reports about different counts of CPUs in Slurm and Kubernetes."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from extender.node_sync.cpu_counts import disagreements, whole_cores
from slurm_client.in_memory import node
from tests.builders import kube_node, view


def told(kubernetes: str, slurm: int, unit: str = "1", **declared: Any) -> tuple[str, ...]:
    one = replace(kube_node("n1"), cpus=Decimal(kubernetes))
    slurm_node = replace(node("n1", cpus=slurm), **declared)
    return disagreements(view(one), [slurm_node], Decimal(unit))


@pytest.mark.parametrize(
    ("kubernetes", "slurm", "unit"),
    [("8", 8, "1"), ("8", 4, "2"), ("8", 80, "0.1"), ("8", 6, "1"), ("128", 8, "1"), ("8", 3, "2")],
)
def test_equal_or_fewer_cpus_are_no_problem(kubernetes: str, slurm: int, unit: str) -> None:
    assert told(kubernetes, slurm, unit) == ()


def test_a_node_that_counts_its_cores_is_told_with_the_unit_that_fits() -> None:
    (sentence,) = told("8", 4, cores=4, threads_per_core=2)
    assert sentence == (
        "n1: Slurm's 4 CPUs of 1 stand for 4, and Kubernetes counts 8: "
        "SLURM_EXTENDER_CPU_UNIT=2 would make them equal"
    )


def test_a_node_that_counts_its_threads_may_have_been_given_half_of_them() -> None:
    assert told("8", 4, cores=2, threads_per_core=2) == ()


def test_a_node_that_counts_parts_of_cpus_is_told_with_the_unit_that_fits() -> None:
    (sentence,) = told("4", 40)
    assert "SLURM_EXTENDER_CPU_UNIT=100m" in sentence


def test_a_wrong_unit_is_told() -> None:
    (sentence,) = told("8", 8, "0.1")
    assert "8 CPUs of 100m stand for 800m" in sentence
    assert "SLURM_EXTENDER_CPU_UNIT=1 " in sentence


def test_no_unit_is_advised_that_would_not_fit() -> None:
    assert told("8", 9) == ("n1: Slurm's 9 CPUs of 1 stand for 9, and Kubernetes counts 8",)


def test_nodes_that_are_alike_share_a_sentence() -> None:
    names = [f"n{number}" for number in range(5)]
    nodes = [replace(kube_node(name), cpus=Decimal(4)) for name in names]
    (sentence,) = disagreements(view(*nodes), [node(name, cpus=8) for name in names], Decimal(1))
    assert sentence.startswith("n0 and 4 more: ")


def test_a_node_without_a_node_and_one_that_does_not_tell_are_left_out() -> None:
    assert disagreements(view(kube_node("n1")), [node("n1"), node("n2")], Decimal(1)) == ()


def test_whole_cores_are_told_with_what_the_smallest_pod_takes() -> None:
    threads = replace(node("n1", cpus=8), cores=4, threads_per_core=2)
    assert whole_cores([threads, node("n2")], Decimal(1)) == (
        "n1: Slurm gives whole cores of 2 CPUs, so a Pod of 1 CPU takes 2 there",
    )
