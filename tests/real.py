"""Runs real tests: first most tests, four at a time. Then the tests marked `alone`, one at a time,
because each of these tests keeps both cores busy.

    python -m tests.real PATH...

Dozens of daemons share two cores, so a test may fail by bad timing alone. Therefore a failed test runs a
second time, while no other test runs. If the test then passes, the run reports the test as unsteady and
writes both logs to build/unsteady.json. If the run passes, `make test` adds the unsteady tests to the
record of `tests.unsteady`. The run fails if a test fails twice, or if more than MAX_RETRIED tests fail
at first.

The run writes the seconds of each file of tests, and the share of the processors' time that was used, to
build/real.json.
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
# Most tests mostly wait for their clusters, so two cores are enough for four tests at a time.
_SIDE_BY_SIDE: Final = ("-m", "real and not alone", "-n", "4", "--dist", "loadgroup")
_ALONE: Final = ("-m", "real and alone")
_WHOLE: Final = "tests"
_NO_TESTS: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
"""Exit status of pytest if the options deselect every test. This is no failure, because most files have
tests for only one of the two runs."""
_GO: Final = {"GOGC": "400"}
"""Setting of Go's garbage collector, which otherwise takes a quarter of the CPU of a cluster's start.
With this value, kube-apiserver takes 110 MB more memory."""


@dataclass(frozen=True, slots=True)
class Run:
    """Exit status of a run, its unsteady tests, and the reports of the first try in the form of
    `tests.report_log`. The status is 0 if each test passed in the first or second try."""

    status: int
    unsteady: tuple[Unsteady, ...] = ()
    reports: tuple[dict[str, Any], ...] = field(default=(), repr=False)


def run(options: Sequence[str], *, max_retried: int = MAX_RETRIED) -> Run:
    """Runs pytest. Then runs each failed test a second time, unless too many tests have failed."""
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
    """Returns the paths. Each folder is replaced by its files that may have a test with the marker,
    because collecting all files would cost each worker of pytest 22 s of CPU."""
    return [file for path in paths for file in _files(Path(path), marker) or [path]]


def _files(folder: Path, marker: str) -> list[str]:
    found = (file for file in folder.glob("**/test_*.py") if may_have("real", file))
    return sorted(str(file) for file in found if may_have(marker, file))


@cache
def may_have(marker: str, file: Path) -> bool:
    """Returns True if a file, or a conftest.py that applies to the file, mentions the marker."""
    above = (folder / "conftest.py" for folder in file.parents)
    texts = (each.read_text() for each in (file, *above) if each.exists())
    return any(re.search(rf"\bmark\.{marker}\b", text) for text in texts)


def times(runs: Sequence[Run], busy: float) -> dict[str, Any]:
    """Returns the seconds of each file of tests, longest first, together with `busy`. `busy` is the
    share of the processors' time that the run used (0 to 1)."""
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
    """Runs pytest. Returns the exit status and the reports. If a signal killed pytest, the exit status
    is negative."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "reports"
        log.touch()
        paths = os.pathsep.join(filter(None, (str(_CHECKOUT), os.environ.get("PYTHONPATH"))))
        environment = {**_GO, **os.environ, "REPORT_LOG": str(log), "PYTHONPATH": paths}
        command = [sys.executable, "-m", "pytest", "-p", "tests.report_log", *options]
        status = subprocess.run(command, check=False, env=environment).returncode
        return status, tuple(orjson.loads(line) for line in log.read_bytes().splitlines())


def main(paths: Sequence[str]) -> int:
    """Runs all real tests below the paths. Returns 1 if a test failed, or if no test is below the
    paths."""
    psutil.cpu_percent()  # the next call counts from here
    runs = [run([*_SIDE_BY_SIDE, *files(paths)]), run([*_ALONE, *files(paths, "alone")])]
    _TIMES.parent.mkdir(exist_ok=True)
    found = times(runs, psutil.cpu_percent() / 100)
    _TIMES.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    write_run(RUN, [test for each in runs for test in each.unsteady])
    statuses = {each.status for each in runs}
    passed = 0 in statuses and statuses <= {0, _NO_TESTS}
    if passed and list(paths) == [_WHOLE] and "CI" not in os.environ:  # CI commits no record
        unsteady.record_last()
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
