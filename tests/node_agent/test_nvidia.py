"""NVIDIA's GPUs as NVML tells of them: whole ones, instances of MIG, and those that have failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from node_agent.machine import names
from node_agent.machine.devices import Answers, Device
from node_agent.machine.gpu_vendors import with_vendor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.node_agent.machines import Gpus

_READ = """
import sys, pathlib
from node_agent.machine.vendors.nvidia import NVIDIA
NVIDIA.read(pathlib.Path(sys.argv[1]))
"""
INSTANCE = "NVIDIA_A100-SXM4-40GB_MIG_1g.5gb"


def test_a_gpu_is_what_slurms_own_detection_would_find(gpus: Gpus) -> None:
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
        "problem": "",
        "absent": False,
        "shared": {},
        "vendor": "NVIDIA",
    }


def test_gpus_are_in_the_order_of_their_buses_whatever_their_files(gpus: Gpus) -> None:
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


def test_a_machine_that_does_not_tell_what_is_near_has_no_cpus_near(gpus: Gpus) -> None:
    gpus.add(node=-1, cpus="0-7")
    gpus.add()
    for name in ("numa_node", "local_cpulist"):
        (gpus.pci / "0000:1a:00.0" / name).unlink()
    first, second = gpus.read()
    assert (first["numa_node"], first["cpus"]) == (None, list(range(8)))
    assert (second["numa_node"], second["cpus"]) == (None, [])


# MIG


def test_instances_are_in_the_place_of_their_gpu(gpus: Gpus) -> None:
    gpus.add(minor=0, mig=1, name="NVIDIA_A100-SXM4-40GB")
    gpus.add(minor=1, mig=0, name="NVIDIA_A100-SXM4-40GB")
    gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE)
    gpus.say("mig", gpu=0, gi=9, ci=0, uuid="MIG-b", name=INSTANCE.replace("1g", "2g"))
    caps = {"gi7": 66, "gi7/ci0": 67, "gi9": 84, "gi9/ci0": 85}
    lines = ["config 1", *(f"gpu0/{part}/access {number}" for part, number in caps.items())]
    gpus.mig_minors.write_text("\n".join(lines))
    found = gpus.read()
    assert [gpu["uuid"] for gpu in found] == ["MIG-a", "MIG-b", "GPU-1"]
    assert [gpu["type"] for gpu in found] == [
        "nvidia_a100_1g.5gb",
        "nvidia_a100_2g.5gb",
        "nvidia_a100-sxm4-40gb",
    ]
    cap = "/dev/nvidia-caps/nvidia-cap"
    assert found[0]["files"] == ["/dev/nvidia0", f"{cap}66", f"{cap}67"]
    assert found[1]["files"] == ["/dev/nvidia0", f"{cap}84", f"{cap}85"]
    assert {gpu["problem"] for gpu in found} == {""}
    assert found[0]["links"] == []
    assert [gpu["mig"] for gpu in found] == ["1g.5gb", "2g.5gb", ""]


def test_an_instance_without_files_of_its_own_is_nobodys(gpus: Gpus) -> None:
    gpus.add(mig=1)
    gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE)
    (found,) = gpus.read()
    assert found["problem"] == "/proc/driver/nvidia-caps/mig-minors does not name its files"


def test_a_gpu_in_mig_mode_without_instances_is_nobodys(gpus: Gpus) -> None:
    gpus.add(mig=1)
    (found,) = gpus.read()
    assert found["problem"] == "it is in MIG mode, and has no instances"


# Failures


def test_a_gpu_that_fell_off_the_bus_keeps_its_place(gpus: Gpus) -> None:
    gpus.add()
    gpus.add(lost=1)
    gpus.add()
    first, lost, last = gpus.read()
    assert (first["uuid"], last["uuid"]) == ("GPU-0", "GPU-2")
    assert lost["problem"] == "GPU 1 of NVML: GPU is lost"
    assert lost["files"] == []


def test_a_gpu_that_is_lost_while_it_is_read_keeps_its_place_and_bus(gpus: Gpus) -> None:
    gpus.add(lost=2)
    gpus.add()
    lost, last = gpus.read()
    assert (lost["bus"], lost["problem"]) == ("0000:19:00.0", "NVML: GPU is lost")
    assert last["uuid"] == "GPU-1"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"failed": 1, "pending": 1}, "a row of its memory cannot be remapped: it is to be replaced"),
        ({"failed": 0, "pending": 1}, "a row of its memory is remapped at the next reset"),
        ({"retired": 1}, "a page of its memory is retired at the next reset"),
        ({"failed": 0, "pending": 0, "retired": 0}, ""),
    ],
)
def test_memory_that_has_failed_is_told_of(gpus: Gpus, fields: dict[str, Any], words: str) -> None:
    gpus.add(**fields)
    assert gpus.read()[0]["problem"] == words


def test_a_driver_that_is_not_loaded_is_an_error_that_says_so(gpus: Gpus) -> None:
    gpus.add()
    gpus.say("driver", error=9)
    done = gpus.run("-c", _READ, str(gpus.pci))
    assert "DriverUnavailable: Driver Not Loaded" in done.stderr


def test_an_instance_that_is_destroyed_while_it_is_read_is_told_of_and_the_other_gpus_are_too(
    gpus: Gpus,
) -> None:
    gpus.add(mig=1)
    gpus.say("mig", gpu=0, gi=7, ci=0, uuid="MIG-a", name=INSTANCE, lost=1)
    gpus.add()
    failed, other = gpus.read()
    assert (failed["bus"], failed["problem"]) == ("0000:19:00.0", "NVML: GPU is lost")
    assert other["uuid"] == "GPU-1"


def test_a_machine_without_gpus_needs_no_library(gpus: Gpus, tmp_path: Path) -> None:
    gpus.library = tmp_path
    assert gpus.read() == []


def test_no_library_is_an_error_that_says_so(gpus: Gpus, tmp_path: Path) -> None:
    gpus.add()
    gpus.library = tmp_path
    (tmp_path / "libnvidia-ml.so.1").touch()  # the loader looks no further: there may be a real one
    done = gpus.run("-c", _READ, str(gpus.pci))
    assert "DriverUnavailable: NVML Shared Library Not Found" in done.stderr


_LISTEN = """
import json, sys
from node_agent.machine.vendors.xid import XidWatch
watch = XidWatch()
told = [watch.wait(0.01) for _ in range(4)]
print(json.dumps([told, watch.complaints]))
"""


def test_complaints_of_the_driver_are_heard_but_for_those_of_programs(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    for gpu, code in ((1, 79), (0, 31), (1, 48)):
        gpus.say("xid", gpu=gpu, code=code)
    done = gpus.run("-c", _LISTEN)
    told, complaints = json.loads(done.stdout)
    assert told == [True, False, False, False]
    assert complaints == {"0000:1a:00.0": "its driver complains: XID 79"}


def test_errors_that_the_driver_has_dealt_with_are_left_to_the_questions_about_memory(
    gpus: Gpus,
) -> None:
    """They come again and again, and need no reset: the questions tell where they need one."""
    gpus.add()
    gpus.say("xid", gpu=0, code=63)
    gpus.say("xid", gpu=0, code=94)
    told, complaints = json.loads(gpus.run("-c", _LISTEN).stdout)
    assert told == [True, True, False, False]  # the questions are asked at once
    assert complaints == {}


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


def test_a_gpu_that_falls_off_the_bus_is_told_of_by_the_address_that_it_had(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    gpus.say("later", gpu=1, code=79)
    done = gpus.run("-c", _FALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, {"0000:1a:00.0": "its driver complains: XID 79"}]


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


def test_a_lost_gpu_keeps_nobody_from_hearing_of_the_others(gpus: Gpus) -> None:
    gpus.add()
    gpus.add()
    gpus.say("later", gpu=0, code=48)
    done = gpus.run("-c", _GO_ON)
    assert done.returncode == 0, done.stderr
    told, complaints = json.loads(done.stdout)
    assert told == ["GPU is lost", True, False]
    assert complaints == {"0000:19:00.0": "its driver complains: XID 48"}


def test_without_a_driver_there_is_nothing_to_hear(gpus: Gpus) -> None:
    gpus.say("driver", error=9)
    assert "DriverUnavailable: Driver Not Loaded" in gpus.run("-c", _LISTEN).stderr


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


def test_slurms_devices_have_their_uuids_and_what_is_wrong_with_them(gpus: Gpus) -> None:
    gpus.add(failed=1, pending=0)
    gpus.add(failed=0, pending=1)
    done = gpus.run("-c", _NAME)
    found, problems = json.loads(done.stdout)
    assert found == [
        ["GPU-0", "", "a row of its memory cannot be remapped: it is to be replaced"],
        [
            "GPU-1",
            "",
            "a row of its memory is remapped at the next reset; its driver complains: XID 79",
        ],
        ["", "", "NVML does not know it"],
    ]
    assert problems == []


def named(gpus: Gpus) -> list[str]:
    """Returns what is wrong with each of three GPUs that Slurm counts."""
    done = gpus.run("-c", _NAME)
    assert done.returncode == 0, done.stderr
    found, _ = json.loads(done.stdout)
    return [problem for _, _, problem in found]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lost": 1}, "GPU 1 of NVML: GPU is lost; 0000:1a:00.0: its driver complains: XID 79"),
        ({"lost": 2}, "NVML: GPU is lost; 0000:1a:00.0: its driver complains: XID 79"),
    ],
)
def test_a_gpu_that_fell_off_the_bus_is_the_one_that_slurm_counts_and_nvml_does_not_know(
    gpus: Gpus, fields: dict[str, Any], words: str
) -> None:
    """Its file stays."""
    gpus.add()
    gpus.add(**fields)
    gpus.add()
    assert named(gpus) == ["", f"NVML does not know it ({words})", ""]


def test_without_a_driver_nvidias_devices_cannot_be_used_and_others_can(gpus: Gpus) -> None:
    gpus.say("driver", error=9)
    assert (
        named(gpus)
        == [
            "NVML does not know it (NVML: Driver Not Loaded; 0000:1a:00.0: its driver complains: XID 79)"
        ]
        * 3
    )
    other = with_vendor(Device("gpu", "", ("/dev/dri/renderD128",)))
    found, _ = names.read([other], [], Answers())
    assert found[frozenset(other.files)].problem == ""


def test_a_complaint_about_nobody_knows_which_gpu_is_of_all_of_them() -> None:
    files = ("/dev/nvidia0", "/dev/dri/renderD128")
    devices = [with_vendor(Device("gpu", "", (file,))) for file in files]
    found, _ = names.read(devices, [], None, {"NVIDIA": {"": "its driver complains: XID 79"}})
    assert [found[frozenset(device.files)].problem for device in devices] == [
        "its driver complains: XID 79",
        "",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bus": "?"}, "GPU 1 of NVML: invalid literal for int"),
        ({"name": "\udcff"}, "NVML: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_gpu_whose_answers_are_garbage_is_lost_and_the_others_are_told_of(
    gpus: Gpus, fields: dict[str, Any], words: str
) -> None:
    gpus.add()
    gpus.add(**fields)
    first, failed = gpus.read()
    assert first["uuid"] == "GPU-0"
    assert failed["problem"].startswith(words)
    assert (failed["files"], failed["absent"]) == ([], True)
