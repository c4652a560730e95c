"""Writes lines of gres.conf(5) for the devices of this machine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Device
from wellknown import number_list


def gres_conf(devices: Sequence[Device], cpus: Cpus) -> str:
    """Returns the lines of gres.conf(5). Slurm numbers the devices of a name in the order of the
    lines."""
    return "".join(f"{_line(device, cpus)}\n" for device in devices)


def _line(device: Device, cpus: Cpus) -> str:
    fields = {"Name": device.name, "Type": device.type}
    fields["File" if len(device.files) == 1 else "MultipleFiles"] = ",".join(device.files)
    if device.cpus:
        fields["Cores"] = number_list.compress(cpus.cores_of(device.cpus))
    if device.links:
        fields["Links"] = ",".join(map(str, device.links))
    return " ".join(f"{key}={value}" for key, value in fields.items() if value)


def with_files(device: Device) -> Device:
    """Returns the device. If a file of the device is missing, the result is marked as absent."""
    missing = [file for file in device.files if not Path(file).is_char_device()]
    if device.absent or not missing:
        return device
    return replace(device, problem=f"{', '.join(missing)}: no such device", absent=True)
