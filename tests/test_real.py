"""Tests of `tests.real`: a failed test gets a single second try, while no other test runs."""

from pathlib import Path

import orjson
import pytest

from tests import real, unsteady
from tests.real import Run, files, main, run, times

UNSTEADY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("which", {which!r})
@pytest.mark.xdist_group("tests/test_it.py 26.05")
def test_it(which):
    first = Path(__file__).with_name(f"{{which}}.tried")
    tried = first.exists()
    print("printed by the", "second" if tried else "first", "try")
    first.touch()
    assert tried and which != "broken"
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> "Runs":
    return Runs(tmp_path, monkeypatch, capfd)


class Runs:
    """Runs tests in a folder. Each test fails at the first try."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._folder, self._capfd = folder, capfd
        monkeypatch.chdir(folder)
        (folder / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")

    def __call__(self, *which: str, options: tuple[str, ...] = ()) -> tuple[Run, str]:
        """Runs one test for each of the parameters `which`. Returns the result, and the text on
        stderr."""
        (self._folder / "test_it.py").write_text(UNSTEADY.format(which=which))
        return run(["test_it.py", *options], max_retried=2), self._capfd.readouterr().err


@pytest.mark.parametrize("options", [(), ("-n", "2", "--dist", "loadgroup")])
def test_pass_at_the_second_try_is_reported_as_unsteady(runs: Runs, options: tuple[str, ...]) -> None:
    result, output = runs("a@b", "c", options=options)
    names = ["test_it.py::test_it[a@b]", "test_it.py::test_it[c]"]
    assert result.status == 0
    assert output == f"unsteady, passed at the second time: {' '.join(names)}\n"
    assert [each.test for each in result.unsteady] == names
    for each in result.unsteady:
        assert "assert tried" in each.first_log
        assert "printed by the first try" in each.first_log
        assert "printed by the second try" in each.second_log
        assert "assert tried" not in each.second_log


def test_times_counts_the_seconds_of_each_file(runs: Runs) -> None:
    result, _ = runs("a", "c")
    found = times([result], 0.5)
    assert found["processors_busy"] == 0.5
    assert list(found["seconds"]) == ["test_it.py"]


@pytest.mark.parametrize("which", [("a", "broken"), ("a", "b", "c")])
def test_second_failure_or_too_many_failures_fail_the_run(runs: Runs, which: tuple[str, ...]) -> None:
    result, output = runs(*which)
    assert (result.status, result.unsteady, output) == (1, (), "")


def test_killed_pytest_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text("import os\ndef test_it(): os.kill(os.getpid(), 9)\n")
    monkeypatch.chdir(tmp_path)
    assert run(["test_it.py"]).status == -9


def test_wrong_usage_of_pytest_fails_the_run(runs: Runs) -> None:
    result, _ = runs("a", options=("-m", "no expression at all"))
    assert result.status == 4


def test_only_files_with_the_marker_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    marked = "pytestmark = pytest.mark.real\n"
    texts = {
        "tests/test_fast.py": "",
        "tests/test_real.py": marked,
        "tests/contract/conftest.py": marked,
        "tests/contract/test_both.py": "",
        "tests/contract/deep/test_deep.py": "",
        "tests/test_alone.py": f"{marked}pytest.mark.alone",
        "tests/test_alone_and_fast.py": "pytest.mark.alone",
        "fast/test_fast.py": "",
    }
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    assert files(["--all-releases", "tests", "fast", "tests/test_fast.py::test_a"]) == [
        "--all-releases",
        "tests/contract/deep/test_deep.py",
        "tests/contract/test_both.py",
        "tests/test_alone.py",
        "tests/test_real.py",
        "fast",
        "tests/test_fast.py::test_a",
    ]
    assert files(["tests"], "alone") == ["tests/test_alone.py"]


SIDE_BY_SIDE, ALONE, BROKEN = (
    f"import pytest\n{marks}\ndef test_it(): assert {passes}\n"
    for marks, passes in (
        ("@pytest.mark.real", True),
        ("@pytest.mark.real\n@pytest.mark.alone", True),
        ("@pytest.mark.real\n@pytest.mark.alone", False),
    )
)


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ((SIDE_BY_SIDE,), 0),
        ((ALONE,), 0),
        ((SIDE_BY_SIDE, BROKEN), 1),
        (("def test_it(): pass",), 1),
    ],
    ids=["side by side", "alone", "broken alone", "no real test"],
)
def test_command_passes_if_each_real_test_of_the_paths_passes(
    texts: tuple[str, ...], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(real, "_SIDE_BY_SIDE", ("-m", "real and not alone"))
    monkeypatch.setattr(real, "_TIMES", tmp_path / "build" / "real.json")
    monkeypatch.setattr(real, "RUN", tmp_path / "build" / "unsteady.json")
    Path("pytest.ini").write_text("[pytest]\nmarkers =\n  real\n  alone\n")
    for number, text in enumerate(texts):
        Path(f"test_{number}.py").write_text(text)
    assert main(["."]) == status


@pytest.mark.parametrize(
    ("path", "ci", "status", "recorded"),
    [("tests", "", 0, 1), ("tests", "", 1, 0), ("tests", "true", 0, 0), (".", "", 0, 0)],
)
def test_whole_run_outside_of_ci_is_recorded_if_it_passes(
    path: str, ci: str, status: int, recorded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.json"
    record.write_bytes(orjson.dumps({"runs": [], "fixed": []}))
    monkeypatch.chdir(tmp_path)
    for name in ("_TIMES", "RUN"):
        monkeypatch.setattr(real, name, tmp_path / "build" / f"{name}.json")
    monkeypatch.setattr(unsteady, "RUN", tmp_path / "build" / "RUN.json")
    monkeypatch.setattr(unsteady, "RECORD", record)
    monkeypatch.setattr(real, "run", lambda _: Run(status))
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", ci)
    assert main([path]) == status
    assert len(orjson.loads(record.read_bytes())["runs"]) == recorded
