"""Which tests go to one worker, where two run side by side (pytest-xdist's `--dist loadgroup`).

Tests that share a cluster are one group, so that no cluster comes up twice; tests of one module are too.
What is tested on both releases of Slurm is two groups, which wait at the same time. A worker that leaves
a cluster's group ends the cluster: its programs cost CPU and memory for as long as they are there.
"""

from typing import Final

import pytest

from deploy.local.spec import DEBIAN_SUITES

# Fixtures that bring a cluster up, or stand for one that was.
_CLUSTERS: Final = (
    *("cluster", "cluster_of", "release_cluster", "shared_cluster", "shared_cluster_if_needed"),
)


def group_of(item: pytest.Function) -> str:
    """The folder or file whose cluster the test uses, or its own file; and the release of Slurm."""
    return f"{home_of(item) or item.nodeid.partition('::')[0]} {release_of(item)}".strip()


def leaves_its_cluster(item: pytest.Function, following: pytest.Function | None) -> bool:
    """Whether the worker is done with the cluster that a group shares."""
    return bool(home_of(item)) and following is not None and group_of(following) != group_of(item)


def home_of(item: pytest.Function) -> str:
    """The folder or file whose cluster the test uses; "" where it uses none."""
    fixtures = item._fixtureinfo.name2fixturedefs
    return next((fixtures[name][-1].baseid for name in _CLUSTERS if name in fixtures), "")


def release_of(item: pytest.Function) -> str:
    """The release of Slurm that a test has for a parameter; "" without one."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((one for one in given if one in (*DEBIAN_SUITES,)), "")
