"""Tests of sizes: files, functions, folders and tuples are small, because a long function hides a
concept without a name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from deploy.images.image import PACKAGES
from deploy.local.layout import CHECKOUT
from extender.jobs.tracked_job import TrackedJob

LONGEST_FILE, LONGEST_FUNCTION = 450, 50
MOST_MODULES, MOST_FIELDS = 15, 12
FILES = sorted(file for package in PACKAGES for file in (CHECKOUT / package).rglob("*.py"))
TOOLS = sorted(file for package in ("deploy", "loadtest") for file in (CHECKOUT / package).rglob("*.py"))


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("file", [*FILES, *TOOLS], ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_a_file_and_its_functions_are_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LONGEST_FILE
    long = {
        each.name: lines
        for each in functions(file)
        if (lines := (each.end_lineno or 0) - each.lineno + 1) > LONGEST_FUNCTION
    }
    assert not long


def test_no_package_is_a_third_of_the_extender() -> None:
    lines: Counter[str] = Counter()
    for file in (CHECKOUT / "extender").rglob("*.py"):
        lines[file.relative_to(CHECKOUT / "extender").parts[0]] += len(file.read_text().splitlines())
    (largest, longest), *_ = lines.most_common(1)
    assert longest < lines.total() / 3, largest


def test_a_folder_has_few_modules() -> None:
    modules = Counter(file.parent for file in (*FILES, *TOOLS) if not file.name.startswith("__"))
    assert not {str(folder): count for folder, count in modules.items() if count > MOST_MODULES}


def test_a_tuple_has_few_fields() -> None:
    tuples = [
        (node.name, sum(isinstance(each, ast.AnnAssign) for each in node.body))
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases)
    ]
    assert len(tuples) > 50
    assert not [(name, fields) for name, fields in tuples if fields > MOST_FIELDS]


def test_tracked_job_has_few_fields() -> None:
    """To stay small, TrackedJob keeps the request and the doubts in tuples of their own."""
    hints = get_type_hints(TrackedJob)
    assert len(hints) <= 8
    assert sum(hint is bool for hint in hints.values()) <= 1


def test_checked_files_exist() -> None:
    assert len(FILES) > 100
