"""Prints the test files near the paths given.

    python -m tests.near extender/policy wellknown/names.py

A path is a file or a folder. A test file is near a path if the file imports a module below the path, or
a module of the product that imports such a module. A test file below a path is near, too.
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


def near(paths: Sequence[Path]) -> list[Path]:
    """Returns the test files, in order. Paths are relative to the project's root. Raises ValueError if
    the project has no module below a path."""
    graph = grimp.build_graph(*_ROOTS)
    named = set[str]()
    for path in paths:
        below = _below(".".join(path.with_suffix("").parts), graph.modules)
        if not below:
            raise ValueError(f"{path} has no module of the project")
        named |= below
    users = named | {module for module in _importers(graph, named) if not module.startswith("tests.")}
    tests = filter(_is_test, named | _importers(graph, users))
    return sorted(Path(f"{module.replace('.', '/')}.py") for module in tests)


def _below(module: str, modules: Iterable[str]) -> set[str]:
    return {each for each in modules if each == module or each.startswith(f"{module}.")}


def _importers(graph: grimp.ImportGraph, modules: Iterable[str]) -> set[str]:
    return set().union(*(graph.find_modules_that_directly_import(module) for module in modules))


def _is_test(module: str) -> bool:
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


if __name__ == "__main__":
    try:
        sys.stdout.writelines(
            f"{path}\n" for path in near([Path(argument) for argument in sys.argv[1:]])
        )
    except ValueError as error:
        sys.exit(str(error))
