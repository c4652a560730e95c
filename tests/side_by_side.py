"""Groups of tests: a single worker runs all tests of a group (pytest-xdist's `--dist loadgroup`).

Tests that use the same cluster are a group, so that no cluster starts twice. If a module's tests use no
cluster, they are a group, too. Tests on both releases of Slurm are two groups, so that one group can run
while the other group waits. After the last test of a group, the worker ends the group's cluster, because
the programs of a cluster cost CPU and memory.
"""

from typing import Final

import pytest

from deploy.local.spec import DEBIAN_SUITES

# Fixtures that start a cluster, or that return a cluster started earlier.
_CLUSTERS: Final = (
    *("cluster", "cluster_of", "release_cluster", "shared_cluster", "shared_cluster_if_needed"),
)


def group_of(item: pytest.Function) -> str:
    """Returns the name of the test's group: the home of the test's cluster (otherwise the test's file),
    and the release of Slurm."""
    return f"{home_of(item) or item.nodeid.partition('::')[0]} {release_of(item)}".strip()


def leaves_its_cluster(item: pytest.Function, following: pytest.Function | None) -> bool:
    """Returns True if a test uses a cluster that the worker's next test does not use."""
    return bool(home_of(item)) and following is not None and group_of(following) != group_of(item)


def home_of(item: pytest.Function) -> str:
    """Returns the folder or file whose cluster the test uses; "" without a cluster."""
    fixtures = item._fixtureinfo.name2fixturedefs
    return next((fixtures[name][-1].baseid for name in _CLUSTERS if name in fixtures), "")


def release_of(item: pytest.Function) -> str:
    """Returns the release of Slurm among a test's parameters; "" without a release."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((one for one in given if one in (*DEBIAN_SUITES,)), "")
