"""Tests of the reasons of conditions and Events: the code takes each reason from wellknown.names, and a
page explains each reason."""

from __future__ import annotations

import ast
import re

import pytest

from deploy.local.layout import CHECKOUT
from wellknown.names import NodeReason, Reason

TREES = [ast.parse(path.read_text()) for path in sorted((CHECKOUT / "extender").rglob("*.py"))]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
EXPLAINED = set(re.findall(r"`(\w+)`", "\n".join(page.read_text() for page in PAGES)))
COMPOSED = ("Unavailable", "NeedsOperator")
"""Second parts of composed reasons. The first part is the name of the failed system."""


@pytest.mark.parametrize("reason", [*Reason, *NodeReason])
def test_every_reason_is_explained_on_a_page(reason: str) -> None:
    assert reason in EXPLAINED


def test_each_reason_is_used_in_the_code() -> None:
    used = {
        node.attr
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("Reason", "NodeReason")
    }
    listed = {each.name for each in (*Reason, *NodeReason) if not each.endswith(COMPOSED)}
    assert listed == used


def test_code_uses_no_unlisted_reason() -> None:
    literals = [
        node.value
        for tree in TREES
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _called(call) in ("Cause", "NodeCondition", "shown")
        for node in call.args
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [each for each in literals if re.fullmatch(r"[A-Z]\w+", each)] == []


def _called(call: ast.Call) -> object:
    return getattr(call.func, "id", getattr(call.func, "attr", None))
