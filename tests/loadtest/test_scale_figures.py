"""The sums behind the figures of a run at scale."""

import pytest

from loadtest.bench_restart import Restart
from loadtest.scale_figures import Flap, Phase, Scale, Spread, Start
from loadtest.scale_page import with_figures


def found(
    rss_mb: float = 400, filter_ms: float | None = 2.0, held_ms: float = 20, ready_s: float = 5
) -> Scale:
    held = Spread(10, 1, 2, held_ms)
    phase = Phase(45, held, held, Spread(450, 30, 90, 200), 900, filter_ms, held, 20, rss_mb)
    return Scale(
        5000,
        50_000,
        Start(4, 5, 300),
        {"steady": phase, "relist": phase},
        3.0,
        {"cordoned": Flap(8, 90, 6.0, 4.0)},
        {"InLine": 49_000},
        Restart(10_000, ready_s, 6, 7, 200),
        rss_mb,
    )


def test_a_run_within_all_budgets_passes() -> None:
    assert found().passes


@pytest.mark.parametrize(
    ("over", "words"),
    [
        (found(rss_mb=501), "501.0 MB at most"),
        (found(filter_ms=5.1), "5.1 ms, p99 of /filter, steady"),
        (found(filter_ms=None), "p99 of /filter, steady: nothing was measured"),
        (found(held_ms=51), "51.0 ms, the event loop's longest hold, steady"),
        (found(ready_s=10.5), "10.5 s until 10000 placeholders are found"),
    ],
)
def test_one_figure_over_its_budget_fails_the_run_and_is_said(over: Scale, words: str) -> None:
    assert not over.passes
    (first, *_) = (verdict.words for verdict in over.verdicts() if not verdict.kept)
    assert words in first


# The page


def test_new_figures_take_the_place_of_those_before_and_nothing_else() -> None:
    page = "# Scale\n<!-- figures -->\nyesterday\n<!-- end of figures -->\nWords.\n"
    told = with_figures(page, found(rss_mb=432).as_json())
    assert told.startswith("# Scale\n<!-- figures -->\n|")
    assert told.endswith("<!-- end of figures -->\nWords.\n")
    assert "432 MB" in told
    assert "yesterday" not in told


def test_a_page_without_a_place_for_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks <!-- figures -->"):
        with_figures("# Scale\n", found().as_json())
