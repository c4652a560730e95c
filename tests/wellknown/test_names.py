"""Tests that only the module `names` contains the texts of names of annotations, labels, taints and
conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.test_sizes import FILES
from wellknown import names

OTHERS = {
    names.GATE,
    names.CONDITION,
    names.DEVICE_PROBLEM,
    names.DEVICES,
    names.LINGERING,
    names.SLURM_OUT_OF_SERVICE,
    names.OUT_OF_SERVICE,
    names.SLURMD,
    names.SLURMD_PROBLEM,
    names.POOL,
    names.PODS_REJECTED,
    names.RELEASE_NAMESPACE,
    names.REVISION,
}
"""Names of labels, taints, conditions and gates, and of annotations on objects other than Pods."""
OWN = {each for each in vars(names).values() if str(each).startswith(names.DOMAIN)} - {names.DOMAIN}
NOTES = OWN - OTHERS
"""Annotations on Pods that only the extender writes."""


def literals(code: str) -> Iterator[str]:
    """Yields the string constants of a module, but not the docstrings."""
    tree = ast.parse(code)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_only_the_names_module_spells_a_name() -> None:
    spelt = (names.DOMAIN, names.DEFAULT_PREFIX, names.NODE_NAME_LABEL)
    for file in FILES:
        found = [text for text in literals(file.read_text()) if any(name in text for name in spelt)]
        assert not found or file.name == "names.py", file
