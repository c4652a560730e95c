"""Collects the complaints of NVIDIA's driver (XIDs). An XID is an error of a GPU that no other call of
NVML reports."""

import ctypes
from contextlib import suppress
from typing import Any, Final

import pynvml

from node_agent.machine.vendors import nvml

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes, and that do not affect the next program (from NVIDIA's table of XIDs)."""
_OF_MEMORY: Final = frozenset({63, 94})
"""XIDs of a row of memory that the driver will remap, and of a contained error. For these XIDs, NVML's
data on memory show whether a reset is needed, and when the reset is done."""
_NO_BUS: Final = ""
"""Key for a complaint without a GPU."""


class XidWatch:
    """Collects complaints from the first `wait` until the agent ends. After a repair of a GPU, an
    administrator restarts the agent, so that the complaints are forgotten."""

    def __init__(self) -> None:
        self._set: Any = None
        self._buses: dict[int | None, str] = {}
        """Addresses by handle, because a GPU that falls off the bus loses its address."""
        self.complaints: dict[str, str] = {}
        """Complaints by the address of the GPU on the PCI bus. If the GPU is unknown, the key is ""."""

    def wait(self, seconds: float) -> bool:
        """Waits for a complaint. Returns True if the agent should read the GPUs now. A lost GPU makes
        every wait fail, also for other GPUs. In this case, raises DriverUnavailable. The next wait
        leaves out the lost GPU, and also covers the complaints between the two waits."""
        with nvml.nvml():
            if self._set is None:
                self._set = self._registered()
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
            except pynvml.NVMLError_Timeout:
                return False
            except pynvml.NVMLError:
                self._restart()
                raise
            return self._note(event.device, event.eventData)

    def _note(self, gpu: Any, code: int) -> bool:
        if code in _OF_PROGRAMS:
            return False
        if code in _OF_MEMORY:
            return True
        bus = self._buses.get(_key(gpu), _NO_BUS)
        new = bus not in self.complaints
        self.complaints.setdefault(bus, f"its driver complains: XID {code}")
        return new

    def _restart(self) -> None:
        spent, self._set = self._set, None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(spent)
        self._set = self._registered()

    def _registered(self) -> Any:
        events = pynvml.nvmlEventSetCreate()
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
                self._buses[_key(gpu)] = nvml.bus_of(gpu)
                pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
            except (pynvml.NVMLError, ValueError):  # the GPU is lost, or too old for events
                continue
        return events


def _key(gpu: Any) -> int | None:
    """Returns the same value for all handles of a GPU."""
    return ctypes.cast(gpu, ctypes.c_void_p).value
