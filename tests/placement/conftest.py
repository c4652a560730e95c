"""Fixture with the world of the ledger's tests."""

from __future__ import annotations

import pytest

from tests.placement.ledger_world import World


@pytest.fixture
def world() -> World:
    """Returns a world of two Nodes without Pods."""
    return World()
