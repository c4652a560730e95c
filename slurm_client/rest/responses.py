"""Reads slurmrestd's replies into the model's values.

Any field may be absent, because the API versions differ, and because an odd reply must not stop the
extender. An unreadable entry becomes `Malformed`, and the other entries still count. `error_mapping`
decides if a reply is an error.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from slurm_client import gres, hostlist
from slurm_client.job_state import UNREAD, AllStates, JobState
from slurm_client.model import Grant, Job, Node, Partition
from slurm_client.reservation import Reservation
from slurm_client.server import Configuration
from wellknown import number_list

_CANNOT_BE_READ: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""Python's errors for a value of another type or shape than Slurm documents."""
_TASK: Final = re.compile(r"(\d+)[_+].*", re.ASCII | re.DOTALL)
"""Matches tasks of arrays ("7_3", "7_*") and parts of heterogeneous jobs ("8+1"). The first number is
the id for GET job/{id}. slurmrestd lists each task, but in Slurm, tasks that wait together are one
job."""
_WORDS_KEPT: Final = 200
_Read = TypeVar("_Read")


class Malformed(NamedTuple):
    """An unreadable entry of a reply, with the reason."""

    why: str


class Reader(Generic[_Read]):
    """Reads entries into values, or into `Malformed`."""

    def __init__(self, read: Callable[[Mapping[str, Any]], _Read]) -> None:
        self._read = read

    def __call__(self, entry: Mapping[str, Any]) -> _Read | Malformed:
        try:
            return self._read(entry)
        except _CANNOT_BE_READ as error:
            return Malformed(_why(error, entry))


def _why(error: Exception, entry: object) -> str:
    return f"{type(error).__name__}: {str(error)[:_WORDS_KEPT]}: {str(entry)[:_WORDS_KEPT]}"


def states(entries: Sequence[Mapping[str, Any]]) -> AllStates:
    """Reads the list `jobs` in the reply to GET jobs/state/."""
    found, malformed, waiting = AllStates(), list[str](), dict[int, int]()
    found.entries, found.waiting = len(entries), waiting
    for entry in entries:
        job_id = None
        try:
            job_id, part = _job_id(str(entry["job_id"]))
            state = _state(tuple(entry["state"]))
            if not part:
                found[job_id] = state
            if state.pending:
                waiting[job_id] = waiting.get(job_id, 0) + 1
        except _CANNOT_BE_READ as error:
            malformed.append(_why(error, entry))
            if job_id is None:
                found.nameless += 1
            else:
                found[job_id] = UNREAD
    found.malformed = tuple(malformed)
    return found


def _job_id(text: str) -> tuple[int, bool]:
    """Returns a job's id, and True if the text names only a part of the job."""
    if text.isdecimal():  # int() would take "7_3" for 73
        return int(text), False
    task = _TASK.fullmatch(text)
    if task is None:
        raise ValueError("this is no job's id")
    return int(task[1]), True


@functools.lru_cache(maxsize=256)
def _state(names: tuple[str, ...]) -> JobState:
    """Reads a state. The results are cached, because thousands of jobs have only a handful of different
    states."""
    return JobState.parse(names)


def _state_of_job(entry: Mapping[str, Any]) -> JobState:
    return _state(tuple(entry.get("job_state") or ()))


def job(entry: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> Job:
    """Reads one entry of `jobs` in the reply to GET job/{id}. `others` are the tasks of the job's
    array."""
    nodes = hostlist.expand(_text(entry, "nodes"))
    return Job(
        id=int(entry["job_id"]),
        state=_state_of_job(entry),
        name=_text(entry, "name"),
        partition=_text(entry, "partition"),
        user_id=int(entry.get("user_id") or 0),
        user_name=_text(entry, "user_name"),
        group_id=int(entry.get("group_id") or 0),
        account=_text(entry, "account"),
        qos=_text(entry, "qos"),
        reservation=_text(entry, "resv_name"),
        comment=_text(entry, "comment"),
        admin_comment=_text(entry, "admin_comment"),
        nodes=nodes,
        **_on_nodes(entry, nodes),
        gres=_on_each(entry.get("gres_detail") or ()),
        cpus_allocated=number(entry.get("cpus")),
        reason=_reason(entry),
        state_description=_text(entry, "state_description"),
        system_comment=_text(entry, "system_comment"),
        submit_time=_time(entry, "submit_time"),
        start_time=_time(entry, "start_time"),
        end_time=_time(entry, "end_time"),
        suspend_time=_time(entry, "suspend_time"),
        preempt_time=_time(entry, "preempt_time"),
        sluid=str((entry.get("step_id") or {}).get("sluid") or ""),
        external="EXTERNAL_JOB" in (entry.get("flags") or ()),
        restart_count=number(entry.get("restart_cnt")) or 0,
        **_amounts(entry),
        node_count=number(entry.get("node_count")),
        constraints=_text(entry, "features"),
        prefer=_text(entry, "prefer"),
        required_nodes=_asked_nodes(entry, "required_nodes"),
        excluded_nodes=_asked_nodes(entry, "excluded_nodes"),
        current_working_directory=_text(entry, "current_working_directory"),
        priority=number(entry.get("priority")),
        time_limit_minutes=number(entry.get("time_limit")),
        requeue=bool(entry.get("requeue")),
        held=bool(entry.get("hold")),
        more_tasks=_more_tasks(entry, others),
        begun_tasks=len(others),
    )


def _amounts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a job for the requested amounts."""
    return {
        "cpus_per_node": number(entry.get("cpus_per_task")),
        "memory_mb": number(entry.get("memory_per_node")),
        "memory_per_cpu_mb": number(entry.get("memory_per_cpu")),
        "tres_per_node": _text(entry, "tres_per_node"),
        "tres_per_task": _text(entry, "tres_per_task"),
        "tasks": number(entry.get("tasks")),
        "gpus": _gpus(entry),
    }


def _gpus(entry: Mapping[str, Any]) -> int:
    """Returns the number of requested GPUs. Slurm's own sum (tres_req_str) has only GPUs that accounting
    counts."""
    per = ("job", "node", "socket", "task")
    of = {each: gres.gpus(_text(entry, f"tres_per_{each}")) for each in per}
    nodes, tasks = number(entry.get("node_count")) or 1, number(entry.get("tasks")) or 1
    sockets = number(entry.get("sockets_per_node")) or 1
    return of["job"] or nodes * (of["node"] + sockets * of["socket"]) + tasks * of["task"]


def _more_tasks(entry: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> int | None:
    most = number(entry.get("array_max_tasks"))
    if not most:
        return None
    return max(0, most - sum("RUNNING" in (each.get("job_state") or ()) for each in others))


def _on_nodes(entry: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """Returns four fields of a job: its CPUs, cores and memory (MiB) on each node, and the nodes'
    sockets. Returns {} before the job begins. Also returns {} for an ended job, although Slurm still
    reports these fields."""
    allocations = ((entry.get("job_resources") or {}).get("nodes") or {}).get("allocation") or ()
    by_node = {one.get("name"): one for one in allocations}
    if not nodes or not by_node.keys() >= set(nodes) or _state_of_job(entry).ended:
        return {}
    ordered = [by_node[name] for name in nodes]
    memory = (int((one.get("memory") or {}).get("allocated") or 0) for one in ordered)
    cpus = tuple(int((one.get("cpus") or {}).get("count") or 0) for one in ordered)
    return {
        "cpus": cpus if all(cpus) else (),
        "cores": tuple(map(_cores, ordered)),
        "sockets": tuple(map(_sockets, ordered)),
        "memory_allocated_mb": tuple(memory),
    }


def _cores(on_node: Mapping[str, Any]) -> str:
    """Returns the job's cores on a node. Slurm lists every core of the node, socket by socket, with a
    status."""
    cores = (core for socket in on_node.get("sockets") or () for core in socket.get("cores") or ())
    return number_list.compress(
        number for number, core in enumerate(cores) if "ALLOCATED" in (core.get("status") or ())
    )


def _sockets(on_node: Mapping[str, Any]) -> str:
    """Reads the layout of a node. Slurm lists all sockets and cores of the node, also cores that the job
    does not have."""
    sockets = on_node.get("sockets") or ()
    return _layout(len(sockets), len(sockets[0].get("cores") or ()) if sockets else 0)


def _layout(sockets: Any, cores: Any) -> str:
    """Returns the number of sockets of a node and the number of cores in each socket, like "2x4".
    Returns "" if Slurm does not report the numbers."""
    return f"{int(sockets)}x{int(cores)}" if sockets and cores else ""


_OF_SELECT_TYPE: Final = "CR_"
"""Prefix of the names of SelectTypeParameters, since v0.0.45."""
_WITH_A_REASON: Final = frozenset({"DOWN", "DRAIN", "FAIL"})
"""States in which the reason of a node counts. 24.11 keeps the last reason of a node that was
resumed."""


def node(entry: Mapping[str, Any]) -> Node:
    """Reads one entry of `nodes` in the reply to GET nodes/ or GET node/{name}."""
    states, cpus = _flags(tuple(entry.get("state") or ())), int(entry.get("cpus") or 0)
    return Node(
        name=str(entry["name"]),
        states=states,
        cpus=cpus,
        memory_mb=int(entry.get("real_memory") or 0),
        gres=_text(entry, "gres"),
        gres_used=_text(entry, "gres_used"),
        features=_list(entry.get("features")),
        partitions=_list(entry.get("partitions")),
        address=_text(entry, "address"),
        hostname=_text(entry, "hostname"),
        reason=_text(entry, "reason") if states & _WITH_A_REASON else "",
        cpus_allocated=int(entry.get("alloc_cpus") or 0),
        memory_allocated_mb=int(entry.get("alloc_memory") or 0),
        comment=_text(entry, "comment"),
        instance_type=_text(entry, "instance_type"),
        cores=int(entry.get("sockets") or 0) * int(entry.get("cores") or 0),  # cores of a socket
        threads_per_core=int(entry.get("threads") or 1),
        cpus_reserved=cpus - int(entry.get("effective_cpus") or cpus),
        memory_reserved_mb=int(entry.get("specialized_memory") or 0),
        slurmd_started=_time(entry, "slurmd_start_time"),
    )


@functools.lru_cache(maxsize=256)
def _flags(states: tuple[object, ...]) -> frozenset[str]:
    """Reads states. The results are cached, because thousands of nodes have only a handful of different
    states."""
    return frozenset(map(str, states))


def partition(entry: Mapping[str, Any]) -> Partition:
    """Reads one entry of `partitions` in the reply to GET partitions/."""
    settings, maximums = entry.get("partition") or {}, entry.get("maximums") or {}
    return Partition(
        name=str(entry["name"]),
        nodes=hostlist.expand(_text(entry.get("nodes") or {}, "configured")),
        default="DEFAULT" in (entry.get("flags") or ()),
        up="UP" in (settings.get("state") or ()),
        priority_tier=int((entry.get("priority") or {}).get("tier") or 0),
        preempt_mode=_preempt_mode(entry),
        max_time_minutes=number(maximums.get("time")),
        max_nodes=number(maximums.get("nodes")),
        min_nodes=number((entry.get("minimums") or {}).get("nodes")) or 0,
        max_cpus_per_node=number(maximums.get("cpus_per_node")),
        max_memory_mb=number(maximums.get("partition_memory_per_node")) or None,  # 0: UNLIMITED
        grace_time_s=int(entry.get("grace_time") or 0),
        oversubscribe=_text(settings, "oversubscribe"),
        default_time_minutes=number((entry.get("defaults") or {}).get("time")),
        select_type_parameters=tuple(
            each for each in _list(entry.get("select_type")) or () if each.startswith(_OF_SELECT_TYPE)
        ),
    )


def reservation(entry: Mapping[str, Any]) -> Reservation:
    """Reads one entry of `reservations` in the reply to GET reservations/."""
    return Reservation(
        name=str(entry["name"]),
        nodes=hostlist.expand(_text(entry, "node_list")),
        start=_time(entry, "start_time"),
        end=_time(entry, "end_time"),
        flags=frozenset(_list(entry.get("flags"))),
        partition=_text(entry, "partition"),
        users=_list(_text(entry, "users")),
        accounts=_list(_text(entry, "accounts")),
    )


def boot_time(document: Mapping[str, Any]) -> int | None:
    """Reads, from the reply to GET diag, the start time of slurmctld's statistics, in UNIX seconds.
    slurmctld begins its statistics shortly after its own start (until then, the time is 0), at midnight,
    and at `sdiag -r`."""
    statistics = document.get("statistics") or {}
    begun, requested = number(statistics.get("req_time_start")), number(statistics.get("req_time"))
    return begun or requested


def configuration(document: Mapping[str, Any]) -> Configuration:
    """Reads the reply to GET conf (v0.0.45)."""
    conf, meta = document.get("slurm_conf") or {}, document.get("slurm_conf_meta") or {}
    return Configuration(
        cluster_name=conf.get("ClusterName"),
        first_job_id=number(conf.get("FirstJobId")),
        max_job_id=number(conf.get("MaxJobId")),
        max_job_count=number(conf.get("MaxJobCount")),
        kill_wait_s=number(conf.get("KillWait")),
        min_job_age_s=number(conf.get("MinJobAge")),
        preempt_type=conf.get("PreemptType"),
        preempt_mode=_list(conf.get("PreemptMode")),
        slurm_user_id=number(conf.get("SlurmUserId")),
        slurm_user=conf.get("SlurmUser"),
        scheduler_parameters=_list(conf.get("SchedulerParameters")),
        message_timeout_s=number(conf.get("MessageTimeout")),
        select_type=conf.get("SelectType"),
        select_type_parameters=_list(conf.get("SelectTypeParameters")),
        task_plugins=_list(conf.get("TaskPlugin")),
        proctrack_type=conf.get("ProctrackType"),
        prologs=_list(conf.get("Prolog")),
        prolog_flags=_list(conf.get("PrologFlags")),
        slurmctld_prologs=_list(conf.get("PrologSlurmctld")),
        slurmctld_epilogs=_list(conf.get("EpilogSlurmctld")),
        accounting_storage_type=conf.get("AccountingStorageType"),
        accounting_store_flags=_list(conf.get("AccountingStoreFlags")),
        return_to_service=conf.get("ReturnToService"),
        slurmctld_parameters=_list(conf.get("SlurmctldParameters")),
        max_node_count=number(conf.get("MaxNodeCount")),
        slurmd_timeout_s=number(conf.get("SlurmdTimeout")),
        next_job_id=number(meta.get("NEXT_JOB_ID")),
        boot_time=number(meta.get("BOOT_TIME")),
    )


def grant(document: Mapping[str, Any]) -> Grant | None:
    """Reads the reply to GET resources/{job_id} (v0.0.44). Returns None for a job without nodes."""
    on_nodes = document.get("nodes") or ()
    if not on_nodes:
        return None
    return Grant(
        nodes=tuple(str(one["node"]) for one in on_nodes),
        gres=_on_each([",".join(map(_device, one.get("gres") or ())) for one in on_nodes]),
        cores=tuple(_bits(_text(one, "core_bitmap")) for one in on_nodes),
        memory_mb=tuple(int(one.get("mem_alloc") or 0) for one in on_nodes),
        sockets=tuple(
            _layout(one.get("sockets_per_node"), one.get("cores_per_socket")) for one in on_nodes
        ),
    )


def _on_each(gres: Sequence[object]) -> tuple[str, ...]:
    """Returns the job's devices on each node, with "" for a node without devices. Returns () if no node
    has devices."""
    devices = tuple("" if one is None else str(one) for one in gres)
    return devices if any(devices) else ()


def _bits(mask: str) -> str:
    """Returns a list of the bits that are set in a hexadecimal mask. For example, "0x0D" gives
    "0,2-3"."""
    bits = int(mask or "0", 16)
    return number_list.compress(bit for bit in range(bits.bit_length()) if bits >> bit & 1)


def _device(entry: Mapping[str, Any]) -> str:
    """Returns devices in the form of `gres_detail`. Devices without numbers have a count only."""
    name, kind, index = _text(entry, "name"), _text(entry, "type"), _text(entry, "index")
    what, count = f"{name}:{kind}" if kind else name, int(entry.get("count") or 0)
    return f"{what}:{count}(IDX:{index})" if index else f"{what}(CNT:{count})"


def canceller(document: Mapping[str, Any], cluster: str) -> str | None:
    """Reads, from the reply to GET /slurmdb/VERSION/job/{job_id}, the user that cancelled the job. Only
    the newest job of `cluster` counts, because an id may recur, and because several clusters may share a
    slurmdbd."""
    jobs = [entry for entry in document.get("jobs") or () if entry["cluster"] == cluster]
    newest = max(jobs, key=lambda entry: int(entry["time"]["submission"]), default=None)
    if newest is None or "CANCELLED" not in newest["state"]["current"]:
        return None
    return _text(newest, "kill_request_user") or None


def number(value: object) -> int | None:
    """Reads a number from Slurm's object {"set", "infinite", "number"}, or a plain number. Returns None
    if the number is unset or infinite."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    return int(value) if isinstance(value, int | float) else None


def _preempt_mode(entry: Mapping[str, Any]) -> tuple[str, ...]:
    modes = _list(entry.get("preempt_mode"))
    return () if modes == ("CLUSTER_GLOBAL",) else modes


def _time(entry: Mapping[str, Any], field: str) -> int | None:
    return number(entry.get(field)) or None


def _reason(entry: Mapping[str, Any]) -> str:
    reason = _text(entry, "state_reason")
    return "" if reason == "None" else reason


def _text(entry: Mapping[str, Any], field: str) -> str:
    value = entry.get(field)
    return value if isinstance(value, str) else ""


def _asked_nodes(entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Reads the list of nodes that a job was submitted with. Returns () if the list is unreadable. Such
    a list can exist: on submission, Slurm 24.11 accepts a list if at least one of the nodes exists."""
    try:
        return hostlist.expand(_text(entry, field))
    except ValueError:
        return ()


def _list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(filter(None, value.split(",")))
    return tuple(map(str, value)) if isinstance(value, list) else ()
