"""Fixtures: a Node, and a fake NVML as the first library of this name in the loader's path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_agent.reporting import device_health
from tests.cgroup_tree import mounted
from tests.node_agent.machines import NVML, Gpus, build_nvml
from tests.node_agent.node import Node


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a fake libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    build_nvml(folder / NVML)
    return folder


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Gpus:
    return Gpus(tmp_path, nvml_library)


@pytest.fixture
def node(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    """A Node with the cgroup driver cgroupfs, or with each driver (`with_each_driver`)."""
    monkeypatch.setattr(device_health, "_LOOK_S", 0.05)
    with mounted(tmp_path) as tree:
        yield Node(tree, tmp_path, getattr(request, "param", ""))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Folder with a short path, for sockets: the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="node-agent-") as folder:
        yield Path(folder)
