"""Adds the end of slurmctld's log to the report of a failed test. The conftest.py of a folder imports
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
    """Adds the logs after a failed setup, call or teardown."""
    report = yield
    if report.failed:
        for cluster in set(_clusters(item)):
            report.sections.append(("slurmctld's log", tail(cluster.logs / "slurmctld.log", _LINES)))
    return report


def _clusters(item: pytest.Function) -> Iterator[Cluster]:
    """Yields the clusters among a test's fixtures, also in a tuple or in an attribute `cluster`."""
    for given in item.funcargs.values():
        for each in given if isinstance(given, tuple) else (given,):
            found = getattr(each, "cluster", each)
            if isinstance(found, Cluster):
                yield found
