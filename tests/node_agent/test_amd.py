"""Tests of AMD's GPUs, as sysfs describes the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node_agent.machine import names
from node_agent.machine.vendors.amd import AMD

if TYPE_CHECKING:
    from pathlib import Path

BUSES = ("0000:c1:00.0", "0000:23:00.0")


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    """Two GPUs, and an audio device of the same vendor."""
    for number, bus in enumerate(BUSES):
        add(tmp_path / bus, {"class": "0x120000"}, render=128 + number)
    add(tmp_path / "0000:23:00.1", {"class": "0x040300"}, render=None)
    return tmp_path


def add(place: Path, files: dict[str, str], render: int | None) -> None:
    place.mkdir(parents=True)
    place_of_gpu = {"vendor": "0x1002", "numa_node": "0", "local_cpulist": "0-3"}
    names = {"unique_id": "a1b2c3d4e5f60718", "product_name": "AMD Instinct MI300X"}
    for name, content in (place_of_gpu | names | files).items():
        (place / name).write_text(f"{content}\n")
    if render is not None:
        (place / f"drm/renderD{render}").mkdir(parents=True)


def test_gpus_are_in_the_order_of_their_buses(pci: Path) -> None:
    first, second = AMD.read(pci)
    assert (first.bus, first.files) == ("0000:23:00.0", ("/dev/dri/renderD129",))
    assert (second.bus, second.files) == ("0000:c1:00.0", ("/dev/dri/renderD128",))
    assert (first.type, first.uuid) == ("amd_instinct_mi300x", "GPU-a1b2c3d4e5f60718")
    assert (first.numa_node, first.cpus) == (0, (0, 1, 2, 3))
    assert (first.links, second.links) == ((-1, 0), (0, -1))


def test_gpu_without_a_product_name_has_a_default_type(pci: Path) -> None:
    (pci / BUSES[0] / "product_name").unlink()
    assert [gpu.type for gpu in AMD.read(pci)] == ["amd_instinct_mi300x", "amd_gpu"]


def test_failed_memory_is_reported(pci: Path) -> None:
    for bus, errors in zip(BUSES, (0, 2), strict=True):
        (pci / bus / "ras").mkdir()
        (pci / bus / "ras/umc_err_count").write_text(f"ue: {errors}\nce: 5\n")
    words = "2 errors of its memory could not be corrected"
    assert [gpu.problem for gpu in AMD.read(pci)] == [words, ""]


def test_gpus_that_no_driver_reports_are_found_by_their_bus(pci: Path) -> None:
    assert names.without_driver(AMD.read(pci), pci) == []
    nvidias = "0000:19:00.0"
    add(pci / nvidias, {"class": "0x030200", "vendor": "0x10de"}, render=None)
    assert names.without_driver(AMD.read(pci), pci) == [nvidias]
    (pci / BUSES[0] / "drm/renderD128").rmdir()
    assert [gpu.bus for gpu in AMD.read(pci)] == [BUSES[1]]
    (pci / BUSES[1] / "drm/renderD129").rmdir()
    assert names.without_driver(AMD.read(pci), pci) == [nvidias, *sorted(BUSES)]
