"""Options and fixtures that more than one folder of tests uses."""

import pytest

from deploy.local.spec import DEBIAN_SUITES, DEFAULT_RELEASE
from tests.cluster_fixture import shared_cluster

__all__ = ["shared_cluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slurm-release",
        choices=list(DEBIAN_SUITES),
        default=DEFAULT_RELEASE,
        help="the Slurm under the end-to-end tests (the client's contract runs on all)",
    )
