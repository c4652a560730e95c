"""Prints the test files near the paths given.

    python -m tests.near extender/policy wellknown/names.py

A path is a file or a folder. A test file is near a path if the file imports a module below the path, or
a module of the product that imports such a module. If no test file is near, importers of importers
count, step by step, until a test file is near. A test file below a path is near, too. The tests of all
pages are near a page (Markdown, or the folder docs). Other files have no test near.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import grimp

_ROOTS: Final = (
    *("extender", "kubernetes_client", "node_agent", "service", "slurm_client", "slurm_cluster"),
    *("deploy", "loadtest", "tests", "wellknown"),
)
_PAGE_TESTS: Final = ("tests.documentation", "tests.language", "tests.pages")


def near(paths: Sequence[Path]) -> list[Path]:
    """Returns the test files, in order. The working directory is the project's root. Raises
    FileNotFoundError if a path does not exist, and ValueError if a path is outside the project."""
    graph = grimp.build_graph(*_ROOTS)
    named, found = set[str](), set[str]()
    for each in paths:
        path = each.resolve(strict=True).relative_to(Path.cwd())
        named |= _below(".".join(path.parts).removesuffix(path.suffix), graph.modules)
        if _is_page(path):
            found.update(*(_below(package, graph.modules) for package in _PAGE_TESTS))
    users = named | {module for module in _importers(graph, named) if not module.startswith("tests.")}
    tests, known = {*filter(_is_test, found | named | _importers(graph, users))}, set[str]()
    while not tests and users != known:
        known, users = users, users | _importers(graph, users)
        tests = {*filter(_is_test, users)}
    return sorted(Path(f"{module.replace('.', '/')}.py") for module in tests)


def _is_page(path: Path) -> bool:
    return path.suffix == ".md" or path.parts[:1] == ("docs",)


def _below(module: str, modules: Iterable[str]) -> set[str]:
    return {each for each in modules if f"{each}.".startswith(f"{module}." if module else "")}


def _importers(graph: grimp.ImportGraph, modules: Iterable[str]) -> set[str]:
    return set().union(*(graph.find_modules_that_directly_import(module) for module in modules))


def _is_test(module: str) -> bool:
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


if __name__ == "__main__":
    try:
        sys.stdout.writelines(
            f"{path}\n" for path in near([Path(argument) for argument in sys.argv[1:]])
        )
    except FileNotFoundError as error:
        sys.exit(f"no such file or folder: {error.filename}")
    except ValueError as error:
        sys.exit(str(error))
