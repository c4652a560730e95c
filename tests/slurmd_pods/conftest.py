"""What the tests of pools leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.local.layout import CHECKOUT
from tests.slurmd_pods.evidence import Evidence
from tests.slurmd_pods.test_pools import cluster, whole, world  # noqa: F401


@pytest.fixture(scope="session")
def evidence() -> Iterator[Evidence]:
    """What all tests of the run found; workers side by side (`make test`) have seen a part each, and
    leave nothing."""
    found = Evidence()
    yield found
    if "PYTEST_XDIST_WORKER" not in os.environ:
        found.write(CHECKOUT / "build" / "pools.json")
