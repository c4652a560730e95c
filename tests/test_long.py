"""The suites of `make test-long`: each suite is a target, and each pass is noted with the commit."""

import subprocess
from pathlib import Path

import pytest

from tests import long
from tests.long import CHECKOUT, PAGE, RECORD, SUITES, main, page
from tests.unsteady import read_json, write_json


def test_each_suite_is_a_target_of_the_makefile() -> None:
    targets = (CHECKOUT / "Makefile").read_text()
    assert [each.target for each in SUITES if f"\n{each.target}:" not in targets] == []


def test_the_page_has_the_table_of_the_record() -> None:
    """If this fails: run `make docs`."""
    assert page(read_json(RECORD)) == PAGE.read_text()


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a record with an earlier pass, a page, and a Makefile."""
    (tmp_path / "page.md").write_text(PAGE.read_text())
    (tmp_path / "Makefile").write_text("chaos:\n\tfalse\nload:\n\ttrue\n")
    write_json(tmp_path / "long.json", {"chaos": {"commit": "before", "minutes": 1.0}})
    monkeypatch.setattr(long, "RECORD", tmp_path / "long.json")
    monkeypatch.setattr(long, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(long, "CHECKOUT", tmp_path)
    monkeypatch.setattr(long, "commit", lambda: "now")
    return tmp_path / "long.json"


def test_a_pass_is_noted_and_a_failure_fails_the_command_after_the_last_suite(record: Path) -> None:
    assert main(["chaos", "load"]) == 1
    kept = read_json(record)
    assert kept["chaos"]["commit"] == "before"
    assert kept["load"]["commit"] == "now"
    assert "| `now` |" in record.with_name("page.md").read_text()
    assert main(["load"]) == 0


def test_a_name_that_is_no_suite_runs_nothing(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    assert main(["load", "chaoss"]) == 2
