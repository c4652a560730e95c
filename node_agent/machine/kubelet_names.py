"""Names of devices for the kubelet. The vendors' own plugins use the same names."""

from collections.abc import Container, Mapping

from node_agent.machine.devices import Files, Names
from node_agent.machine.gpu_vendors import may_be
from node_agent.machine.numbered import Machine, Unit

Called = Mapping[Files, Names]
"""Names of a device, by the set of the device's files."""


def units_of(
    machine: Machine, called: Called, resource: str, wanted: str, plain: Container[str] = ()
) -> dict[str, Unit]:
    """Returns the devices of an extended resource by the kubelet's names. Parameter `wanted` is a GRES,
    or a GRES with a type. If Slurm divides a device into parts, each part has a name. A vendor's
    resource has only the vendor's devices. Parameter `plain` has the plain names (`Unit.plain`) that
    must stay in use."""
    name, _, kind = wanted.partition(":")
    return {
        _name(unit, called, plain): unit
        for unit in machine.units(name)
        if unit.part.device.type.lower() == (kind or unit.part.device.type).lower()
        and may_be(resource, unit.part.device)
    }


def _name(unit: Unit, called: Called, plain: Container[str]) -> str:
    name = names_of(unit, called).kubelet
    return unit.named(name) if name and unit.plain not in plain else unit.plain


def is_named(unit: Unit, called: Called) -> bool:
    """Returns False if the driver must report the device, but reports no name."""
    vendor = unit.part.device.vendor
    return vendor is None or vendor.must_report is None or bool(names_of(unit, called).kubelet)


def names_of(unit: Unit, called: Called) -> Names:
    """Returns the names of a device, as far as known."""
    return called.get(frozenset(unit.part.device.files), Names())
