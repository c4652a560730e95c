"""NVML as the agent's programs find it: a library of that name, the first in the loader's path."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.node_agent.machines import Gpus


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml.c")
    library = folder / "libnvidia-ml.so.1"
    assert shutil.which("cc"), "a C compiler is needed: apt-get install gcc libc6-dev"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return folder


@pytest.fixture
def gpus(nvml_library: Path, tmp_path: Path) -> Gpus:
    return Gpus(tmp_path, nvml_library)
