"""What NVIDIA's driver complains of (XID): errors of a GPU that no other question to NVML tells of."""

from typing import Any, Final

import pynvml

from node_agent.machine import nvidia

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Those that a program brings about, and the next program has nothing of (NVIDIA's table of XIDs)."""


class XidWatch:
    """Hears of complaints from its first `wait` on. They stay: what has been repaired is for whoever has
    done so to say, by starting the agent anew."""

    def __init__(self) -> None:
        self._set: Any = None
        self.complaints: dict[str, str] = {}
        """By the address of a GPU on the PCI bus."""

    def wait(self, seconds: float) -> bool:
        """Waits for one, in a thread; tells whether one came. Raises NvmlUnavailable."""
        with nvidia.nvml(stays=True):
            if self._set is None:
                self._set = self._registered()
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
            except pynvml.NVMLError_Timeout:
                return False
            if event.eventData in _OF_PROGRAMS:
                return False
            bus = nvidia.bus_of(event.device)
            new = bus not in self.complaints
            self.complaints.setdefault(bus, f"its driver complains: XID {event.eventData}")
            return new

    def _registered(self) -> Any:
        events = pynvml.nvmlEventSetCreate()
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
                pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
            except pynvml.NVMLError:  # it is lost, or too old to complain
                continue
        return events
