"""The scheduler of an `InMemorySlurm`, and Slurm's pending reasons.

The scheduler works like Slurm's main scheduler, without backfill. In each partition, jobs start by
priority. The first job without room blocks the jobs behind. Exception: if the job names its nodes, only
these nodes are kept for the job.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from slurm_client.in_memory.machines import Machine, Slot
from slurm_client.in_memory.record import Record
from slurm_client.model import JobSpec, Partition

RESOURCES = "Resources"
PRIORITY = "Priority"
NODE_NOT_AVAILABLE = "ReqNodeNotAvail"
PARTITION_CONFIG = "PartitionConfig"
PARTITION_DOWN = "PartitionDown"
TIME_LIMIT = "PartitionTimeLimit"
HELD = "JobHeldUser"
HELD_BY_SLURM = "JobHeldAdmin"
BAD_CONSTRAINTS = "BadConstraints"


class Pass:
    """A pass of the scheduler over the waiting jobs, in order."""

    def __init__(
        self,
        machines: Mapping[str, Machine],
        partitions: Mapping[str, Partition],
        limited: Callable[[Record], str | None],
    ) -> None:
        self._machines = machines
        self._partitions = partitions
        self._limited = limited
        self._blocked: set[str] = set()
        self._kept: set[str] = set()

    def consider(self, record: Record) -> tuple[Slot, ...] | str:
        """Returns the job's share of its nodes, or the reason why the job waits."""
        partition = self._partitions[record.partition]
        if reason := standing_reason(record, partition, self._machines):
            return reason
        if record.partition in self._blocked:
            return PRIORITY
        if reason := self._limited(record):
            return reason
        machines = allowed(record, partition, self._machines)
        if slots := place(record, (one for one in machines if one.name not in self._kept)):
            return slots
        if len(record.spec.required_nodes) >= record.spec.nodes:
            self._kept.update(record.spec.required_nodes)
        else:
            self._blocked.add(record.partition)
        return RESOURCES


def by_tier(records: Iterable[Record], partitions: Mapping[str, Partition]) -> list[Record]:
    """Sorts jobs by their partitions' PriorityTier, the highest first. Within a tier, the order stays
    the same."""
    return sorted(records, key=lambda record: -partitions[record.partition].priority_tier)


def allowed(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> Iterator[Machine]:
    """Yields the partition's nodes, except the nodes that the job excludes. If the job names more
    required nodes than it needs, yields only required nodes (24.11, 26.05)."""
    spec = record.spec
    required = set(spec.required_nodes if len(spec.required_nodes) > spec.nodes else ())
    excluded = set(spec.excluded_nodes)
    for name in partition.nodes:
        if name not in excluded and (not required or name in required):
            yield machines[name]


def _needed(spec: JobSpec) -> tuple[str, ...]:
    """Returns the nodes that the job must have."""
    return spec.required_nodes if len(spec.required_nodes) <= spec.nodes else ()


def never(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> bool:
    """Returns True if the job does not fit even on empty nodes. Slurm rejects such a job (error 2014).
    But a job that is larger than the partition waits (PartitionConfig)."""
    spec = record.spec
    if _over_the_partition(record, partition, machines):
        return False
    if spec.tasks is not None:
        return not _have_room(spec, allowed(record, partition, machines))
    needed = set(_needed(spec))
    able = (m.name for m in allowed(record, partition, machines) if m.could_ever(spec))
    found = set(able if needed else islice(able, spec.nodes))
    return len(found) < spec.nodes or not needed <= found


def standing_reason(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> str | None:
    """Returns the reason why a job must wait even if nodes have room. Returns None if only a lack of
    room can make the job wait."""
    spec = record.spec
    if record.held:
        return record.held_for or HELD
    if not partition.up:
        return PARTITION_DOWN
    limit, most = spec.time_limit_minutes, partition.max_time_minutes
    if limit is not None and most is not None and limit > most:
        return TIME_LIMIT
    if _over_the_partition(record, partition, machines):
        return PARTITION_CONFIG
    return None if _enough_are_up(record, partition, machines) else NODE_NOT_AVAILABLE


def _over_the_partition(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> bool:
    spec = record.spec
    if spec.nodes > len(partition.nodes):
        return True
    lacking = spec.cpus * (spec.tasks or spec.nodes)
    for name in partition.nodes:
        lacking -= machines[name].configured.cpus
        if lacking <= 0:
            return False
    return True


def _enough_are_up(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> bool:
    spec = record.spec
    if not all(machines[name].open_to(spec) for name in _needed(spec)):
        return False
    candidates = [m for m in allowed(record, partition, machines) if m.open_to(spec)]
    if spec.tasks is not None:
        return _have_room(spec, candidates)
    able = (machine for machine in candidates if machine.could_ever(spec))
    return len(list(islice(able, spec.nodes))) == spec.nodes


def place(record: Record, candidates: Iterable[Machine]) -> tuple[Slot, ...] | None:
    """Returns slots on the requested number of nodes, including all required nodes. Returns None if the
    nodes lack room."""
    spec = record.spec
    if spec.tasks is not None:
        return _packed(record, spec.tasks, candidates)
    required = set(_needed(spec))
    others = spec.nodes - len(required)
    chosen: dict[str, Slot] = {}
    for machine in candidates:
        is_required = machine.name in required
        if not (is_required or others) or (slot := machine.offer(spec, record.user_id)) is None:
            continue
        others -= not is_required
        chosen[machine.name] = slot
        if len(chosen) == spec.nodes:
            return tuple(chosen[name] for name in sorted(chosen))
    return None


def _packed(record: Record, tasks: int, candidates: Iterable[Machine]) -> tuple[Slot, ...] | None:
    """Returns slots for packed tasks, on at least the requested number of nodes; None without room."""
    spec = record.spec
    slots: list[Slot] = []
    for machine in candidates:
        later = max(0, spec.nodes - len(slots) - 1)  # one task for each further node that is required
        shares = ((n, machine.offer(spec.of_tasks(n), record.user_id)) for n in _numbers(spec, machine))
        here, slot = next(((n, slot) for n, slot in shares if slot and n <= tasks - later), (0, None))
        if slot is not None:
            slots.append(slot)
            tasks -= here
        if not tasks:
            return tuple(sorted(slots, key=lambda slot: slot.node))
    return None


def _have_room(spec: JobSpec, machines: Iterable[Machine]) -> bool:
    """Returns True if packed tasks fit on these nodes when the nodes are empty."""
    fit = (
        next((n for n in _numbers(spec, machine) if machine.could_ever(spec.of_tasks(n))), 0)
        for machine in machines
    )
    most = list(filter(None, fit))
    return sum(most) >= (spec.tasks or 0) and len(most) >= spec.nodes


def _numbers(spec: JobSpec, machine: Machine) -> Sequence[int]:
    """Returns the numbers of packed tasks for which a node has CPUs, the largest first. If the job names
    a node for each task, returns only the number for this node."""
    if spec.required_nodes:
        here = spec.required_nodes.count(machine.name)
        return [here] if here else []
    return range(min(spec.tasks or 0, machine.configured.cpus // spec.cpus), 0, -1)
