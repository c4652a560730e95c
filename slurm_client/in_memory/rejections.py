"""Rejections of an `InMemorySlurm`, with the numbers observed in real Slurm."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slurm_client import checks, hostlist
from slurm_client.errors import CAUSES, InvalidRequest, NoRoomNow, OtherJob, SlurmError, Unexplained
from slurm_client.in_memory import features
from slurm_client.in_memory.machines import Machine
from slurm_client.model import JobSpec, Partition

_NUMBERS = {cause.name: number for number, cause in CAUSES.items()}


def rejection(name: str, kind: type[SlurmError] | None = None) -> SlurmError:
    """Returns the error that the adapter `rest` raises for one of Slurm's error names. `kind` overrides
    the class if the number has another meaning for the call."""
    number = _NUMBERS[name]
    _, usual, why = CAUSES[number]
    if number == -1:  # `rest` treats -1 as no number
        return Unexplained(f"Unspecified error: {why}", http_status=500)
    return (kind or usual)(f"{name}: {why}", number=number, http_status=422)


def numbered(number: int) -> SlurmError:
    """Returns the error for one of Slurm's error numbers."""
    return rejection(CAUSES[number].name)


def limit_reached() -> SlurmError:
    """Returns the error 2050 of an immediate allocation. As in `rest`, the class is NoRoomNow, because
    Slurm has queued nothing and the job id may be used up."""
    return rejection("ESLURM_ACCOUNTING_POLICY", NoRoomNow)


def node_in_use() -> SlurmError:
    """Returns the error 2016 for the deletion of a node that is in use. The class is InvalidRequest,
    because the node may stay in use for a long time."""
    return rejection("ESLURM_NODES_BUSY", InvalidRequest)


def other_job(found: str, meant: str | None) -> SlurmError:
    """Returns the error for a cancel request that gives the name `meant`, while the job has the name
    `found`. Slurm's reply with this error has HTTP 200."""
    words = f"Job name {found} != filter name {meant}: Cannot signal job"
    return OtherJob(words, number=2172, http_status=200)


def still_held() -> SlurmError:
    """Returns the error for a new priority of a held job, because a priority alone does not release the
    job."""
    return InvalidRequest("Job is in held state", number=2042, http_status=422)


def not_dynamic() -> SlurmError:
    """Returns the error for the deletion of a node that is listed in slurm.conf."""
    return InvalidRequest("Invalid node state specified", number=2028, http_status=422)


def missing_job() -> SlurmError:
    """Returns the error 2017 of an update. For an update, the number means that the job is unknown, not
    that the caller may not choose job ids."""
    return InvalidRequest("Invalid job id specified", number=2017, http_status=404)


def partition_of(spec: JobSpec, partitions: Mapping[str, Partition]) -> Partition:
    """Returns the partition of a job. Raises Slurm's error 2000 for an unknown partition. Raises 2001 if
    the job names no partition and Slurm has no default partition."""
    default = next((one.name for one in partitions.values() if one.default), None)
    name = default if spec.partition is None else spec.partition
    if name is None:
        raise rejection("ESLURM_DEFAULT_PARTITION_NOT_SET")
    if name not in partitions:
        raise rejection("ESLURM_INVALID_PARTITION_NAME")
    return partitions[name]


def named(expressions: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Returns the names of the nodes in required_nodes or excluded_nodes. Raises Slurm's error 2018 for
    an unknown node."""
    try:
        names = hostlist.names(expressions)
    except ValueError:
        raise rejection("ESLURM_INVALID_NODE_NAME") from None
    if any(name not in known for name in names):
        raise rejection("ESLURM_INVALID_NODE_NAME")
    return names


def checked(spec: JobSpec, machines: Mapping[str, Machine]) -> JobSpec:
    """Checks a job, and returns the job with names of nodes instead of hostlist expressions. Raises only
    errors after which Slurm has no record of the job."""
    checks.check(spec)
    required, excluded = named(spec.required_nodes, machines), named(spec.excluded_nodes, machines)
    if not _are_somewhere(spec.constraints, machines):
        raise rejection("ESLURM_INVALID_FEATURE")
    if not _are_somewhere(spec.prefer, machines):
        raise rejection("ESLURM_INVALID_PREFER")
    _check_gres(spec, machines)
    return replace(spec, required_nodes=required, excluded_nodes=excluded)


def _are_somewhere(expression: str | None, machines: Mapping[str, Machine]) -> bool:
    """Returns True if each feature in the expression is a feature of at least one node."""
    return all(
        any(name in machine.configured.features for machine in machines.values())
        for name in features.names(expression or "")
    )


def _check_gres(spec: JobSpec, machines: Mapping[str, Machine]) -> None:
    names = [name for name, _ in spec.gres]
    for name in names:
        if not any(machine.has_gres_name(name) for machine in machines.values()):
            raise rejection("ESLURM_INVALID_GRES")
        if ":" in name and name.partition(":")[0] in names:  # requested both with the type and without
            raise rejection("ESLURM_INVALID_GRES_TYPE")


def check_reservation(spec: JobSpec, user_id: int, admitted: Mapping[str, Collection[int]]) -> None:
    """Raises Slurm's error 2053 for an unknown reservation, and 2052 if the user may not use the
    reservation. `admitted` has the users of each reservation. Root may use all reservations."""
    if not spec.reservation:
        return
    if spec.reservation not in admitted:
        raise rejection("ESLURM_RESERVATION_INVALID")
    if user_id not in {0, *admitted[spec.reservation]}:
        raise rejection("ESLURM_RESERVATION_ACCESS")
