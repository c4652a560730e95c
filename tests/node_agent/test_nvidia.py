"""Tests of NVIDIA's GPUs from NVML: whole GPUs, instances of MIG, and failed GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node_agent.machine import names
from node_agent.machine.devices import Answers, Device, Number
from node_agent.machine.gpu_vendors import with_vendor
from node_agent.machine.vendors.nvidia import NVIDIA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_agent.machines import Gpus

_READ = """
import sys, pathlib
from node_agent.machine.vendors.nvidia import NVIDIA
NVIDIA.read(pathlib.Path(sys.argv[1]))
"""
INSTANCE = "NVIDIA_A100-SXM4-40GB_MIG_1g.5gb"


def test_gpu_equals_the_result_of_slurms_own_detection(gpus: Gpus) -> None:
    gpus.add(minor=3, node=1, cpus="8-15", failed=0, pending=0)
    (found,) = gpus.read()
    assert found == {
        "name": "gpu",
        "type": "nvidia_h100_80gb_hbm3",
        "files": ["/dev/nvidia3"],
        "uuid": "GPU-0",
        "bus": "0000:19:00.0",
        "numa_node": 1,
        "cpus": list(range(8, 16)),
        "links": [-1],
        "mig": "",
        "monitored": ["0", "GPU-0", ""],
        "problem": "",
        "absent": False,
        "shared": {},
        "vendor": "NVIDIA",
    }


def test_gpus_are_ordered_by_bus_and_not_by_file(gpus: Gpus) -> None:
    for minor in (2, 0, 1):
        gpus.add(minor=minor)
    found = gpus.read()
    assert [gpu["files"] for gpu in found] == [["/dev/nvidia2"], ["/dev/nvidia0"], ["/dev/nvidia1"]]
    assert [gpu["bus"] for gpu in found] == ["0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0"]


def test_links_are_counted_to_each_gpu_and_not_to_switches(gpus: Gpus) -> None:
    one, other, switch = "00000000:19:00.0", "00000000:1A:00.0", "00000000:F0:00.0"
    gpus.add(links=f"{other},{other},{switch}")
    gpus.add(links=f"{one},{one}")
    gpus.add()
    assert [gpu["links"] for gpu in gpus.read()] == [[-1, 2, 0], [2, -1, 0], [0, 0, -1]]


def test_gpu_without_locality_data_has_no_near_cpus(gpus: Gpus) -> None:
    gpus.add(node=-1, cpus="0-7")
    gpus.add()
    for name in ("numa_node", "local_cpulist"):
        (gpus.pci / "0000:1a:00.0" / name).unlink()
    first, second = gpus.read()
    assert (first["numa_node"], first["cpus"]) == (None, list(range(8)))
    assert (second["numa_node"], second["cpus"]) == (None, [])


# Instances of MIG


def test_mig_instances_replace_their_gpu_in_the_list(gpus: Gpus) -> None:
    gpus.add(minor=0, mig=1, name="NVIDIA_A100-SXM4-40GB")
    gpus.add(minor=1, mig=0, name="NVIDIA_A100-SXM4-40GB")
    gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE)
    gpus.say("mig", gpu=0, gi=9, ci=0, uuid="MIG-b", name=INSTANCE.replace("1g", "2g"))
    caps = {"gi7": 66, "gi7/ci0": 67, "gi9": 84, "gi9/ci0": 85}
    lines = ["config 1", *(f"gpu0/{part}/access {number}" for part, number in caps.items())]
    gpus.mig_minors.write_text("\n".join(lines))
    found = gpus.read()
    assert [gpu["uuid"] for gpu in found] == ["MIG-a", "MIG-b", "GPU-1"]
    types = ["nvidia_a100_1g.5gb", "nvidia_a100_2g.5gb", "nvidia_a100-sxm4-40gb"]
    assert [gpu["type"] for gpu in found] == types
    cap = "/dev/nvidia-caps/nvidia-cap"
    assert found[0]["files"] == ["/dev/nvidia0", f"{cap}66", f"{cap}67"]
    assert found[1]["files"] == ["/dev/nvidia0", f"{cap}84", f"{cap}85"]
    assert {gpu["problem"] for gpu in found} == {""}
    assert found[0]["links"] == []
    assert [gpu["mig"] for gpu in found] == ["1g.5gb", "2g.5gb", ""]
    monitored = [["0", "GPU-0", "7"], ["0", "GPU-0", "9"], ["1", "GPU-1", ""]]
    assert [gpu["monitored"] for gpu in found] == monitored


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        (1, "/proc/driver/nvidia-caps/mig-minors does not name its files"),
        (0, "it is in MIG mode, and has no instances"),
    ],
)
def test_gpu_without_usable_instances_has_a_problem(gpus: Gpus, instances: int, words: str) -> None:
    gpus.add(mig=1)
    for _ in range(instances):
        gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE)
    (found,) = gpus.read()
    assert found["problem"] == words


# Failures of GPUs


def test_lost_gpu_keeps_its_place(gpus: Gpus) -> None:
    gpus.add()
    gpus.add(lost=1)
    gpus.add(lost=2)  # lost during the read, so the address is known
    gpus.add()
    first, lost, late, last = gpus.read()
    assert (first["uuid"], last["uuid"]) == ("GPU-0", "GPU-3")
    assert (lost["files"], lost["problem"]) == ([], "GPU 1 of NVML: GPU is lost")
    assert (late["bus"], late["problem"]) == ("0000:1b:00.0", "NVML: GPU is lost")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"failed": 1, "pending": 1}, "a row of its memory cannot be remapped: replace the GPU"),
        ({"failed": 0, "pending": 1}, "a row of its memory is remapped at the next reset"),
        ({"retired": 1}, "a page of its memory is retired at the next reset"),
        ({"failed": 0, "pending": 0, "retired": 0}, ""),
    ],
)
def test_failed_memory_is_reported(gpus: Gpus, fields: dict[str, Any], words: str) -> None:
    gpus.add(**fields)
    assert gpus.read()[0]["problem"] == words


def test_driver_that_is_not_loaded_is_an_error(gpus: Gpus) -> None:
    gpus.add()
    gpus.say("driver", error=9)
    done = gpus.run(_READ)
    assert "DriverUnavailable: Driver Not Loaded" in done.stderr


def test_destroyed_instance_is_a_problem_of_its_gpu_alone(gpus: Gpus) -> None:
    gpus.add(mig=1)
    gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE, lost=1)
    gpus.add()
    failed, other = gpus.read()
    assert (failed["bus"], failed["problem"]) == ("0000:19:00.0", "NVML: GPU is lost")
    assert other["uuid"] == "GPU-1"


def test_machine_without_gpus_needs_no_library(gpus: Gpus, tmp_path: Path) -> None:
    gpus.library = tmp_path
    assert gpus.read() == []
    gpus.add()
    (tmp_path / "libnvidia-ml.so.1").touch()  # the loader stops here, before a real library
    assert "DriverUnavailable: NVML Shared Library Not Found" in gpus.run(_READ).stderr


_LISTEN = """
import json, sys
from node_agent.machine.vendors.xid import XidWatch
watch = XidWatch()
told = [watch.wait(0.01) for _ in range(4)]
print(json.dumps([told, watch.complaints]))
"""


def test_complaints_about_programs_are_ignored(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    for gpu, code in ((1, 79), (0, 31), (1, 48)):
        gpus.say("xid", gpu=gpu, code=code)
    told, complaints = gpus.told_by(_LISTEN)
    assert told == [True, False, False, False]
    assert complaints == {"0000:1a:00.0": "its driver complains: XID 79"}


def test_complaint_about_memory_only_causes_a_read(gpus: Gpus) -> None:
    """The complaint itself is no problem. NVML's report on memory decides whether the GPU needs a
    reset."""
    gpus.add()
    gpus.say("xid", gpu=0, code=63)
    gpus.say("xid", gpu=0, code=94)
    assert gpus.told_by(_LISTEN) == [[True, True, False, False], {}]


_CHANGE = """
import os, pathlib
state = pathlib.Path(os.environ["NVML_STATE"])
def change(*of):
    text = state.read_text()
    for before, after in of:
        text = text.replace(before, after)
    state.write_text(text)
"""
_FALL = f"""
{_CHANGE}
import json
from node_agent.machine.vendors.xid import XidWatch
watch = XidWatch()
watch.wait(0.01)
change(("uuid=GPU-1", "uuid=GPU-1 lost=3"), ("later", "xid"))
print(json.dumps([watch.wait(0.01), watch.complaints]))
"""


def test_complaint_about_a_lost_gpu_has_the_former_address(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    gpus.say("later", gpu=1, code=79)
    assert gpus.told_by(_FALL) == [True, {"0000:1a:00.0": "its driver complains: XID 79"}]


_GO_ON = f"""
{_CHANGE}
import json
from node_agent.machine.devices import DriverUnavailable
from node_agent.machine.vendors.xid import XidWatch
watch = XidWatch()
watch.wait(0.01)
change(("uuid=GPU-1", "uuid=GPU-1 lost=2 fails=1"))
told = []
for _ in range(3):
    try:
        told.append(watch.wait(0.01))
    except DriverUnavailable as error:
        told.append(str(error))
        change(("later", "xid"))
print(json.dumps([told, watch.complaints]))
"""


def test_lost_gpu_hides_no_complaint_about_others(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    gpus.say("later", gpu=0, code=48)
    told, complaints = gpus.told_by(_GO_ON)
    assert told == ["GPU is lost", True, False]
    assert complaints == {"0000:19:00.0": "its driver complains: XID 48"}


_NAME = """
import json
from node_agent.machine import names
from node_agent.machine.devices import Device
from node_agent.machine.vendors.nvidia import NVIDIA
NVIDIA.buses = lambda *_: ["0000:19:00.0"]
devices = [Device("gpu", "", (f"/dev/nvidia{number}",), vendor=NVIDIA) for number in range(3)]
complaints = {"NVIDIA": {"0000:1a:00.0": "its driver complains: XID 79"}}
found, problems = names.read(devices, [], names.ask_drivers(), complaints)
print(json.dumps([[found[frozenset(device.files)] for device in devices], problems]))
"""


def test_devices_of_slurm_have_uuids_and_problems(gpus: Gpus) -> None:
    gpus.add(failed=1, pending=0)
    gpus.add(failed=0, pending=1)
    found, problems = gpus.told_by(_NAME)
    replaced = "a row of its memory cannot be remapped: replace the GPU"
    remapped = "a row of its memory is remapped at the next reset; its driver complains: XID 79"
    assert found == [
        ["GPU-0", "", replaced, "GPU-0", ["0", "GPU-0", ""]],
        ["GPU-1", "", remapped, "GPU-1", ["1", "GPU-1", ""]],
        ["", "", "NVML does not know it", "", ["", "", ""]],
    ]
    assert problems == []


def named(gpus: Gpus) -> list[str]:
    """Returns the problem of each of three GPUs that Slurm counts."""
    return [problem for _, _, problem, *_ in gpus.told_by(_NAME)[0]]


@pytest.mark.parametrize(
    ("lost", "words"), [(1, "GPU 1 of NVML: GPU is lost"), (2, "NVML: GPU is lost")]
)
def test_lost_gpu_is_a_problem_of_an_unreported_device(gpus: Gpus, lost: int, words: str) -> None:
    """The device file of the lost GPU still exists."""
    gpus.add()
    gpus.add(lost=lost)
    gpus.add()
    why = f"NVML does not know it ({words}; 0000:1a:00.0: its driver complains: XID 79)"
    assert named(gpus) == ["", why, ""]


def test_missing_driver_is_a_problem_of_the_vendors_devices_alone(gpus: Gpus) -> None:
    gpus.say("driver", error=9)
    assert "DriverUnavailable: Driver Not Loaded" in gpus.run(_LISTEN).stderr
    why = "NVML: Driver Not Loaded; 0000:1a:00.0: its driver complains: XID 79"
    assert named(gpus) == [f"NVML does not know it ({why})"] * 3
    other = with_vendor(Device("gpu", "", ("/dev/dri/renderD128",)))
    found, _ = names.read([other], [], Answers())
    assert found[frozenset(other.files)].problem == ""


def test_complaint_without_a_gpu_is_a_problem_of_all_gpus_of_the_vendor() -> None:
    files = ("/dev/nvidia0", "/dev/dri/renderD128")
    devices = [with_vendor(Device("gpu", "", (file,))) for file in files]
    found, _ = names.read(devices, [], None, {"NVIDIA": {"": "its driver complains: XID 79"}})
    problems = [found[frozenset(device.files)].problem for device in devices]
    assert problems == ["its driver complains: XID 79", ""]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bus": "?"}, "GPU 1 of NVML: invalid literal for int"),
        ({"name": "\udcff"}, "NVML: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_gpu_with_malformed_replies_is_absent(gpus: Gpus, fields: dict[str, Any], words: str) -> None:
    gpus.add()
    gpus.add(**fields)
    first, failed = gpus.read()
    assert first["uuid"] == "GPU-0"
    assert failed["problem"].startswith(words)
    assert (failed["files"], failed["absent"]) == ([], True)


def test_configuration_file_of_mig_is_guarded_with_all_gpus(tmp_path: Path) -> None:
    """With access to this file, a program can end MIG instances of other jobs."""
    kernel, minors = tmp_path / "devices", tmp_path / "mig-minors"
    assert Number(195, 0) in NVIDIA.numbers(kernel, minors)  # without MIG
    kernel.write_text(
        "Character devices:\n195 nvidia\n235 nvidia-caps\n236 nvidia-caps-imex-channels\n\n"
        "Block devices:\n  8 sd\n"
    )
    minors.write_text("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
    assert {each for each in NVIDIA.numbers(kernel, minors) if each.major != 195} == {Number(235, 1)}
