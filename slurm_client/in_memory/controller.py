"""The simulated slurmctld of an `InMemorySlurm`. Callers pass the current time as `now`.

`advance(now)` does all due work: scheduling ticks, time limits, removal of old jobs. Callers of any
other method call `advance` just before, with the same `now`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from slurm_client.errors import RetryLater
from slurm_client.in_memory import rejections, scheduler
from slurm_client.in_memory.accounting import REASONS, Accounting, Enforcement
from slurm_client.in_memory.jobs import Jobs, Journal
from slurm_client.in_memory.machines import Machine, Slot
from slurm_client.in_memory.record import RUNNING, Record, as_read
from slurm_client.in_memory.reservations import Reservations
from slurm_client.job_state import JobState
from slurm_client.model import Job, JobChanges, JobSpec, Node, Partition
from slurm_client.rights import UserRights
from slurm_client.server import Configuration, counts_memory

Plugin = Callable[[JobSpec], int]
"""A job_submit plugin. Returns 0 for an accepted job or change, or an error number. The number -1 is
job_submit.lua's slurm.ERROR."""
DEFAULT_PRIORITY = 1
_NO_CREDENTIAL = "slurm_cred_create failure, holding job."
# The error of an immediate allocation, by the reason for which Slurm would let the same job wait after a
# submission.
_REFUSED = {
    scheduler.HELD: "ESLURM_DEPENDENCY",
    scheduler.NODE_NOT_AVAILABLE: "ESLURM_NODE_NOT_AVAIL",
    scheduler.PARTITION_CONFIG: "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE",
    scheduler.PARTITION_DOWN: "ESLURM_PARTITION_DOWN",
}


class Controller:
    """Jobs, nodes and partitions, and their rules. Times are seconds of a common clock."""

    def __init__(
        self,
        nodes: Sequence[Node],
        partitions: Sequence[Partition],
        *,
        now: float,
        tick_s: float,
        configuration: Configuration,
        accounting: Accounting | None,
        external_jobs: bool,
    ) -> None:
        self._set_partitions(partitions)
        self._counts_memory = counts_memory(configuration.select_type_parameters or ())
        self.machines = {node.name: self._machine(node, self._partitions_of(node)) for node in nodes}
        self.journal = Journal()
        self.jobs = Jobs(configuration.min_job_age_s or 0, self.journal)
        self.reservations = Reservations()
        self._enforcement = Enforcement(accounting)
        self._external_jobs = external_jobs
        self._tick_s = tick_s
        self._origin = now
        self._changed_at: float | None = None
        self._arrivals = 0
        self._restarted: set[int] = set()
        """Ids of jobs that run again after a requeue. At the next tick, the script of such a job ends,
        and so does the job (`Record.script_ends`)."""
        self.unknown_users: set[int] = set()
        """Users that slurmctld's host does not know."""
        self.user_names = {0: "root"}
        self.plugin: Plugin | None = None

    def advance(self, now: float) -> None:
        """Runs the due scheduling ticks until `now`, but skips the ticks without work. Then forgets old
        ended jobs."""
        if self.reservations.come_to(now, self.machines):
            self.changed(now)
        while (due := self._next_due()) <= now:
            for record in self.jobs.past_deadline(due):
                self.end(record, "TIMEOUT", record.deadline or due, reason="TimeLimit")
            self._schedule(due)
        self.jobs.forget(now)

    def submit(self, spec: JobSpec, job_id: int, now: float) -> int:
        """Queues a job. The next tick may start the job."""
        record = self._record(spec, job_id, now)
        self._enforcement.check(record, self._alive())
        partition = self.partitions[record.partition]
        if scheduler.never(record, partition, self.machines):
            self._refused(record, now)
            raise rejections.rejection("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE")
        reason = scheduler.standing_reason(record, partition, self.machines) or ""
        self.jobs.put(replace(record, reason=reason, batch=not record.external), now)
        self.changed(now)
        return job_id

    def allocate(self, spec: JobSpec, job_id: int, now: float) -> int:
        """Starts a job now, or rejects the job. A rejection may leave a FAILED record under the id. If
        the job's time limit is over the partition's limit, the job waits, as in real Slurm."""
        record = self._record(spec, job_id, now)
        try:
            self._enforcement.check(record, self._alive())
        except RetryLater:
            raise rejections.limit_reached() from None
        outcome = self._try_now(record)
        if outcome is None:
            self.jobs.put(record, now)
            self.changed(now)
            return job_id
        if isinstance(outcome, str):
            self._refused(record, now)
            if outcome == "ESLURM_ACCOUNTING_POLICY":
                raise rejections.limit_reached()
            raise rejections.rejection(outcome)
        self._start(record, outcome, now)
        return job_id

    def update(self, job_id: int, changes: JobChanges, now: float) -> None:
        record = self.jobs.get(job_id)
        if record is None:
            raise rejections.missing_job()
        if record.state.ended:
            raise rejections.rejection("ESLURM_JOB_FINISHED")
        self._ask_plugin(_changed(record, changes).spec)
        if record.held and changes.priority:
            raise rejections.still_held()
        if changes.excluded_nodes is not None:
            named = rejections.named(changes.excluded_nodes, self.machines)
            changes = replace(changes, excluded_nodes=named)
        self.jobs.put(_changed(record, changes), now)
        self.changed(now)

    def cancel(self, job_id: int, now: float, name: str | None = None) -> None:
        """Ends a job. Raises OtherJob if `name` is given and the job has another name. Does nothing for
        an unknown or ended job."""
        record = self.jobs.get(job_id)
        if record is None or record.state.ended:
            return
        if name not in (None, record.spec.name):
            raise rejections.other_job(as_read(record.spec.name), name)
        self.end(record, "CANCELLED", now)

    def end(self, record: Record, base: str, now: float, *, reason: str = "") -> None:
        """Ends a job in a terminal state, and frees its resources."""
        started = record.started if record.started is not None else now
        ended = replace(record, state=JobState(base), reason=reason, started=started, ended=now)
        self.change(record, ended, now)

    def changed(self, now: float) -> None:
        """Makes the scheduler look at the jobs at the next tick."""
        self._changed_at = now

    def rebuild_usage(self, now: float) -> None:
        """Computes the used resources of each node from the jobs. Called after the journal has restored
        an earlier state."""
        for machine in self.machines.values():
            machine.clear()
        for record in self.jobs:
            self._take(record.taken)
        self._restarted = {record.id for record in self.jobs if record.script_ends}
        self.changed(now)

    def job(self, job_id: int) -> Job | None:
        record = self.jobs.get(job_id)
        return record.job() if record else None

    def nodes(self) -> tuple[Node, ...]:
        return tuple(machine.node() for machine in self.machines.values())

    def _next_due(self) -> float:
        """Returns the next tick with work, or infinity."""
        since = self.jobs.next_deadline() if self._changed_at is None else self._changed_at
        if math.isinf(since):
            return since
        ticks = math.floor((since - self._origin) / self._tick_s) + 1
        return self._origin + ticks * self._tick_s

    def _schedule(self, now: float) -> None:
        self._changed_at = None
        for job_id in tuple(self._restarted):
            self._restarted.discard(job_id)
            if (record := self.jobs.get(job_id)) is not None and record.script_ends:
                self.end(record, "COMPLETED", now)
        this_pass = scheduler.Pass(self.machines, self.partitions, self._limited)
        for record in scheduler.by_tier(self.jobs.pending(), self.partitions):
            outcome = this_pass.consider(record)
            if not isinstance(outcome, str):
                self._launch(record, outcome, now)
            elif outcome != record.reason:
                self.jobs.put(replace(record, reason=outcome), now)

    def _try_now(self, record: Record) -> tuple[Slot, ...] | str | None:
        """Returns the job's share of its nodes, or the name of the error with which Slurm rejects the
        job. Returns None if Slurm lets the job wait instead."""
        partition = self.partitions[record.partition]
        reason = scheduler.standing_reason(record, partition, self.machines)
        if reason == scheduler.TIME_LIMIT:
            return None
        if reason != scheduler.HELD and self._must_queue(record):
            return "ESLURM_NOT_TOP_PRIORITY"
        if scheduler.never(record, partition, self.machines):
            return "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
        if reason is not None:
            return _REFUSED[reason]
        if self._limited(record):
            return "ESLURM_ACCOUNTING_POLICY"
        slots = scheduler.place(record, scheduler.allowed(record, partition, self.machines))
        return slots or "ESLURM_NODES_BUSY"

    def _must_queue(self, record: Record) -> bool:
        """Returns True if another job waits before this job. The other job is neither held nor over a
        limit. Either the other job is in the same partition, with a higher priority, or with the same
        priority and an earlier submission. Or the other job is in a partition of a higher tier that
        shares nodes with this job's partition."""
        own = self.partitions[record.partition]
        return any(
            not other.held
            and other.reason not in REASONS
            and (other.partition != own.name or _precedence(other) < _precedence(record))
            for partition in self.partitions.values()
            if partition is own or self._above(partition, own)
            for other in self.jobs.waiting(partition.name)
        )

    def _above(self, other: Partition, own: Partition) -> bool:
        if other.priority_tier <= own.priority_tier:
            return False
        return not self._members[other.name].isdisjoint(self._members[own.name])

    def _record(self, spec: JobSpec, job_id: int, now: float) -> Record:
        """Returns the record of a requested job."""
        if job_id <= 0:
            raise rejections.rejection("ESLURM_INVALID_JOB_ID")
        self._ask_plugin(spec)
        if job_id in self.jobs:
            raise rejections.rejection("ESLURM_DUPLICATE_JOB_ID")
        spec = rejections.checked(spec, self.machines)
        partition = rejections.partition_of(spec, self.partitions)
        user_id = spec.user_id or 0
        account, qos = self._enforcement.charged(spec, user_id)
        rejections.check_reservation(spec, user_id, self.reservations.users)
        self._arrivals += 1
        return Record(
            id=job_id,
            spec=spec,
            partition=partition.name,
            account=account,
            qos=qos,
            user_id=user_id,
            group_id=user_id if spec.group_id is None else spec.group_id,
            priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
            order=self._arrivals,
            submitted=now,
            external=self._external_jobs,
            user_name=self.user_names.get(user_id, ""),
        )

    def _ask_plugin(self, spec: JobSpec) -> None:
        number = self.plugin(spec) if self.plugin is not None else 0
        if number:
            raise rejections.numbered(number)

    def rights(self, user_id: int) -> UserRights:
        """Returns a user's rights as slurmdbd and slurmctld report them. A user without a name has no
        rights."""
        name = self.user_names.get(user_id, "")
        if user_id in self.unknown_users or not name:
            return UserRights(unknown=user_id in self.unknown_users)
        admitting = (each for each, users in self.reservations.users.items() if user_id in users)
        return UserRights(name, False, self._enforcement.associations(user_id), tuple(admitting))

    def machine(self, name: str) -> Machine:
        """Returns a node. Raises Slurm's error 2018 for an unknown node."""
        if name not in self.machines:
            raise rejections.rejection("ESLURM_INVALID_NODE_NAME")
        return self.machines[name]

    def register(self, node: Node, partitions: Collection[str], now: float, *, booted: bool) -> None:
        """Starts a slurmd. If the node is unknown, the slurmd creates the node. If the node is known,
        only its state and the start time of its slurmd change. (In real Slurm 26.05 and 24.11, the
        node's address changes as well.)"""
        if node.name not in self.machines:
            self._remember_nodes(now)
            self.machines[node.name] = self._machine(node, tuple(partitions))
            self._set_partitions(
                replace(one, nodes=(*one.nodes, node.name)) if one.name in partitions else one
                for one in self.partitions.values()
            )
        self.machines[node.name].registered(now, booted=booted)
        self.changed(now)

    def delete_node(self, name: str, now: float) -> None:
        """Deletes a dynamic node. Does nothing for an unknown node. Raises Slurm's error 2016 for a node
        in use, and 2028 for a node that is not dynamic."""
        machine = self.machines.get(name)
        if machine is None:
            return
        if not machine.configured.dynamic:
            raise rejections.not_dynamic()
        if machine.in_use:
            raise rejections.node_in_use()
        self._remember_nodes(now)
        del self.machines[name]
        self._set_partitions(
            replace(one, nodes=tuple(other for other in one.nodes if other != name))
            for one in self.partitions.values()
        )
        self.reservations.validate(self.machines)
        self.changed(now)

    def _remember_nodes(self, now: float) -> None:
        known, partitions = dict(self.machines), tuple(self.partitions.values())

        def undo() -> None:
            self.machines = known
            self._set_partitions(partitions)

        self.journal.add(now, undo)

    def _set_partitions(self, partitions: Iterable[Partition]) -> None:
        self.partitions = {one.name: one for one in partitions}
        self._members = {name: frozenset(one.nodes) for name, one in self.partitions.items()}

    def _alive(self) -> Iterator[Record]:
        return (record for record in self.jobs if not record.state.ended)

    def _limited(self, record: Record) -> str | None:
        return self._enforcement.reason(record, self._alive())

    def _refused(self, record: Record, now: float) -> None:
        self.jobs.put(replace(record, state=JobState("FAILED"), reason="BadConstraints", ended=now), now)

    def _start(self, record: Record, slots: tuple[Slot, ...], now: float) -> None:
        self._take(slots)
        self.jobs.put(replace(record, state=RUNNING, reason="", slots=slots, started=now), now)

    def change(self, before: Record, after: Record, now: float) -> None:
        """Changes a job that has nodes, or ends a job. Updates the used resources of the nodes."""
        for slot in before.taken:
            self.machines[slot.node].give_back(slot)
        self._take(after.taken)
        self.jobs.put(after, now)
        self.changed(now)

    def _launch(self, record: Record, slots: tuple[Slot, ...], now: float) -> None:
        """Starts a waiting job. For a batch job of an unknown user, slurmctld cannot create a
        credential. Then slurmctld (24.11) holds the job until an administrator releases the job."""
        if record.external or record.user_id not in self.unknown_users:
            self._start(record, slots, now)
            if record.restarts:
                self._restarted.add(record.id)
                self.changed(now)
            return
        asked = replace(record, restarts=1, system_comment=_NO_CREDENTIAL)
        self._hold(asked, scheduler.HELD_BY_SLURM, now)

    def _hold(self, record: Record, reason: str, now: float) -> None:
        self.jobs.put(replace(record, priority=0, reason=reason, held_for=reason), now)

    def set_features(self, name: str, features: Sequence[str], now: float) -> None:
        """Changes a node's features. Like slurmctld, then holds each waiting job that fits on no node
        any more, not even on an empty node."""
        machine = self.machine(name)
        machine.configured = replace(machine.configured, features=tuple(features))
        machine.mark(machine.flags, machine.reason)
        for record in [each for each in self.jobs.pending() if not each.held]:
            if scheduler.never(record, self.partitions[record.partition], self.machines):
                self._hold(record, scheduler.BAD_CONSTRAINTS, now)
        self.changed(now)

    def _take(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            self.machines[slot.node].take(slot)

    def _machine(self, node: Node, partitions: tuple[str, ...]) -> Machine:
        return Machine(node, partitions, counts_memory=self._counts_memory)

    def _partitions_of(self, node: Node) -> tuple[str, ...]:
        return tuple(name for name, members in self._members.items() if node.name in members)


def _precedence(record: Record) -> tuple[int, int, int]:
    """Returns the sort key of a job: the priority, the time of submission in whole seconds, and the id.
    The job with the lowest key goes first."""
    return -record.priority, int(record.submitted), record.id


def _changed(record: Record, changes: JobChanges) -> Record:
    fields = ("excluded_nodes", "priority", "time_limit_minutes", "comment", "admin_comment")
    given = {name: value for name in fields if (value := getattr(changes, name)) is not None}
    spec = replace(record.spec, **given)
    priority = record.priority if changes.priority is None else changes.priority
    return replace(record, spec=spec, priority=priority)
