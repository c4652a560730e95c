"""Has the kernel keep each Pod of this Node to what its job has here."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from node_agent.cgroups import PodCgroups, depth, limits_now
from node_agent.claims import Claim
from node_agent.decision import Decision, Entry, PodCgroup, decide
from node_agent.kernel.device_guard import DeviceGuard, number_of
from node_agent.limits import limits_of
from node_agent.machine import slurmd_gres
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Device, Files, Names
from node_agent.machine.numbered import Machine, Number, Part
from node_agent.machine.vendors import may_be
from service.watched_file import Stamp, stamp


class Keeper:
    """Looks at all of it each time, and sees to what is not as it should be."""

    def __init__(self, gres: Path, cgroups: PodCgroups, guard: DeviceGuard, own_pod: str = "") -> None:
        """`gres` is a file with what `slurmd -G` printed when slurmd started. `own_pod` is the agent's
        Pod, by uid: it asks the driver about all devices, and so is let in to them."""
        self._gres = gres
        self._own_pod = own_pod
        self._read: Stamp | None = None
        self._closed = frozenset[Number]()
        self._cgroups = cgroups
        self._guard = guard
        self._on = set[int]()
        """The cgroups that a program was put on, by the kernel's numbers."""
        self._cpus: Cpus | None = None
        self._limited = set[int]()
        """The cgroups that have had their limits, by the kernel's numbers."""
        self.repaired = 0
        """How many limits somebody else had changed."""
        self.machine: Machine | None = None
        """None until slurmd's list could be read once."""
        self.devices: tuple[Device, ...] = ()
        """Those of slurmd's list."""
        self.names: Mapping[Files, Names] = {}
        """How others call the devices, as far as they are known."""

    @property
    def guarded(self) -> AbstractSet[Number]:
        """Returns the devices that nobody has who was not let in."""
        return self._closed

    def parts(self, claim: Claim) -> list[Part]:
        """Returns what a Pod is to have. Raises ValueError, where that is nothing, too."""
        if self.machine is None:
            raise ValueError("slurmd's list of devices could not be read")
        return self.machine.parts(claim.devices)

    def put_on(self) -> None:
        """Has the kernel ask the guard, wherever Pods are. Raises OSError."""
        for root in self._cgroups.roots():
            if number_of(root) not in self._on:
                self._guard.put_on(root, depth(root))
                self._on.add(number_of(root))

    def read_devices(self) -> None:
        """Looks which devices there are, and guards them: slurmd's list where it has changed, and their
        files each time, since a driver that is loaded later brings some. What was guarded before stays
        so. Raises OSError and ValueError: then the last list counts."""
        now = stamp(self._gres)
        if now != self._read:
            self.devices = slurmd_gres.parse(self._gres.read_text())
            self._read = now
        machine = Machine(self.devices)
        self._guard.close(machine.guarded - self._closed)
        self._closed |= machine.guarded
        self.machine = machine

    def keep(self, claims: Mapping[str, Claim] | None) -> Decision | None:
        """Lets each Pod, by its uid, in to its devices, and nobody else to any, and holds it to its
        cores and memory. Returns None while it is not known which Pods there are (None), or which
        devices: then nobody but the agent is let in or out. Raises OSError."""
        cgroups = list(self._cgroups.pods())
        known, own = self._known(), self._own(cgroups)
        problems = self._limit(claims or {}, cgroups)
        if claims is None or self.machine is None:
            self._guard.change(frozenset(), own - known)
            return None
        decision = decide(claims, cgroups, known - own, self.machine)
        wanted = decision.entries | own
        self._guard.change(known - wanted, wanted - known)
        return decision._replace(problems=problems | decision.problems)

    def _known(self) -> set[Entry]:
        return {(cgroup, Number(*device)) for cgroup, device in self._guard.known()}

    def _own(self, cgroups: Iterable[PodCgroup]) -> set[Entry]:
        own = (each.number for each in cgroups if self._own_pod and each.uid == self._own_pod)
        return {(cgroup, number) for cgroup in own for number in self._closed}

    def units(self, resource: str, wanted: str) -> dict[str, bool]:
        """Returns the devices that are of an extended resource, of a GRES or of one type of it: whether
        each is of use, by a name. Those of a vendor's resource are the vendor's."""
        name, _, kind = wanted.partition(":")
        parts = self.machine.by_name.get(name, ()) if self.machine else ()
        return {
            f"{name}-{number}": not part.problem
            for number, part in enumerate(parts)
            if part.device.type.lower() == (kind or part.device.type).lower()
            and may_be(resource, part.device.files)
        }

    @property
    def failed(self) -> dict[str, str]:
        """Returns why devices that Slurm counts cannot be used, by Slurm's numbers: "gpu 3"."""
        found: dict[str, str] = {}
        for of, part in (self.machine.numbered if self.machine else {}).items():
            told = self.names.get(frozenset(part.device.files), Names()).problem
            if words := "; ".join(filter(None, (part.problem, told))):
                found[of] = words
        return found

    def read_cpus(self) -> None:
        """Reads the machine's map of cores, once. Raises OSError and ValueError."""
        if self._cpus is None:
            self._cpus = Cpus.read()

    def _limit(self, claims: Mapping[str, Claim], cgroups: Sequence[PodCgroup]) -> dict[str, str]:
        """Returns why a Pod is not held to its limits."""
        problems: dict[str, str] = {}
        for cgroup in cgroups:
            claim = claims.get(cgroup.uid)
            if claim is None or self._cpus is None:
                continue
            try:
                wanted = limits_of(claim, self._cpus).corrections(limits_now(cgroup.place))
                for name, text in wanted.items():
                    (cgroup.place / name).write_text(text)
                    self.repaired += cgroup.number in self._limited
                self._limited.add(cgroup.number)
            except (FileNotFoundError, NotADirectoryError):  # it goes just now
                continue
            except (OSError, ValueError) as error:
                problems[claim.pod] = str(error)
        self._limited &= {cgroup.number for cgroup in cgroups}
        return problems
