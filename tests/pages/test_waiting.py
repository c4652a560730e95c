"""Compares docs/concepts/waiting.md and docs/reference/reasons.md with the code."""

from __future__ import annotations

import pytest

from deploy.local.layout import CHECKOUT
from extender.pages import renewed
from extender.record.config import PlacementConfig
from tests.placement.test_waiting import EXAMPLES, GRANTED

PAGE = (CHECKOUT / "docs" / "concepts" / "waiting.md").read_text()
REASONS = "docs/reference/reasons.md"


def test_table_is_generated_from_the_code() -> None:
    page = (CHECKOUT / REASONS).read_text()
    assert renewed(REASONS, page) == page, "run `make docs`"


def test_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed(REASONS, "# Reasons of a waiting Pod\n")


@pytest.mark.parametrize("words", [*EXAMPLES, GRANTED])
def test_page_shows_the_messages_of_waiting_pods(words: str) -> None:
    assert words in " ".join((PAGE + (CHECKOUT / REASONS).read_text()).split())


def test_page_has_the_intervals_of_reports_and_retries() -> None:
    rules, reasons = PlacementConfig(), (CHECKOUT / REASONS).read_text()
    assert f"every {rules.report_interval / 60:.0f} minutes" in PAGE
    assert f"every {rules.reason_interval:.0f} s" in PAGE
    first, longest = (seconds / 60 for seconds in rules.retry)
    assert f"after {first:g} to {1.25 * first:g} minutes" in reasons
    assert f"up to {longest:g} minutes" in reasons
    assert f"within {rules.retry_touched:g} seconds" in reasons
