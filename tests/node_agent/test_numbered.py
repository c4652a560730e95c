"""Tests of the machine's devices, by the numbers of the devices' files."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from node_agent.machine.devices import Device, Number
from node_agent.machine.numbered import Machine

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, name: str, major: int, minor: int) -> str:
    os.mknod(folder / name, 0o20666, os.makedev(major, minor))
    return str(folder / name)


def graphics(folder: Path, *nodes: tuple[str, int, str, str]) -> Path:
    """Writes sysfs for files in /dev/dri: name of the file, minor number, device, and driver."""
    for name, minor, of, driver in nodes:
        device, node = folder / "devices" / of, folder / "drm" / name
        device.mkdir(parents=True, exist_ok=True)
        node.mkdir(parents=True)
        (node / "dev").write_text(f"226:{minor}\n")
        (node / "device").symlink_to(device)
        if driver and not (device / "driver").exists():
            (folder / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(folder / "drivers" / driver)
    (folder / "drm/card0-DP-1").mkdir()  # a connector has no file
    return folder / "drm"


def gpu(*files: str) -> Device:
    return Device("gpu", "h100", files)


def test_devices_are_found_by_slurms_numbers(tmp_path: Path) -> None:
    files = [made(tmp_path, f"d{minor}", 60, minor) for minor in (5, 3)]
    machine = Machine([*map(gpu, files), Device("fpga", "", (made(tmp_path, "f", 61, 0),))])
    assert machine.guarded == {Number(60, 5), Number(60, 3), Number(61, 0)}
    (second, fpga) = machine.parts({"gpu": (1,), "fpga": (0,)})
    assert second.numbers == {Number(60, 3)}
    assert fpga.numbers == {Number(61, 0)}
    assert machine.problems == {}


def test_every_gpu_of_nvidia_is_guarded_if_slurm_counts_one() -> None:
    machine = Machine([gpu("/dev/nvidia1")])
    assert {Number(195, minor) for minor in (0, 1, 253)} < machine.guarded
    assert not {Number(195, minor) for minor in (254, 255)} & machine.guarded


CONSOLES = ("card2", 2, "0000:02:00.0", "ast")
AMDS = [
    ("card0", 0, "0000:23:00.0", "amdgpu"),
    ("renderD128", 128, "0000:23:00.0", "amdgpu"),
    ("card1", 1, "0000:c1:00.0", "amdgpu"),  # Slurm does not count this GPU
    ("renderD129", 129, "0000:c1:00.0", "amdgpu"),
    ("renderD130", 130, "amdgpu_xcp.0", ""),  # a part of a GPU
]


@pytest.mark.parametrize(
    ("nodes", "guarded"),
    [([*AMDS, CONSOLES], (0, 1, 128, 129, 130)), ([("renderD128", 128, "x", ""), CONSOLES], (2, 128))],
    ids=["known driver", "unknown driver"],
)
def test_all_files_of_a_graphics_driver_are_guarded(
    tmp_path: Path, nodes: list[tuple[str, int, str, str]], guarded: tuple[int, ...]
) -> None:
    """Each file of a GPU gives access to the GPU."""
    drm = graphics(tmp_path, *nodes)
    machine = Machine([gpu(made(tmp_path, "renderD128", 226, 128))], nodes=drm)
    assert machine.guarded == {Number(226, minor) for minor in guarded}
    assert machine.parts({"gpu": (0,)})[0].numbers == {Number(226, 128)}
    other = Machine([gpu(made(tmp_path, "d", 60, 0))], nodes=drm)
    assert other.guarded == {Number(60, 0)}  # Slurm counts no graphics file


def test_mig_instances_share_the_file_of_their_gpu(tmp_path: Path) -> None:
    whole, *caps = (made(tmp_path, f"d{minor}", 60, minor) for minor in (0, 11, 12))
    one, other = Machine([gpu(whole, cap) for cap in caps]).parts({"gpu": (0, 1)})
    assert one.numbers == {Number(60, 0), Number(60, 11)}
    assert one.own == {Number(60, 11)}
    assert other.own == {Number(60, 12)}


def test_absent_device_keeps_its_number_and_is_reported(tmp_path: Path) -> None:
    gone, file = str(tmp_path / "gone"), tmp_path / "file"
    file.touch()
    machine = Machine([gpu(gone), gpu(str(file)), gpu(made(tmp_path, "d", 60, 0))])
    assert machine.problems == {
        "gpu 0": f"{gone}: No such file or directory",
        "gpu 1": f"{file} is no character device",
    }
    assert machine.parts({"gpu": (2,)})[0].numbers == {Number(60, 0)}
    with pytest.raises(ValueError, match=r"gpu 0: .*gone: No such file"):
        machine.parts({"gpu": (0, 2)})


def test_parts_of_a_gpu_have_its_number_and_are_counted_one_by_one(tmp_path: Path) -> None:
    files = [made(tmp_path, f"d{minor}", 60, minor) for minor in (5, 3)]
    first, second = (
        replace(gpu(file), shared={"shard": n}) for file, n in zip(files, (2, 1), strict=True)
    )
    machine = Machine([first, second])
    (whole,), (part,) = machine.parts({"gpu": (1,)}), machine.parts({"shard": (1,)})
    assert (part.in_part, whole.in_part) == (True, False)
    assert part._replace(in_part=False) == whole
    assert [unit.plain for unit in machine.units("gpu")] == ["gpu-0", "gpu-1"]
    shards = [*machine.units("shard")]
    assert [unit.plain for unit in shards] == ["shard-0-0", "shard-0-1", "shard-1-0"]
    assert [(unit.number, unit.named("GPU-a")) for unit in shards] == [
        (0, "GPU-a::0"),
        (0, "GPU-a::1"),
        (1, "GPU-a::0"),
    ]
    assert [*machine.units("mps")] == []
    with pytest.raises(ValueError, match="Slurm does not say which shard it has"):
        machine.parts({"shard": ()})


def test_duplicate_device_or_device_of_all_programs_is_an_error(tmp_path: Path) -> None:
    file = made(tmp_path, "d", 60, 0)
    with pytest.raises(ValueError, match="gpu has no file of its own"):
        Machine([gpu(file), Device("fpga", "", (file,))])
    for shared in ("/dev/null", "/dev/tty"):
        with pytest.raises(ValueError, match="every program needs it"):
            Machine([gpu(shared)])


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"gpu": (1,)}, "Slurm gave it gpu 1, and this machine has 1"),
        ({"nic": (0,)}, "Slurm gave it nic 0, and this machine has 0"),
        ({"gpu": ()}, "Slurm does not say which gpu it has"),
    ],
)
def test_missing_device_is_an_error(tmp_path: Path, wanted: dict[str, Any], words: str) -> None:
    machine = Machine([gpu(made(tmp_path, "d", 60, 0))])
    with pytest.raises(ValueError, match=words):
        machine.parts(wanted)
    assert machine.parts({"nic": ()}) == []
