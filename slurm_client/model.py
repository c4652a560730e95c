"""The model of Slurm as values: jobs, nodes, partitions. `server` has those of the server itself.

Pure data: frozen, comparable, free of I/O and of the wire's shapes. `requests` and `responses` write
and read them; `protocol` has the calls that return them.
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
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "LAUNCH_FAILED",
    }
)
# JOB_STATE_FLAGS under which a RUNNING job does not have its resources for use: not yet (its nodes
# boot, a prolog runs), no longer (it completes), or not for now (stopped, being moved).
_NOT_USABLE = frozenset(
    {
        "CONFIGURING",
        "COMPLETING",
        "STOPPED",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "REVOKED",
        "SPECIAL_EXIT",
        "LAUNCH_FAILED",
    }
)

UNKNOWN_STATE = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class JobState:
    """A job's state: one base state, and flags on top of it (RUNNING with CONFIGURING).

    A name that this client does not know is kept as a flag; with no known base the base is
    "UNKNOWN", of which every property below is false: nothing is concluded from it.
    """

    base: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, names: Iterable[str] | str) -> Self:
        """From slurmrestd's list of strings, or from "RUNNING,CONFIGURING"."""
        listed = names.split(",") if isinstance(names, str) else names
        upper = [name.strip().upper() for name in listed if name.strip()]
        base = next((name for name in upper if name in _LIVE or name in _TERMINAL), UNKNOWN_STATE)
        return cls(base, frozenset(name for name in upper if name != base))

    @property
    def running(self) -> bool:
        """Whether the job has its resources, for use, now."""
        return self.base == "RUNNING" and not (self.flags & _NOT_USABLE)

    @property
    def pending(self) -> bool:
        """Whether it waits for resources (also requeued, held, or still completing a last run)."""
        return self.base == "PENDING"

    @property
    def suspended(self) -> bool:
        """Whether it was paused: by an administrator, by gang scheduling, or by a SIGSTOP."""
        return self.base == "SUSPENDED" or (self.base == "RUNNING" and "STOPPED" in self.flags)

    @property
    def ended(self) -> bool:
        """Whether the base state is terminal; with COMPLETING it is not cleaned up yet."""
        return self.base in _TERMINAL

    @property
    def completing(self) -> bool:
        """Whether the ended (or requeued) job is still being cleaned up. Its nodes may be other jobs'
        by then: it stays COMPLETING until EpilogSlurmctld is over, too."""
        return "COMPLETING" in self.flags

    @property
    def holds_nodes(self) -> bool:
        """Whether its resources are certainly no other job's. Those of a job that is completing Slurm
        may have given away."""
        return self.base == "RUNNING" and not self.completing

    @property
    def text(self) -> str:
        """As squeue shows it, flags after the base: "RUNNING+CONFIGURING"."""
        return "+".join([self.base, *sorted(self.flags)])

    def __str__(self) -> str:
        return self.text


UNREAD = JobState(UNKNOWN_STATE)
"""The state of a job that Slurm may know, but whose entry could not be read."""


class AllStates(dict[int, JobState]):
    """States of jobs by their ids. The tasks of native arrays are left out: Slurm names them by two
    numbers, and no placeholder is one."""

    entries: int = 0
    """How long Slurm's answer was, those tasks included."""
    malformed: tuple[str, ...] = ()
    """What is wrong with the entries that could not be read. The state of a job whose id could be is
    UNREAD."""
    nameless: int = 0
    """How many entries did not name their job: any job that is not in the answer may be one of them."""
    waiting: Mapping[int, int] = MappingProxyType({})
    """The jobs of all users that wait, and how many tasks of an array wait together under its id."""


class Sharing(enum.StrEnum):
    """How a job shares its nodes, in the words of slurmrestd's `shared` (sbatch(1) --exclusive).

    Absent (None in a JobSpec) is what the partition says.
    """

    NONE = "none"  # the whole node for this job: every CPU and every GRES of it is allocated
    ALLOWED = "oversubscribe"  # sbatch --oversubscribe: cores too may be shared where the partition may
    USER = "user"  # only jobs of the same user beside it
    MCS = "mcs"  # only jobs of the same MCS label beside it
    TOPO = "topo"  # the whole topology segment for this job


MOST_CPUS = 65_533
"""The most CPUs on a node. slurmrestd cuts larger numbers to 16 bits without an error: of 65,537 CPUs
the job gets one (24.11 and 26.05)."""
MOST_MINUTES = 71_582_788
"""The longest time limit. slurmctld counts its seconds in 32 bits: a job of one minute more ends after
44 s (24.11 and 26.05)."""
MOST_BYTES = 1024
"""The longest name, comment or features, in bytes; Slurm rejects longer ones (2012)."""
MOST_PATH_BYTES = 4095
"""The longest path."""


class Decides(enum.Enum):
    """What a field of a JobSpec has a part in deciding. Each field has one of these: by it requests are
    told apart, or are alike."""

    QUEUE = enum.auto()
    """In which queue of Slurm's the job waits."""
    OWNER = enum.auto()
    """Whose job it is: which limits of users, accounts, QOS and reservations it counts for."""
    DEMAND = enum.auto()
    """Whether Slurm has a place for it: its size, and which nodes are open to it."""
    NOTHING = enum.auto()
    """Nothing, or only in which order jobs come and which of several nodes they get."""


_QUEUE, _OWNER, _DEMAND, _NOTHING = ({"decides": what} for what in Decides)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The request for one placeholder job. Requeue is always off. A text has no NUL: Slurm would not
    see what follows it."""

    name: str = field(metadata=_NOTHING)
    cpus: int = field(metadata=_DEMAND)
    """On each node, as Slurm counts them there: threads, cores, or another unit of slurm.conf; at most
    MOST_CPUS. A job has whole cores: where a core is several CPUs it may get more."""
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
    """Features that a node must have, in sbatch(1) --constraint's grammar."""
    prefer: str | None = field(default=None, metadata=_NOTHING)
    """Features that are preferred, in the same grammar."""
    current_working_directory: str | None = field(default=None, metadata=_NOTHING)
    priority: int | None = field(default=None, metadata=_NOTHING)
    shared: str | None = field(default=None, metadata=_DEMAND)
    """A value of `Sharing`; None is what the partition says."""
    required_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    """Names, and hostlist expressions that stand for several: ("n1", "gpu[01-04]")."""
    excluded_nodes: tuple[str, ...] = field(default=(), metadata=_DEMAND)
    """The same."""
    user_id: int | None = field(default=None, metadata=_OWNER)
    """The owner; honoured by submit. Allocate ignores it: the job is the token's own user's."""
    group_id: int | None = field(default=None, metadata=_DEMAND)
    time_limit_minutes: int | None = field(default=None, metadata=_DEMAND)
    """At most MOST_MINUTES."""
    admin_comment: str = field(default="", metadata=_NOTHING)
    """Only root and SlurmUser may set it, so no user can forge what is written here."""


def fields_that_decide(what: Decides) -> tuple[str, ...]:
    """Returns the fields of a JobSpec that have a part in a decision. KeyError: a field says nothing of
    itself."""
    return tuple(each.name for each in fields(JobSpec) if each.metadata["decides"] is what)


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The changes of a job that exists; None leaves a field as it is."""

    excluded_nodes: tuple[str, ...] | None = None
    """Replaces the list, of names and hostlist expressions; () clears it."""
    priority: int | None = None
    time_limit_minutes: int | None = None
    comment: str | None = None
    admin_comment: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What a job has: its nodes, and what it has of each, as `Job` has them."""

    nodes: tuple[str, ...]
    gres: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    memory_mb: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Slurm describes it. Times are UNIX seconds, None where Slurm has none yet.

    A job that has not started may have an expected `start_time` and `end_time`.
    """

    id: int
    state: JobState
    name: str = ""
    partition: str = ""
    user_id: int = 0
    group_id: int = 0
    account: str = ""
    qos: str = ""
    reservation: str = ""
    comment: str = ""
    admin_comment: str = ""
    nodes: tuple[str, ...] = ()
    """What it has, or had; empty while it waits."""
    gres: tuple[str, ...] = ()
    """What it has on each of `nodes`, with indices: "gpu:h100:2(IDX:0-1)"; "" on a node where it has
    none, () where it has none at all or has ended."""
    cores: tuple[str, ...] = ()
    """What it has of each of `nodes`, as lists ("0-3,8") of Slurm's own numbers, which count a node's
    cores socket by socket; empty where not told."""
    memory_allocated_mb: tuple[int, ...] = ()
    """What it has on each of `nodes`; empty where not told, 0 where memory is not counted."""
    cpus_allocated: int | None = None
    """Over all nodes; what was asked for while it waits."""
    reason: str = ""
    """Why it waits, or why it failed: Slurm's name, "Resources", "Priority"; empty for "None"."""
    state_description: str = ""
    """Slurm's longer text to the reason, where there is one."""
    system_comment: str = ""  # slurmctld's own, such as the cause of a hold
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    preempt_time: int | None = None
    """When it was told to leave, if it was: it may still run, for the partition's GraceTime."""
    exit_code: int | None = None
    exit_signal: int | None = None
    sluid: str = ""
    """Slurm's own unique name of the job (25.11 and later), never used twice."""
    external: bool = False
    """An EXTERNAL_JOB placeholder: no script, no step, no node Epilog."""
    restart_count: int = 0
    # What was asked for, read back
    cpus_per_node: int | None = None
    memory_mb: int | None = None
    """On each node; None where it is counted by CPU."""
    memory_per_cpu_mb: int | None = None
    tres_per_node: str = ""
    gpus: int = 0
    """On all nodes together."""
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
    """Of an array with a limit (--array=0-9%2): how many more of its tasks may run at a time."""
    begun_tasks: int = 0
    """Of an array that was asked for by itself: how many tasks run, or have ended. Slurm tells all of
    them each time."""

    @property
    def grant(self) -> Grant:
        """What it has."""
        return Grant(self.nodes, self.gres, self.cores, self.memory_allocated_mb)


class Power(enum.StrEnum):
    """What Slurm's power saving (slurm.conf(5) SuspendProgram, ResumeProgram) does with a node that is
    not up, in the words of NODE_STATE_*. Slurm gives jobs nodes that are powered down, too."""

    POWERING_DOWN = "POWERING_DOWN"
    POWERED_DOWN = "POWERED_DOWN"
    POWERING_UP = "POWERING_UP"
    """Until a slurmd registers that says that its node has booted since (slurmd(8) -b): slurmctld takes
    no other before ResumeTimeout."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Slurm node: what it has, where it is, and whether new jobs may come."""

    name: str
    states: frozenset[str]
    cpus: int
    memory_mb: int
    gres: str = ""
    """As configured: "gpu:h100:8,shard:4"."""
    gres_used: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """Of a node that was asked for by itself, 24.11 tells those of another node."""
    address: str = ""
    hostname: str = ""
    reason: str = ""
    """Why it is drained or down. 24.11 still gives the last reason when neither is so: it is left
    out."""
    cpus_allocated: int = 0
    memory_allocated_mb: int = 0
    comment: str = ""
    extra: str = ""
    instance_type: str = ""
    """slurmd --instance-type, as it was when it made the node."""
    cores: int = 0
    """0 where it is not told."""
    threads_per_core: int = 1
    cpus_reserved: int = 0
    """Of `cpus`: those that no job gets (slurm.conf(5) CoreSpecCount, CpuSpecList)."""
    memory_reserved_mb: int = 0
    """Of `memory_mb`, likewise (MemSpecLimit)."""
    slurmd_started: int | None = None
    """UNIX seconds on its own clock when the slurmd started that registered last; None where none has
    since slurmctld started."""

    @property
    def schedulable(self) -> bool:
        """Whether Slurm would place a new job here once the node has room."""
        return not (self.states & _NODE_CLOSED)

    @property
    def cpus_per_core(self) -> int:
        """The CPUs of a core, of which a job has all or none (slurm.conf(5) CR_Core). A node that
        declares as many CPUs as cores has one CPU a core, with any number of threads."""
        return max(1, self.cpus // self.cores) if self.cores else 1

    @property
    def external(self) -> bool:
        """State=EXTERNAL: no slurmd, so that native jobs never run here (25.11 and later)."""
        return "EXTERNAL" in self.states

    @property
    def dynamic(self) -> bool:
        """Whether its slurmd or an administrator made it while Slurm ran: it may be deleted."""
        return "DYNAMIC_NORM" in self.states

    @property
    def responding(self) -> bool:
        """Whether slurmctld has heard its slurmd lately, or expects to hear none. After an undrain or a
        resume it asks first, which takes seconds."""
        return "NOT_RESPONDING" not in self.states

    @property
    def power(self) -> Power | None:
        """None: it is up."""
        return next((power for power in Power if power in self.states), None)


# NODE_STATE_* in slurm.h under which the scheduler does not consider a node. PLANNED, RESERVED and
# COMPLETING are left out: the node is open, it is only (being) used.
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
    """Whether it takes jobs and starts them (State=UP)."""
    priority_tier: int = 1
    preempt_mode: tuple[str, ...] = ()
    """Its own PreemptMode; empty where Slurm tells of none: then the cluster's."""
    max_time_minutes: int | None = None
    """None is without limit."""
    max_nodes: int | None = None
    """Of one job; None is without limit."""
    grace_time_s: int = 0
    oversubscribe: str = ""
    """As `scontrol show partition` has it: "NO", "YES:4", "FORCE:2"; empty where not told."""
    default_time_minutes: int | None = None
    """DefaultTime. None: a job without a time limit gets the longest that the partition allows."""
    select_type_parameters: tuple[str, ...] = ()
    """The partition's own, in capitals ("CR_CORE"). Empty if the cluster's count, and before v0.0.45,
    which reports no memory there."""


def grant_of(job: Job | None) -> Grant | None:
    """What a job that was read has; None where that is nothing."""
    if job is None or job.state.ended or not job.nodes:
        return None
    return job.grant
