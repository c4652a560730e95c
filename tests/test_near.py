"""Tests of `tests.near`, which finds the test files near a path, and of `./check PATH`."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.near import near


def test_tests_near_a_module_import_the_module_or_its_importers() -> None:
    files = near([Path("extender/policy/rules.py")])
    assert Path("tests/policy/test_rules.py") in files  # imports the module
    assert Path("tests/verbs/test_mutate.py") in files  # imports an importer of the module
    assert Path("tests/node_agent/test_claims.py") not in files


@pytest.mark.parametrize("module", ["placement/pods_apart.py", "placement/index.py", "bind/route.py"])
def test_module_with_few_importers_has_the_tests_of_its_users(module: str) -> None:
    assert near([Path("extender") / module])


def test_tests_near_a_test_folder_are_its_files() -> None:
    here = Path(__file__).parent
    expected = {path.relative_to(here.parent) for path in (here / "policy").glob("test_*.py")}
    assert expected <= set(near([Path("tests/policy")]))


def test_each_spelling_of_a_path_finds_the_same_tests() -> None:
    folder = Path("tests/policy")
    assert near([folder]) == near([folder.absolute()]) == near([Path("docs/../tests/policy")])
    assert set(near([folder])) < set(near([Path()]))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/troubleshooting/operate.md", "docs", "examples/01-a-pod/README.md"]
)
def test_tests_near_a_page_are_the_tests_of_all_pages(page: str) -> None:
    files = near([Path(page)])
    assert {str(file.parent) for file in files} == {
        "tests/documentation",
        "tests/language",
        "tests/pages",
    }


def test_file_without_a_module_has_no_tests() -> None:
    assert near([Path("LICENSE"), Path("deploy/slurm/slurm-extender-gate")]) == []


def test_path_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="extender/polici"):
        near([Path("extender/polici")])


class Checkout:
    """A checkout with a copy of `check`. Other programs are replaced by scripts, and pytest's script
    notes its calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copy(Path(__file__).parents[1] / "check", folder)
        self._program(folder / "bootstrap", "")
        (folder / ".venv/bin").mkdir(parents=True)
        for name in ("ruff", "mypy", "lint-imports"):
            self._program(folder / ".venv/bin" / name, "")

    def _program(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def check(self, files: str, status: int) -> tuple[int, list[str], str]:
        """Runs `./check PATH`. `files` are the test files that `tests.near` prints; pytest exits with
        `status`. Returns the exit status of `./check`, pytest's calls, and the output."""
        calls = self._folder / "calls"
        calls.touch()
        self._program(self._folder / ".venv/bin/python", f"printf '%s' '{files}'")
        self._program(self._folder / ".venv/bin/pytest", f'echo "$@" >>{calls}; exit {status}')
        argv = [str(self._folder / "check"), "some/path"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, calls.read_text().splitlines(), done.stdout


@pytest.mark.parametrize(("status", "result"), [(0, 0), (5, 0), (1, 1)])
def test_check_runs_pytest_on_the_files_near_a_path(tmp_path: Path, status: int, result: int) -> None:
    (tmp_path / "test_a.py").touch()
    found, calls, _ = Checkout(tmp_path).check("test_a.py", status)
    assert (found, len(calls)) == (result, 1)
    assert calls[0].endswith(" test_a.py")


def test_check_runs_tests_marked_alone_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").touch()
    (tmp_path / "test_b.py").write_text("pytestmark = pytest.mark.alone\n")
    _, calls, _ = Checkout(tmp_path).check("test_a.py\ntest_b.py", 0)
    assert calls[-1] == "-q -m not real and alone test_b.py"


def test_check_passes_without_pytest_if_no_test_is_near(tmp_path: Path) -> None:
    assert Checkout(tmp_path).check("", 0) == (0, [], "no test is near: some/path\n")
