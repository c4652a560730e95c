"""Tests of the packages that a program's image gets from the lock file."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deploy.images.image import PACKAGES
from deploy.local.layout import CHECKOUT
from deploy.requirements import IMPORTED, locked

LOCK = (CHECKOUT / "requirements.lock").read_text()
PROGRAMS = {"extender", "node_agent", "slurm_cluster"}
SOURCES = {
    program: tuple(package for package in PACKAGES if package not in PROGRAMS - {own})
    for program, own in (
        ("extender", "extender"),
        ("node-agent", "node_agent"),
        ("slurm-cluster", "slurm_cluster"),
    )
}


def imported(package: Path) -> Iterator[str]:
    """Yields the top-level name of each module that the sources of a package import."""
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


@pytest.mark.parametrize("program", SOURCES)
def test_list_of_a_program_has_the_imports_of_its_sources(program: str) -> None:
    names = {name for package in SOURCES[program] for name in imported(CHECKOUT / package)}
    theirs = names - sys.stdlib_module_names - set(PACKAGES) - {"google"}
    by_module = packages_distributions()
    found = {normal(by_module[name][0]) for name in theirs}
    assert found - set(IMPORTED[program]) <= {"pydantic-core"}  # a dependency of pydantic
    of_google = {"protobuf"} if "google" in names else set()
    unused = set(IMPORTED[program]) - found - of_google
    assert unused <= {"httptools", "uvloop"}  # uvicorn loads these by name


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_imported_packages_are_locked_with_their_dependencies() -> None:
    lock = (
        "".join(f"{name}==1 \\\n    --hash=sha256:0\n    # via ours\n" for name in ("other", "orjson"))
        + "aiosignal==1 \\\n    --hash=sha256:1\n    # via\n    #   aiohttp\n    #   other\n"
        + "frozenlist==1 ; sys_platform == 'linux' \\\n    --hash=sha256:2\n    # via aiosignal\n"
        + "aiohttp==1\n"
    )
    chosen = locked(lock, frozenset({"orjson", "aiohttp"}))
    names = [line.split("==")[0] for line in chosen.splitlines() if not line.startswith(" ")]
    assert names == ["orjson", "aiosignal", "frozenlist", "aiohttp"]
    assert "--hash=sha256:2" in chosen


def test_package_missing_from_the_lock_is_named() -> None:
    with pytest.raises(LookupError, match="aiohttp"):
        locked("orjson==1\n", frozenset({"aiohttp", "orjson"}))


@pytest.mark.parametrize("program", IMPORTED)
def test_lock_of_a_program_has_hashes_and_no_tools(program: str) -> None:
    chosen = locked(LOCK, IMPORTED[program])
    blocks = re.split(r"^(?=\S)", chosen, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
    names = {block.partition("==")[0] for block in blocks}
    assert IMPORTED[program] <= names
    assert not {"mypy", "pytest", "ruff", "locust", "uv"} & names
