"""Tests of `make bench`: the scenarios, the evaluation of the measurements, and the page."""

import json
import os
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

from loadtest.harness.budgets import Verdict, budgets, judged
from loadtest.harness.bursts import Burst
from loadtest.harness.meters import Histogram, MeterReading
from loadtest.harness.table import NATIVE_CONF, ONE_AT_A_TIME, SCENARIOS, Flow, Scenario, Way
from loadtest.harness.variants import Placer
from loadtest.report.figures import Outcome, key_figures
from loadtest.report.pages import PAGE, SIZING, kept, plots, renewed
from loadtest.scenarios.bench import chosen, just_measured

OURS = "ours, Slurm 26.05"


def burst(
    seconds: float = 10.0, *, cpu_s: float = 0.4, sent: float = 500_000.0, pictures: float = 0.0
) -> Burst:
    """Returns the figures of a burst of 100 Pods. The Pods are bound after 1, 2, ... 100 ms, each half a
    millisecond after the start of its job."""
    spent = MeterReading(
        {"extender": cpu_s, "slurmctld": 0.1, "slurmrestd": 0.1, "etcd": 0.4},
        rest_calls={"POST job/allocate": 100.0, "GET nodes": 0.0},
        rest_bytes={"POST job/allocate": sent, "GET nodes": pictures},
        api_writes={"PATCH pods": 200.0},
        filter_s=Histogram({0.002: 90.0, 0.004: 100.0, inf: 100.0}),
    )
    bound_ms = [float(number) for number in range(1, 101)]
    released = MeterReading(
        {"extender": 0.1, "slurmctld": 0.1},
        rest_calls={"POST job": 100.0, "DELETE job": 100.0},
        rest_bytes={"POST job": 70_000.0, "DELETE job": 30_000.0},
    )
    return Burst(seconds, 0.5, bound_ms, spent, [0.5] * 100, released)


def of(name: str, nodes: int, native: int | None = None) -> Scenario:
    return next(
        each for each in SCENARIOS if (each.name, each.nodes, each.native) == (name, nodes, native)
    )


def measured(*outcomes: Outcome, scale: dict[str, Any] | None = None) -> list[Verdict]:
    told = [json.loads(json.dumps(each.as_json())) for each in outcomes]
    return judged(budgets("bench"), key_figures(told, scale or {}))


def words(found: Sequence[Verdict]) -> dict[str, str]:
    return {each.key: each.word for each in found}


def everything() -> list[Outcome]:
    noop, ours = of("no-op extender", 1000), of(OURS, 1000)
    alone = one_at_a_time(OURS)
    few, many = of("no native jobs", 1000, 0), of("10,000 native jobs", 1000, 10_000)
    return [
        Outcome(noop, [burst(8.0)]),
        Outcome(ours, [burst(9.0), burst(10.0), burst(20.0)], idle_ms=[40.0] * 100),
        Outcome(of(OURS, 5000), [burst()]),
        Outcome(few, [burst()]),
        Outcome(many, [burst(sent=550_000.0)]),
        Outcome(alone, idle_ms=[20.0] * 99 + [90.0]),
    ]


def one_at_a_time(name: str) -> Scenario:
    return next(each for each in SCENARIOS if (each.stage, each.name) == (ONE_AT_A_TIME, name))


def test_each_scenario_has_a_unique_name_in_its_stage() -> None:
    names = [(each.stage, each.name) for each in SCENARIOS]
    assert len(set(names)) == len(names)


def test_scenarios_of_a_stage_are_adjacent() -> None:
    stages = [each.stage for each in SCENARIOS]
    runs = [stage for at, stage in enumerate(stages) if at == 0 or stages[at - 1] != stage]
    assert len(set(runs)) == len(runs)


@pytest.mark.parametrize("nodes", [200, 1000, 5000])
def test_one_stage_of_each_number_of_nodes_compares_all_placers(nodes: int) -> None:
    stages = [{each.placer for each in SCENARIOS if each.stage == stage} for stage in _stages(nodes)]
    assert set(Placer) in stages


def _stages(nodes: int) -> set[str]:
    return {each.stage for each in SCENARIOS if each.nodes == nodes}


def test_scenarios_cover_each_flow_path_and_number_of_native_jobs() -> None:
    real = [each for each in SCENARIOS if each.placer is Placer.REAL]
    assert {(each.flow, each.path) for each in real} == {(flow, path) for flow in Flow for path in Way}
    assert {each.native or 0 for each in real} == {0, 10_000}
    assert {each.nodes for each in real if each.release == "24.11"} == {200}
    assert all(each.before == 0 for each in real if each.steadies)


@pytest.mark.parametrize("placer", [Placer.ALONE, Placer.REST, Placer.REAL])
def test_cluster_of_a_scenario_is_the_same_for_each_placer(placer: Placer) -> None:
    scenario = Scenario(
        "few", "some", placer, 10, native=0, scheduler=("bf_continue",), percent_scored=0
    )
    spec = scenario.variant.spec()
    assert (spec.percentage_of_nodes_to_score, spec.scheduler_parameters) == (0, ("bf_continue",))
    assert set(NATIVE_CONF) <= set(spec.slurm_conf)


def test_scenarios_are_chosen_by_stage_or_name() -> None:
    assert chosen(SCENARIOS, []) == list(SCENARIOS)
    assert {each.stage for each in chosen(SCENARIOS, ["5,000"])} == {"5,000 Nodes"}
    assert {each.release for each in chosen(SCENARIOS, ["24.11"])} == {"24.11"}
    assert chosen(SCENARIOS, ["nothing like it"]) == []


def test_figure_has_median_minimum_and_maximum_of_the_bursts() -> None:
    found = Outcome(of(OURS, 1000), [burst(10.0), burst(20.0), burst(12.5)]).as_json()["burst"]
    assert found["pods_per_s"] == {"median": 8.0, "min": 5.0, "max": 10.0, "each": [10.0, 5.0, 8.0]}
    expected = {
        "bound_ms_p95": 95.0,
        "start_bound_ms_p99": 0.5,
        "extender_cpu_ms_per_pod": 4.0,
        "slurm_cpu_ms_per_pod": 2.0,
        "cpu_ms_per_pod": 10.0,
        "rest_calls_per_pod": 1.0,
        "rest_bytes_per_pod": 5000.0,
        "api_writes_per_pod": 2.0,
        "release_extender_cpu_ms_per_pod": 1.0,
        "release_rest_calls_per_pod": 2.0,
        "release_rest_bytes_per_pod": 1000.0,
        "filter_ms_p99": 3.8,
    }
    assert {name: found[name]["median"] for name in expected} == expected


def test_figures_that_a_placer_lacks_are_left_out() -> None:
    alone = Burst(1.0, 0.5, [1.0], MeterReading({"etcd": 0.1}))
    found = Outcome(of("kube-scheduler alone", 200), [alone]).as_json()
    assert found["burst"]["pods_per_s"]["median"] == 1.0
    absent = {"extender_cpu_ms_per_pod", "rest_bytes_per_pod", "filter_ms_p99", "start_bound_ms_p50"}
    assert not absent & found["burst"].keys()
    assert found["peak_rss_mb"] is None


def test_calls_are_counted_by_kind() -> None:
    found = Outcome(of(OURS, 1000), [burst(), burst()]).as_json()
    assert found["rest_bytes_per_pod_by_call"] == {"POST job/allocate": 5000.0}
    assert found["api_writes_per_pod_by_kind"] == {"PATCH pods": 2.0}


def test_each_budget_of_bench_is_judged() -> None:
    found = measured(*everything(), scale={"rss_mb_5000x50000": 400.0})
    assert words(found) == dict.fromkeys(budgets("bench"), "kept")
    figures = {each.key: each.value for each in found}
    assert figures == {
        "ratio_to_noop": 0.8,
        "idle_bound_ms_p50": 20.0,
        "idle_bound_ms_p99": 20.0,
        "extender_cpu_ms_per_pod": 4.0,
        "filter_ms_p99_5000": 3.8,
        "rss_mb_5000x50000": 400.0,
        "rest_bytes_per_pod_0": 5000.0,
        "rest_bytes_per_pod_10000": 5500.0,
        "rest_bytes_ratio": 1.1,
    }


def test_figures_that_miss_their_budgets_are_reported() -> None:
    outcomes = everything()
    outcomes[0].bursts[:] = [burst(6.9)]
    outcomes[5].idle_ms[:] = [31.0] * 98 + [101.0] * 2
    outcomes[4].bursts[:] = [burst(sent=601_000.0)]
    short = {key for key, word in words(measured(*outcomes)).items() if word == "FALLS SHORT"}
    assert short == {"ratio_to_noop", "idle_bound_ms_p50", "idle_bound_ms_p99", "rest_bytes_ratio"}


def test_periodic_calls_are_counted_and_not_compared() -> None:
    outcomes = everything()
    outcomes[3].bursts[:] = [burst(pictures=400_000.0)]
    figures = {each.key: each.value for each in measured(*outcomes)}
    assert (figures["rest_bytes_per_pod_0"], figures["rest_bytes_ratio"]) == (9000.0, 1.1)


def test_a_maximum_is_not_called_a_percentile() -> None:
    idle = Outcome(of(OURS, 1000), idle_ms=[float(number) for number in range(30)]).as_json()
    assert idle["idle_bound_ms"] == {"pods": 30, "p50": 14.0, "p95": 28.0, "p99": None}


def test_figures_without_a_measurement_are_not_judged() -> None:
    assert set(words(measured()).values()) == {"not measured"}


def test_figures_of_other_numbers_of_nodes_are_not_judged() -> None:
    other = [each.as_json() | {"nodes": 50} for each in everything()]
    assert set(key_figures(other, {}).values()) == {None}


def test_broken_scenario_keeps_its_measurements() -> None:
    found = Outcome(of(OURS, 200), [burst()], broken="3 Pods are not bound").as_json()
    assert (found["broken"], found["burst"]["pods_per_s"]["median"]) == ("3 Pods are not bound", 10.0)


def told(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {**kept(), "scenarios": [each.as_json() for each in outcomes]}


def test_page_and_plots_are_generated_from_the_figures() -> None:
    figures = kept()
    for page in (PAGE, SIZING):
        assert renewed(page, figures) == page.read_text(), "run `make performance-page`"
    for name, plot in plots(figures).items():
        assert (PAGE.with_suffix("") / name).read_bytes() == plot, name


def test_page_shows_medians_with_minimum_and_maximum() -> None:
    page = renewed(PAGE, told(everything()))
    assert "| ours, Slurm 26.05 | 10 (5 to 11) | 200 | 50 | 95 | 99 |" in page
    assert "| no-op extender | 12 (12 to 12)" not in page


def test_page_shows_the_error_of_a_broken_scenario() -> None:
    page = renewed(PAGE, told([Outcome(of(OURS, 200), broken="no Pod was bound")]))
    assert "| ours, Slurm 26.05 (broken: no Pod was bound) |" in page


def test_page_shows_the_ratio_of_each_round_and_the_rates() -> None:
    outcomes = [Outcome(of("no-op extender", 1000), [burst(8.0), burst(16.0)]), *everything()[1:]]
    page = renewed(PAGE, told(outcomes))
    assert "own ratios are 0.89, 1.60." in page
    assert "| ours, Slurm 26.05, Pods of the token's own user | - | 10 | 10 | 20 | 20 |" in page


def test_page_without_a_place_for_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed(PAGE, told([]), "# Performance\n")


def test_a_plot_has_a_bar_for_each_figure(tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_bytes(plots(told(everything()))["pods-per-second.svg"])
    plot = (tmp_path / "plot.svg").read_text()
    assert "1,000 Nodes" in plot
    assert OURS in plot
    assert "<script" not in plot


def test_old_figures_of_a_scale_run_are_ignored(tmp_path: Path) -> None:
    scale = tmp_path / "scale.json"
    assert just_measured(scale) == {}
    scale.write_text('{"rss_mb_5000x50000": 400}')
    assert just_measured(scale) == {"rss_mb_5000x50000": 400}
    an_hour_ago = time.time() - 3600
    os.utime(scale, (an_hour_ago, an_hour_ago))
    assert just_measured(scale) == {}
