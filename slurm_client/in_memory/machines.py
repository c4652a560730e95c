"""The nodes of an `InMemorySlurm`: their resources, their free resources, and which jobs fit."""

from dataclasses import dataclass, replace

from slurm_client.in_memory import features
from slurm_client.in_memory.gres import Devices, Pools
from slurm_client.model import JobSpec, Node, Power, Sharing

SILENT = "Not responding"
"""Reason of a node that is DOWN because its slurmd has not answered for SlurmdTimeout."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A job's share of a node."""

    node: str
    cpus: int
    cores: tuple[int, ...]
    memory_mb: int
    devices: tuple[Devices, ...]
    user_id: int
    only_this_user: bool

    @property
    def gres(self) -> str:
        return ",".join(devices.text for devices in self.devices)


class Machine:
    """A node and the slots on the node."""

    def __init__(self, node: Node, partitions: tuple[str, ...], *, counts_memory: bool) -> None:
        self.configured = node
        self._counts_memory = counts_memory
        self._partitions = partitions
        self.name = node.name
        self.reservation = ""
        """Name of the reservation whose jobs alone may start here. If "", only jobs without a
        reservation may start here."""
        self.mark(frozenset(), node.reason)
        self.clear()

    def clear(self) -> None:
        """Frees all resources."""
        self._slots: list[Slot] = []
        self._pools = Pools(self.configured.gres)
        self._cpus = self._memory_mb = 0
        self._free_cores = set(range(self.configured.cpus // self.configured.cpus_per_core))
        self._reported: Node | None = None

    def mark(self, flags: frozenset[str], reason: str) -> None:
        """Sets the states that the node has besides its configured states, like DRAIN, DOWN and
        NOT_RESPONDING."""
        self.flags, self.reason = flags, reason
        self.schedulable = replace(self.configured, states=self.configured.states | flags).schedulable
        self._reported = None

    @property
    def in_use(self) -> bool:
        """True if jobs or a reservation use the node. Slurm does not delete such a node."""
        return bool(self._slots or self.reservation or "COMPLETING" in self.flags)

    def registered(self, now: float, *, booted: bool) -> None:
        """Marks the node as up after the start of its slurmd. A node that powers down stays as it is. If
        `booted` is False, a node that powers up also stays as it is."""
        self.configured = replace(self.configured, slurmd_started=int(now))
        self._reported = None
        if self.flags & ({"POWERING_DOWN"} if booted else {"POWERING_DOWN", "POWERING_UP"}):
            return
        flags, reason = self.flags - {*Power, "NOT_RESPONDING"}, self.reason
        if reason == SILENT:
            flags, reason = flags - {"DOWN"}, ""
        self.mark(flags, reason)

    @property
    def may_boot(self) -> bool:
        """True if a boot is expected: the node powers up, or is drained and empty."""
        return "POWERING_UP" in self.flags or ("DRAIN" in self.flags and not self._slots)

    def reserve(self, reservation: str) -> None:
        """Sets the reservation whose jobs alone may start here. With "", only jobs without a reservation
        may start here."""
        self.reservation = reservation
        self._reported = None

    def open_to(self, spec: JobSpec) -> bool:
        """Returns True if a job may start here as soon as the node has enough room."""
        return self.schedulable and self.reservation == (spec.reservation or "")

    def could_ever(self, spec: JobSpec) -> bool:
        """Returns True if the job fits on the empty node. A job with a reservation fits only on a node
        of this reservation."""
        return (
            spec.reservation in {None, "", self.reservation}
            and spec.cpus <= self.configured.cpus
            and spec.memory_mb <= self.configured.memory_mb
            and all(self._pools.total(name) >= count for name, count in spec.gres)
            and self._has_features(spec)
        )

    def has_gres_name(self, wanted: str) -> bool:
        return self._pools.total(wanted.partition(":")[0]) > 0

    def offer(self, spec: JobSpec, user_id: int) -> Slot | None:
        """Returns the job's share of the node if the job fits now, otherwise None. Takes no resources
        yet."""
        if self._cpus + spec.cpus > self.configured.cpus:  # checked first, because most nodes are full
            return None
        if not (self.open_to(spec) and self._has_features(spec) and self._admits(spec, user_id)):
            return None
        whole = spec.shared == Sharing.NONE
        devices = self._pools.everything() if whole else self._pools.find(spec.gres)
        cpus = self.configured.cpus if whole else self._in_whole_cores(spec.cpus)
        if devices is None or self._cpus + cpus > self.configured.cpus:
            return None
        memory_mb = spec.memory_mb if self._counts_memory else 0
        if self._memory_mb + memory_mb > self.configured.memory_mb:
            return None
        cores = tuple(sorted(self._free_cores)[: cpus // self.configured.cpus_per_core])
        only_this_user = spec.shared == Sharing.USER
        return Slot(self.name, cpus, cores, memory_mb, devices, user_id, only_this_user)

    def _in_whole_cores(self, cpus: int) -> int:
        of_a_core = self.configured.cpus_per_core
        return -(-cpus // of_a_core) * of_a_core

    def take(self, slot: Slot) -> None:
        self._slots.append(slot)
        self._pools.take(slot.devices)
        self._free_cores.difference_update(slot.cores)
        self._cpus += slot.cpus
        self._memory_mb += slot.memory_mb
        self._reported = None

    def give_back(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self._pools.give_back(slot.devices)
        self._free_cores.update(slot.cores)
        for other in self._slots:  # a resumed job and a later job may have the same cores
            self._free_cores.difference_update(other.cores)
        self._cpus -= slot.cpus
        self._memory_mb -= slot.memory_mb
        self._reported = None

    def node(self) -> Node:
        """Returns the node as in GET nodes/. Returns the same object until the node changes."""
        if self._reported is None:
            self._reported = replace(
                self.configured,
                states=self._states(),
                partitions=self._partitions,
                reason=self.reason,
                gres_used=self._pools.used,
                cpus_allocated=self._cpus,
                memory_allocated_mb=self._memory_mb,
            )
        return self._reported

    def _states(self) -> frozenset[str]:
        base = {"IDLE"}
        if "DOWN" in self.flags:
            base = {"DOWN"}
        elif self._slots:  # even if all jobs are suspended, and so use no CPUs
            base = {"ALLOCATED" if self._cpus == self.configured.cpus else "MIXED"}
        reserved = {"RESERVED"} if self.reservation else set()
        return (self.configured.states - {"IDLE"}) | base | self.flags | reserved

    def _admits(self, spec: JobSpec, user_id: int) -> bool:
        """Returns False if another user has a job here, and one of the two jobs shares nodes only with
        its own user."""
        others = [slot for slot in self._slots if slot.user_id != user_id]
        return not (others and spec.shared == Sharing.USER) and not any(o.only_this_user for o in others)

    def _has_features(self, spec: JobSpec) -> bool:
        wanted = spec.constraints
        return not wanted or features.satisfied(wanted, self.configured.features)
