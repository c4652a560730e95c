"""Tests that docs/troubleshooting/operate.md names every component that /readyz may report."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from deploy.local.layout import CHECKOUT

PAGE = (
    (CHECKOUT / "docs" / "troubleshooting" / "operate.md")
    .read_text()
    .split("## What /readyz names", 1)[1]
)


def texts(tree: ast.Module) -> dict[str, str]:
    """Returns the string constants of a module, by name."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                found[name] = text
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                found[name] = text
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for each, value in zip(names, values, strict=True):
                    if isinstance(each, ast.Name) and isinstance(value, ast.Constant):
                        found[each.id] = str(value.value)
    return found


def named(path: Path) -> Iterator[str]:
    """Yields the names of the components that a module reports by `health.says(part, ...)`."""
    tree = ast.parse(path.read_text())
    constants = texts(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (part := _part(call)) is not None:
            match part:
                case ast.Constant(value=str(text)):
                    yield text
                case ast.Name(id=name) if name in constants:
                    yield constants[name]


def _part(call: ast.Call) -> ast.expr | None:
    """Returns the argument of a call that names the component; None if the call reports no component."""
    for function, part in zip((call.func, *call.args), call.args, strict=False):
        if ast.unparse(function).endswith("health.says"):
            return part
    return None


PARTS = {part for path in (CHECKOUT / "extender").rglob("*.py") for part in named(path)}


def test_page_names_each_part_of_readyz() -> None:
    assert {"Lease", "CPUs", "eviction limiter", "watch of Nodes", "roll-outs"} <= PARTS
    assert [part for part in sorted(PARTS) if f"`{part}`" not in PAGE] == []
