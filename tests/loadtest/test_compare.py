"""Tests of the comparison of two checkouts, whose measurements take turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.local.layout import CHECKOUT
from loadtest.__main__ import app
from loadtest.harness.budgets import budgets, judged, passed
from loadtest.scenarios.compare import ratios_of


def bursts(*cpu: float) -> list[dict[str, float]]:
    others = {"pods_per_s": 100.0, "bound_ms_p50": 700.0, "cpu_ms_per_pod": 20.0, "yardstick_ms": 1.0}
    others["idle_bound_ms_p50"] = 25.0
    return [others | {"extender_cpu_ms_per_pod": each} for each in cpu]


def costs_no_more(before: list[dict[str, float]], after: list[dict[str, float]]) -> bool:
    return passed(judged(budgets("compare"), {"ratios": ratios_of(before, after)}))


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ((4.2, 9.0, 8.0), True),
        ((4.3, 4.3, 1.0), False),
        ((3.0, 3.0, 3.0), True),
        ((4.4, 8.8, 4.0), False),
    ],
)
def test_comparison_uses_the_median_of_the_ratios_of_the_rounds(
    after: tuple[float, ...], kept: bool
) -> None:
    assert costs_no_more(bursts(4.0, 4.0, 8.0), bursts(*after)) is kept


def test_slow_machine_does_not_count_as_a_cost() -> None:
    slow = [{**each, "cpu_ms_per_pod": 30.0, "yardstick_ms": 1.5} for each in bursts(6.0)]
    found = ratios_of(bursts(4.0), slow)
    assert found["extender_cpu_ms_per_pod"] == 1.0
    assert found["yardstick_ms"] == 1.5
    assert costs_no_more(bursts(4.0), slow)


def test_cpu_of_the_whole_cluster_counts_also() -> None:
    assert not costs_no_more(bursts(4.0), [{**bursts(4.0)[0], "cpu_ms_per_pod": 21.5}])
    assert costs_no_more(bursts(4.0), [{**bursts(4.0)[0], "cpu_ms_per_pod": 20.9}])


def test_single_pod_on_an_idle_cluster_may_not_wait_longer() -> None:
    assert not costs_no_more(bursts(4.0), [{**bursts(4.0)[0], "idle_bound_ms_p50": 26.5}])
    assert costs_no_more(bursts(4.0), [{**bursts(4.0)[0], "idle_bound_ms_p50": 26.0}])


@pytest.mark.real
@pytest.mark.timeout(400)
def test_a_checkout_is_compared_with_itself(tmp_path: Path) -> None:
    figures, wide = tmp_path / "compare.json", tmp_path / "budgets.toml"
    wide.write_text("[compare.ratios]\ncpu_ms_per_pod = 20\n")
    few = ("--nodes", "10", "--pods", "20", "--rounds", "1")
    files = ("--budgets", str(wide), "--figures", str(figures))
    ran = CliRunner().invoke(app, ["compare", str(CHECKOUT), *few, *files])
    assert ran.exit_code == 0, ran.output
    found = json.loads(figures.read_text())
    assert [len(found["before"]), len(found["after"])] == [1, 1]
    assert all(each["extender_cpu_ms_per_pod"] > 0 for each in found["before"] + found["after"])


def test_folder_that_is_no_checkout_is_a_clear_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["compare", str(tmp_path), "--figures", str(tmp_path / "none.json")])
    assert ran.exit_code == 1
    assert f"broken: {tmp_path}: the process has ended" in ran.output.replace("\n", "")
    assert not (tmp_path / "none.json").exists()
