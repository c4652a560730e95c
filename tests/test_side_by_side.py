"""Tests of `tests.side_by_side`: tests with the same cluster and release are a group, and one worker
runs all tests of the group."""

import re
from pathlib import Path

import pytest

from tests.side_by_side import group_of

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest

@pytest.fixture(scope="session", params=["26.05", "24.11"])
def release(request):
    return request.param

@pytest.fixture(scope="session")
def cluster(release):
    pass
"""
ALONE = "def test_it(): pass"
SHARES = "def test_it(cluster): pass"
HAS_ITS_OWN = """
import pytest

@pytest.fixture(scope="module")
def cluster(release):
    pass

def test_it(cluster):
    pass
"""
BRINGS_UP = """
import pytest

@pytest.mark.parametrize("release", ["26.05", "24.11"])
def test_it(release):
    pass

def test_other():
    pass
"""

GROUPS = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.name[:6]))
"""
MANY = "".join(f"def test_{group}{number}(): pass\n" for number in range(20) for group in "ab")
OPTIONS = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"


def test_one_worker_runs_all_tests_of_a_group(pytester: pytest.Pytester) -> None:
    """Without this test, nobody would notice a version of pytest-xdist that ignores the groups, because
    pytest-xdist would report no error."""
    pytester.makeini(OPTIONS)
    pytester.makeconftest(GROUPS)
    pytester.makepyfile(MANY)
    done = pytester.runpytest_subprocess("-v", "-n", "2", "--dist", "loadgroup")
    done.assert_outcomes(passed=40)
    seen = re.findall(r"\[(gw\d)\].* PASSED .*::test_([ab])", done.stdout.str())
    assert len(seen) == 40
    assert len(set(seen)) == 2


LEAVES = """
import pytest
from tests.conftest import pytest_runtest_teardown
from tests.side_by_side import group_of

@pytest.fixture(scope="session")
def told(request):
    return request.config.rootpath / "told"

@pytest.fixture(scope="session", params=["26.05", "24.11"])
def cluster(request, told):
    told.open("a").write(f"up {request.param}\\n")
    yield
    told.open("a").write(f"down {request.param}\\n")

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
"""
USES = "def test_it(cluster, told):\n    told.open('a').write('used\\n')\n"
COMES_AFTER = "def test_it(told):\n    told.open('a').write('after\\n')\n"


def test_cluster_ends_with_its_group(pytester: pytest.Pytester) -> None:
    """The cluster ends after its group, although the worker continues with another group."""
    pytester.makeini(f"{OPTIONS}pythonpath = {Path(__file__).parents[1]}\n")
    pytester.makeconftest(LEAVES)
    pytester.makepyfile(test_a=USES, test_b=USES, test_c=COMES_AFTER)
    done = pytester.runpytest_subprocess("-n", "1", "--dist", "loadgroup")
    done.assert_outcomes(passed=5)
    told = (pytester.path / "told").read_text().split("\n")
    both = [f"up {one},used,used,down {one}" for one in ("26.05", "24.11")]
    assert ",".join(told) == ",".join([*both, "after", ""])


def test_tests_of_one_cluster_form_a_group(pytester: pytest.Pytester) -> None:
    pytester.makeini(OPTIONS)
    files = {
        "conftest": CONFTEST,
        "test_a": SHARES,
        "test_b": SHARES,
        "test_c": HAS_ITS_OWN,
        "test_d": BRINGS_UP,
        "test_e": ALONE,
    }
    suite = pytester.mkdir("suite")
    for name, text in files.items():
        (suite / f"{name}.py").write_text(text)
    groups: dict[str, list[str]] = {}
    for item in pytester.inline_genitems()[0]:
        assert isinstance(item, pytest.Function)
        groups.setdefault(group_of(item), []).append(item.nodeid.removeprefix("suite/test_"))
    assert groups == {
        "suite 26.05": ["a.py::test_it[26.05]", "b.py::test_it[26.05]"],
        "suite 24.11": ["a.py::test_it[24.11]", "b.py::test_it[24.11]"],
        "suite/test_c.py 26.05": ["c.py::test_it[26.05]"],
        "suite/test_c.py 24.11": ["c.py::test_it[24.11]"],
        "suite/test_d.py 26.05": ["d.py::test_it[26.05]"],
        "suite/test_d.py 24.11": ["d.py::test_it[24.11]"],
        "suite/test_d.py": ["d.py::test_other"],
        "suite/test_e.py": ["e.py::test_it"],
    }
