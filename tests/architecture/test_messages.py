"""Tests of messages to people: no message shows the repr of a Python value."""

from __future__ import annotations

import ast

import pytest

from deploy.local.layout import CHECKOUT

PACKAGES = (
    "extender",
    "kubernetes_client",
    "node_agent",
    "service",
    "slurm_client",
    "slurm_cluster",
    "wellknown",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_message_shows_a_python_repr(package: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}"
        for path in sorted((CHECKOUT / package).rglob("*.py"))
        if "!r" in (text := path.read_text()) or "repr" in text
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.FormattedValue) and node.conversion == ord("r"))
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "repr")
    ]
    assert found == []
