"""Tests of hostlist expressions: expanding, counting and compressing names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_client import hostlist


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("gpu01", ("gpu01",)),
        ("gpu[01-03,07],x5", ("gpu01", "gpu02", "gpu03", "gpu07", "x5")),
        ("gpu[8-11]", ("gpu8", "gpu9", "gpu10", "gpu11")),
        ("gpu[08-11]", ("gpu08", "gpu09", "gpu10", "gpu11")),
        ("a[1-2].example.org", ("a1.example.org", "a2.example.org")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a1, b2", ("a1", "b2")),
        ("lone", ("lone",)),
        (" a ,,b ,", ("a", "b")),
        (",", ()),
    ],
)
def test_an_expression_expands_to_its_names(expression: str, names: tuple[str, ...]) -> None:
    assert hostlist.expand(expression) == names


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        *((text, "no hostlist") for text in ("a b", "n[1", "n1]", "n[1[2]]")),
        *((text, "no number") for text in ("n[]", "n[x]", "n[1-]", "n[1-2-3]", "n[\u0663]")),
        ("n[3-1]", "ends before it begins"),
        ("n" * 256, "more than 255"),
    ],
)
def test_expanding_an_invalid_hostlist_raises_an_error(expression: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        hostlist.expand(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *("n[1-3]", "a,b,c", "a[1],b,c[7]", "a[1,2]b[1-2]"),
        *("n[1-999999999999]", "n[1-99]" * 9, "n[1-9]" + "x" * 250),
    ],
)
def test_too_many_names_are_rejected_before_they_are_expanded(expression: str) -> None:
    with pytest.raises(ValueError, match="more"):
        hostlist.expand(expression, most=2)


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("", 0),
        ("a,b,a", 3),
        ("gpu[01-03,07],x5", 5),
        ("r[1-20]n[1-30]", 600),
        ("n[1-999999999999]", 999_999_999_999),
    ],
)
def test_names_are_counted_without_being_expanded(expression: str, number: int) -> None:
    assert hostlist.count(expression, most=10**12) == number


@pytest.mark.parametrize("expression", ["a," * 10, "n[" + "1," * 10 + "1]", "n[1-9],x[", "n[1-9,x]"])
def test_counting_stops_above_the_requested_maximum(expression: str) -> None:
    assert hostlist.count(expression, most=5) > 5


@pytest.mark.parametrize("expression", ["a b", "n[1", "n[x]", "n[]", "n[3-1]", "n[1]" * 256])
def test_counting_an_invalid_hostlist_raises_an_error(expression: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hostlist.count(expression)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ((), ""),
        (("gpu07", "x5", "gpu01", "gpu03", "gpu02"), "gpu[01-03,07],x5"),
        (("n9", "n10", "n11"), "n9,n[10-11]"),
        (("a", "b"), "a,b"),
        (("n1", "n1"), "n1"),
        (("a1.org", "a2.org"), "a1.org,a2.org"),
        (("n" + "1" * 19, "n" + "2" * 19), "n" + "1" * 19 + ",n" + "2" * 19),
    ],
)
def test_names_are_compressed(names: tuple[str, ...], expression: str) -> None:
    assert hostlist.compress(names) == expression


def test_thousands_of_names_compress_to_a_few_bytes() -> None:
    assert hostlist.compress(f"node-{n:04d}" for n in range(5000)) == "node-[0000-4999]"


@given(st.sets(st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}(x[0-9]{1,2})?", fullmatch=True)))
def test_compressing_loses_nothing(names: set[str]) -> None:
    assert set(hostlist.expand(hostlist.compress(names))) == names
