"""Tests of job ids and job keys. A job id can be computed again from the key, and the key names the
workload of the job."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wellknown.job_key import JobIdRange, PlaceholderKey, job_name

IDS = JobIdRange()
PART = st.text(alphabet=st.characters(exclude_characters="/", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(1, 10**6), st.integers(0, 10**3)
KEYS = st.builds(PlaceholderKey, PART, PART, PART, PART, *NUMBERS, PART)
KEY = PlaceholderKey("prod", "default", "p", "4bdf6d45-03c1-446f-97f1-6397df445d62", 2, 1)


@given(
    st.from_regex(r"[a-z0-9.-]{1,253}", fullmatch=True),
    st.from_regex(r"[a-z0-9-]{1,63}", fullmatch=True),
)
def test_job_name_has_the_name_and_namespace_of_the_pod(name: str, namespace: str) -> None:
    called = job_name(namespace, name)
    assert called.startswith(name)
    assert called.split("@") == [name, namespace]


def test_text_of_a_key_is_readable_in_squeue() -> None:
    expected = "slurm-extender/prod/default/p/4bdf6d45-03c1-446f-97f1-6397df445d62/2.1"
    assert str(KEY) == expected


@given(KEYS)
def test_key_is_read_back_from_its_text(key: PlaceholderKey) -> None:
    assert PlaceholderKey.parse(str(key)) == key


@given(st.text().filter(lambda text: not text.startswith("slurm-extender/")))
def test_a_foreign_admin_comment_is_no_key(text: str) -> None:
    assert PlaceholderKey.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm-extender",
        "slurm-extender/prod/default/p/u",
        "slurm-extender/prod/default/p/u/1",
        "slurm-extender/prod/default/p/u/1.",
        "slurm-extender/prod/default/p/u/.0",
        "slurm-extender/prod/default/p/u/-1.0",
        "slurm-extender/prod/default/p/u/1.0.0",
        "slurm-extender/prod/default/p/u/1.0/generation/more",
        "slurm-extenderx/prod/default/p/u/1.0",
        " slurm-extender/prod/default/p/u/1.0",
    ],
)
def test_malformed_key_is_not_read(text: str) -> None:
    assert PlaceholderKey.parse(text) is None


@given(st.lists(st.text(), min_size=5, max_size=5))
@example(["c", "n", "p", "u", "1" * 5000 + ".0"])
@example(["c", "n", "p", "u", "1." + "1" * 5000])
def test_any_admin_comment_is_parsed_without_an_exception(parts: list[str]) -> None:
    key = PlaceholderKey.parse("/".join(["slurm-extender", *parts]))
    assert key is None or key.uid == parts[3]


def test_job_id_is_the_same_in_each_release() -> None:
    """If a release computed ids differently, an upgrade would orphan every placeholder."""
    assert KEY.job_id(IDS) == 55_189_157


@given(KEYS, st.integers(1, 2**26), st.integers(1, 2**26))
def test_job_id_is_within_its_range(key: PlaceholderKey, first: int, size: int) -> None:
    ids = JobIdRange(first, first + size)
    assert key.job_id(ids) in ids
    assert first <= key.job_id(ids) < first + size


def test_cluster_workload_attempt_and_try_each_change_the_job_id() -> None:
    others = [
        PlaceholderKey("test", KEY.namespace, KEY.name, KEY.uid, 2, 1),
        PlaceholderKey("prod", KEY.namespace, KEY.name, "another", 2, 1),
        PlaceholderKey("prod", KEY.namespace, KEY.name, KEY.uid, 3, 1),
        PlaceholderKey("prod", KEY.namespace, KEY.name, KEY.uid, 2, 2),
        PlaceholderKey("prod", KEY.namespace, KEY.name, KEY.uid, 21, 0),
    ]
    assert len({key.job_id(IDS) for key in [KEY, *others]}) == 6


def test_ids_spread_over_the_whole_range() -> None:
    eighth = (IDS.end - IDS.first) // 8
    ids = [PlaceholderKey("c", "n", "p", f"u{i}", 1).job_id(IDS) for i in range(400)]
    assert {(job_id - IDS.first) // eighth for job_id in ids} >= set(range(8))


def test_range_excludes_its_end() -> None:
    ids = JobIdRange(10, 12)
    assert [job_id in ids for job_id in (9, 10, 11, 12)] == [False, True, True, False]


@pytest.mark.parametrize(("first", "end"), [(0, 5), (-1, 5), (5, 5), (6, 5)])
def test_an_empty_range_is_refused(first: int, end: int) -> None:
    with pytest.raises(ValueError, match="is empty"):
        JobIdRange(first, end)


SECRET = b"known to the replicas"
