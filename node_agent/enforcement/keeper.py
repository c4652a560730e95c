"""Uses the kernel to keep each Pod of this Node to the resources of the Pod's job."""

import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from node_agent.enforcement import slurmd_share
from node_agent.enforcement.decision import Decision, Entry, decide
from node_agent.enforcement.gone_pods import written_cpus
from node_agent.enforcement.limits import limits_of
from node_agent.enforcement.numbering import FILE, Holder, Numbering, pods_with_devices
from node_agent.enforcement.others import Native
from node_agent.enforcement.others_off import OthersOff
from node_agent.enforcement.pod_limits import PodLimits
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.machine import slurmd_gres
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Device, Files, Names, Number
from node_agent.machine.kubelet_names import is_named, units_of
from node_agent.machine.numbered import Machine, Part, Unit
from node_agent.machine.slurmd_gres import WrongGres
from node_agent.pods.cgroups import PodCgroup, PodCgroups, depth
from node_agent.pods.claims import Claim
from service.watched_file import Stamp, stamp
from wellknown.names import DEVICE_PROBLEM

_CLOSED: Final = (
    "slurmd has not listed its devices since its last start, or the agent cannot use the list (see the"
    f" Node's condition {DEVICE_PROBLEM})"
)


class Keeper:
    """Compares the wanted state with the kernel's state at each check, and corrects the differences."""

    def __init__(
        self,
        gres: Path,
        cgroups: PodCgroups,
        guard: DeviceGuard,
        own_pod: str = "",
        *,
        keeps_others_off: bool = False,
    ) -> None:
        """Parameter `gres` is a file with the output of `slurmd -G` from slurmd's last start. If slurmd
        runs in a Pod, the output of `slurmd -V` comes first in the file. Parameter `own_pod` is the uid
        of the agent's Pod. This Pod has access to all devices, because the agent calls the drivers. If
        `keeps_others_off` is True, the keeper keeps Pods without a job off the cores of jobs."""
        self._gres = gres
        self._awaits_list = self._slurmd_starts_placeholders = False
        self._closed = ""
        """Reason why no Pod gets further devices, or "". Without a current list of devices, the agent
        does not know in which order slurmd now numbers the devices."""
        self._own_pod = own_pod
        self._read: Stamp | None = None
        self.numbering = Numbering(gres.with_name(FILE))
        self.guarded = frozenset[Number]()
        """The devices that only a Pod with access can open."""
        self._cgroups = cgroups
        self._guard = guard
        self.cores: Cpus | None = None
        """Cores of the machine in Slurm's order; None while unknown."""
        self.core_map: Cpus | None = None
        """CPUs of each core that Slurm counts; None while unknown."""
        self.cores_lost = False
        """True if the map of cores is unknown although Pods may have cores. Either an agent has held
        Pods to cores since the boot, or slurm.conf declares other cores than the machine has."""
        self.cgroups: Sequence[PodCgroup] = ()
        """The cgroups of Pods at the last check."""
        self._memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        self.limits = PodLimits()
        self._others_off = OthersOff() if keeps_others_off else None
        self.others = ""
        """Reason why a Pod without a job is not kept off the cores of jobs, or ""."""
        self.other_programs = ""
        """Foreign device programs on the cgroups that contain all Pods, as text."""
        self.held_by_gone: Mapping[str, Sequence[str]] = {}
        """Slurm's numbers of the devices that slurmd's Pod lacks, by the uid of the Pod that is gone and
        still has processes."""
        self.machine: Machine | None = None
        """The devices with the kernel's numbers; None before the first read of slurmd's list."""
        self._listed: tuple[Device, ...] = ()
        """The devices of slurmd's list."""
        self.names: Mapping[Files, Names] = {}
        """Names and health of devices, as far as known."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """Returns the devices of slurmd's list, with their vendors."""
        return self.machine.devices if self.machine else ()

    def parts(self, claim: Claim) -> list[Part]:
        """Returns the devices of a Pod. Raises ValueError if a device cannot be given, or if slurmd's
        list is missing."""
        if self.machine is None:
            raise ValueError("slurmd's list of devices could not be read")
        return self.machine.parts(claim.devices)

    def cpus(self, claim: Claim) -> tuple[int, ...]:
        """Returns the CPUs of a Pod's job, in the machine's numbers, or () while the CPUs are
        unknown."""
        return limits_of(claim, self.core_map).cpus

    def put_on(self) -> None:
        """Attaches the guard to the cgroups that contain all Pods. Attaches the guard again if another
        program has detached the guard. Raises OSError."""
        self.other_programs = ", ".join(
            f"{other} on {root}"
            for root in self._cgroups.roots()
            for other in self._guard.put_on(root, depth(root))
        )

    def read_devices(self, *, list_may_come: bool = False, since: float = 0.0) -> None:
        """Reads the devices of slurmd's list, and guards their files.

        The list is read again only after a change. The devices' files are checked each time, because a
        driver may make files later. A guarded device stays guarded.

        If the list is older than `since` (UNIX seconds), the list belongs to an earlier slurmd. While
        slurmd starts (`list_may_come`), an old list is no error, and a missing first list is no error.

        Raises OSError and ValueError. After such an error, Pods keep the devices that they have, and no
        Pod gets more devices.
        """
        self._closed = _CLOSED
        exists = self._gres.exists()
        self._awaits_list = list_may_come and self.machine is None and not exists
        older = exists and self._gres.stat().st_mtime < since
        if self._awaits_list or (list_may_come and older):
            return
        if older:
            raise WrongGres("the list is older than slurmd's container")
        now = stamp(self._gres)
        if now != self._read:
            text = self._gres.read_text()
            self._slurmd_starts_placeholders = slurmd_gres.starts_placeholders(text)
            self._listed = slurmd_gres.parse(text)
            self._read = now
        machine = Machine(self._listed)
        self._guard.close(machine.guarded - self.guarded)
        self.guarded |= machine.guarded
        self.machine = machine
        self._closed = ""

    def keep(
        self,
        claims: Mapping[str, Claim] | None,
        native: Native | None = None,
        jobs: Callable[[], Iterable[Holder]] = tuple,
    ) -> Decision | None:
        """Gives each Pod access to its own devices only, and holds each Pod to its cores and memory. If
        configured, keeps Pods without a job off the cores of jobs, once the native jobs are known.

        Parameter `claims` has the Pods by uid, or is None while the Pods are unknown. Parameter `native`
        has the native jobs, or is None while they are unknown. Parameter `jobs` returns the present
        native jobs. The keeper calls `jobs` after a change of slurmd's list.

        Returns None while the Pods or the devices are unknown. Then only the agent's own access to
        devices changes. Raises OSError.
        """
        self.cgroups = cgroups = list(self._cgroups.pods())
        known, own = self._known(), self._own(cgroups)
        every_core = self._slurmd_starts_placeholders
        shares = slurmd_share.with_share(
            claims or {}, self.core_map, self._memory_mb, every_core=every_core
        )
        held = self.limits.hold(shares, cgroups, self.core_map)
        problems = {uid: why for uid, why in held.items() if not shares[uid].slurmd}
        if self._others_off and self.core_map and claims is not None and native is not None:
            self.others = self._others_off.keep(claims, cgroups, self.core_map, native)
        self._follow_numbers(claims, known, jobs)
        machine = self.machine or self._machine_without(claims)
        if claims is None or machine is None:
            self._guard.change(frozenset(), own - known)
            return None
        slurmd = {each.number for each in cgroups if (of := claims.get(each.uid)) and of.slurmd}
        of_others = {entry for entry in known - own if entry[0] not in slurmd}
        taken = self.numbering.held
        decision = decide(claims, cgroups, of_others, machine, closed=self._closed, held=taken)
        wanted = decision.entries | own | slurmd_share.entries(slurmd, self.guarded, decision.entries)
        self.held_by_gone = (
            slurmd_share.held_by_gone(claims, cgroups, decision.entries, machine.numbered)
            if slurmd
            else {}
        )
        self._guard.change(known - wanted, wanted - known)
        return decision.with_problems(problems)

    def _follow_numbers(
        self,
        claims: Mapping[str, Claim] | None,
        known: Iterable[Entry],
        jobs: Callable[[], Iterable[Holder]],
    ) -> None:
        """Compares slurmd's list with the previous list, if the Pods are known. Raises OSError."""
        machine, numbering = self.machine, self.numbering
        if claims is not None and machine is not None and numbering.is_new(machine):
            holders = [*pods_with_devices(claims, self.cgroups, known), *jobs()]
            numbering.take(machine, holders)
        numbering.look(machine, self.cgroups, known)

    def _machine_without(self, claims: Mapping[str, Claim] | None) -> Machine | None:
        """Returns a machine without devices if slurmd's list may still come and no Pod has devices.
        Otherwise, returns None. Access from an earlier agent stays in force until the list is known."""
        if not self._awaits_list or any(claim.devices for claim in (claims or {}).values()):
            return None
        return Machine(())

    def _known(self) -> set[Entry]:
        return {Entry(cgroup, Number(*device), of) for cgroup, device, of in self._guard.known()}

    def _own(self, cgroups: Iterable[PodCgroup]) -> set[Entry]:
        own = (each.number for each in cgroups if self._own_pod and each.uid == self._own_pod)
        return {Entry(cgroup, number) for cgroup in own for number in self.guarded}

    def of_resource(self, resource: str, wanted: str, plain: Container[str] = ()) -> dict[str, Unit]:
        """Returns the devices of an extended resource by the kubelet's names (`units_of`)."""
        return units_of(self.machine, self.names, resource, wanted, plain) if self.machine else {}

    def usable(self, units: Mapping[str, Unit]) -> dict[str, bool]:
        """Returns for each device of `of_resource` whether the device is usable."""
        return {
            name: not self._problem(unit.part) and is_named(unit, self.names)
            for name, unit in units.items()
        }

    @property
    def failed(self) -> dict[str, str]:
        """Returns the problems of devices that Slurm counts, by Slurm's numbers, for example "gpu 3"."""
        numbered = self.machine.numbered if self.machine else {}
        return {of: words for of, part in numbered.items() if (words := self._problem(part))}

    def _problem(self, part: Part) -> str:
        """Returns the problems of a device's files and of its driver, or "" if the device has no
        problem."""
        driver_problem = self.names.get(frozenset(part.device.files), Names()).problem
        return "; ".join(filter(None, (part.problem, driver_problem)))

    @property
    def counted(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Returns two numbers for each name and type of GRES: the devices that Slurm counts here, and
        the failed devices among them."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        failed = self.failed
        for of, part in (self.machine.numbered if self.machine else {}).items():
            kind = part.device.name, part.device.type
            number, broken = found.get(kind, (0, 0))
            found[kind] = number + 1, broken + (of in failed)
        return found

    def read_cpus(self, sockets: Collection[str] = ()) -> None:
        """Reads the machine's cores once, and makes the map of the cores that Slurm counts. Parameter
        `sockets` has the sockets of the node as the Pods name them (`NodePods.sockets`). If `sockets` is
        empty, the last map stays. Raises OSError and ValueError."""
        try:
            self.cores = self.cores or Cpus.read()
        except (OSError, ValueError):
            self.cores_lost = self.cores_lost or self._has_held_cores()
            raise
        try:
            if sockets or self.core_map is None:
                self.core_map = self.cores.counted_by(sockets)
        except ValueError:
            self.core_map, self.cores_lost = None, True
            raise
        self.cores_lost = False

    def _has_held_cores(self) -> bool:
        """Returns True if an agent has held a Pod to cores since the boot. Raises OSError."""
        with suppress(FileNotFoundError):  # no kubelet has run here
            return any(written_cpus(cgroup.place) for cgroup in self._cgroups.pods())
        return False
