"""A plugin of pytest: writes the results of tests to the file named by REPORT_LOG.

    REPORT_LOG=FILE pytest -p tests.report_log

The file gets a line of JSON for each phase of a test (setup, call, teardown), at the end of the phase.
"""

import os
import re
from pathlib import Path
from typing import Final

import orjson
import pytest

_FILE: Final = "REPORT_LOG"


class ReportLog:
    """Appends a line to the file for each test report that pytest, or the controller of pytest-xdist,
    receives."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = {
            "test": without_group(report.nodeid),
            "phase": report.when,
            "outcome": report.outcome,
            "began": report.start,
            "seconds": report.duration,
            "worker": getattr(report, "worker_id", ""),
            "log": _log(report),
        }
        with self._path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(_FILE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ReportLog(Path(path)))


def without_group(nodeid: str) -> str:
    """Returns a test's name without the group that pytest-xdist appends."""
    return re.sub(r"@[^\]]*$", "", nodeid)


def _log(report: pytest.TestReport) -> str:
    """Returns the text of the failure and the captured output, in the form in which pytest prints
    them."""
    sections = (f"--- {title} ---\n{text}" for title, text in report.sections)
    return "\n".join(filter(None, (report.longreprtext, *sections)))
