"""A job of an `InMemorySlurm`. The record of a job is frozen, so that the journal can restore an earlier
record."""

from dataclasses import dataclass, replace
from typing import Any

from slurm_client.gres import gpus
from slurm_client.in_memory.machines import Slot
from slurm_client.job_state import JobState
from slurm_client.model import Job, JobSpec
from wellknown import number_list

PENDING = JobState("PENDING")
RUNNING = JobState("RUNNING")
SUSPENDED = JobState("SUSPENDED")


@dataclass(frozen=True, slots=True)
class Record:
    """A job. Times are seconds of the Slurm's clock."""

    id: int
    spec: JobSpec
    partition: str
    account: str
    qos: str
    user_id: int
    group_id: int
    priority: int
    order: int
    """Number in the order of arrival. If two jobs have the same priority, the earlier job goes first."""
    submitted: float
    external: bool
    user_name: str = ""
    batch: bool = False
    """True for a job with a script: a submitted job, not an EXTERNAL_JOB."""
    state: JobState = PENDING
    reason: str = ""
    slots: tuple[Slot, ...] = ()
    started: float | None = None
    ended: float | None = None
    suspended: float | None = None
    """Time of the last suspension or resumption."""
    preempted: float | None = None
    restarts: int = 0
    held_for: str = ""
    """slurmctld's own reason to hold the job."""
    system_comment: str = ""

    @property
    def held(self) -> bool:
        """True if Slurm holds the job: the priority is 0."""
        return self.priority == 0

    @property
    def has_nodes(self) -> bool:
        return self.state.base in {"RUNNING", "SUSPENDED"}

    @property
    def script_ends(self) -> bool:
        """True if the job's script ends at once. The script of a placeholder does so after a second
        start."""
        return self.restarts > 0 and self.batch and self.state == RUNNING

    @property
    def taken(self) -> tuple[Slot, ...]:
        """The resources that other jobs cannot have. A suspended job keeps its memory and devices, but
        no cores."""
        if self.state.suspended:
            return tuple(replace(slot, cpus=0, cores=()) for slot in self.slots)
        return self.slots if self.has_nodes else ()

    @property
    def deadline(self) -> float | None:
        """Time at which the time limit ends the job."""
        limit = self.spec.time_limit_minutes
        return None if limit is None or self.started is None else self.started + 60 * limit

    def job(self) -> Job:
        """Returns the job as in GET job/{id}."""
        spec = self.spec
        held = self.slots if self.has_nodes else ()
        end = self.ended if self.ended is not None else self.deadline
        return Job(
            id=self.id,
            state=self.state,
            name=as_read(spec.name),
            partition=self.partition,
            user_id=self.user_id,
            user_name=self.user_name,
            group_id=self.group_id,
            account=self.account,
            qos=self.qos,
            reservation=spec.reservation or "",
            comment=as_read(spec.comment or ""),
            admin_comment=spec.admin_comment,
            nodes=tuple(slot.node for slot in self.slots),
            gres=tuple(slot.gres for slot in held) if any(slot.gres for slot in held) else (),
            cores=tuple(number_list.compress(slot.cores) for slot in held),
            cpus=tuple(slot.cpus for slot in held),
            memory_allocated_mb=tuple(slot.memory_mb for slot in held),
            cpus_allocated=sum(slot.cpus for slot in self.slots)
            or spec.cpus * (spec.tasks or spec.nodes),
            reason=self.reason,
            system_comment=self.system_comment,
            restart_count=self.restarts,
            submit_time=int(self.submitted),
            start_time=_seconds(self.started),
            end_time=_seconds(end),
            suspend_time=_seconds(self.suspended),
            preempt_time=_seconds(self.preempted),
            sluid=f"s{self.order:013X}",
            external=self.external,
            cpus_per_node=spec.cpus,
            **_amounts(spec),
            gpus=(spec.tasks or spec.nodes) * gpus(_tres(spec)),
            node_count=len(self.slots) or spec.nodes,
            constraints=spec.constraints or "",
            prefer=spec.prefer or "",
            required_nodes=spec.required_nodes,
            excluded_nodes=spec.excluded_nodes,
            current_working_directory=spec.current_working_directory or "",
            priority=self.priority,
            time_limit_minutes=spec.time_limit_minutes,
            held=self.held,
        )


def _amounts(spec: JobSpec) -> dict[str, Any]:
    """Returns the fields for amounts on each node, or of each task."""
    if spec.tasks is None:
        return {"memory_mb": spec.memory_mb, "tres_per_node": _tres(spec), "tasks": spec.nodes}
    amounts = {"memory_per_cpu_mb": spec.memory_per_cpu_mb, "tres_per_task": _tres(spec)}
    return {**amounts, "tasks": spec.tasks}


def _tres(spec: JobSpec) -> str:
    return ",".join(f"gres/{name}:{count}" for name, count in spec.gres)


def kept(written: bytes) -> str:
    """Returns the text with which any bytes are stored (PEP 383)."""
    return written.decode(errors="surrogateescape")


def as_read(text: str) -> str:
    """Returns a stored text as a client reads the text. Bytes outside UTF-8 become U+FFFD."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _seconds(time: float | None) -> int | None:
    return None if time is None else int(time)
