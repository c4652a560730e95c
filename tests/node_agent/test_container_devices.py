"""Tests of the devices and variables that a container gets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from node_agent.machine import names
from node_agent.machine.devices import Device, Names
from node_agent.machine.gpu_vendors import with_vendor
from node_agent.runtime.container_devices import ContainerDevices, container_devices

if TYPE_CHECKING:
    from pathlib import Path


def device(name: str, kind: str, *files: str) -> Device:
    return with_vendor(Device(name, kind, files))


GPU0, GPU1 = device("gpu", "h100", "/dev/nvidia0"), device("gpu", "h100", "/dev/nvidia1")
MIG = device("gpu", "1g", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3")
AMD = device("gpu", "mi300", "/dev/dri/renderD128")
FPGA = device("fpga", "", "/dev/fpga7")
NVIDIAS_VARIABLES = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
NVIDIAS_OWN = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}


def called(*devices: tuple[Device, Names]) -> dict[frozenset[str], Names]:
    return {frozenset(device.files): name for device, name in devices}


@pytest.mark.parametrize(
    ("devices", "common", "variables"),
    [
        ([(GPU1, "GPU-b"), (GPU0, "GPU-a")], NVIDIAS_OWN, NVIDIAS_VARIABLES),
        ([(MIG, "MIG-a")], NVIDIAS_OWN, NVIDIAS_VARIABLES),
        ([(AMD, "GPU-1234")], {"/dev/kfd"}, ["ROCR_VISIBLE_DEVICES"]),
    ],
)
def test_devices_come_with_files_and_uuids(
    devices: list[tuple[Device, str]], common: set[str], variables: list[str]
) -> None:
    known = called(*((device, Names(uuid)) for device, uuid in devices))
    given = container_devices([device for device, _ in devices], known, (), ())
    assert given.files == {file for device, _ in devices for file in device.files}
    assert given.common == common
    assert given.variables == dict.fromkeys(variables, ",".join(uuid for _, uuid in devices))


@pytest.mark.parametrize(
    ("parts", "counts", "percentage"),
    [
        ({"mps": 50}, (100, 100), "50"),
        ({"mps": 50}, (200, 100), "25"),
        ({"mps": 1}, (400, 100), "1"),  # the lowest percentage
        ({"mps": 150}, (100, 100), "150"),  # two GPUs (Flags=all_sharing): Slurm's own value
        ({"shard": 2}, (100, 100), None),
        ({}, (100, 100), None),
    ],
)
def test_mps_part_has_the_thread_percentage_that_slurm_sets(
    parts: dict[str, int], counts: tuple[int, int], percentage: str | None
) -> None:
    gpus = [replace(gpu, shared={"mps": n}) for gpu, n in zip((GPU0, GPU1), counts, strict=True)]
    known = called((GPU0, Names("GPU-a")), (GPU1, Names("GPU-b")))
    given = container_devices(gpus, known, gpus, (), parts)
    assert given.variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == percentage
    assert given.variables["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_device_with_a_cdi_specification_is_given_by_cdi_alone() -> None:
    given = container_devices([GPU0], called((GPU0, Names("GPU-a", "nvidia.com/gpu=0"))), (), ())
    assert given == ContainerDevices(
        cdi=frozenset({"nvidia.com/gpu=0"}),
        variables={"CUDA_VISIBLE_DEVICES": "GPU-a", "NVIDIA_VISIBLE_DEVICES": "void"},
    )


def test_only_gpus_need_a_uuid() -> None:
    assert container_devices([FPGA], {}, (), ()) == ContainerDevices(frozenset({"/dev/fpga7"}))
    with pytest.raises(ValueError, match="does not report the UUID of /dev/nvidia0"):
        container_devices([GPU0], {}, (), ())


def test_image_that_requests_all_gpus_gets_none() -> None:
    variable = "NVIDIA_VISIBLE_DEVICES"
    assert container_devices([], {}, [GPU0], [variable]).variables == {variable: "void"}
    assert container_devices([], {}, [GPU0], ["PATH"]) == ContainerDevices()
    assert container_devices([], {}, [AMD], [variable]) == ContainerDevices()  # the GPU is not NVIDIA's


def test_missing_devices_and_variables_are_named() -> None:
    given = ContainerDevices(
        frozenset({"/dev/a", "/dev/b"}), frozenset({"/dev/c"}), frozenset({"k=0"}), {"V": "1"}
    )
    assert given.missing(["/dev/a", "/dev/b"], ["k=0"], {"V": "1", "W": "2"}) == ""
    assert given.missing(["/dev/a"], [], {"V": "2"}) == "/dev/b, k=0, V"


# CDI


def spec(*devices: tuple[str, list[dict[str, str]]], kind: str = "nvidia.com/gpu") -> dict[str, Any]:
    made = [{"name": name, "containerEdits": {"deviceNodes": nodes}} for name, nodes in devices]
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": made}


def test_cdi_name_is_found_by_all_files_of_a_device(tmp_path: Path) -> None:
    zero, one = {"path": "/dev/nvidia0"}, {"path": "/dev/x", "hostPath": "/dev/nvidia1"}
    card = {"path": "/dev/dri/card0"}  # Slurm does not count this device
    gpus = spec(("all", [zero, one]), ("0", [zero, card]), ("1", [one]))
    (tmp_path / "a.yaml").write_text(yaml.dump(gpus))
    fpga = spec(("f", [{"path": "/dev/fpga7"}]), kind="x.com/fpga")
    (tmp_path / "b.json").write_text(json.dumps(fpga))
    (tmp_path / "c.txt").write_text("no specification")
    found, problems = names.read([GPU0, GPU1, FPGA], [tmp_path, tmp_path / "none"])
    assert problems == []
    cdi = [found[frozenset(device.files)].cdi for device in (GPU0, GPU1, FPGA)]
    assert cdi == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "x.com/fpga=f"]


MALFORMED = ["", "kind: x", "[", "kind: x\ndevices: [{name: 1, containerEdits: 7}]", "!!timestamp x"]


@pytest.mark.parametrize("text", [*MALFORMED, pytest.param("[" * 5000, id="RecursionError")])
def test_unreadable_cdi_specification_affects_no_other_specification(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.json").write_text(json.dumps(spec(("0", [{"path": "/dev/nvidia0"}]))))
    found, problems = names.read([GPU0], [tmp_path])
    assert found[frozenset(GPU0.files)].cdi == "nvidia.com/gpu=0"
    assert problems[0].startswith(f"{tmp_path}/a.yaml: ")


def test_new_cdi_specification_is_detected(tmp_path: Path) -> None:
    before = names.stamps([tmp_path])
    (tmp_path / "a.json").write_text("{}")
    assert names.stamps([tmp_path]) != before
