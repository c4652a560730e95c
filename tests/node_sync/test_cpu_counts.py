"""Tests of the messages about different counts of CPUs in Slurm and Kubernetes."""

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
    "sentences",
    [
        *(told("8", 8), told("8", 4, "2"), told("8", 80, "0.1"), told("8", 6), told("128", 8)),
        told("8", 3, "2"),
        told("8", 4, cores=2, threads_per_core=2),  # possibly half of the threads
        disagreements(view(kube_node("n1")), [node("n1"), node("n2")], Decimal(1)),
    ],
)
def test_equal_fewer_or_unknown_cpus_are_no_problem(sentences: tuple[str, ...]) -> None:
    assert sentences == ()


@pytest.mark.parametrize(
    ("sentences", "counts", "unit"),
    [
        (told("8", 4, cores=4, threads_per_core=2), "4 CPUs of 1 stand for 4, {} 8", "2"),
        (told("4", 40), "40 CPUs of 1 stand for 40, {} 4", "100m"),
        (told("8", 8, "0.1"), "8 CPUs of 100m stand for 800m, {} 8", "1"),
        (told("8", 9), "9 CPUs of 1 stand for 9, {} 8", None),
    ],
)
def test_wrong_cpus_are_reported_with_the_matching_unit(
    sentences: tuple[str, ...], counts: str, unit: str | None
) -> None:
    advice = f": SLURM_EXTENDER_CPU_UNIT={unit} would make them equal" if unit else ""
    assert sentences == (f"n1: Slurm's {counts.format('and Kubernetes counts')}{advice}",)


def test_nodes_that_are_alike_share_a_sentence() -> None:
    names = [f"n{number}" for number in range(5)]
    nodes = [replace(kube_node(name), cpus=Decimal(4)) for name in names]
    (sentence,) = disagreements(view(*nodes), [node(name, cpus=8) for name in names], Decimal(1))
    assert sentence.startswith("n0 and 4 more: ")


def test_whole_cores_are_reported_with_the_cpus_of_the_smallest_pod() -> None:
    threads = replace(node("n1", cpus=8), cores=4, threads_per_core=2)
    assert whole_cores([threads, node("n2")], Decimal(1)) == (
        "n1: Slurm gives whole cores of 2 CPUs, so a Pod of 1 CPU takes 2 there",
    )
