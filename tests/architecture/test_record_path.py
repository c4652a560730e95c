"""Tests of the path of a record (a Placeholder) through the ledger: few functions handle the record, so
a reader can follow the path.

`python -m tests.architecture.test_record_path` prints the functions on each path.

The tests find a path in the source code. A path begins at a function with a Placeholder as an argument.
From each function, the path goes on to all called or passed functions, if these have a Placeholder as an
argument. Methods of Placeholder do not count.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

CHECKOUT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("extender/placement", "extender/turns", "extender/record", "extender/jobs")
SETTLED: Final = "extender.placement.settled.Settled"


class Function(NamedTuple):
    module: str
    owner: str | None
    """Name of the class, if the function is a method."""
    node: ast.FunctionDef


class Code(NamedTuple):
    functions: dict[str, Function]
    imports: dict[str, dict[str, str]]
    """By module: the full name of each imported name."""
    columns: dict[str, set[str]]
    """By column of TABLE: the functions in the column."""
    bases: dict[str, list[str]]
    """By class: the base classes."""


@cache
def _code() -> Code:
    code = Code({}, {}, {}, {})
    for package in PACKAGES:
        for file in sorted((CHECKOUT / package).rglob("*.py")):
            module = ".".join(file.relative_to(CHECKOUT).with_suffix("").parts)
            _read(code, module, ast.parse(file.read_text()))
    return code


def _read(code: Code, module: str, tree: ast.Module) -> None:
    code.imports[module] = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            code.functions[f"{module}.{node.name}"] = Function(module, None, node)
        if isinstance(node, ast.ClassDef):
            code.bases[node.name] = [ast.unparse(base) for base in node.bases]
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    code.functions[f"{module}.{node.name}.{each.name}"] = Function(
                        module, node.name, each
                    )
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for row in (call for call in calls if ast.unparse(call.func) == "Row"):
        for cell in row.keywords:
            named = _named(cell.value, module, code.imports[module])
            code.columns.setdefault(cell.arg or "", set()).update(named)


def _named(node: ast.AST, module: str, imports: dict[str, str]) -> Iterator[str]:
    """Yields the full names of functions that an expression may mean."""
    if isinstance(node, ast.Name):
        yield imports.get(node.id, f"{module}.{node.id}")
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield f"{imports.get(node.value.id, node.value.id)}.{node.attr}"


def _takes_record(function: Function) -> bool:
    arguments = function.node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    texts = (ast.unparse(each.annotation) for each in every if each.annotation is not None)
    return any(text.startswith("Placeholder") for text in texts) and function.owner != "Placeholder"


def _called(function: Function) -> Iterator[str]:
    functions, imports, columns, _ = _code()
    for node in ast.walk(function.node):
        yield from _named(node, function.module, imports[function.module])
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            yield f"{function.module}.{function.owner}.{node.attr}"
        elif "TABLE[" in ast.unparse(node.value) or ast.unparse(node.value) == "row":
            yield from columns.get(node.attr, ())
        elif isinstance(node.value, ast.Attribute) and ast.unparse(node.value.value) == "self":
            owner = _fields(function.owner).get(node.value.attr, "")
            yield from (name for name in functions if name.endswith(f".{owner}.{node.attr}"))


@cache
def _fields(owner: str | None) -> dict[str, str]:
    """Returns the class of each field of a class, if the code of __init__ shows it."""
    fields = dict[str, str]()
    for base in _code().bases.get(owner or "", ()):
        fields |= _fields(base)
    made = [each for name, each in _code().functions.items() if name.endswith(f".{owner}.__init__")]
    for each in made:
        arguments = (argument for argument in each.node.args.args if argument.annotation is not None)
        fields |= {argument.arg: ast.unparse(argument.annotation or each.node) for argument in arguments}
    for node in (node for each in made for node in ast.walk(each.node)):
        for target, value in _assigned(node):
            name = value.func if isinstance(value, ast.Call) else value
            fields[target.removeprefix("self.")] = fields.get(ast.unparse(name), ast.unparse(name))
    return fields


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Assign):
        return
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from (
            (ast.unparse(one), other) for one, other in zip(target.elts, value.elts, strict=True)
        )
    else:
        yield ast.unparse(target), value


def path(start: str) -> set[str]:
    """Returns all functions on the path from this function on."""
    functions, found, left = _code()[0], {start}, [start]
    while left:
        for name in _called(functions[left.pop()]):
            if name in functions and name not in found and _takes_record(functions[name]):
                found.add(name)
                left.append(name)
    return found


@pytest.mark.parametrize(("start", "most"), [("_settle", 40), ("_perform", 50), ("_note", 40)])
def test_record_passes_few_functions(start: str, most: int) -> None:
    passed = path(f"{SETTLED}.{start}")
    assert len(passed) < most, "\n".join(sorted(passed))


def test_number_of_functions_on_the_three_paths_is_limited() -> None:
    together = set[str]().union(
        *(path(f"{SETTLED}.{start}") for start in ("_settle", "_perform", "_note"))
    )
    assert len(together) <= 101, "\n".join(sorted(together))


def test_path_includes_functions_methods_and_the_table() -> None:
    assert "extender.placement.transitions.attempts.give_back" in path(f"{SETTLED}._settle")
    assert "extender.placement.index.Records.put" in path(f"{SETTLED}._settle")
    assert "extender.placement.transitions.next_effect.evict" in path(f"{SETTLED}._perform")


if __name__ == "__main__":
    for begin in ("_settle", "_perform", "_note"):
        sys.stdout.write("\n    ".join((begin, *sorted(path(f"{SETTLED}.{begin}")))) + "\n")
