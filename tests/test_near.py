"""The test files near a path."""

from pathlib import Path

import pytest

from tests.near import near


def test_a_module_has_the_tests_that_import_it_or_its_importers() -> None:
    files = near([Path("extender/policy/rules.py")])
    assert Path("tests/policy/test_rules.py") in files  # imports the module
    assert Path("tests/verbs/test_mutate.py") in files  # imports an importer of the module
    assert Path("tests/node_agent/test_claims.py") not in files


def test_a_folder_of_tests_has_its_own_files() -> None:
    here = Path(__file__).parent
    expected = {path.relative_to(here.parent) for path in (here / "policy").glob("test_*.py")}
    assert expected <= set(near([Path("tests/policy")]))


def test_a_path_without_a_module_is_an_error() -> None:
    with pytest.raises(ValueError, match="docs has no module of the project"):
        near([Path("docs")])
