"""Runs real tests: first four at a time, then each test that keeps both cores busy by itself.

    python -m tests.real PATH...

Dozens of daemons share two cores, and no test controls their timing. A failed test runs once more,
with no other test beside. If the test passes then, the run reports the test as unsteady and writes
both logs to build/unsteady.json. If the run passes, `make test` adds the unsteady tests to the record of
`tests.unsteady`. The run fails if a test fails twice, or if more than MAX_RETRIED tests fail at first.

build/real.json has the seconds of each file of tests, and the share of the processors that was busy.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import psutil
import pytest

from tests import unsteady
from tests.unsteady import RUN, Unsteady, write_run

MAX_RETRIED: Final = 3
_CHECKOUT: Final = Path(__file__).parents[1]
_TIMES: Final = _CHECKOUT / "build" / "real.json"
# Most tests wait for clusters: two cores suffice for four tests at a time.
_SIDE_BY_SIDE: Final = ("-m", "real and not alone", "-n", "4", "--dist", "loadgroup")
_ALONE: Final = ("-m", "real and alone")
_WHOLE: Final = "tests"
_NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
"""Status of pytest if the options deselect every test. Most files have tests for one run only."""
_GO: Final = {"GOGC": "400"}
"""Go's garbage collector would take a quarter of the CPU that a cluster needs for its start. With this
value kube-apiserver takes 110 MB more memory."""


@dataclass(frozen=True, slots=True)
class Run:
    """Exit status of a run (0 if each test passed in the end), its unsteady tests, and the reports of
    the first try, as `tests.report_log` writes them."""

    status: int
    unsteady: tuple[Unsteady, ...] = ()
    reports: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def run(options: Sequence[str], *, max_retried: int = MAX_RETRIED) -> Run:
    """Runs pytest, and once more each test that failed."""
    status, reports = _pytest(*options, "--durations", "10")
    if status != 1:  # all tests passed, or pytest itself failed
        return Run(status, reports=reports)
    failed = sorted({report["test"] for report in reports if report["outcome"] == "failed"})
    if len(failed) > max_retried:
        return Run(status, reports=reports)
    same = (option for option in options if option == "--all-releases")
    status, again = _pytest(*same, *failed)
    if status != 0:
        return Run(status, reports=reports)
    sys.stderr.write(f"unsteady, passed at the second time: {' '.join(failed)}\n")
    unsteady = (Unsteady(test, _log_of(test, reports), _log_of(test, again)) for test in failed)
    return Run(status, tuple(unsteady), reports)


def files(paths: Sequence[str], marker: str = "real") -> list[str]:
    """Returns the paths, with each folder replaced by its files of real tests that may have the marker.
    Each worker of pytest would need 22 s of CPU to collect all files."""
    return [file for path in paths for file in _files(Path(path), marker) or [path]]


def _files(folder: Path, marker: str) -> list[str]:
    found = (file for file in folder.glob("**/test_*.py") if may_have("real", file))
    return sorted(str(file) for file in found if may_have(marker, file))


@cache
def may_have(marker: str, file: Path) -> bool:
    """Returns True if a file, or a conftest.py of its folders, names a marker of tests."""
    above = (folder / "conftest.py" for folder in file.parents)
    texts = (each.read_text() for each in (file, *above) if each.exists())
    return any(re.search(rf"\bmark\.{marker}\b", text) for text in texts)


def times(runs: Sequence[Run], busy: float) -> dict[str, Any]:
    """Returns the seconds of each file of tests, the longest first, and `busy`: the share of the
    processors that was busy during the run (0 to 1)."""
    seconds = dict[str, float]()
    for report in (report for run in runs for report in run.reports):
        file = report["test"].partition("::")[0]
        seconds[file] = seconds.get(file, 0.0) + report["seconds"]
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    rounded = {file: round(took, 1) for file, took in longest}
    return {"processors_busy": round(busy, 2), "seconds": rounded}


def _log_of(test: str, reports: Sequence[dict[str, Any]]) -> str:
    return "\n".join(report["log"] for report in reports if report["test"] == test and report["log"])


def _pytest(*options: str) -> tuple[int, tuple[dict[str, Any], ...]]:
    """Returns the exit status and the reports. A pytest that was killed has a negative status."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "reports"
        log.touch()
        paths = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH"))))
        environment = {**_GO, **os.environ, "REPORT_LOG": str(log), "PYTHONPATH": paths}
        command = [sys.executable, "-m", "pytest", "-p", "tests.report_log", *options]
        status = subprocess.run(command, check=False, env=environment).returncode
        return status, tuple(orjson.loads(line) for line in log.read_bytes().splitlines())


def main(paths: Sequence[str]) -> int:
    """Runs all real tests below the paths. Returns 1 if a test failed, or if the paths have no test."""
    psutil.cpu_percent()  # counts from here on
    runs = [run([*_SIDE_BY_SIDE, *files(paths)]), run([*_ALONE, *files(paths, "alone")])]
    _TIMES.parent.mkdir(exist_ok=True)
    found = times(runs, psutil.cpu_percent() / 100)
    _TIMES.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    write_run(RUN, [test for each in runs for test in each.unsteady])
    statuses = {each.status for each in runs}
    passed = 0 in statuses and statuses <= {0, _NO_TESTS}
    if passed and list(paths) == [_WHOLE] and "CI" not in os.environ:  # CI commits nothing
        unsteady.record_last()
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
