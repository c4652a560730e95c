"""Tests of the project's tests: the tests use only the public attributes of a class."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from deploy.local.layout import CHECKOUT

STILL_THERE = {
    "tests/node_view/test_node_index.py": 3,
    "tests/listeners/test_limits.py": 4,
    "tests/placement/test_kept_back.py": 1,
    "tests/placement/test_ledger_refusals.py": 3,
    "tests/side_by_side.py": 1,
    "tests/slurm_client/test_what_is_admitted.py": 1,
    "tests/turns/test_ranking.py": 1,
    "tests/turns/test_retries.py": 2,
}
"""By file: the allowed number of uses of private attributes. Most uses check the absence of data about
forgotten objects. Lower a number after you have removed a use."""
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
_HARMLESS = "|".join(each.removeprefix("_") for each in OF_NAMED_TUPLES)
_MAY_POKE = re.compile(rf"(?<![^.\w]self)(?<![^.\w]cls)\._(?!_|(?:{_HARMLESS})\b)")


def modules_of(tree: ast.Module) -> set[str]:
    """Returns all imported names of a file. Each of the names may be a module."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name.partition(".")[0] for each in imports for alias in each.names}


def pokes(file: Path) -> list[str]:
    """Returns the private attributes of other objects that a test file uses. A private function of an
    imported module does not count."""
    text = file.read_text()
    if not _MAY_POKE.search(text):
        return []
    tree = ast.parse(text)
    own = {"self", "cls"} | modules_of(tree)
    return [
        f"{node.attr}, line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in OF_NAMED_TUPLES
        and not (isinstance(node.value, ast.Name) and node.value.id in own)
        and ast.unparse(node.value) != "super()"
    ]


def test_tests_use_no_private_attributes() -> None:
    found = {str(file.relative_to(CHECKOUT)): pokes(file) for file in (CHECKOUT / "tests").rglob("*.py")}
    assert {name: at for name, at in found.items() if len(at) != STILL_THERE.get(name, 0)} == {}
