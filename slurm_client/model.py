"""Jobs, nodes and partitions of Slurm as frozen values, without I/O and without the wire's shapes.

`server` has the values of the server itself, and `protocol` the calls.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Self

# JOB_STATE_BASE in Slurm's slurm.h (enum job_states): exactly one of these describes a job.
_LIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
_TERMINAL = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"),
        *("DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED"),
    }
)
# JOB_STATE_FLAGS under which a RUNNING job cannot use its resources: not yet (its nodes boot, a prolog
# runs), no longer (the job completes), or not now (stopped, being moved).
_NOT_USABLE = frozenset(
    {
        *("CONFIGURING", "COMPLETING", "STOPPED", "POWER_UP_NODE", "RECONFIG_FAIL", "REQUEUED"),
        *("REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REVOKED", "SPECIAL_EXIT", "LAUNCH_FAILED"),
    }
)

UNKNOWN_STATE = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state: one base state, and flags (RUNNING with CONFIGURING).

    An unknown name is kept as a flag. Without a known base the base is "UNKNOWN", for which every
    property below is False.
    """

    base: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, names: Iterable[str] | str) -> Self:
        """Reads slurmrestd's list of strings, or a text like "RUNNING,CONFIGURING"."""
        listed = names.split(",") if isinstance(names, str) else names
        upper = [name.strip().upper() for name in listed if name.strip()]
        base = next((name for name in upper if name in _LIVE or name in _TERMINAL), UNKNOWN_STATE)
        return cls(base, frozenset(name for name in upper if name != base))

    @property
    def running(self) -> bool:
        """True if the job can use its resources now."""
        return self.base == "RUNNING" and not (self.flags & _NOT_USABLE)

    @property
    def pending(self) -> bool:
        """True for a job that waits (also requeued, held, or still completing a last run)."""
        return self.base == "PENDING"

    @property
    def suspended(self) -> bool:
        """True for a job paused by an administrator, by gang scheduling, or by a SIGSTOP."""
        return self.base == "SUSPENDED" or (self.base == "RUNNING" and "STOPPED" in self.flags)

    @property
    def ended(self) -> bool:
        """True if the base state is terminal; with COMPLETING, Slurm still cleans up."""
        return self.base in _TERMINAL

    @property
    def completing(self) -> bool:
        """True while Slurm cleans up an ended or requeued job, also until EpilogSlurmctld is over. Other
        jobs may have its nodes already."""
        return "COMPLETING" in self.flags

    @property
    def holds_nodes(self) -> bool:
        """True if no other job can have the resources. While a job completes, another job may."""
        return self.base == "RUNNING" and not self.completing

    @property
    def text(self) -> str:
        """The state as squeue shows it: "RUNNING+CONFIGURING"."""
        return "+".join([self.base, *sorted(self.flags)])

    def __str__(self) -> str:
        return self.text


UNREAD = JobState(UNKNOWN_STATE)
"""The state of a job with an unreadable entry. Slurm may know the job."""


class AllStates(dict[int, JobState]):
    """States of jobs by id, without tasks of native arrays: Slurm gives tasks two numbers, and no
    placeholder is a task."""

    entries: int = 0
    """Length of Slurm's answer, tasks included."""
    malformed: tuple[str, ...] = ()
    """Problems of unreadable entries. A job with a readable id is UNREAD."""
    nameless: int = 0
    """Number of entries without a readable id. Any job that is not in the answer may be one."""
    waiting: Mapping[int, int] = MappingProxyType({})
    """Waiting jobs of all users, with the number of tasks of an array that wait under its id."""


class Sharing(enum.StrEnum):
    """Sharing of a job's nodes, in the words of slurmrestd's `shared` (sbatch(1) --exclusive)."""

    NONE = "none"  # the whole node with every CPU and GRES for this job
    ALLOWED = "oversubscribe"  # sbatch --oversubscribe: also shared cores, if the partition allows it
    USER = "user"  # nodes shared with jobs of the same user only
    MCS = "mcs"  # nodes shared with jobs of the same MCS label only
    TOPO = "topo"  # the whole topology segment for this job


HIGHEST_PRIORITY = 0xFFFFFF00
"""Priority of a job for a running Pod, which has its room already. Slurm's own priorities end at
0xffff0000 (priority/basic), and the last few numbers have other meanings."""
MOST_CPUS = 65_533
"""The most CPUs on a node. slurmrestd cuts larger numbers to 16 bits without an error: a job for 65,537
CPUs gets one (24.11 and 26.05)."""
MOST_MINUTES = 71_582_788
"""The longest time limit. slurmctld counts seconds in 32 bits: a job of one minute more ends after 44 s
(24.11 and 26.05)."""
MOST_BYTES = 1024
"""The longest name, comment or features, in bytes; Slurm rejects longer ones (2012)."""
MOST_PATH_BYTES = 4095
"""The longest path."""


class Decides(enum.Enum):
    """Effect of a field of a JobSpec. Each field has one effect, by which requests are compared."""

    QUEUE = enum.auto()  # the queue of Slurm in which the job waits
    OWNER = enum.auto()  # the limits of users, accounts, QOS and reservations that apply to the job
    DEMAND = enum.auto()  # the size of the job, and the nodes that are open to the job
    NOTHING = enum.auto()  # nothing, or only the order of jobs and the choice among several nodes


_QUEUE, _OWNER, _DEMAND, _NOTHING = ({"decides": what} for what in Decides)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The request for one placeholder job. Requeue is always off. No text has a NUL: Slurm reads no text
    after a NUL."""

    name: str = field(metadata=_NOTHING)
    cpus: int = field(metadata=_DEMAND)
    """CPUs on each node in the node's unit of slurm.conf (threads, cores or another), at most MOST_CPUS.
    A job has whole cores, and may get more if a core is several CPUs."""
    memory_mb: int = field(metadata=_DEMAND)
    """MiB on each node."""
    gres: tuple[tuple[str, int], ...] = field(default=(), metadata=_DEMAND)
    """Name (or name:type) and count on each node: (("gpu", 2),) or (("gpu:h100", 2),)."""
    nodes: int = field(default=1, metadata=_DEMAND)
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
    shared: str | None = field(default=None, metadata=_DEMAND)
    """A value of `Sharing`; None is the partition's setting."""
    required_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    """Names and hostlist expressions, like ("n1", "gpu[01-04]"); `excluded_nodes` too."""
    excluded_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    user_id: int | None = field(default=None, metadata=_OWNER)
    """The owner of a submitted job. An allocated job belongs to the token's user."""
    group_id: int | None = field(default=None, metadata=_DEMAND)
    time_limit_minutes: int | None = field(default=None, metadata=_DEMAND)
    """At most MOST_MINUTES."""
    admin_comment: str = field(default="", metadata=_NOTHING)
    """Only root and SlurmUser may set the AdminComment: no user can forge a text here."""


def fields_that_decide(what: Decides) -> tuple[str, ...]:
    """Returns the fields of a JobSpec with an effect. Raises KeyError for a field without an effect."""
    return tuple(each.name for each in fields(JobSpec) if each.metadata["decides"] is what)


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The changes of a job; None leaves a field as it is."""

    excluded_nodes: tuple[str, ...] | None = None
    """The new list of names and hostlist expressions; () clears the list."""
    priority: int | None = None
    time_limit_minutes: int | None = None
    comment: str | None = None
    admin_comment: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A job's nodes, and its share of each node, as in `Job`."""

    nodes: tuple[str, ...]
    gres: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    memory_mb: tuple[int, ...] = ()
    sockets: tuple[str, ...] = field(default=(), compare=False)


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
    """The job's nodes, or its former nodes; empty while the job waits."""
    gres: tuple[str, ...] = ()
    """GRES on each of `nodes`, with indices: "gpu:h100:2(IDX:0-1)" or "". () for a job that has ended or
    has no GRES."""
    cores: tuple[str, ...] = ()
    """Cores on each of `nodes`, as lists ("0-3,8") of Slurm's own numbers, which count a node's cores
    socket by socket; empty if not reported."""
    sockets: tuple[str, ...] = field(default=(), compare=False)
    """Sockets of each of `nodes` and cores of each socket ("2x4"), by slurm.conf; empty if not
    reported."""
    memory_allocated_mb: tuple[int, ...] = ()
    """Memory on each of `nodes`; empty if not reported, 0 if Slurm does not count memory."""
    cpus_allocated: int | None = None
    """CPUs on all nodes; the requested number while the job waits."""
    reason: str = ""
    """Slurm's name for why the job waits or failed: "Resources", "Priority"; empty for "None"."""
    state_description: str = ""
    """Slurm's longer text for the reason, if there is one."""
    system_comment: str = ""  # slurmctld's own, such as the cause of a hold
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    suspend_time: int | None = None
    """Time of the last suspension or resumption since the start: other jobs may have the cores since."""
    preempt_time: int | None = None
    """Time of the preemption. The job may still run, for the partition's GraceTime."""
    sluid: str = ""
    """Slurm's own unique name of the job (25.11 and later), never used twice."""
    external: bool = False
    """An EXTERNAL_JOB placeholder: no script, no step, no node Epilog."""
    restart_count: int = 0
    # The request
    cpus_per_node: int | None = None
    memory_mb: int | None = None
    """Memory on each node; None for memory by CPU."""
    memory_per_cpu_mb: int | None = None
    tres_per_node: str = ""
    gpus: int = 0
    """GPUs on all nodes."""
    node_count: int | None = None
    constraints: str = ""
    prefer: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    current_working_directory: str = ""
    priority: int | None = None
    time_limit_minutes: int | None = None
    """None is without limit."""
    requeue: bool = False
    held: bool = False
    more_tasks: int | None = None
    """Number of further tasks that may run, for an array with a limit (--array=0-9%2)."""
    begun_tasks: int = 0
    """Number of an array's tasks that run or have ended, in the answer about a single array."""

    @property
    def was_suspended(self) -> bool:
        """True if the job is suspended, or was suspended since its start: other jobs may have its
        cores."""
        return self.state.suspended or self.suspend_time is not None

    @property
    def grant(self) -> Grant:
        return Grant(self.nodes, self.gres, self.cores, self.memory_allocated_mb, self.sockets)


class Power(enum.StrEnum):
    """State of Slurm's power saving (slurm.conf(5) SuspendProgram, ResumeProgram) of a node that is not
    up, in the words of NODE_STATE_*. Slurm also gives jobs nodes that are powered down."""

    POWERING_DOWN = "POWERING_DOWN"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_UP = "POWERING_UP"
    """Lasts until a slurmd registers that reports a boot (slurmd(8) -b): slurmctld accepts no other
    slurmd before ResumeTimeout."""


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
    """In answers about a single node, 24.11 reports the partitions of another node."""
    address: str = ""
    hostname: str = ""
    reason: str = ""
    """Reason of a drain or of DOWN. The last reason, which 24.11 keeps after a resume, is left out."""
    cpus_allocated: int = 0
    memory_allocated_mb: int = 0
    comment: str = ""
    instance_type: str = ""
    """slurmd --instance-type at the creation of the node."""
    cores: int = 0
    """0 if not reported."""
    threads_per_core: int = 1
    cpus_reserved: int = 0
    """The part of `cpus` that no job gets (slurm.conf(5) CoreSpecCount, CpuSpecList)."""
    memory_reserved_mb: int = 0
    """The part of `memory_mb` that no job gets (MemSpecLimit)."""
    slurmd_started: int | None = None
    """Start of the slurmd that registered last, in UNIX seconds of its own clock; None if no slurmd has
    registered since slurmctld started."""

    @property
    def schedulable(self) -> bool:
        """True if Slurm places new jobs here once the node has room."""
        return not (self.states & _NODE_CLOSED)

    @property
    def has_jobs(self) -> bool:
        """True if jobs are here, or a job ends. A suspended job has memory and no CPUs (24.11,
        26.05)."""
        has = self.cpus_allocated or self.memory_allocated_mb
        return bool(has) or "COMPLETING" in self.states

    @property
    def cpus_per_core(self) -> int:
        """CPUs of a core; a job has all or none (slurm.conf(5) CR_Core). A node that declares as many
        CPUs as cores has one CPU a core, with any number of threads."""
        return max(1, self.cpus // self.cores) if self.cores else 1

    @property
    def external(self) -> bool:
        """True with State=EXTERNAL: no slurmd, so native jobs never run here (25.11 and later)."""
        return "EXTERNAL" in self.states

    @property
    def dynamic(self) -> bool:
        """True if a slurmd or an administrator made the node while Slurm ran: it may be deleted."""
        return "DYNAMIC_NORM" in self.states

    @property
    def responding(self) -> bool:
        """True if the slurmd has answered slurmctld recently, or slurmctld expects no slurmd. After an
        undrain or a resume slurmctld asks first, which takes seconds."""
        return "NOT_RESPONDING" not in self.states

    @property
    def power(self) -> Power | None:
        """None for a node that is up."""
        return next((power for power in Power if power in self.states), None)


# NODE_STATE_* in slurm.h under which the scheduler does not consider a node. A PLANNED, RESERVED or
# COMPLETING node is open.
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
    """The partition's own PreemptMode; empty if the cluster's applies."""
    max_time_minutes: int | None = None
    """None is without limit."""
    max_nodes: int | None = None
    """Nodes of one job; None is without limit."""
    min_nodes: int = 0
    """Nodes that a job has at least."""
    max_cpus_per_node: int | None = None
    """CPUs of one job on a node; None is without limit."""
    max_memory_mb: int | None = None
    """Memory of one job on a node, in MiB; None is without limit. MaxMemPerCPU is another limit."""
    grace_time_s: int = 0
    oversubscribe: str = ""
    """As in `scontrol show partition`: "NO", "YES:4", "FORCE:2"; empty if not reported."""
    default_time_minutes: int | None = None
    """DefaultTime. None: a job without a time limit gets the longest limit of the partition."""
    select_type_parameters: tuple[str, ...] = ()
    """The partition's own, in capitals ("CR_CORE"). Empty if the cluster's apply, and before v0.0.45,
    which reports no memory there."""


def grant_of(job: Job | None) -> Grant | None:
    """Returns the job's grant; None if the job has no nodes."""
    if job is None or job.state.ended or not job.nodes:
        return None
    return job.grant
