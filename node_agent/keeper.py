"""Has the kernel keep each Pod of this Node to the devices of its job."""

from collections.abc import Mapping
from pathlib import Path

from node_agent.cgroups import PodCgroups, depth
from node_agent.claims import Claim
from node_agent.decision import Decision, decide
from node_agent.kernel.device_guard import DeviceGuard, number_of
from node_agent.machine import slurmd_gres
from node_agent.machine.numbered import Machine, Number
from service.watched_file import Stamp, stamp


class Keeper:
    """Looks at all of it each time, and sees to what is not as it should be."""

    def __init__(self, gres: Path, cgroups: PodCgroups, guard: DeviceGuard) -> None:
        """`gres` is a file with what `slurmd -G` printed when slurmd started."""
        self._gres = gres
        self._read: Stamp | None = None
        self._cgroups = cgroups
        self._guard = guard
        self._on = set[int]()
        """The cgroups that a program was put on, by the kernel's numbers."""
        self.machine: Machine | None = None
        """None until slurmd's list could be read once."""

    def keep(self, claims: Mapping[str, Claim]) -> Decision | None:
        """Lets each Pod, by its uid, in to its devices, and nobody else to any. Returns None while it is
        not known which devices there are: then all stays as it was. Raises OSError."""
        for root in self._cgroups.roots():
            if number_of(root) not in self._on:
                self._guard.put_on(root, depth(root))
                self._on.add(number_of(root))
        if self.machine is None:
            return None
        known = {(cgroup, Number(*device)) for cgroup, device in self._guard.known()}
        decision = decide(claims, list(self._cgroups.pods()), known, self.machine)
        self._guard.change(known - decision.entries, decision.entries - known)
        return decision

    def read_devices(self) -> None:
        """Reads slurmd's list where it has changed, and guards what is on it. What was guarded before
        stays so. Raises OSError and ValueError: then the last list counts."""
        now = stamp(self._gres)
        if now == self._read:
            return
        machine = Machine(slurmd_gres.parse(self._gres.read_text()))
        self._guard.close(machine.guarded)
        self.machine, self._read = machine, now
