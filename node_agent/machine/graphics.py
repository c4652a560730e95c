"""Finds the files of graphics drivers (/dev/dri) in sysfs. A GPU has several files. Each file gives
access to the whole GPU, even if Slurm counts another file."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from node_agent.machine.sysfs import text_of

MAJOR: Final = 226
"""The kernel's major number of the files (DRM_MAJOR)."""
NODES: Final = Path("/sys/class/drm")


def pci_vendor(file: str, nodes: Path = NODES) -> str:
    """Returns PCI's number of the vendor of a file in /dev/dri, or "" if sysfs names no vendor."""
    return text_of(nodes / Path(file).name / "device" / "vendor")


class _Node(NamedTuple):
    minor: int
    driver: str
    """Name of the driver, or "" if sysfs names no driver. A part of an AMD GPU (amdgpu_xcp) is a device
    without driver."""


def siblings(counted: Collection[int], nodes: Path = NODES) -> frozenset[int]:
    """Returns the minors of all files that have the same drivers as the files `counted`. Parameter
    `counted` has the minors of files that Slurm counts. The result includes files of unknown drivers. If
    the drivers of all counted files are unknown, the result includes every file."""
    if not counted:
        return frozenset()
    found = list(_nodes(nodes))
    drivers = {node.driver for node in found if node.minor in counted} - {""}
    return frozenset(
        node.minor for node in found if not node.driver or node.driver in drivers or not drivers
    )


def _nodes(nodes: Path) -> Iterator[_Node]:
    for place in nodes.glob("*"):
        major, _, minor = text_of(place / "dev").partition(":")
        if major == str(MAJOR):
            driver = place / "device" / "driver"
            yield _Node(int(minor), driver.resolve().name if driver.exists() else "")
