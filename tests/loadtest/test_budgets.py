"""What a load run is held to."""

from pathlib import Path

import pytest

from loadtest.budgets import BUDGETS, Budget, Calls, budgets, verdicts

HUNDRED = [float(ms) for ms in range(1, 101)]


def told(calls: Calls, budget: Budget) -> list[str]:
    return [f"{v.word}: {v.words}" for v in verdicts({"bind": budget}, {"bind": calls})]


def test_what_is_within_its_budget_is_kept() -> None:
    assert told(Calls([*HUNDRED]), Budget(50, 99)) == [
        "kept: bind p50: 50.0 ms (budget: 50 ms)",
        "kept: bind p99: 99.0 ms (budget: 99 ms)",
        "kept: bind: 0 of 100 failed (budget: 0.0%)",
    ]


def test_what_is_over_says_by_how_much() -> None:
    calls = Calls([*HUNDRED], failed=2)
    assert told(calls, Budget(49.5, 90, failures=0.01)) == [
        "FALLS SHORT: bind p50: 50.0 ms, 0.5 ms over (budget: 49.5 ms)",
        "FALLS SHORT: bind p99: 99.0 ms, 9.0 ms over (budget: 90 ms)",
        "FALLS SHORT: bind: 2 of 100 failed (budget: 1.0%)",
    ]


def test_a_call_that_was_never_made_keeps_no_budget() -> None:
    (verdict,) = verdicts({"bind": Budget(50, 99)}, {"filter": Calls([1.0])})
    assert not verdict.kept
    assert verdict.words == "bind: there was no such call"


def test_what_has_no_budget_is_not_judged() -> None:
    assert verdicts({}, {"filter": Calls([1e9], failed=1)}) == []


def test_the_budgets_of_every_number_of_nodes_are_about_the_same_calls() -> None:
    found = [budgets(BUDGETS, nodes) for nodes in (50, 1000, 5000)]
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert {"filter", "prioritize", "bind", "chain"} <= found[0].keys()


def test_a_number_of_nodes_without_budgets_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no budgets for 7 Nodes; it has nodes-50, nodes-1000"):
        budgets(BUDGETS, 7)


def test_a_budget_that_is_misspelt_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text("[nodes-1]\nbind = { p50_ms = 1, p98_ms = 2 }\n")
    with pytest.raises(ValueError, match=r"bind: .*p98_ms"):
        budgets(path, 1)
