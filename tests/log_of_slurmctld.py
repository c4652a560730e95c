"""Where a test fails, the end of its slurmctld's log is told with it; conftest.py of a folder imports
`pytest_runtest_makereport`."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from deploy.local.cluster import Cluster
from deploy.local.processes.supervision import tail

_LINES = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Also of a setup that fails."""
    report = yield
    if report.failed:
        for cluster in set(_clusters(item)):
            report.sections.append(("slurmctld's log", tail(cluster.logs / "slurmctld.log", _LINES)))
    return report


def _clusters(item: pytest.Function) -> Iterator[Cluster]:
    """Those of the test's fixtures: given as they are, in a tuple, or as what has one."""
    for given in item.funcargs.values():
        for each in given if isinstance(given, tuple) else (given,):
            found = getattr(each, "cluster", each)
            if isinstance(found, Cluster):
                yield found
