"""Implements `protocol.Slurm` with a simulated `Controller`: the calls, the errors, and the controls for
tests."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from slurm_client import checks, ownership
from slurm_client.in_memory.accounting import Accounting
from slurm_client.in_memory.controller import Controller
from slurm_client.in_memory.controls import Controls
from slurm_client.job_state import AllStates, JobState
from slurm_client.model import Grant, Job, JobChanges, JobSpec, Node, Partition, grant_of
from slurm_client.reservation import Reservation
from slurm_client.rights import UserRights
from slurm_client.server import Capabilities, Configuration

DEFAULTS: Final = Configuration(
    cluster_name="in-memory",
    first_job_id=1,
    max_job_id=33_554_432,
    max_job_count=10_000,
    kill_wait_s=30,
    min_job_age_s=300,
    preempt_type="",
    preempt_mode=(),
    slurm_user_id=0,
    slurm_user="root",
    scheduler_parameters=(),
    message_timeout_s=10,
    select_type="select/cons_tres",
    select_type_parameters=("CR_CORE_MEMORY",),
    task_plugins=("task/affinity", "task/cgroup"),
    proctrack_type="proctrack/cgroup",
    prologs=(),
    prolog_flags=(),
    slurmctld_prologs=(),
    slurmctld_epilogs=(),
    accounting_storage_type="",
    accounting_store_flags=(),
    return_to_service="no",
    slurmctld_parameters=(),
    max_node_count=0,
    slurmd_timeout_s=300,
    next_job_id=1,
)
"""The default `configuration`: Slurm's own defaults, and the MaxJobId recommended by the extender."""


class InMemorySlurm(Controls):
    """A simulated Slurm, which treats each call as a call with root's token.

    `clock` returns UNIX seconds. Submitted jobs start at ticks, which come every `tick_s` seconds after
    the creation of this object. Nothing runs in the background: each call first does all due work. In
    `configuration`, only min_job_age_s, select_type_parameters and cluster_name have an effect. Without
    `accounting`, any user may name any account and QOS.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        partitions: Sequence[Partition],
        *,
        clock: Callable[[], float] = time.time,
        tick_s: float = 0.25,
        external_jobs: bool = True,
        configuration: Configuration = DEFAULTS,
        accounting: Accounting | None = None,
    ) -> None:
        super().__init__()
        self._clock = clock
        now = clock()
        self._controller = Controller(
            nodes,
            partitions,
            now=now,
            tick_s=tick_s,
            configuration=configuration,
            accounting=accounting,
            external_jobs=external_jobs,
        )
        self._capabilities = Capabilities(
            api_version="v0.0.45",
            release="in memory",
            cluster=configuration.cluster_name or "",
            external_jobs=external_jobs,
            configuration=True,
            default_partition=True,
            books=accounting is not None,
        )
        self._configuration, self._boot_time = configuration, int(now)

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def connect(self) -> Capabilities:
        self._begin()
        return self._capabilities

    async def configuration(self) -> Configuration:
        self._begin()
        return replace(self._configuration, boot_time=self._boot_time)

    async def ping(self) -> None:
        self._begin()

    async def allocate(self, spec: JobSpec, job_id: int) -> int:
        ownership.check_allocation(spec, "root")
        created = self._controller.allocate(spec, job_id, self._begin())
        self._answer("allocate")
        return created

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        created = self._controller.submit(spec, job_id, self._begin())
        self._answer("submit")
        return created

    async def may_choose_ids(self) -> bool:
        self._read("may_choose_ids")
        return True  # the token's user is root

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        self._read("states")
        found = ((job_id, self._controller.jobs.get(job_id)) for job_id in ids)
        return {job_id: record.state for job_id, record in found if record}

    async def all_states(self) -> AllStates:
        self._read("all_states")
        states = AllStates({record.id: record.state for record in self._controller.jobs})
        states.entries = len(states)
        states.waiting = {job_id: 1 for job_id, state in states.items() if state.pending}
        return states

    async def job(self, job_id: int) -> Job | None:
        self._read("job")
        return self._controller.job(job_id)

    async def grant(self, job_id: int) -> Grant | None:
        return grant_of(await self.job(job_id))

    async def update(self, job_id: int, changes: JobChanges) -> None:
        now = self._begin()
        if changes != JobChanges():
            self._controller.update(job_id, changes, now)
        self._answer("update")

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        self._controller.cancel(job_id, self._begin(), name)
        self._answer("cancel")

    async def canceller(self, job_id: int) -> str | None:
        """Returns root for every cancelled job, because all callers are root."""
        job = await self.job(job_id)
        cancelled = job is not None and job.state.base == "CANCELLED"
        return "root" if cancelled and self._capabilities.books else None

    async def rights(self, user_id: int | None) -> UserRights:
        self._read("rights")
        return self._controller.rights(user_id or 0)

    async def nodes(self) -> tuple[Node, ...]:
        self._read("nodes")
        return self._controller.nodes()

    async def node(self, name: str) -> Node | None:
        self._read("node")
        machine = self._controller.machines.get(name)
        return machine.node() if machine else None

    async def drain_node(self, name: str, reason: str) -> None:
        now = self._begin()
        machine = self._controller.machine(name)
        self._flag(name, {*machine.flags, "DRAIN"}, reason, now)
        self._answer("drain_node")

    async def undrain_node(self, name: str) -> None:
        now = self._begin()
        machine = self._controller.machine(name)
        if "DRAIN" in machine.flags:
            flags = {*machine.flags} - {"DRAIN"}
            self._flag(name, flags, machine.reason if flags else "", now)
        self._answer("undrain_node")

    async def down_node(self, name: str, reason: str) -> None:
        now = self._begin()
        machine = self._controller.machine(name)
        self._down(name, {*machine.flags, "DOWN"}, reason, now)
        self._answer("down_node")

    async def delete_node(self, name: str) -> None:
        checks.check_node(name)
        self._controller.delete_node(name, self._begin())
        self._answer("delete_node")

    async def reservations(self) -> tuple[Reservation, ...]:
        self._read("reservations")
        return tuple(self._controller.reservations.known.values())

    async def validate_reservations(self, node: str) -> None:
        now = self._begin()
        machine = self._controller.machine(node)
        self._flag(node, {*machine.flags}, machine.reason, now)
        self._answer("validate_reservations")

    async def partitions(self) -> tuple[Partition, ...]:
        self._read("partitions")
        return tuple(self._controller.partitions.values())

    async def aclose(self) -> None:
        """Closes nothing. The caller may use the object again, like a server after the end of a
        client."""

    def _read(self, method: str) -> None:
        """Begins a call that changes nothing."""
        self.reads[method] += 1
        self._begin()
        self._answer(method)

    def _begin(self) -> float:
        """Does all due work, and returns the time of the call. During an outage, raises the outage's
        error."""
        if self._outage:
            raise self._outage
        return self._now()
