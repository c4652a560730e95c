"""Tests of overlaps: an overlap begins with a start on CPUs in use, and ends when all fit again."""

from dataclasses import replace

import pytest

from tests.chaos.overlap import Overlap, Stay, overlaps, read_processes

NODES = {"n1": 8, "n2": 8}
POD = Stay("p", "n1", 6, first=0.0, last=12.0)


def starts(at: float, cpus: int = 8, node: str = "n1") -> Stay:
    return Stay("native", node, cpus, at, at + 5.0)


def found(processes: list[Stay], *pods: Stay) -> list[Overlap]:
    return list(overlaps(processes, pods, NODES))


def test_a_job_that_starts_on_a_pods_cores_overlaps_until_the_pod_is_gone() -> None:
    assert found([starts(10.0)], POD) == [Overlap(10.0, 2.0, "n1", "native started on p")]


@pytest.mark.parametrize(
    "process", [starts(12.0), starts(10.0, node="n2"), starts(10.0, cpus=2)], ids=str
)
def test_job_beside_or_after_a_pod_does_not_overlap(process: Stay) -> None:
    assert found([process], POD) == []


def test_pod_that_starts_among_processes_of_a_job_overlaps() -> None:
    late = Stay("q", "n1", 2, 12.0, 20.0)
    assert [(each.at, each.seconds) for each in found([starts(8.0)], late)] == [(12.0, 1.0)]


def test_disowned_processes_do_not_overlap() -> None:
    def disowned(process: Stay, at: float) -> bool:
        return process.who == "forgotten" and at >= 9.0

    first = Stay("forgotten", "n1", 2, 8.0, 11.0)
    second = starts(10.0, cpus=1)
    assert list(overlaps([first, second], [POD], NODES, disowned)) == []
    assert [each.at for each in overlaps([replace(first, cpus=3)], [POD], NODES, disowned)] == [8.0]


def test_native_jobs_do_not_overlap_with_each_other() -> None:
    assert found([starts(8.0), starts(10.0)]) == []


def test_overlap_ends_when_enough_cpus_are_free() -> None:
    others = [Stay("q", "n1", 1, 0.0, 11.0), Stay("r", "n1", 1, 0.0, 20.0)]
    assert [each.seconds for each in found([starts(10.0, cpus=2)], POD, *others)] == [2.0]
    assert [each.seconds for each in found([starts(10.0, cpus=1)], POD, *others)] == [1.0]


def test_other_running_jobs_of_the_node_count() -> None:
    first = Stay("first", "n1", 2, 8.0, 11.0)
    assert [each.seconds for each in found([first, starts(10.0, cpus=1)], POD)] == [1.0]
    assert found([first, starts(11.0, cpus=1)], POD) == []


def test_shared_cores_overlap_on_a_node_with_room() -> None:
    pod = replace(POD, cpus=2, cores=frozenset({0, 1}))
    there = replace(starts(10.0, cpus=2), cores=frozenset({1, 2}))
    words = "native started on cores of p: 1"
    assert found([there], pod) == [Overlap(10.0, 2.0, "n1", words)]
    assert found([replace(there, last=11.0)], pod) == [Overlap(10.0, 1.0, "n1", words)]
    assert found([replace(there, cores=frozenset({2, 3}))], pod) == []
    assert found([replace(there, cores=frozenset())], pod) == []
    other = replace(pod, who="q", first=9.0)
    assert [each.words for each in found([], pod, other)] == ["q started on cores of p: 0-1"]
    assert found([there, replace(there, who="second", first=10.5)]) == []


def test_reports_of_processes_are_read() -> None:
    said = ["a 3.17 n1 10.5", "b 4.20 n1 11.0", "a 3.17 n1 11.0", "a 3.99 n2 30.0", "other 1.1 n1 2.0"]
    known = {(3, "n1"): frozenset({4, 5})}
    read = read_processes(said, {"a": 2, "b": 1}, lambda job, node: known.get((job, node), frozenset()))
    assert read == [
        Stay("a", "n1", 2, 10.5, 11.0, cores=frozenset({4, 5})),
        Stay("b", "n1", 1, 11.0, 11.0),
        Stay("a", "n2", 2, 30.0, 30.0),
    ]
