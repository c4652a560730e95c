"""Tests of the node agent's settings from environment variables."""

from __future__ import annotations

import json

import pytest

from node_agent.settings import Settings


def test_resource_mapped_to_an_empty_name_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart sets this variable and a setting of the extender from the same value. In the extender's
    setting, a name may be empty."""
    monkeypatch.setenv("NODE_AGENT_NODE", "n1")
    monkeypatch.setenv("NODE_AGENT_GRES", "/run/gres")
    resources = {"nvidia.com/gpu": "gpu", "nvidia.com/hostdev": ""}
    monkeypatch.setenv("NODE_AGENT_RESOURCES", json.dumps(resources))
    assert Settings().resources == {"nvidia.com/gpu": "gpu"}
