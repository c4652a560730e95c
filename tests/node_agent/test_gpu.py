"""Tests on a machine with real NVIDIA GPUs (`make test-gpu`): reports of NVML, and the guard's
protection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from node_agent.command_line import app
from node_agent.kernel.device_guard import DeviceGuard, number_of
from node_agent.machine.gres_conf import with_files
from node_agent.machine.numbered import Machine
from node_agent.machine.vendors.nvidia import NVIDIA
from tests.cgroup_tree import Tree, mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.gpu

_COMPUTE = """
import ctypes, json, os, sys
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
cuda = ctypes.CDLL("libcuda.so.1")
said = {"init": cuda.cuInit(0), "devices": [], "sum": None}
count = ctypes.c_int()
if not said["init"]:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    uuid = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid(uuid, number)
    said["devices"].append(bytes(uuid).hex())
if count.value:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    assert not cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
    assert not cuda.cuMemAlloc_v2(ctypes.byref(memory), 4096)
    there, back = (ctypes.c_ubyte * 4096)(*[1] * 4096), (ctypes.c_ubyte * 4096)()
    assert not cuda.cuMemcpyHtoD_v2(memory, there, 4096)
    assert not cuda.cuMemcpyDtoH_v2(back, memory, 4096)
    said["sum"] = sum(back)
print(json.dumps(said))
"""
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
POD = "kubepods/burstable/podA"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with mounted(tmp_path) as found:
        found.make(f"{POD}/c")
        yield found


def compute(tree: Tree, cgroup: str) -> dict[str, Any]:
    """Runs CUDA in a process of a cgroup, and returns the results. The process copies 4,096 ones to the
    first GPU and back."""
    argv = [sys.executable, "-c", _COMPUTE, str(tree.root / cgroup / "cgroup.procs")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_gpus_are_those_that_nvidia_smi_shows() -> None:
    query = ["nvidia-smi", "--query-gpu=uuid,pci.bus_id,name", "--format=csv,noheader"]
    shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [with_files(gpu) for gpu in NVIDIA.read()]
    assert [(gpu.uuid, gpu.bus, gpu.type) for gpu in found] == [
        (uuid, bus[4:].lower(), name.lower().replace(" ", "_"))
        for uuid, bus, name in (line.split(", ") for line in shown)
    ]
    assert [(gpu.problem, gpu.absent) for gpu in found] == [("", False)] * len(shown)


def test_every_gpu_has_a_line_of_gres_conf() -> None:
    told = CliRunner().invoke(app, ["gres-conf"])
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    assert len(lines) == len(NVIDIA.read()) > 0
    assert all(
        line.startswith("Name=gpu Type=nvidia_") and " File=/dev/nvidia" in line for line in lines
    )


def test_pod_computes_only_on_gpus_that_it_may_open(tree: Tree) -> None:
    gpus = NVIDIA.read()
    machine = Machine(gpus)
    numbers = [min(part.numbers) for part in machine.parts({"gpu": range(len(gpus))})]
    guard = DeviceGuard(tree.bpf)
    guard.put_on(tree.root / "kubepods", 2)
    guard.close(numbers)
    assert compute(tree, f"{POD}/c") == {"init": NO_DEVICE, "devices": [], "sum": None}
    own_gpu = {(number_of(tree.root / POD), numbers[-1], False)}
    guard.change(set(), own_gpu)
    said = compute(tree, f"{POD}/c")
    own = gpus[-1].uuid.removeprefix("GPU-").replace("-", "")
    assert said == {"init": 0, "devices": [own], "sum": 4096}
    guard.change(own_gpu, set())
    assert compute(tree, f"{POD}/c")["init"] == NO_DEVICE


def test_nvml_shows_no_gpu_to_a_pod_without_access(tree: Tree) -> None:
    """NVML shows an agent in a Pod only the GPUs that the Pod can open. So the agent counts the GPUs by
    slurmd's list, and not by NVML."""
    guard = DeviceGuard(tree.bpf)
    guard.put_on(tree.root / "kubepods", 2)
    guard.close(Machine(NVIDIA.read()).guarded)
    script = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    script += "from node_agent.machine.vendors.nvidia import NVIDIA\n"
    script += "print([one.problem for one in NVIDIA.read() if not one.absent])"
    argv = [sys.executable, "-c", script, str(tree.root / POD / "c/cgroup.procs")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.strip() in {"[]", ""}, done.stdout
