"""Tests of the budgets, which are limits for measured figures."""

from pathlib import Path

import pytest

from loadtest.harness.budgets import NoBudgets, budgets, judged, passed

BIND = {"bind": {"p50_ms": 50, "p99_ms": 99}}


def words(held_to: dict[str, object], figures: dict[str, object]) -> list[str]:
    return [str(each) for each in judged(held_to, figures)]


def test_budget_applies_to_the_figure_with_the_same_key() -> None:
    found = {"bind": {"p50_ms": 50.0, "p99_ms": 99.001}, "failed": 0}
    assert words({**BIND, "failed": 0}, found) == [
        "kept: bind p50_ms 50.0 (at most 50)",
        "FALLS SHORT: bind p99_ms 99.001 (at most 99)",
        "kept: failed 0 (at most 0)",
    ]


def test_budget_may_be_a_minimum_or_only_warn() -> None:
    held_to = {
        "ratio": {"at_least": 0.5, "words": "ours to theirs"},
        "ms": {"at_most": 5, "warns": True},
    }
    verdicts = judged(held_to, {"ratio": 0.49, "ms": 6})
    assert str(verdicts[0]) == "FALLS SHORT: ratio 0.49 (at least 0.5): ours to theirs"
    assert verdicts[1].word == "warning"
    assert not passed(verdicts)
    assert passed(verdicts[1:])


def test_goal_is_shown_and_fails_no_run() -> None:
    verdicts = judged({"ratio": {"at_least": 0.4, "goal": 0.5}}, {"ratio": 0.45})
    assert [str(each) for each in verdicts] == ["kept: ratio 0.45 (at least 0.4; goal 0.5)"]
    assert passed(verdicts)


def test_missing_figure_fails_unless_the_run_is_partial() -> None:
    verdicts = judged(BIND, {"filter": {"p50_ms": 1.0}})
    assert [each.word for each in verdicts] == ["not measured", "not measured"]
    assert not passed(verdicts)
    assert passed(verdicts, partly=True)


def test_figure_without_a_budget_is_not_judged() -> None:
    assert judged({}, {"filter": 1e9}) == []


def test_budgets_of_each_number_of_nodes_cover_the_same_calls() -> None:
    found = [budgets(f"load-{nodes}") for nodes in (50, 1000, 5000)]
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert {"filter", "bind", "chain"} <= found[0].keys()


def test_unknown_set_of_budgets_is_an_error() -> None:
    with pytest.raises(NoBudgets, match=r"no budgets for load-7; it has bench, bench-quick"):
        budgets("load-7")


def test_misspelt_budget_fails(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text("[load-1]\nbind = { p50_ms = 1, p98_ms = 2 }\n")
    assert not passed(judged(budgets("load-1", path), {"bind": {"p50_ms": 0.5, "p99_ms": 0.5}}))
