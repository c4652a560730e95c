"""Where a job goes: which waits, which starts, and Slurm's name for why.

Slurm's main scheduler, without backfill: strictly by priority in each partition; the first that finds
no room blocks the ones behind it, unless it names its nodes, which are then kept for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """One pass of the scheduler over the waiting jobs, in their order."""

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
        """What the job gets, or the reason why it goes on waiting."""
        partition = self._partitions[record.partition]
        if reason := standing_reason(record, partition, self._machines):
            return reason
        if record.partition in self._blocked:
            return PRIORITY
        if reason := self._limited(record):
            return reason
        slots = place(record, self._candidates(record, partition))
        if slots:
            return slots
        self._keep_place_for(record)
        return RESOURCES

    def _candidates(self, record: Record, partition: Partition) -> Iterator[Machine]:
        return (m for m in allowed(record, partition, self._machines) if m.name not in self._kept)

    def _keep_place_for(self, record: Record) -> None:
        if len(record.spec.required_nodes) >= record.spec.nodes:
            self._kept.update(record.spec.required_nodes)
        else:
            self._blocked.add(record.partition)


def by_tier(records: Iterable[Record], partitions: Mapping[str, Partition]) -> list[Record]:
    """Partitions of a higher PriorityTier first; within one as the records come."""
    return sorted(records, key=lambda record: -partitions[record.partition].priority_tier)


def allowed(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> Iterator[Machine]:
    """The partition's nodes without the excluded ones. Of more required nodes than the job has any will
    do, but no others (24.11, 26.05).

    One after the other: of thousands, the first few are mostly enough.
    """
    spec = record.spec
    names: Iterable[str] = partition.nodes
    if len(spec.required_nodes) > spec.nodes:
        those = set(spec.required_nodes)
        names = (name for name in names if name in those)
    excluded = set(spec.excluded_nodes)
    return (machines[name] for name in names if name not in excluded)


def _needed(spec: JobSpec) -> tuple[str, ...]:
    """The nodes that the job must have, every one."""
    return spec.required_nodes if len(spec.required_nodes) <= spec.nodes else ()


def never(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> bool:
    """Whether even empty nodes would not do: Slurm refuses such a job (2014).

    Of more than the whole partition has it is not said: Slurm lets that wait (PartitionConfig).
    """
    spec = record.spec
    if _over_the_partition(record, partition, machines):
        return False
    needed = set(_needed(spec))
    able = (m.name for m in allowed(record, partition, machines) if m.could_ever(spec))
    found = set(able if needed else islice(able, spec.nodes))
    return len(found) < spec.nodes or not needed <= found


def standing_reason(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> str | None:
    """Why it waits whatever is free; None when room is all that it may lack."""
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
    lacking = spec.cpus * spec.nodes
    for name in partition.nodes:
        lacking -= machines[name].configured.cpus
        if lacking <= 0:
            return False
    return True


def _enough_are_up(record: Record, partition: Partition, machines: Mapping[str, Machine]) -> bool:
    spec = record.spec
    if not all(machines[name].open_to(spec) for name in _needed(spec)):
        return False
    candidates = allowed(record, partition, machines)
    able = (m for m in candidates if m.open_to(spec) and m.could_ever(spec))
    return len(list(islice(able, spec.nodes))) == spec.nodes


def place(record: Record, candidates: Iterable[Machine]) -> tuple[Slot, ...] | None:
    """Slots on as many nodes as it asks for, the required ones among them; None when they lack."""
    spec = record.spec
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
