"""Prints the test files near the paths given.

    python -m tests.near extender/policy wellknown/names.py

A path is a file or a folder. A test file is near a path if the test file is below the path, or imports
a module below the path. A test file is also near if the test file imports a module of the product that
imports a module below the path. If no test file is near, the search goes on with the modules that import
those modules, step by step, until a test file is near. The tests of pages are near each page (a Markdown
file, or the folder docs). No test is near any other file.
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
    """Returns the test files near the paths, sorted. The working directory must be the project's root.
    Raises FileNotFoundError if a path does not exist, and ValueError if a path is outside the
    project."""
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
