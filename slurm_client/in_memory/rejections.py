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
    """Returns the error for a name of Slurm's, as `rest` raises the error. `kind` overrides the
    class for calls with another meaning of the number."""
    number = _NUMBERS[name]
    _, usual, why = CAUSES[number]
    if number == -1:  # -1 counts as no number
        return Unexplained(f"Unspecified error: {why}", http_status=500)
    return (kind or usual)(f"{name}: {why}", number=number, http_status=422)


def numbered(number: int) -> SlurmError:
    """Returns the error for one of Slurm's numbers."""
    return rejection(CAUSES[number].name)


def limit_reached() -> SlurmError:
    """Returns the error of an allocation: 2050 there means that waiting cannot help."""
    return rejection("ESLURM_ACCOUNTING_POLICY", NoRoomNow)


def node_in_use() -> SlurmError:
    """Returns the error of the deletion of a node: 2016 there persists for long."""
    return rejection("ESLURM_NODES_BUSY", InvalidRequest)


def other_job(found: str, meant: str | None) -> SlurmError:
    """Returns the error of a cancel that names another job, inside a reply of HTTP 200."""
    words = f"Job name {found} != filter name {meant}: Cannot signal job"
    return OtherJob(words, number=2172, http_status=200)


def still_held() -> SlurmError:
    """Returns the error of an update: a priority alone does not release a held job."""
    return InvalidRequest("Job is in held state", number=2042, http_status=422)


def not_dynamic() -> SlurmError:
    """Returns the error of the deletion of a node that slurm.conf names."""
    return InvalidRequest("Invalid node state specified", number=2028, http_status=422)


def missing_job() -> SlurmError:
    """Returns the error of an update: 2017 there means an unknown job, not a forbidden id."""
    return InvalidRequest("Invalid job id specified", number=2017, http_status=404)


def partition_of(spec: JobSpec, partitions: Mapping[str, Partition]) -> Partition:
    """Returns the partition of a job. Raises the errors 2000 and 2001."""
    default = next((one.name for one in partitions.values() if one.default), None)
    name = default if spec.partition is None else spec.partition
    if name is None:
        raise rejection("ESLURM_DEFAULT_PARTITION_NOT_SET")
    if name not in partitions:
        raise rejection("ESLURM_INVALID_PARTITION_NAME")
    return partitions[name]


def named(expressions: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Returns the names in required_nodes or excluded_nodes. Raises 2018 for unknown nodes."""
    try:
        names = hostlist.names(expressions)
    except ValueError:
        raise rejection("ESLURM_INVALID_NODE_NAME") from None
    if any(name not in known for name in names):
        raise rejection("ESLURM_INVALID_NODE_NAME")
    return names


def checked(spec: JobSpec, machines: Mapping[str, Machine]) -> JobSpec:
    """Returns the job with the names of all nodes in lists. Raises only errors that leave no record."""
    checks.check(spec)
    required, excluded = named(spec.required_nodes, machines), named(spec.excluded_nodes, machines)
    if not _are_somewhere(spec.constraints, machines):
        raise rejection("ESLURM_INVALID_FEATURE")
    if not _are_somewhere(spec.prefer, machines):
        raise rejection("ESLURM_INVALID_PREFER")
    _check_gres(spec, machines)
    return replace(spec, required_nodes=required, excluded_nodes=excluded)


def _are_somewhere(expression: str | None, machines: Mapping[str, Machine]) -> bool:
    """Returns True if each feature of an expression is a feature of some node."""
    return all(
        any(name in machine.configured.features for machine in machines.values())
        for name in features.names(expression or "")
    )


def _check_gres(spec: JobSpec, machines: Mapping[str, Machine]) -> None:
    names = [name for name, _ in spec.gres]
    for name in names:
        if not any(machine.has_gres_name(name) for machine in machines.values()):
            raise rejection("ESLURM_INVALID_GRES")
        if ":" in name and name.partition(":")[0] in names:  # requested with the type and without
            raise rejection("ESLURM_INVALID_GRES_TYPE")


def check_reservation(spec: JobSpec, user_id: int, admitted: Mapping[str, Collection[int]]) -> None:
    """Raises 2052 and 2053. `admitted` are the users of each reservation; root may use all."""
    if not spec.reservation:
        return
    if spec.reservation not in admitted:
        raise rejection("ESLURM_RESERVATION_INVALID")
    if user_id not in {0, *admitted[spec.reservation]}:
        raise rejection("ESLURM_RESERVATION_ACCESS")
