"""Adds the end of slurmctld's log to the report of a failed test. Import `pytest_runtest_makereport` in
the conftest.py of a folder."""

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
    """Adds the logs to the report if the setup, the call or the teardown of a test has failed."""
    report = yield
    if report.failed:
        for cluster in set(_clusters(item)):
            report.sections.append(("slurmctld's log", tail(cluster.logs / "slurmctld.log", _LINES)))
    return report


def _clusters(item: pytest.Function) -> Iterator[Cluster]:
    """Yields the clusters among a test's fixtures. A cluster may be the fixture itself, an element of a
    tuple, or the attribute `cluster` of the fixture."""
    for given in item.funcargs.values():
        for each in given if isinstance(given, tuple) else (given,):
            found = getattr(each, "cluster", each)
            if isinstance(found, Cluster):
                yield found
