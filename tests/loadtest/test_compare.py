"""Two checkouts measured in turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.local.layout import CHECKOUT
from loadtest.compare import Comparison, app


def bursts(*cpu: float) -> list[dict[str, float]]:
    others = {"pods_per_s": 100.0, "bound_ms_p50": 700.0, "cpu_ms_per_pod": 20.0, "yardstick_ms": 1.0}
    return [others | {"extender_cpu_ms_per_pod": each} for each in cpu]


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ((4.2, 9.0, 8.0), True),
        ((4.3, 4.3, 1.0), False),
        ((3.0, 3.0, 3.0), True),
        ((4.4, 8.8, 4.0), False),
    ],
)
def test_what_counts_is_the_median_of_the_rounds_ratios(after: tuple[float, ...], kept: bool) -> None:
    found = Comparison(bursts(4.0, 4.0, 8.0), bursts(*after))
    assert found.costs_at_most(1.05) is kept


def test_a_slow_minute_of_the_machine_is_no_cost() -> None:
    slow = [{**each, "cpu_ms_per_pod": 30.0, "yardstick_ms": 1.5} for each in bursts(6.0)]
    found = Comparison(bursts(4.0), slow)
    assert found.ratio("extender_cpu_ms_per_pod") == pytest.approx(1.0)
    assert found.ratio("yardstick_ms") == 1.5
    assert found.costs_at_most(1.05)


def test_all_of_the_cluster_counts_too() -> None:
    found = Comparison(bursts(4.0), [{**bursts(4.0)[0], "cpu_ms_per_pod": 21.5}])
    assert not found.costs_at_most(1.05)
    assert found.costs_at_most(1.08)


@pytest.mark.real
def test_a_checkout_is_compared_with_itself(tmp_path: Path) -> None:
    figures = tmp_path / "compare.json"
    few = ("--nodes", "10", "--pods", "10", "--rounds", "2", "--most", "20", "--figures", str(figures))
    ran = CliRunner().invoke(app, [str(CHECKOUT), *few])
    assert ran.exit_code == 0, ran.output
    found = json.loads(figures.read_text())
    assert [len(found["before"]), len(found["after"])] == [2, 2]
    assert all(each["extender_cpu_ms_per_pod"] > 0 for each in found["before"] + found["after"])


def test_a_checkout_that_is_none_is_a_clear_error(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, [str(tmp_path), "--figures", str(tmp_path / "none.json")])
    assert ran.exit_code == 1
    assert f"broken: {tmp_path}: it has ended" in ran.output.replace("\n", "")
    assert not (tmp_path / "none.json").exists()
