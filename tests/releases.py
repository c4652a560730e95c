"""Chooses the release of Slurm for each real test that exists in one variant for each release.

`make test` runs the tests of ON_EACH_RELEASE on every release, except tests with the marker
`one_release`, whose argument is the reason. Marked tests and all other tests run on one release. The
option `--all-releases` runs all tests on every release (`make test-releases`).
"""

import zlib
from collections.abc import Sequence
from typing import Final

import pytest

from deploy.local.spec import DEBIAN_SUITES
from tests.side_by_side import home_of, release_of

# These tests concern differences between the releases: the forms of REST, the start, the waiting and the
# end of jobs, slurmctld's memory of ended jobs, CPUs and GRES, and accepted configurations.
ON_EACH_RELEASE: Final = (
    "tests/slurm_client/",
    *(
        f"tests/end_to_end/test_{name}.py"
        for name in ("annotations", "cpus", "crashes", "endings", "gate", "preemption", "state_loss")
    ),
    *("tests/node_agent/test_cpus.py", "tests/node_agent/test_slurmd_gres.py"),
    "tests/preflight/test_faults.py",
    *("tests/slurm_chart/test_slurm.py", "tests/slurm_chart/test_start_slurmctld.py"),
    *(f"tests/slurm_cluster/test_{name}.py" for name in ("configure", "standby", "trial")),
    "tests/slurmd_pods/test_pools.py",
)


def names_a_release(keywords: str) -> bool:
    """Returns True if the expression of `-k` names a release. Then all tests of this release run."""
    return any(release in keywords for release in DEBIAN_SUITES)


def repeats(items: Sequence[pytest.Function]) -> list[pytest.Function]:
    """Returns the variants of tests to leave out, because the variant for another release runs."""
    variants = dict[str, list[pytest.Function]]()
    for item in items:
        if (release := release_of(item)) and not _runs_on_each(item):
            variants.setdefault(item.nodeid.replace(release, ""), []).append(item)
    return [
        item
        for several in variants.values()
        if len(several) > 1
        for item in several
        if release_of(item) != chosen(item.nodeid, home_of(item))
    ]


def _runs_on_each(item: pytest.Function) -> bool:
    marked = item.get_closest_marker("one_release") is not None
    return item.nodeid.startswith(ON_EACH_RELEASE) and not marked


def chosen(test: str, home: str) -> str:
    """Returns the release of Slurm on which a test runs. If a file has its own cluster, all tests of the
    file have the same release. Tests that share a folder's cluster (`home`), and tests of
    ON_EACH_RELEASE, are spread over the releases."""
    file = test.partition("::")[0]
    alone = home in ("", file) and not file.startswith(ON_EACH_RELEASE)
    key = file if alone else test.partition("[")[0]
    return sorted(DEBIAN_SUITES)[zlib.crc32(key.encode()) % len(DEBIAN_SUITES)]
