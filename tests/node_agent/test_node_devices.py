"""Tests of the list of a Node's devices, as the agent writes the list on the Node."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Device, Number
from node_agent.machine.numbered import Machine
from node_agent.reporting import node_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

CORES = Cpus(tuple((core, core + 112) for core in range(112)))
UUID = "4c2f1d6e-5a0b-4d8e-9b1a-2c3d4e5f6a7b"


def gpu(number: int, **told: Any) -> Device:
    """Returns a GPU as the driver reports the GPU."""
    device = Device("gpu", "nvidia_h100_80gb_hbm3", (f"/dev/nvidia{number}",), uuid=f"GPU-{number}")
    near: dict[str, Any] = {"numa_node": number // 4, "cpus": tuple(range(112)) if number < 4 else ()}
    return replace(device, bus=f"0000:{0x19 + number:02x}:00.0", **(near | told))


def instance(number: int, of: int) -> Device:
    caps = (f"/dev/nvidia-caps/nvidia-cap{9000 + number * 2 + n}" for n in (0, 1))
    kind, files = "nvidia_h100_1g.10gb", (f"/dev/nvidia{of}", *caps)
    return gpu(of, type=kind, files=files, uuid=f"MIG-{UUID}", cpus=tuple(range(56)), mig="1g.10gb")


def machine(*devices: Device) -> Machine:
    """Returns the devices that slurmd counts, in slurmd's order. slurmd reports only type and files."""
    numbers = {file: Number(60, n) for n, file in enumerate({f for d in devices for f in d.files})}
    counted = [Device(device.name, device.type, device.files) for device in devices]
    return Machine(counted, lambda device: (frozenset(numbers[f] for f in device.files), ""))


def listed(*devices: Device, answers: Sequence[Device] = (), **failed: str) -> Any:
    words = {of.replace("_", " "): why for of, why in failed.items()}
    return json.loads(node_devices.text_of(machine(*devices), answers, words, CORES))


def test_each_device_has_slurms_number_and_its_drivers_data() -> None:
    tape = Device("tape", "", ("/dev/st0", "/dev/nst0"))
    told = listed(gpu(4), gpu(0), tape, answers=[gpu(0), gpu(4)], gpu_1="GPU is lost")
    shared = {"name": "gpu", "type": "nvidia_h100_80gb_hbm3"}
    four = {"index": 0, "files": ["/dev/nvidia4"], "uuid": "GPU-4", "bus": "0000:1d:00.0", "numaNode": 1}
    zero = {"index": 1, "files": ["/dev/nvidia0"], "uuid": "GPU-0", "bus": "0000:19:00.0", "numaNode": 0}
    assert told == {
        "v": 1,
        "devices": [
            shared | four,
            shared | zero | {"cores": "0-111", "problem": "GPU is lost"},
            {"name": "tape", "index": 0, "files": ["/dev/st0", "/dev/nst0"]},
        ],
    }


def test_node_without_devices_lists_none() -> None:
    assert listed() == {"v": 1, "devices": []}


def test_links_are_in_slurms_order_and_not_the_drivers_order() -> None:
    one, two, three = gpu(0, links=(-1, 4, 2)), gpu(1, links=(4, -1, 0)), gpu(2, links=(2, 0, -1))
    alone, amd = gpu(3, links=(0, 0, 0, -1)), gpu(4, links=(-1, 0))
    found = listed(three, amd, one, alone, two, answers=[one, two, three, alone, amd])["devices"]
    links = [device.get("links") for device in found]
    assert links == [[-1, 0, 2, 0, 0], None, [2, 0, -1, 0, 4], None, [0, 0, 4, 0, -1]]


def test_list_of_all_mig_instances_of_eight_gpus_fits() -> None:
    instances = [instance(of * 7 + n, of) for of in range(8) for n in range(7)]
    problems = {f"gpu_{n}": "a row of its memory is remapped at the next reset" for n in range(56)}
    told = listed(*instances, answers=instances, **problems)
    assert [(one["index"], one["mig"]) for one in told["devices"]] == [(n, "1g.10gb") for n in range(56)]
    assert len(json.dumps(told)) < 25_000


def test_devices_beyond_the_size_limit_are_only_counted() -> None:
    """kube-apiserver would reject a longer list, together with the condition in the same write."""
    many = [Device("gpu", "h100", (f"/dev/nvidia{number}",)) for number in range(1024)]
    problems = {f"gpu {number}": "\N{SNOWMAN}" * 1000 for number in range(1024)}
    text = node_devices.text_of(machine(*many), (), problems, None)
    assert len(text.encode()) <= 65_536
    told = json.loads(text)
    assert len(told["devices"]) + told["more"] == 1024
    assert told["devices"][0]["problem"] == "\N{SNOWMAN}" * 200


def test_written_device_list_is_read_back() -> None:
    node = {"metadata": {"name": "n1"}}
    assert node_devices.text_on(node) is None
    assert node_devices.text_on(node | node_devices.patch("text")) == "text"
    assert node_devices.patch(None) == {}
