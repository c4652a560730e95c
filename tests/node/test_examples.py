"""Tests that numbered examples pass with a real kubelet, instead of kwok, and with real containers."""

from __future__ import annotations

import pytest

from deploy.local.guest.nodes import GPU
from deploy.local.guest.oci import BOX
from tests.examples.reader import Reader
from tests.node.conftest import WITH_NRI
from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

GUESTS = WITH_NRI[:1]
NAMES = (
    "01-a-pod",
    "03-a-job",
    "06-waiting",
    "07-a-gpu",
    "13-a-cron-job",
    "20-a-drain",
)
"""Examples in which containers start and end, or devices are granted."""


@pytest.mark.parametrize("name", NAMES)
def test_example_passes_with_real_containers(node: RealNode, name: str) -> None:
    told = Reader(node.cluster).runs(name, IMAGE=BOX, GPU=GPU, WITHIN="120")
    assert told.verdict == "PASS", told
