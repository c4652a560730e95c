"""Tests of the arithmetic of Kubernetes' resources: quantities, and what a Pod requests."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import container
from tests.hostile import least
from wellknown.resources import (
    MEBIBYTE,
    effective_limits,
    effective_requests,
    in_millis,
    mebibytes,
    parse_quantity,
    whole,
)

KUBERNETES_LARGEST = 2**63 - 1
GI = 1 << 30


def cpus(*apps: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **spec: Any) -> Decimal:
    spec = {"containers": list(apps), "initContainers": list(init), **spec}
    return effective_requests(spec)["cpu"]


def app(cpu: str) -> dict[str, Any]:
    return container({"cpu": cpu})


def sidecar(cpu: str) -> dict[str, Any]:
    return container({"cpu": cpu}, sidecar=True)


# Limits


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        ({"containers": [container({"cpu": "1"}, limits={"cpu": "3"}), app("2")]}, 5),
        ({"containers": [container({"cpu": "1"})]}, 1),
        ({"containers": [container(limits={"cpu": "2"})]}, 2),
        ({"containers": [app("1")], "initContainers": [container(limits={"cpu": "4"})]}, 4),
        (
            {"containers": [app("1")], "initContainers": [container(limits={"cpu": "4"}, sidecar=True)]},
            5,
        ),
        ({"containers": [container(limits={"cpu": "4"})], "resources": {"limits": {"cpu": "3"}}}, 3),
        ({"containers": [container(limits={"cpu": "4"})], "resources": {"requests": {"cpu": "9"}}}, 4),
        ({"containers": [container(limits={"cpu": "4"})], "overhead": {"cpu": "1"}}, 5),
    ],
)
def test_effective_limit_of_cpu_comes_from_the_limits_of_the_pod(
    spec: dict[str, Any], most: int
) -> None:
    assert effective_limits(spec)["cpu"] == most


# Quantities


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("-2", -2),
        ("2.", 2),
        (".5", Decimal("0.5")),
        ("500m", Decimal("0.5")),
        ("250u", Decimal("0.00025")),
        ("10n", Decimal("1e-8")),
        ("3k", 3000),
        ("3M", 3 * 10**6),
        ("3G", 3 * 10**9),
        ("3T", 3 * 10**12),
        ("3P", 3 * 10**15),
        ("3E", 3 * 10**18),
        ("1Ki", 1024),
        ("1Mi", 1 << 20),
        ("1.5Gi", 3 * GI // 2),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Decimal("1.2")),
        (2, 2),
        (0.5, Decimal("0.5")),
    ],
)
def test_a_quantity_is_read_in_its_base_unit(text: str | float, amount: Decimal | int) -> None:
    assert parse_quantity(text) == amount


NOT_QUANTITIES = [
    "",
    " ",
    "1 ",
    "1 Gi",
    "Gi",
    "1K",
    "1gi",
    "1GiB",
    "1e",
    "1e1.5",
    "--1",
    "1,5",
    "nan",
    "inf",
]
NOT_QUANTITIES += ["0x10", "1\n", "1Gi\n", "\N{ARABIC-INDIC DIGIT THREE}"]


@pytest.mark.parametrize(
    "text", ["1e28", "-1e28", "-1.0000000000000002e28", "10000000000Gi", "-9223372036854775808.5"]
)
def test_quantity_beyond_64_bits_is_too_large(text: str) -> None:
    with pytest.raises(ValueError, match="is too large a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", NOT_QUANTITIES)
def test_text_that_kubernetes_rejects_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@given(st.text() | st.from_regex(r"[0-9.+-]{0,6}[numkKMGTPEie+-]{0,3}[0-9]{0,9}", fullmatch=True))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        amount = parse_quantity(text)
    except ValueError:
        return
    assert abs(amount) <= KUBERNETES_LARGEST


@pytest.mark.parametrize("text", ["1e30", "1e400", "1e999999", "1e9999999", "9" * 5000, "100Ei"])
def test_no_quantity_exceeds_the_largest_quantity_of_kubernetes(text: str) -> None:
    try:
        assert parse_quantity(text) <= KUBERNETES_LARGEST
    except ValueError as refusal:
        assert len(str(refusal)) < 1000  # noqa: PT017 -- either is right


@given(st.decimals(0, 10**15, places=3))
def test_quantity_in_milli_units_is_read_back(amount: Decimal) -> None:
    assert parse_quantity(f"{int(amount * 1000)}m") == amount


@given(st.integers(0, 2**22), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]))
def test_binary_suffixes_are_powers_of_1024(count: int, suffix: str) -> None:
    power = 1 + ["Ki", "Mi", "Gi", "Ti"].index(suffix)
    assert parse_quantity(f"{count}{suffix}") == count * 1024**power


@pytest.mark.parametrize(("text", "pieces"), [("1", 1), ("1001m", 2), ("1n", 1), ("0", 0)])
def test_cpus_are_rounded_up_to_whole_cpus(text: str, pieces: int) -> None:
    assert whole(parse_quantity(text)) == pieces


@pytest.mark.parametrize(
    ("text", "megabytes"), [("1Mi", 1), ("1", 1), ("1M", 1), ("1049k", 2), ("1Gi", 1024)]
)
def test_memory_is_rounded_up_to_mebibytes(text: str, megabytes: int) -> None:
    assert mebibytes(parse_quantity(text)) == megabytes


MOST = st.integers(0, KUBERNETES_LARGEST)


@given(MOST | st.builds(Decimal, st.integers(0, KUBERNETES_LARGEST * 1000)).map(lambda n: n / 1000))
def test_requested_memory_exceeds_the_pod_by_less_than_a_mebibyte(asked: int | Decimal) -> None:
    more = Fraction(mebibytes(Decimal(asked)) * MEBIBYTE) - Fraction(asked)
    assert 0 <= more < MEBIBYTE


@given(MOST, st.integers(1, 1_024_000))
def test_requested_cpus_exceed_the_pod_by_less_than_one_cpu_unit(asked: int, unit: int) -> None:
    """`asked` and `unit` are numbers of thousandths of a CPU."""
    more = whole(Decimal(asked) / 1000, Decimal(unit) / 1000) * unit - asked
    assert 0 <= more < unit


@given(st.integers(1, 2**40))
def test_cpus_are_written_as_kubernetes_writes_them(millis: int) -> None:
    assert parse_quantity(in_millis(Decimal(millis) / 1000)) * 1000 == millis


@pytest.mark.parametrize(("cpus", "text"), [("2", "2"), ("1.5", "1500m"), (".1", "100m"), ("0", "0")])
def test_whole_cpus_are_written_whole(cpus: str, text: str) -> None:
    assert in_millis(Decimal(cpus)) == text


# Resources of a Pod


def test_requests_of_containers_are_summed() -> None:
    assert cpus(app("1"), app("500m")) == Decimal("1.5")


def test_each_resource_is_summed_separately() -> None:
    spec = {"containers": [container({"cpu": "1", "memory": "1Gi"}), container({"nvidia.com/gpu": "2"})]}
    assert effective_requests(spec) == {"cpu": 1, "memory": GI, "nvidia.com/gpu": 2}


def test_init_container_counts_only_if_it_requests_more() -> None:
    assert cpus(app("2"), init=(app("1"),)) == 2
    assert cpus(app("2"), init=(app("3"),)) == 3


def test_largest_init_container_counts() -> None:
    assert cpus(app("1"), init=(app("2"), app("3"), app("2"))) == 3


def test_init_container_may_request_a_resource_of_its_own() -> None:
    spec = {"containers": [app("1")], "initContainers": [container({"nvidia.com/gpu": "1"})]}
    assert effective_requests(spec) == {"cpu": 1, "nvidia.com/gpu": 1}


@pytest.mark.alone
def test_requests_of_thousands_of_sidecars_are_summed_quickly() -> None:
    """The extender computes the requests of every Pod on a Node in this way, and other schedulers may
    have placed Pods with any number of containers."""
    holders = [container({f"example.com/{n}": "1"}, sidecar=True) for n in range(5_000)]
    amounts: list[dict[str, Decimal]] = []
    took = least(lambda: amounts.append(effective_requests({"initContainers": holders})), 0.1)
    assert took < 0.1
    assert amounts[0] == {f"example.com/{n}": 1 for n in range(5_000)}


def test_requests_of_sidecars_and_containers_are_summed() -> None:
    assert cpus(app("1"), init=(sidecar("2"), sidecar("3"))) == 6


def test_an_init_container_runs_beside_the_sidecars_started_before_it() -> None:
    assert cpus(app("1"), init=(sidecar("2"), app("4"))) == 6


def test_an_init_container_runs_before_the_sidecars_listed_after_it() -> None:
    assert cpus(app("1"), init=(app("4"), sidecar("2"))) == 4


def test_overhead_is_added_to_the_requests() -> None:
    assert cpus(app("1"), init=(app("3"),), overhead={"cpu": "250m"}) == Decimal("3.25")


def test_pod_level_requests_replace_requests_of_containers() -> None:
    spec = {
        "containers": [container({"cpu": "1", "memory": "1Gi"})],
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "1"},
    }
    assert effective_requests(spec) == {"cpu": 5, "memory": GI}


def test_pod_level_limits_count_if_no_container_has_requests() -> None:
    spec = {"containers": [{"name": "c"}], "resources": {"limits": {"cpu": "4"}}}
    assert effective_requests(spec) == {"cpu": 4}


def test_pod_level_limits_do_not_change_requests_of_containers() -> None:
    """The rule is in Kubernetes' pkg/apis/core/v1/defaults.go, defaultPodRequests."""
    assert cpus(app("1"), resources={"limits": {"cpu": "4"}}) == 1


def test_limit_without_a_request_counts_as_the_request() -> None:
    assert cpus(container(limits={"cpu": "2"})) == 2


def test_request_counts_instead_of_its_limit() -> None:
    assert cpus(container({"cpu": "1"}, limits={"cpu": "2"})) == 1


@pytest.mark.parametrize("spec", [{}, {"containers": None, "initContainers": None, "overhead": None}])
def test_spec_without_requests_reserves_nothing(spec: dict[str, Any]) -> None:
    assert effective_requests(spec) == {}


@pytest.mark.parametrize("resources", [None, {}, {"requests": None, "limits": None}])
def test_container_may_omit_its_resources(resources: dict[str, Any] | None) -> None:
    assert effective_requests({"containers": [{"name": "c", "resources": resources}]}) == {}


AMOUNT = st.integers(0, 8)


@given(st.lists(AMOUNT), st.lists(st.tuples(AMOUNT, st.booleans())))
def test_reservation_is_the_largest_use_at_any_moment_of_the_pod(
    apps: list[int], starts: list[tuple[int, bool]]
) -> None:
    """The test implements KEP-753 in another way: the test replays the start of the Pod, and takes the
    largest use at any moment."""
    running, moments = 0, [0]
    for amount, lingering_pods in starts:
        moments.append(running + amount)
        running += amount if lingering_pods else 0
    moments.append(running + sum(apps))
    init = tuple(sidecar(str(n)) if lingering_pods else app(str(n)) for n, lingering_pods in starts)
    assert cpus(app("0"), *(app(str(n)) for n in apps), init=init) == max(moments)
