"""Tests of the vendor of a device in slurmd's list, and of the effects of the vendor."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.machine.devices import Device, Names, Number
from node_agent.machine.gpu_vendors import VENDORS, may_be
from node_agent.machine.numbered import Machine
from node_agent.runtime.container_devices import ContainerDevices, container_devices

RENDER, CARD = "/dev/dri/renderD128", "/dev/dri/card1"
AMD, INTEL, NVIDIA, OTHER = "0x1002", "0x8086", "0x10de", "0x1af4"


def device(drm: Path, pci: str, *files: str) -> Device:
    """Returns a device of slurmd's list. sysfs reports the vendor of the device's files, or no
    vendor."""
    for file in files:
        if file.startswith("/dev/dri/"):
            place = drm / Path(file).name / "device"
            place.mkdir(parents=True)
            if pci:
                (place / "vendor").write_text(f"{pci}\n")
    listed = Device("gpu", "", files)
    (known,) = Machine([listed], lambda _: (frozenset({Number(226, 128)}), ""), drm).devices
    return known


def test_an_intel_gpu_is_given_by_its_files_alone(tmp_path: Path) -> None:
    gpu = device(tmp_path, INTEL, CARD, RENDER)
    assert container_devices([gpu], {}, [gpu], ()) == ContainerDevices(frozenset({CARD, RENDER}))


@pytest.mark.parametrize(
    ("pci", "file", "resources"),
    [
        ("", "/dev/nvidia0", {"nvidia.com/gpu"}),
        (AMD, RENDER, {"amd.com/gpu"}),
        (INTEL, RENDER, {"gpu.intel.com/xe"}),
        (INTEL, CARD, {"gpu.intel.com/xe"}),  # slurmd detects Intel's GPUs by this file
        (NVIDIA, RENDER, set()),
        (OTHER, RENDER, set()),
        ("", RENDER, {"amd.com/gpu"}),  # a part of an AMD GPU has no bus
        ("", CARD, set()),
    ],
)
def test_vendor_resource_matches_only_devices_of_the_vendor(
    pci: str, file: str, resources: set[str], tmp_path: Path
) -> None:
    gpu = device(tmp_path, pci, file)
    vendors = {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe"}
    assert {each for each in vendors if may_be(each, gpu)} == resources
    assert may_be("example.com/gpu", gpu)


def test_a_device_has_one_vendor(tmp_path: Path) -> None:
    gpu = device(tmp_path, NVIDIA, "/dev/nvidia0", RENDER)
    given = container_devices([gpu], {frozenset(gpu.files): Names("GPU-a")}, [gpu], ())
    assert given.variables.keys() == {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    assert "/dev/kfd" not in given.common


def test_vendors_have_distinct_names_domains_and_pci_ids() -> None:
    for field in ("name", "domain", "pci"):
        assert len({getattr(vendor, field) for vendor in VENDORS}) == len(VENDORS)
