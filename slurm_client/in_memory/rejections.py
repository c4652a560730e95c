"""What an `InMemorySlurm` refuses, with the numbers that the real one was seen to give."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slurm_client import checks, hostlist
from slurm_client.errors import (
    CAUSES,
    InvalidRequest,
    NoRoomNow,
    OtherJob,
    SlurmError,
    Unexplained,
)
from slurm_client.in_memory import features
from slurm_client.in_memory.machines import Machine
from slurm_client.model import JobSpec, Partition

SLURM_ERROR = -1
INVALID_PARTITION = 2000
DEFAULT_PARTITION_NOT_SET = 2001
DUPLICATE_JOB_ID = 2011
NOT_TOP_PRIORITY = 2013
NODE_CONFIG_UNAVAILABLE = 2014
PART_CONFIG_UNAVAILABLE = 2015
NODES_BUSY = 2016
INVALID_JOB_ID = 2017
INVALID_NODE_NAME = 2018
INVALID_NODE_STATE = 2028
INVALID_FEATURE = 2029
DEPENDENCY = 2038
JOB_HELD = 2042
INVALID_ACCOUNT = 2045
ACCOUNTING_POLICY = 2050
RESERVATION_ACCESS = 2052
RESERVATION_INVALID = 2053
INVALID_QOS = 2066
NODE_NOT_AVAIL = 2068
INVALID_GRES = 2072
JOB_FINISHED = 2084
PARTITION_DOWN = 2101
INVALID_GRES_TYPE = 2119
INVALID_PREFER = 2133
JOB_SIGNAL_FAILED = 2172


def rejection(number: int) -> SlurmError:
    """The error of that number, as `rest` would raise it."""
    if number == SLURM_ERROR:  # it counts as no number
        why = CAUSES[number].why
        return Unexplained(f"Unspecified error: {why}", http_status=500)
    return _refusal(number, CAUSES[number].error)


def _refusal(number: int, kind: type[SlurmError]) -> SlurmError:
    cause = CAUSES[number]
    return kind(f"{cause.name}: {cause.why}", number=number, http_status=422)


def other_job(found: str, meant: str | None) -> SlurmError:
    """Of a cancel that names another job; inside a reply of HTTP 200."""
    words = f"Job name {found} != filter name {meant}: Cannot signal job"
    return OtherJob(words, number=JOB_SIGNAL_FAILED, http_status=200)


def partition_of(spec: JobSpec, partitions: Mapping[str, Partition]) -> Partition:
    """The partition that the job goes to."""
    if spec.partition is None:
        for partition in partitions.values():
            if partition.default:
                return partition
        raise rejection(DEFAULT_PARTITION_NOT_SET)
    if spec.partition not in partitions:
        raise rejection(INVALID_PARTITION)
    return partitions[spec.partition]


def named(expressions: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """The names that a list stands for. Unknown nodes are refused, in required_nodes as in
    excluded_nodes."""
    try:
        names = hostlist.names(expressions)
    except ValueError:
        raise rejection(INVALID_NODE_NAME) from None
    if any(name not in known for name in names):
        raise rejection(INVALID_NODE_NAME)
    return names


def checked(spec: JobSpec, machines: Mapping[str, Machine]) -> JobSpec:
    """The job with each node of its lists by name, after what Slurm refuses before it makes a record."""
    checks.check(spec)
    required, excluded = named(spec.required_nodes, machines), named(spec.excluded_nodes, machines)
    if not _are_somewhere(spec.constraints, machines):
        raise rejection(INVALID_FEATURE)
    if not _are_somewhere(spec.prefer, machines):
        raise rejection(INVALID_PREFER)
    _check_gres(spec, machines)
    return replace(spec, required_nodes=required, excluded_nodes=excluded)


def _are_somewhere(expression: str | None, machines: Mapping[str, Machine]) -> bool:
    """Whether each feature that is named is any node's."""
    return all(
        any(name in machine.configured.features for machine in machines.values())
        for name in features.names(expression or "")
    )


def _check_gres(spec: JobSpec, machines: Mapping[str, Machine]) -> None:
    names = [name for name, _ in spec.gres]
    for name in names:
        if not any(machine.has_gres_name(name) for machine in machines.values()):
            raise rejection(INVALID_GRES)
        # One kind, asked for with its type and without it.
        if ":" in name and name.partition(":")[0] in names:
            raise rejection(INVALID_GRES_TYPE)


def check_reservation(spec: JobSpec, user_id: int, admitted: Mapping[str, Collection[int]]) -> None:
    """`admitted` are the users of each reservation; root is let into any."""
    if not spec.reservation:
        return
    if spec.reservation not in admitted:
        raise rejection(RESERVATION_INVALID)
    if user_id not in {0, *admitted[spec.reservation]}:
        raise rejection(RESERVATION_ACCESS)


def limit_reached() -> SlurmError:
    """Of an allocation: 2050 there leaves nothing that could come later."""
    return _refusal(ACCOUNTING_POLICY, NoRoomNow)


def still_held() -> SlurmError:
    """Of an update: a priority alone does not release a job that was submitted held."""
    return InvalidRequest("Job is in held state", number=JOB_HELD, http_status=422)


def node_in_use() -> SlurmError:
    """Of the deletion of a node: 2016 there does not go away by itself soon."""
    return _refusal(NODES_BUSY, InvalidRequest)


def not_dynamic() -> SlurmError:
    """Of the deletion of a node that slurm.conf names."""
    return InvalidRequest("Invalid node state specified", number=INVALID_NODE_STATE, http_status=422)


def unknown_node() -> SlurmError:
    """Of a call about a node by its name."""
    return rejection(INVALID_NODE_NAME)


def missing_job() -> SlurmError:
    """Of an update: 2017 there is a job that does not exist, not an id that may not be chosen."""
    return InvalidRequest("Invalid job id specified", number=INVALID_JOB_ID, http_status=404)
