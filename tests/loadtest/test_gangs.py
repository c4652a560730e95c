"""Tests of the figures of a gang, and of their budgets."""

from loadtest.harness.budgets import budgets, judged, passed
from loadtest.harness.pods import Pod
from loadtest.scenarios.gangs import crowded, summary, times


def a_round(start_bound_s: float, partial_s: float = 1.0, filter_calls: float = 1.0) -> dict[str, float]:
    return {
        "start_bound_s": start_bound_s,
        "partial_s": partial_s,
        "filter_calls_per_member": filter_calls,
        "rest_mb": 0.5,
        "api_writes_per_member": 5.0,
        "extender_cpu_ms_per_member": 2.0,
        "cpu_ms_per_member": 20.0,
    }


def test_ratios_compare_the_clusters_within_a_round() -> None:
    """The second round was slower for both clusters."""
    found = summary([a_round(2), a_round(8, 3)], [a_round(2), a_round(8)], [4.0, 4.0])
    assert (found["start_bound_ratio"], found["start_bound_s"]) == (1.0, 5.0)
    assert (found["extender_cpu_ratio"], found["partial_s_max"]) == (0.5, 3)
    assert passed(judged(budgets("bench-gangs"), found))


def test_one_figure_over_its_budget_fails_the_run() -> None:
    for slow in (a_round(5.1), a_round(2, partial_s=3.6), a_round(2, filter_calls=1.1)):
        found = summary([slow], [a_round(2)], [4.0])
        assert not passed(judged(budgets("bench-gangs"), found))


def test_times_begin_with_the_job() -> None:
    pods = [Pod("a", 0.0, bound=12.0, node="n1"), Pod("b", 0.0, bound=15.0, node="n1")]
    assert times(pods, 10.0) == {"start_bound_s": 5.0, "partial_s": 3.0}


def test_a_node_with_more_members_than_gpus_is_found() -> None:
    pods = [Pod(str(n), 0.0, node="n1" if n < 9 else "n2") for n in range(12)]
    assert crowded(pods) == {"n1": 9}
