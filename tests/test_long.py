"""Tests of `python -m tests.long` (`make test-long`): each suite is a target of the Makefile, and each
pass is recorded with its commit."""

import subprocess
from pathlib import Path

import pytest

from tests import long
from tests.long import CHECKOUT, PAGE, RECORD, SUITES, main, page
from tests.unsteady import read_json, write_json

MAKEFILE = """
chaos:
\tfalse
load:
\ttrue
bench-quick:
\tgrep -q now long.json
bench:
\techo >> Makefile
"""
IDENTITY = ("-c", "user.name=tester", "-c", "user.email=tester@example.com")


def test_each_suite_is_a_target_of_the_makefile() -> None:
    targets = (CHECKOUT / "Makefile").read_text()
    assert [each.target for each in SUITES if f"\n{each.target}:" not in targets] == []


def test_page_shows_the_table_of_the_record() -> None:
    """If this test fails, run `make docs`."""
    assert page(read_json(RECORD)) == PAGE.read_text()


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commits a record with an earlier pass, a page, and a Makefile. The Makefile's last target passes
    only if the pass of the target before is already recorded."""
    (tmp_path / "page.md").write_text(PAGE.read_text())
    (tmp_path / "Makefile").write_text(MAKEFILE)
    write_json(tmp_path / "long.json", {"chaos": {"commit": "before", "minutes": 1.0}})
    monkeypatch.setattr(long, "RECORD", tmp_path / "long.json")
    monkeypatch.setattr(long, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(long, "CHECKOUT", tmp_path)
    monkeypatch.setattr(long, "commit", lambda: "now")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *IDENTITY, *command], cwd=tmp_path, check=True)
    return tmp_path / "long.json"


def test_pass_is_recorded_and_failure_fails_the_command_at_the_end(record: Path) -> None:
    assert main(["chaos", "load"]) == 1
    kept = read_json(record)
    assert kept["chaos"]["commit"] == "before"
    assert kept["load"]["commit"] == "now"
    assert "| `now` |" in record.with_name("page.md").read_text()
    assert main(["load"]) == 0


def test_pass_is_recorded_before_the_next_suite_runs(record: Path) -> None:
    assert main(["load", "bench-quick"]) == 0
    assert read_json(record)["bench-quick"]["commit"] == "now"


@pytest.mark.parametrize("changed", ["Makefile", "new_module.py"])
def test_pass_with_uncommitted_changes_is_not_recorded(
    record: Path, changed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with record.with_name(changed).open("a") as file:
        file.write("\n")
    assert main(["load"]) == 0
    assert "load passed, not noted" in capfd.readouterr().err
    assert "load" not in read_json(record)


def test_pass_is_not_recorded_after_a_change_during_the_run(record: Path) -> None:
    assert main(["bench"]) == 0
    assert "bench" not in read_json(record)


def test_unknown_name_of_a_suite_runs_nothing(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    assert main(["load", "chaoss"]) == 2
