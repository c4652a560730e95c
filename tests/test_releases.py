"""Tests of `tests.releases`: a test runs on a single release of Slurm, or on every release."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local.spec import DEBIAN_SUITES
from tests.releases import ON_EACH_RELEASE, chosen, repeats
from tests.side_by_side import release_of

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest

@pytest.fixture(scope="session", params=["26.05", "24.11"])
def cluster(request):
    pass
"""
SHARES = "".join(f"def test_{number}(cluster): pass\n" for number in range(20))
OWN = """
import pytest

@pytest.fixture(scope="module", params=["26.05", "24.11"])
def cluster(request):
    pass

def test_a(cluster): pass
def test_b(cluster): pass

@pytest.mark.parametrize("release", ["24.11"])
def test_old(release): pass

def test_neither(): pass
"""

HOOKS = "from tests.conftest import pytest_addoption, pytest_collection_modifyitems"


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Function]:
    """Writes a file whose tests have their own cluster, and a folder whose tests share a cluster.
    Returns all these tests."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    for folder, files in {
        "shared": {"conftest": CONFTEST, "test_shares": SHARES},
        "own": {"test_own": OWN},
    }.items():
        place = pytester.mkdir(folder)
        for name, text in files.items():
            (place / f"{name}.py").write_text(text)
    found = pytester.inline_genitems()[0]
    return [item for item in found if isinstance(item, pytest.Function)]


def _kept(items: Sequence[pytest.Function]) -> list[pytest.Function]:
    left_out = repeats(items)
    return [item for item in items if item not in left_out]


def test_each_test_runs_once_and_a_file_has_one_release(items: list[pytest.Function]) -> None:
    kept = [item for item in _kept(items) if item.nodeid.startswith("own/")]
    assert sorted(item.originalname for item in kept) == ["test_a", "test_b", "test_neither", "test_old"]
    assert len({release_of(item) for item in kept if item.originalname in ("test_a", "test_b")}) == 1


def test_tests_with_a_shared_cluster_alternate(items: list[pytest.Function]) -> None:
    kept = [item for item in _kept(items) if item.nodeid.startswith("shared/")]
    assert len({item.originalname for item in kept}) == len(kept) == 20
    assert min(Counter(map(release_of, kept)).values()) >= 5


def test_single_selected_variant_runs(items: list[pytest.Function]) -> None:
    for item in items:
        assert repeats([item]) == []


def test_each_variant_of_a_release_runs_if_keywords_name_the_release(
    items: list[pytest.Function], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(HOOKS)
    own = {item.nodeid for item in items if item.nodeid.startswith("own/")}
    for release in DEBIAN_SUITES:
        result = pytester.runpytest("-k", release, "--collect-only", "-q", "own")
        assert {line for line in result.outlines if "::" in line} == {
            test for test in own if release in test
        }


def test_contract_tests_run_on_each_release(
    items: list[pytest.Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.releases.ON_EACH_RELEASE", ("own/", "shared/"))
    assert repeats(items) == []


def test_marked_test_runs_on_one_release(
    items: list[pytest.Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.releases.ON_EACH_RELEASE", ("own/", "shared/"))
    marked = [item for item in items if item.originalname in ("test_a", "test_b")]
    for item in marked:
        item.add_marker(pytest.mark.one_release("a reason"))
    kept = [item for item in _kept(items) if item in marked]
    assert sorted(item.originalname for item in kept) == ["test_a", "test_b"]


def test_marked_tests_alternate_between_the_clusters_of_their_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.releases.ON_EACH_RELEASE", ("tests/a.py",))
    assert {chosen(f"tests/a.py::test_{each}", "tests/a.py") for each in range(20)} == {*DEBIAN_SUITES}


def test_choice_of_a_release_is_the_same_on_each_machine() -> None:
    assert chosen("tests/a.py::test_a", "tests/a.py") == chosen("tests/a.py::test_b", "tests/a.py")
    assert {chosen(f"tests/a.py::test_{each}", "tests") for each in range(20)} == {*DEBIAN_SUITES}


def test_each_path_of_on_each_release_exists() -> None:
    checkout = Path(__file__).parents[1]
    assert [path for path in ON_EACH_RELEASE if not (checkout / path).exists()] == []
