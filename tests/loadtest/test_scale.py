"""Tests of the budgets of a run at scale, and of the page with the figures of this run."""

from typing import Any

import pytest

from loadtest.harness.budgets import budgets, judged, passed
from loadtest.report.pages import SCALE, renewed


def found(rss_mb: float = 400, filter_ms: float | None = 2.0, held_ms: float = 20) -> dict[str, Any]:
    spread = {"count": 10, "p50": 1, "p99": 2, "max": held_ms}
    kinds = dict.fromkeys(("late_ms", "held_ms", "event_lag_ms", "filter_caller_ms"), spread)
    phase = kinds | {"filter_ms_p99": filter_ms}
    return {
        "nodes": 5000,
        "pods": 50_000,
        "start": {"ready_s": 4, "cpu_s": 5, "rss_mb": 300},
        "phases": {"steady": phase, "relist": phase},
        "relist_s": 3.0,
        "flaps": {"cordoned": {"flaps": 8, "extender_cpu_ms": 90, "rest_calls": 6.0, "api_writes": 4.0}},
        "restart": {"pods": 10_000, "ready_s": 5, "placed_s": 6, "cpu_s": 7, "rss_mb": 200},
        "rss_mb": rss_mb,
    }


def test_a_run_within_all_budgets_passes() -> None:
    assert passed(judged(budgets("bench-scale"), found()))


@pytest.mark.parametrize(
    ("over", "words"),
    [
        (found(rss_mb=501), "FALLS SHORT: rss_mb 501 (at most 500)"),
        (found(filter_ms=11.1), "FALLS SHORT: phases steady filter_ms_p99 11.1 (at most 11; goal 5)"),
        (found(filter_ms=None), "not measured: phases steady filter_ms_p99"),
        (found(held_ms=51), "FALLS SHORT: phases steady held_ms max 51 (at most 50)"),
    ],
)
def test_one_figure_over_its_budget_fails_the_run_and_is_named(over: dict[str, Any], words: str) -> None:
    verdicts = judged(budgets("bench-scale"), over)
    assert not passed(verdicts)
    (first, *_) = (str(verdict) for verdict in verdicts if not verdict.kept)
    assert first.startswith(words)


def test_slow_restart_fails() -> None:
    (verdict,) = judged(budgets("bench-restart"), {"ready_s": 10.5})
    assert verdict.word == "FALLS SHORT"


# The page


def test_new_figures_replace_only_the_old_figures() -> None:
    page = SCALE.read_text()
    told = renewed(SCALE, found(rss_mb=432))
    begin, end = (page.index(mark) for mark in ("<!-- The block", "<!-- End of The block"))
    assert told.startswith(page[:begin])
    assert told.endswith(page[end:])
    assert "| memory, at most (RSS) | 432 MB (budget: 500) |\n" in told
    assert "| event loop, held by its own work (p99, most) | 2.0, 20.0 | 2.0, 20.0 |\n" in told
    assert "| cordoned | 90 ms | 6.0 | 4.0 |\n" in told


def test_page_has_the_lines_of_its_template() -> None:
    """The figures of the test differ from the page's figures, but both pages must have the same
    lines."""
    lines = [
        [line.partition("|")[2].split("|")[0] for line in page.splitlines() if line.startswith("|")]
        for page in (SCALE.read_text(), renewed(SCALE, found()))
    ]
    assert [line for line in lines[0] if line != " not ready "] == lines[1]


def test_a_page_without_a_place_for_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"scale\.md lacks a place for: The block of figures"):
        renewed(SCALE, found(), "# Scale\n")
