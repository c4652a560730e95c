"""What is particular to the devices of a vendor, on the Node and in containers."""

from collections.abc import Iterable
from typing import Final, NamedTuple


class Vendor(NamedTuple):
    """A vendor of GPUs."""

    domain: str
    """Of its extended resources: "nvidia.com"."""
    files: str
    """What the names of its devices' files begin with."""
    common: tuple[str, ...]
    """Files that every program needs that uses one of its devices."""
    library: str
    """The variable that its libraries look for devices by."""
    runtime: str = ""
    """The variable that its container runtime goes by."""

    def made(self, files: Iterable[str]) -> bool:
        """Tells whether a device with these files is the vendor's."""
        return any(file.startswith(self.files) for file in files)


VENDORS: Final = (
    Vendor(
        "nvidia.com",
        "/dev/nvidia",
        ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    ),
    Vendor("amd.com", "/dev/dri/renderD", ("/dev/kfd",), "ROCR_VISIBLE_DEVICES"),
)


def may_be(resource: str, files: Iterable[str]) -> bool:
    """Tells whether a device with these files may be one of an extended resource: of a vendor's there
    are the vendor's only."""
    domain = resource.partition("/")[0]
    vendor = next((each for each in VENDORS if each.domain == domain), None)
    return vendor is None or vendor.made(files)
