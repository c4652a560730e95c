"""NVML as the agent's programs find it: a library of that name, the first in the loader's path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cgroup_tree import mounted
from tests.node_agent.machines import NVML, Gpus, build_nvml
from tests.node_agent.node import Node


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    build_nvml(folder / NVML)
    return folder


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Gpus:
    return Gpus(tmp_path, nvml_library)


@pytest.fixture(params=["", ".slice"], ids=["cgroupfs", "systemd"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    with mounted(tmp_path) as tree:
        yield Node(tree, tmp_path, request.param)


@pytest.fixture
def one_driver(tmp_path: Path) -> Iterator[Node]:
    with mounted(tmp_path) as tree:
        yield Node(tree, tmp_path, "")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """One for sockets: their paths may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="node-agent-") as folder:
        yield Path(folder)
