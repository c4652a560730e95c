"""Methods with which tests control an `InMemorySlurm`. The tests act as an administrator or a user, or
let hardware and network fail."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial

from slurm_client.errors import OutcomeUnknown, SlurmError
from slurm_client.in_memory.controller import DEFAULT_PRIORITY, Controller, Plugin
from slurm_client.in_memory.machines import SILENT
from slurm_client.in_memory.record import PENDING, RUNNING, SUSPENDED, Record, kept
from slurm_client.job_state import JobState
from slurm_client.model import Job, Node, Power
from slurm_client.reservation import Reservation


class Controls:
    """The tests' controls of an `InMemorySlurm`. All controls also work during an `outage`."""

    _controller: Controller
    _clock: Callable[[], float]
    _boot_time: int

    def __init__(self) -> None:
        self._outage: SlurmError | None = None
        self._lose_reply_of: list[str] = []
        self.reads: Counter[str] = Counter()
        """Number of calls of each method that changes nothing, by the method's name, like "nodes"."""

    def outage(self, error: SlurmError | None) -> None:
        """Makes every call raise `error` and do nothing, until `outage(None)`."""
        self._outage = error

    def lose_reply_of_next(self, method: str) -> None:
        """Makes the next call of a method ("submit") do its work and raise OutcomeUnknown."""
        self._lose_reply_of.append(method)

    def ask_plugin(self, plugin: Plugin | None) -> None:
        """Sets the job_submit plugin for new jobs and changes of jobs."""
        self._controller.plugin = plugin

    def forget_user(self, user_id: int) -> None:
        """Makes a user unknown on slurmctld's host."""
        self._controller.unknown_users.add(user_id)

    def remember_user(self, user_id: int) -> None:
        """Makes a user known again on slurmctld's host. A held job stays held."""
        self._controller.unknown_users.discard(user_id)

    def name_user(self, user_id: int, name: str) -> None:
        """Gives a user a name on slurmctld's host."""
        self._controller.user_names[user_id] = name

    def admin_cancel(self, job_id: int) -> None:
        """Cancels a job, as an administrator does with scancel."""
        self._controller.cancel(job_id, self._now())

    def edit(self, job_id: int, *, name: bytes, comment: bytes) -> None:
        """Runs `scontrol update` by the job's owner. The owner may write any bytes."""
        now, record = self._now(), self._record(job_id)
        spec = replace(record.spec, name=kept(name), comment=kept(comment))
        self._controller.jobs.put(replace(record, spec=spec), now)

    def preempt(self, job_id: int) -> None:
        """Preempts the job for a job of higher priority. Requeue is off, so the job ends as
        PREEMPTED."""
        self.end(job_id, "PREEMPTED")

    def end(self, job_id: int, base: str = "COMPLETED") -> None:
        """Ends the job in a terminal state."""
        now = self._now()
        self._controller.end(self._record(job_id), base, now)

    def suspend(self, job_id: int) -> None:
        """Runs `scontrol suspend`. Then the job does not run, and other jobs may get its cores."""
        self._suspend(job_id, RUNNING, SUSPENDED)

    def resume(self, job_id: int) -> None:
        """Runs `scontrol resume` after `suspend`. The job gets its cores back, even if another job uses
        the same cores."""
        self._suspend(job_id, SUSPENDED, RUNNING)

    def hold(self, job_id: int) -> None:
        """Runs `scontrol hold` for a waiting job, as the job's owner."""
        self._set_priority(job_id, 0, "JobHeldUser")

    def release(self, job_id: int) -> None:
        """Runs `scontrol release`. Then the job has a priority again."""
        self._set_priority(job_id, DEFAULT_PRIORITY, "Priority")

    def requeue(self, job_id: int) -> None:
        """Runs `scontrol requeue` for a batch job whose owner has set Requeue=1 by `scontrol update`.
        The job waits again, under the same id. After the next start of the job, its script ends at
        once."""
        now, record = self._now(), self._record(job_id)
        if not record.batch or record.state != RUNNING:
            raise ValueError(f"job {job_id} is no batch job that runs")
        waits = replace(record, state=PENDING, slots=(), started=None, restarts=record.restarts + 1)
        self._controller.change(record, waits, now)

    def resize(self, job_id: int, cpus: int) -> None:
        """Runs `scontrol update NumCPUs` for a waiting job, as the job's owner."""
        now, record = self._now(), self._record(job_id)
        if record.state != PENDING:
            raise ValueError(f"job {job_id} does not wait")
        self._controller.jobs.put(replace(record, spec=replace(record.spec, cpus=cpus)), now)
        self._controller.changed(now)

    def fail_node(self, name: str) -> None:
        """Sets the node DOWN, so that its jobs end as NODE_FAIL."""
        self._down(name, {"DOWN", "NOT_RESPONDING"}, SILENT, self._now())

    def register(self, node: Node, partitions: Collection[str] = (), *, booted: bool = False) -> None:
        """Starts slurmd -Z (with -b if `booted`). An unknown node becomes a dynamic node in
        `partitions`. A known node is up afterwards. If slurmctld did not expect the boot of the known
        node, the node is DOWN instead."""
        now, known = self._now(), self._controller.machines.get(node.name)
        surprises = booted and known is not None and not known.may_boot
        dynamic = replace(node, states=node.states | {"DYNAMIC_NORM"})
        self._controller.register(dynamic, partitions, now, booted=booted)
        if known is not None and surprises:
            self._down(node.name, {*known.flags, "DOWN"}, "Node unexpectedly rebooted", now)

    def power(self, name: str, power: Power) -> None:
        """Sets the state of the node's power saving."""
        machine = self._controller.machine(name)
        self._flag(name, {*(machine.flags - {*Power}), power}, machine.reason, self._now())

    def completing(self, name: str, *, lasts: bool = True) -> None:
        """Begins or ends the state COMPLETING. In this state, an ended job still has a process on the
        node, or the Epilog runs."""
        machine = self._controller.machines[name]
        flags = {*machine.flags - {"COMPLETING"}, *(["COMPLETING"] if lasts else [])}
        self._flag(name, flags, machine.reason, self._now())

    def set_features(self, name: str, features: Collection[str]) -> None:
        """Runs `scontrol update NodeName=... ActiveFeatures=...`."""
        self._controller.set_features(name, tuple(features), self._now())

    def drain(self, name: str, reason: str = "drained") -> None:
        """Drains the node. Running jobs continue."""
        self._flag(name, {"DRAIN"}, reason, self._now())

    def resume_node(self, name: str) -> None:
        """Returns the node to service, after `drain` or `fail_node`."""
        self._flag(name, set(), "", self._now())

    def reserve(
        self,
        name: str,
        nodes: Iterable[str],
        user_ids: Iterable[int],
        *,
        begins_in_s: float = 0.0,
        minutes: int = 60,
        flags: Iterable[str] = (),
    ) -> None:
        """Creates a reservation. Only jobs of the reservation start on its nodes. With the flag
        ALL_NODES, the reservation has all nodes."""
        start = int(self._now() + begins_in_s)
        made = Reservation(name, tuple(nodes), start, start + 60 * minutes, frozenset(flags))
        reservations = self._controller.reservations
        reservations.make(made, user_ids)
        reservations.validate(self._controller.machines)
        self._now()

    def end_reservation(self, name: str) -> None:
        """Deletes a reservation."""
        self._controller.reservations.end(name)
        self._now()

    def live_jobs(self) -> list[Job]:
        """Returns all jobs except ended jobs."""
        self._now()
        return [record.job() for record in self._controller.jobs if not record.state.ended]

    def forget_since(self, time: float) -> None:
        """Undoes all changes after `time`, because a slurmctld that is killed (kill -9) loses its latest
        changes."""
        now = self._now()
        self._boot_time = max(int(now), self._boot_time + 1)
        self._controller.journal.back_to(time)
        self._controller.rebuild_usage(now)

    def _now(self) -> float:
        now = self._clock()
        self._controller.advance(now)
        return now

    def _answer(self, method: str) -> None:
        """Raises OutcomeUnknown if the test has called `lose_reply_of_next` for this method."""
        if method in self._lose_reply_of:
            self._lose_reply_of.remove(method)
            raise OutcomeUnknown(f"{method}: the reply was lost")

    def _suspend(self, job_id: int, expected: JobState, state: JobState) -> None:
        now, record = self._now(), self._record(job_id)
        if record.state != expected:
            raise ValueError(f"job {job_id} is {record.state}, not {expected}")
        self._controller.change(record, replace(record, state=state, suspended=now), now)

    def _set_priority(self, job_id: int, priority: int, reason: str) -> None:
        now, record = self._now(), self._record(job_id)
        if record.state != PENDING:
            raise ValueError(f"job {job_id} does not wait")
        self._controller.jobs.put(replace(record, priority=priority, reason=reason), now)
        self._controller.changed(now)

    def _record(self, job_id: int) -> Record:
        record = self._controller.jobs.get(job_id)
        if record is None or record.state.ended:
            raise ValueError(f"job {job_id} does not exist or has ended")
        return record

    def _down(self, name: str, flags: set[str], reason: str, now: float) -> None:
        self._flag(name, flags, reason, now)
        for record in self._controller.jobs:
            if record.has_nodes and any(slot.node == name for slot in record.slots):
                self._controller.end(record, "NODE_FAIL", now, reason="NodeDown")

    def _flag(self, name: str, flags: set[str], reason: str, now: float) -> None:
        machine = self._controller.machines[name]
        self._controller.journal.add(now, partial(machine.mark, machine.flags, machine.reason))
        machine.mark(frozenset(flags), reason)
        self._controller.reservations.validate(self._controller.machines)
        self._controller.changed(now)
