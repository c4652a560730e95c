"""Tests of the record of unsteady tests: new runs are added, tests that were unsteady twice are found,
and fixed tests are removed."""

from pathlib import Path

import orjson
import pytest

from tests import unsteady
from tests.unsteady import RECORD, Unsteady, fixed, main, record, record_last, repeated, write_run

EMPTY: dict[str, list[dict[str, object]]] = {"runs": [], "fixed": []}


def _run(*tests: str) -> dict[str, object]:
    return {"commit": "c", "unsteady": [{"test": test} for test in tests]}


def test_no_test_is_unsteady_in_two_recorded_runs() -> None:
    """If this test fails, find and fix the cause of the unsteady test. Then run `python -m
    tests.unsteady fixed TEST CAUSE`."""
    assert repeated(orjson.loads(RECORD.read_bytes())) == []


def test_unsteady_test_of_two_runs_is_listed_until_it_is_fixed() -> None:
    once = record(_run("a", "b"), EMPTY)
    assert repeated(once) == []
    twice = record(_run("a"), record(_run(), once))
    assert repeated(twice) == ["a"]
    after_fix = fixed("a", "the port was given back too early", twice)
    assert repeated(after_fix) == []
    assert after_fix["fixed"] == [{"test": "a", "cause": "the port was given back too early"}]
    assert repeated(record(_run("b"), after_fix)) == ["b"]


def test_record_keeps_the_last_twenty_runs() -> None:
    kept = record(_run("a"), EMPTY)
    for _ in range(19):
        kept = record(_run(), kept)
    assert repeated(record(_run("a"), kept)) == []
    assert len(record(_run("a"), kept)["runs"]) == 20


def test_steady_test_cannot_be_marked_as_fixed() -> None:
    with pytest.raises(KeyError):
        fixed("a", "no cause", EMPTY)


def test_record_adds_a_run_and_removes_a_fixed_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = tmp_path / "build" / "unsteady.json", tmp_path / "record.json"
    monkeypatch.setattr(unsteady, "RUN", run)
    monkeypatch.setattr(unsteady, "RECORD", kept)
    kept.write_bytes(orjson.dumps(EMPTY))
    write_run(run, [Unsteady("a", "first", "second")])
    assert orjson.loads(run.read_bytes())["unsteady"] == [
        {"test": "a", "first_log": "first", "second_log": "second"}
    ]
    record_last()
    assert main(["fixed", "a", "a cause"]) == 0
    assert [run["unsteady"] for run in orjson.loads(kept.read_bytes())["runs"]] == [[]]
