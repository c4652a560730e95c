"""The agent's annotation on its Node: the devices by Slurm's numbers, for readers of the Node. No
decision depends on the annotation. The functions are pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from kubernetes_client.protocol import Manifest
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import ITSELF, Device
from node_agent.machine.numbered import Machine
from wellknown import number_list
from wellknown.names import DEVICES

_VERSION: Final = 1
_LONGEST: Final = 65_536
"""Limit of the text in bytes. All annotations of a Node together may have 256 KiB. If kube-apiserver
rejected the annotation, the condition in the same write would be lost."""
_LONGEST_PROBLEM: Final = 200
_UNKNOWN: Final = Device("", "", ())


def text_of(
    machine: Machine, answers: Iterable[Device], failed: Mapping[str, str], cores: Cpus | None
) -> str:
    """Returns the annotation's text. Parameter `answers` has the devices that drivers report. Parameter
    `failed` has the problems of devices by Slurm's numbers, for example "gpu 3"."""
    known = {frozenset(device.files): device for device in answers}
    devices: list[dict[str, Any]] = []
    for name, parts in machine.by_name.items():
        drivers = [known.get(frozenset(part.device.files), _UNKNOWN) for part in parts]
        for index, (part, driver) in enumerate(zip(parts, drivers, strict=True)):
            fields = {
                "name": name,
                "index": index,
                "type": part.device.type,
                "files": part.device.files,
                "uuid": driver.uuid,
                "bus": driver.bus,
                "numaNode": driver.numa_node,
                "cores": number_list.compress(cores.cores_of(driver.cpus)) if cores else "",
                "links": _links(driver, drivers),
                "mig": driver.mig,
                "problem": failed.get(f"{name} {index}", "")[:_LONGEST_PROBLEM],
            }
            devices.append({key: value for key, value in fields.items() if value not in ("", [], None)})
    return _shortened(devices)


def text_on(node: Manifest) -> str | None:
    """Returns the annotation's text on a Node, or None if the Node has no such annotation."""
    return (node["metadata"].get("annotations") or {}).get(DEVICES)


def patch(text: str | None) -> dict[str, Any]:
    """Returns the patch that writes the text onto a Node. For None, returns {}."""
    return {} if text is None else {"metadata": {"annotations": {DEVICES: text}}}


def _links(driver: Device, drivers: Sequence[Device]) -> list[int]:
    """Returns the number of links to each device in Slurm's order, with ITSELF at the position of the
    device itself. Returns [] if the device has no links. `Device.links` is in the driver's order, not in
    Slurm's. In a device's `links`, the index of ITSELF is the index of the device in the driver's
    order."""
    if not _is_linked(driver):
        return []
    return [driver.links[each.links.index(ITSELF)] if _is_linked(each) else 0 for each in drivers]


def _is_linked(device: Device) -> bool:
    return any(count > 0 for count in device.links)


def _shortened(devices: Sequence[Mapping[str, Any]]) -> str:
    room = len(devices)
    while True:
        more = {"more": len(devices) - room} if room < len(devices) else {}
        text = orjson.dumps({"v": _VERSION, "devices": devices[:room], **more})
        if len(text) <= _LONGEST:
            return text.decode()
        room //= 2
