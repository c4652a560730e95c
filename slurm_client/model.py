"""Jobs, nodes and partitions of Slurm as immutable values.

This module does no I/O, and does not depend on the JSON of Slurm's REST API. The module `server` has the
values about the server itself. The module `protocol` has the calls to Slurm.
"""

import enum
from dataclasses import dataclass, field, fields, replace
from typing import Self

from slurm_client.job_state import JobState


class Sharing(enum.StrEnum):
    """The ways in which a job shares its nodes with other jobs. The values are the words of slurmrestd's
    field `shared` (sbatch(1) --exclusive)."""

    NONE = "none"  # the whole node with every CPU and GRES for this job
    ALLOWED = "oversubscribe"  # sbatch --oversubscribe: also shares cores, if the partition allows this
    USER = "user"  # only jobs of the same user share the nodes
    MCS = "mcs"  # only jobs of the same MCS label share the nodes
    TOPO = "topo"  # the whole topology segment for this job


HIGHEST_PRIORITY = 0xFFFFFF00
"""Priority of a job for a Pod that already runs, and so already uses its resources. Slurm's own
priorities end at 0xffff0000 (priority/basic). The last few 32-bit numbers have other meanings."""
MOST_CPUS = 65_533
"""The largest number of CPUs on a node in a request. slurmrestd cuts larger numbers to 16 bits without
an error. For example, a job for 65,537 CPUs gets one CPU (24.11 and 26.05)."""
MOST_MINUTES = 71_582_788
"""The longest time limit in minutes. slurmctld counts seconds in 32 bits, so a job with one minute more
ends after 44 s (24.11 and 26.05)."""
MOST_BYTES = 1024
"""Largest length of a name, a comment or a feature expression, in bytes. Slurm rejects longer texts
(error 2012)."""
MOST_PATH_BYTES = 4095
"""Largest length of a path, in bytes."""


class Decides(enum.Enum):
    """The effect that a field of a JobSpec has in Slurm. Each field has exactly one effect, so that
    requests can be compared by effect."""

    QUEUE = enum.auto()  # the queue of Slurm in which the job waits
    OWNER = enum.auto()  # the limits of users, accounts, QOS and reservations that apply to the job
    DEMAND = enum.auto()  # the size of the job, and the nodes that are open to the job
    NOTHING = enum.auto()  # nothing, or only the order of jobs and the choice among several nodes


_QUEUE, _OWNER, _DEMAND, _NOTHING = ({"decides": what} for what in Decides)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The request for one placeholder job. Requeue is always off. No text may have a NUL character,
    because Slurm ignores the rest of a text after a NUL."""

    name: str = field(metadata=_NOTHING)
    cpus: int = field(metadata=_DEMAND)
    """CPUs on each node, at most MOST_CPUS. slurm.conf decides if a CPU of the node is a thread, a core
    or another unit. A job has whole cores, so the job may get more CPUs if a core is several CPUs."""
    memory_mb: int = field(metadata=_DEMAND)
    """MiB on each node; with `tasks`, MiB of each task."""
    gres: tuple[tuple[str, int], ...] = field(default=(), metadata=_DEMAND)
    """Name (or name:type) and count on each node, as pairs: (("gpu", 2),) or (("gpu:h100", 2),)."""
    nodes: int = field(default=1, metadata=_DEMAND)
    """Number of nodes. With `tasks`, the lowest number of nodes."""
    tasks: int | None = field(default=None, metadata=_DEMAND)
    """Number of equal parts that Slurm packs onto as few nodes as possible, several on a node. `cpus`,
    `memory_mb` and `gres` are then amounts of each task, and `cpus` are whole cores: Slurm counts memory
    for rounded CPUs, too. None: a job with the same amounts on each node."""
    partition: str | None = field(default=None, metadata=_QUEUE)
    account: str | None = field(default=None, metadata=_OWNER)
    qos: str | None = field(default=None, metadata=_OWNER)
    reservation: str | None = field(default=None, metadata=_OWNER)
    comment: str | None = field(default=None, metadata=_NOTHING)
    constraints: str | None = field(default=None, metadata=_DEMAND)
    """Features that a node must have, in the grammar of sbatch(1) --constraint."""
    prefer: str | None = field(default=None, metadata=_NOTHING)
    """Preferred features, in the same grammar."""
    current_working_directory: str | None = field(default=None, metadata=_NOTHING)
    priority: int | None = field(default=None, metadata=_NOTHING)
    switches: int | None = field(default=None, metadata=_DEMAND)
    """Most leaf switches of the job's nodes. Slurm waits for such nodes, but only for a limited time
    (max_switch_wait in SchedulerParameters)."""
    segment: int | None = field(default=None, metadata=_DEMAND)
    """Number of nodes that stay together in a block of topology/block. A divisor of `nodes`."""
    shared: str | None = field(default=None, metadata=_DEMAND)
    """A value of `Sharing`. If None, the partition's setting applies."""
    required_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    """Names and hostlist expressions, like ("n1", "gpu[01-04]"). `excluded_nodes` has the same form.
    With `tasks`, one name for each task: Slurm puts this task onto exactly this node."""
    excluded_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    user_id: int | None = field(default=None, metadata=_OWNER)
    """The owner of a submitted job. An allocated job belongs to the token's user."""
    group_id: int | None = field(default=None, metadata=_DEMAND)
    time_limit_minutes: int | None = field(default=None, metadata=_DEMAND)
    """At most MOST_MINUTES."""
    admin_comment: str = field(default="", metadata=_NOTHING)
    """Only root and SlurmUser may set the AdminComment, so other users cannot forge this text."""

    @property
    def memory_per_cpu_mb(self) -> int:
        """MiB for each CPU of a packed task, rounded up."""
        return -(-self.memory_mb // self.cpus)

    def of_tasks(self, number: int) -> Self:
        """Returns the request for a number of packed tasks on a single node."""
        gres = tuple((name, number * count) for name, count in self.gres)
        memory_mb = number * self.cpus * self.memory_per_cpu_mb
        amounts = {"cpus": number * self.cpus, "memory_mb": memory_mb, "gres": gres}
        return replace(self, nodes=1, tasks=None, **amounts)  # type: ignore[arg-type]


def fields_that_decide(what: Decides) -> tuple[str, ...]:
    """Returns the names of the JobSpec fields that have the effect `what`. Raises KeyError if a field
    has no effect."""
    return tuple(each.name for each in fields(JobSpec) if each.metadata["decides"] is what)


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The changes to a job. A field that is None stays as it is."""

    excluded_nodes: tuple[str, ...] | None = None
    """The new list of names and hostlist expressions; () clears the list."""
    priority: int | None = None
    time_limit_minutes: int | None = None
    comment: str | None = None
    admin_comment: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The nodes that Slurm has granted to a job, and the job's share of each node. The fields have the
    same form as in `Job`."""

    nodes: tuple[str, ...]
    gres: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    memory_mb: tuple[int, ...] = ()
    sockets: tuple[str, ...] = field(default=(), compare=False)
    cpus: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Slurm describes it. Times are UNIX seconds, or None. A job that has not started may have
    an expected `start_time` and `end_time`."""

    id: int
    state: JobState
    name: str = ""
    partition: str = ""
    user_id: int = 0
    user_name: str = ""
    """Name of the user; empty if slurmctld's host cannot resolve the user."""
    group_id: int = 0
    account: str = ""
    qos: str = ""
    reservation: str = ""
    comment: str = ""
    admin_comment: str = ""
    nodes: tuple[str, ...] = ()
    """The job's current or former nodes. Empty while the job waits."""
    gres: tuple[str, ...] = ()
    """The job's GRES on each of `nodes` with indices, like "gpu:h100:2(IDX:0-1)" or "". Empty if the job
    has ended or has no GRES."""
    cores: tuple[str, ...] = ()
    """The job's cores on each of `nodes`, as lists like "0-3,8". Slurm numbers the cores of a node
    socket by socket. Empty if Slurm does not report the cores."""
    sockets: tuple[str, ...] = field(default=(), compare=False)
    """The layout of each of `nodes` by slurm.conf: "2x4" means 2 sockets with 4 cores each. Empty if
    Slurm does not report the layout."""
    cpus: tuple[int, ...] = field(default=(), compare=False)
    """The job's CPUs on each of `nodes`: all CPUs of the job's cores. Empty if Slurm does not report the
    CPUs."""
    memory_allocated_mb: tuple[int, ...] = ()
    """The job's memory on each of `nodes`. Empty if Slurm does not report memory, 0 if Slurm does not
    count memory."""
    cpus_allocated: int | None = None
    """CPUs on all nodes together. While the job waits, this is the requested number."""
    reason: str = ""
    """Slurm's name for the reason why the job waits or failed, like "Resources" or "Priority". Empty if
    Slurm's reason is "None"."""
    state_description: str = ""
    """Slurm's longer text for the reason, if there is one."""
    system_comment: str = ""  # slurmctld's own comment, such as the cause of a hold
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    suspend_time: int | None = None
    """Time of the last suspension or resumption since the job's start. After this time, other jobs may
    have the job's cores."""
    preempt_time: int | None = None
    """Time of the preemption. After the preemption, the job may still run for the partition's
    GraceTime."""
    sluid: str = ""
    """Slurm's own unique name of the job (25.11 and later), never used twice."""
    external: bool = False
    """True for an EXTERNAL_JOB placeholder. Such a job has no script, no step, and no Epilog on its
    nodes."""
    restart_count: int = 0
    # The request
    cpus_per_node: int | None = None
    memory_mb: int | None = None
    """Memory on each node. None if the job requests memory for each CPU."""
    memory_per_cpu_mb: int | None = None
    tres_per_node: str = ""
    tres_per_task: str = ""
    tasks: int | None = None
    gpus: int = 0
    """GPUs on all nodes."""
    node_count: int | None = None
    """Number of nodes; an estimate of Slurm for a waiting job with packed tasks."""
    constraints: str = ""
    prefer: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    current_working_directory: str = ""
    priority: int | None = None
    time_limit_minutes: int | None = None
    """None means no limit."""
    requeue: bool = False
    held: bool = False
    more_tasks: int | None = None
    """For an array with a limit on running tasks (--array=0-9%2): the number of further tasks that may
    run."""
    begun_tasks: int = 0
    """Number of the array's tasks that run or have ended, by Slurm's reply about this array."""

    @property
    def was_suspended(self) -> bool:
        """True if the job is suspended, or was suspended since its start. In both cases, other jobs may
        have the job's cores."""
        return self.state.suspended or self.suspend_time is not None

    @property
    def grant(self) -> Grant:
        on_each = self.gres, self.cores, self.memory_allocated_mb, self.sockets, self.cpus
        return Grant(self.nodes, *on_each)


class Power(enum.StrEnum):
    """The power-saving state of a node that is not up (slurm.conf(5) SuspendProgram, ResumeProgram). The
    values are Slurm's NODE_STATE_* names. Slurm also gives powered-down nodes to jobs."""

    POWERING_DOWN = "POWERING_DOWN"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_UP = "POWERING_UP"
    """This state lasts until a slurmd registers and reports a boot (slurmd(8) -b). Before ResumeTimeout,
    slurmctld accepts no slurmd that does not report a boot."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Slurm node: its resources, its address, and its state."""

    name: str
    states: frozenset[str]
    cpus: int
    memory_mb: int
    gres: str = ""
    """The configured GRES: "gpu:h100:8,shard:4"."""
    gres_used: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """In a reply about a single node, Slurm 24.11 reports the partitions of another node."""
    address: str = ""
    hostname: str = ""
    reason: str = ""
    """Reason of a drain or of the state DOWN. Slurm 24.11 keeps the last reason after a resume; such an
    old reason is left out."""
    cpus_allocated: int = 0
    memory_allocated_mb: int = 0
    comment: str = ""
    instance_type: str = ""
    """The value of slurmd's option --instance-type when the node was created."""
    cores: int = 0
    """Number of cores; 0 if Slurm does not report the cores."""
    threads_per_core: int = 1
    cpus_reserved: int = 0
    """The part of `cpus` that no job gets (slurm.conf(5) CoreSpecCount, CpuSpecList)."""
    memory_reserved_mb: int = 0
    """The part of `memory_mb` that no job gets (MemSpecLimit)."""
    slurmd_started: int | None = None
    """Start time of the slurmd that registered last, in UNIX seconds by that slurmd's own clock. None if
    no slurmd has registered since slurmctld started."""

    @property
    def schedulable(self) -> bool:
        """True if Slurm places new jobs here once the node has room."""
        return not (self.states & _NODE_CLOSED)

    @property
    def has_jobs(self) -> bool:
        """True if the node has jobs, or a job on the node still completes. A suspended job has memory
        but no CPUs (24.11, 26.05)."""
        has = self.cpus_allocated or self.memory_allocated_mb
        return bool(has) or "COMPLETING" in self.states

    @property
    def cpus_per_core(self) -> int:
        """Number of CPUs of a core. A job has either all CPUs of a core or none (slurm.conf(5) CR_Core).
        If a node declares as many CPUs as cores, a core is one CPU, for any number of threads."""
        return max(1, self.cpus // self.cores) if self.cores else 1

    @property
    def external(self) -> bool:
        """True if the node has State=EXTERNAL (25.11 and later). Such a node has no slurmd, so native
        jobs never run there."""
        return "EXTERNAL" in self.states

    @property
    def dynamic(self) -> bool:
        """True if a slurmd or an administrator created the node while Slurm ran. Such a node may be
        deleted."""
        return "DYNAMIC_NORM" in self.states

    @property
    def responding(self) -> bool:
        """True if the slurmd has answered slurmctld recently, or slurmctld expects no slurmd. After an
        undrain or a resume, slurmctld first asks the slurmd again, and this takes seconds."""
        return "NOT_RESPONDING" not in self.states

    @property
    def power(self) -> Power | None:
        """The node's power-saving state, or None if the node is up."""
        return next((power for power in Power if power in self.states), None)


# States of a node (NODE_STATE_* in slurm.h) in which the scheduler does not consider the node for new
# jobs. A PLANNED, RESERVED or COMPLETING node is open to new jobs.
_NODE_CLOSED = frozenset(
    {
        *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID"),
        *("INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN"),
        *("POWER_DOWN", "POWER_DRAIN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "UNKNOWN"),
    }
)


@dataclass(frozen=True, slots=True)
class Partition:
    """A Slurm partition: its nodes and its limits."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    up: bool = True
    """True if the partition takes and starts jobs (State=UP)."""
    priority_tier: int = 1
    preempt_mode: tuple[str, ...] = ()
    """The partition's own PreemptMode. Empty if the cluster's PreemptMode applies."""
    max_time_minutes: int | None = None
    """None means no limit."""
    max_nodes: int | None = None
    """Largest number of nodes of one job. None means no limit."""
    min_nodes: int = 0
    """Smallest number of nodes of one job."""
    max_cpus_per_node: int | None = None
    """Largest number of CPUs of one job on a node. None means no limit."""
    max_memory_mb: int | None = None
    """Largest memory of one job on a node, in MiB. None means no limit. MaxMemPerCPU is a separate
    limit."""
    grace_time_s: int = 0
    oversubscribe: str = ""
    """The setting as in `scontrol show partition`, like "NO", "YES:4" or "FORCE:2". Empty if Slurm does
    not report the setting."""
    default_time_minutes: int | None = None
    """The partition's DefaultTime. If None, a job without a time limit gets the partition's longest
    limit."""
    select_type_parameters: tuple[str, ...] = ()
    """The partition's own SelectTypeParameters, in capitals ("CR_CORE"). Empty if the cluster's
    parameters apply, and before API v0.0.45. In this list, v0.0.45 does not report if memory is
    counted."""


def grant_of(job: Job | None) -> Grant | None:
    """Returns the job's grant. Returns None if the job has no nodes, or has ended."""
    if job is None or job.state.ended or not job.nodes:
        return None
    return job.grant
