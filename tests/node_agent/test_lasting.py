"""Tests of `Lasting`, which returns only findings that have lasted for some seconds without a pause."""

from __future__ import annotations

from node_agent.enforcement.lasting import Lasting


def test_finding_lasts_after_five_seconds_without_a_gap() -> None:
    now = 0.0
    lasting = Lasting[str](lambda: now)
    seen: list[list[str]] = []
    for at, findings in ((0, "ab"), (4, "abc"), (5, "ac"), (8, "abc"), (9, "abc")):
        now = at
        seen.append(lasting.of(findings))
    assert seen == [[], [], ["a"], ["a"], ["a", "c"]]
