"""docs/waiting.md, and the code that it tells of."""

from __future__ import annotations

import pytest

from deploy.local.layout import CHECKOUT
from extender.pages import renewed
from extender.record.config import PlacementConfig
from tests.placement.test_waiting import EXAMPLES, GRANTED

PAGE = CHECKOUT / "docs" / "waiting.md"


def test_the_table_is_what_the_code_does() -> None:
    assert renewed("docs/waiting.md", PAGE.read_text()) == PAGE.read_text(), "run `make docs`"


def test_a_page_without_a_place_for_the_table_is_told() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed("docs/waiting.md", "# Why a Pod waits\n")


@pytest.mark.parametrize("words", [*EXAMPLES, GRANTED])
def test_what_the_page_shows_is_what_a_pod_is_told(words: str) -> None:
    assert words in " ".join(PAGE.read_text().split())


def test_the_page_has_the_pace() -> None:
    rules = PlacementConfig()
    assert f"every {rules.report_interval / 60:.0f} minutes" in PAGE.read_text()
    assert f"every {rules.reason_interval:.0f} s" in PAGE.read_text()
    first, longest = (seconds / 60 for seconds in rules.retry)
    assert f"after {first:g} to {1.25 * first:g} minutes" in PAGE.read_text()
    assert f"up to {longest:g} minutes" in PAGE.read_text()
    assert f"within {rules.retry_touched:g} seconds" in PAGE.read_text()
