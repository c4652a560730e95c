"""Fixtures for several folders of tests, and the choice of the tests and releases of a run."""

import gc
import os
import re
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from deploy.local.spec import KUBERNETES_RELEASES
from tests.cluster_fixture import shared_cluster, shared_cluster_if_needed
from tests.real import may_have
from tests.releases import names_a_release, repeats
from tests.side_by_side import group_of, leaves_its_cluster

__all__ = ["shared_cluster", "shared_cluster_if_needed"]

# Hypothesis must not limit the duration of an example, which depends on the load of the machine. Limits
# on speed count CPU time instead.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kubernetes",
        choices=KUBERNETES_RELEASES,
        help="the release that all clusters have; else this machine's own, or the newest",
    )
    parser.addoption(
        "--all-releases",
        action="store_true",
        help="run each test on each release of Slurm that it is written for; see tests/releases.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets the release of Kubernetes before any module makes a ClusterSpec."""
    if release := config.getoption("--kubernetes"):
        os.environ["KUBERNETES_RELEASE"] = release


APART = ("controllers", "gpu", "install", "long", "node", "pools")
"""Markers of tests that run only if the expression of markers names them: `-m gpu`,
`-m "real or pools"`, `-m "long and not alone"`."""


def is_apart(item: pytest.Function, asked: str) -> bool:
    """Returns True if a test has a marker of APART that the expression of markers does not name."""
    named = re.findall(r"(?<!not )\b\w+", asked)
    return any(item.get_closest_marker(marker) and marker not in named for marker in APART)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    for marker in ("real", "alone"):
        marked = {item.path for item in items if item.get_closest_marker(marker)}
        if hidden := [str(path) for path in marked if not may_have(marker, path)]:
            raise pytest.UsageError(
                f"tests.real does not find the {marker} tests of {', '.join(hidden)}"
            )
    asked = config.getoption("markexpr")
    left_out = {item for item in items if is_apart(item, asked)}
    if not (config.getoption("all_releases") or names_a_release(config.getoption("keyword"))):
        left_out |= set(repeats([item for item in items if item not in left_out]))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turns garbage collection off during the imports. Then excludes all existing objects from garbage
    collection, because a full collection of modules and collected tests takes 0.4 s."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Function | None) -> None:
    """In a worker of pytest-xdist, ends the session's fixtures after the last test of a group. Without
    workers, the fixtures stay, because a later test may be of the same group."""
    if hasattr(item.config, "workerinput") and leaves_its_cluster(item, nextitem):
        runner: Any = item.config.pluginmanager.get_plugin("runner")
        runner.pytest_runtest_teardown(item, None)  # as after the last test of the run


def pytest_report_header() -> str:
    return f"Kubernetes: {os.environ.get('KUBERNETES_RELEASE') or 'own, or the newest'}"


@pytest.fixture(autouse=True)
def _only_its_own_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests marked `alone`: keeps the garbage collector away from the objects of earlier tests.

    A full collection of these objects takes 0.3 s, and this time would count as time of the measured
    code. The extender also freezes the objects that exist at its start.
    """
    if request.node.get_closest_marker("alone") is None:
        yield
        return
    gc.freeze()
    yield
    gc.unfreeze()
