"""Which tests go to one worker, where two run side by side (pytest-xdist's `--dist loadgroup`).

Tests that share a cluster are one group, so that no cluster comes up twice; tests of one module are too.
What is tested on both releases of Slurm is two groups, which wait at the same time.
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
    fixtures = item._fixtureinfo.name2fixturedefs
    homes = [fixtures[name][-1].baseid for name in _CLUSTERS if name in fixtures]
    home = homes[0] if homes else item.nodeid.partition("::")[0]
    return f"{home} {_release(item)}".strip()


def _release(item: pytest.Function) -> str:
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((one for one in given if one in (*DEBIAN_SUITES,)), "")
