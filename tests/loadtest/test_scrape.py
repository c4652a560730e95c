"""Tests of the readers of counters and histograms on pages of metrics."""

from http import HTTPStatus
from math import inf

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Counted

from extender.telemetry import Telemetry
from loadtest.harness.meters import VERB_SECONDS, Histogram, sums

COUNTERS = """\
# HELP calls_total Requests.
# TYPE calls_total counter
calls_total{call="GET nodes",status="200"} 3.0
calls_total{call="GET node",status="200"} 4.0
calls_total{call="GET node",status="500"} 1.0
calls_total_else{call="GET node",status="200"} 9.0
# TYPE up gauge
up 1
upper 9
"""


def histogram(*at_most: float) -> Histogram:
    """Returns a histogram. The arguments are the numbers of observations up to 1 ms, up to 5 ms, up to
    20 ms, and in total."""
    return Histogram(dict(zip((0.001, 0.005, 0.02, inf), at_most, strict=True)))


def page(*seconds: float) -> str:
    """Returns a page of metrics with one request to /filter for each duration, and with requests that
    must not count."""
    registry = CollectorRegistry()
    counted = Counted(
        "verb_seconds", "Requests.", ["verb", "status"], registry=registry, buckets=(0.001, 0.005)
    )
    for each in seconds:
        counted.labels("filter", "200").observe(each)
    counted.labels("filter", "500").observe(0.002)
    counted.labels("bind", "200").observe(0.0)
    return generate_latest(registry).decode()


# Counters


def test_counter_is_summed_over_matching_labels() -> None:
    assert sums(COUNTERS, "calls_total") == {(): 8}
    assert sums(COUNTERS, "calls_total", call="GET node") == {(): 5}
    assert sums(COUNTERS, "calls_total", call="GET node", status="200") == {(): 4}
    assert sums(COUNTERS, "calls_total", call="POST node") == {}
    assert sums(COUNTERS, "up") == {(): 1}


def test_sums_are_grouped_by_label() -> None:
    assert sums(COUNTERS, "calls_total", "call") == {("GET nodes",): 3, ("GET node",): 5}
    assert sums(COUNTERS, "calls_total", "status", "call", call="GET node") == {
        ("200", "GET node"): 4,
        ("500", "GET node"): 1,
    }
    assert sums(COUNTERS, "calls_total", "zone") == {("",): 8}


# Histograms


def test_buckets_may_be_in_any_order() -> None:
    found = Histogram({inf: 4.0, 0.005: 3.0, 0.001: 1.0})
    assert found.longest_ms() == [1.0, 5.0, 5.0, inf]
    assert found.percentile_ms(50) == pytest.approx(3.0)


def test_histograms_with_matching_labels_are_summed() -> None:
    told = page(0.001, 0.0011, 0.004, 7.0)
    found = Histogram.of(told, "verb_seconds", verb="filter", status="200")
    assert found == Histogram({0.001: 1, 0.005: 3, inf: 4})
    assert Histogram.of(told, "verb_seconds", verb="filter") == Histogram({0.001: 1, 0.005: 4, inf: 5})


def test_observations_before_the_first_page_do_not_count() -> None:
    """Before the first page, all observations were slow, and all later observations are quick."""
    found = histogram(100, 200, 200, 1200).since(histogram(0, 100, 100, 1100))
    assert found.count == 100
    assert found.percentile_ms(99) == pytest.approx(0.99)


def test_all_observations_count_without_an_earlier_page() -> None:
    assert histogram(1, 2, 3, 4).since(Histogram()) == histogram(1, 2, 3, 4)


@pytest.mark.parametrize(("percent", "ms"), [(25, 0.5), (75, 3.0), (95, 4.6)])
def test_a_percentile_lies_within_its_bucket(percent: float, ms: float) -> None:
    assert histogram(100, 200, 200, 200).percentile_ms(percent) == pytest.approx(ms)


@pytest.mark.parametrize(
    ("at_most", "percent", "ms"),
    [
        ((100, 200, 200, 200), 50, 1.0),
        ((100, 100, 200, 200), 50, 1.0),
        ((0, 0, 99, 100), 99, 20.0),
        ((0, 100, 100, 100), 100, 5.0),
    ],
    ids=["another right above", "others far above", "the last bound", "none above"],
)
def test_percentile_at_the_last_rank_of_a_bucket_is_its_bound(
    at_most: tuple[float, ...], percent: float, ms: float
) -> None:
    assert histogram(*at_most).percentile_ms(percent) == pytest.approx(ms)


def test_percentile_above_the_last_bound_is_infinite() -> None:
    assert histogram(0, 0, 98, 100).percentile_ms(99) == inf


def test_empty_histogram_has_no_percentile() -> None:
    assert Histogram().percentile_ms(99) is None
    assert histogram(1, 2, 3, 4).since(histogram(1, 2, 3, 4)).percentile_ms(99) is None
    assert Histogram().count == 0


def test_each_observation_counts_as_the_bound_of_its_bucket() -> None:
    told = page(0.004, 0.0003, 7.0, 0.002)
    found = Histogram.of(told, "verb_seconds", verb="filter", status="200")
    assert found.longest_ms() == [1.0, 5.0, 5.0, inf]
    assert Histogram().longest_ms() == []


def test_metrics_separate_verbs_and_failures() -> None:
    telemetry = Telemetry()
    took_ms = (0.3, 1.6, 3.2, 4.4, 40.0)
    for ms in took_ms:
        telemetry.http.answered("/scheduler/filter", HTTPStatus.OK, ms / 1000)
    telemetry.http.answered("/scheduler/filter", HTTPStatus.INTERNAL_SERVER_ERROR, 9.0)
    telemetry.http.answered("/scheduler/bind", HTTPStatus.OK, 9.0)
    told = generate_latest(telemetry.registry).decode()
    longest = Histogram.of(told, VERB_SECONDS, verb="filter", status="200").longest_ms()
    assert all(ms <= at_longest for ms, at_longest in zip(took_ms, longest, strict=True))
    assert longest[-1] < 9000
