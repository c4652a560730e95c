"""What NVIDIA's driver complains of (XID): errors of a GPU that no other question to NVML tells of."""

import ctypes
from contextlib import suppress
from typing import Any, Final

import pynvml

from node_agent.machine.vendors import nvml

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Those that a program brings about, and the next program has nothing of (NVIDIA's table of XIDs)."""
_OF_MEMORY: Final = frozenset({63, 94})
"""A row of memory was noted for remapping, and an error was contained: the driver has dealt with it.
What is left to do the questions about a GPU's memory tell, and they tell when it is done."""
_NO_BUS: Final = ""
"""In place of a GPU's address, where NVML does not tell which GPU it is."""


class XidWatch:
    """Hears of complaints from its first `wait` on. They stay: what has been repaired is for whoever has
    done so to say, by starting the agent anew."""

    def __init__(self) -> None:
        self._set: Any = None
        self._buses: dict[int | None, str] = {}
        """Of each GPU, by its handle: one that falls off the bus has no address any more."""
        self.complaints: dict[str, str] = {}
        """By the address of a GPU on the PCI bus, by "" where it is not known which GPU it is."""

    def wait(self, seconds: float) -> bool:
        """Waits for one, in a thread; tells whether the GPUs are to be asked about now. Raises
        DriverUnavailable: a GPU that is lost fails every wait for it, and those for the others too. It
        is left out from then on, and what the others complain of meanwhile is heard next time."""
        with nvml.nvml():
            if self._set is None:
                self._set = self._registered()
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
            except pynvml.NVMLError_Timeout:
                return False
            except pynvml.NVMLError:
                self._begin_anew()
                raise
            return self._hears(event.device, event.eventData)

    def _hears(self, gpu: Any, code: int) -> bool:
        if code in _OF_PROGRAMS:
            return False
        if code in _OF_MEMORY:
            return True
        bus = self._buses.get(_key(gpu), _NO_BUS)
        new = bus not in self.complaints
        self.complaints.setdefault(bus, f"its driver complains: XID {code}")
        return new

    def _begin_anew(self) -> None:
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
            except (pynvml.NVMLError, ValueError):  # it is lost, or too old to complain
                continue
        return events


def _key(gpu: Any) -> int | None:
    """Returns what is the same of all handles of a GPU."""
    return ctypes.cast(gpu, ctypes.c_void_p).value
