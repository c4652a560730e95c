"""Explains why Slurm rejects a job: the rejected value, the author of the value, and the values that
Slurm knows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from extender.explain.cause import Cause, Kind, codes
from extender.explain.quantities import first
from extender.node_view.node_hardware import together, too_large
from extender.placement.transitions import rights
from extender.placement.transitions.waiting import TOO_LARGE as WAITS_TOO_LARGE
from extender.pod_request.annotations import FIELD_NAMES
from extender.pod_request.job_request import Request
from extender.record.config import Context
from extender.record.events import Effect, Failure, ReadJob, Submit
from extender.record.why_invalid import WhyInvalid
from slurm_client.model import Job

_REFUSED: Mapping[int, tuple[str, ...]] = {
    2000: ("partition",),
    2003: ("partition",),
    2004: ("partition", "required_nodes"),
    2018: ("required_nodes", "excluded_nodes"),
    2029: ("constraints",),
    2045: ("account",),
    2051: ("time_limit_minutes",),
    2052: ("reservation",),
    2053: ("reservation",),
    2063: ("current_working_directory",),
    2066: ("qos",),
    2130: ("account", "partition"),
    2133: ("prefer",),
}
"""Fields of a job that may be wrong, by Slurm's error number (`slurm_client.errors.CAUSES`)."""
_FEATURES = frozenset({2029, 2133})
_TOO_LARGE = frozenset({2005, 2006, 2014, 2044, 2069, 2072, 2119, 2134})
"""Slurm's error numbers that may mean that the job is larger than every node."""


def needs_hardware(effect: Effect, result: Any) -> bool:
    """Returns True if a message about the result has to name the hardware of Slurm's nodes."""
    match effect, result:
        case Submit(), Failure(number=number):
            return number in _TOO_LARGE | _FEATURES
        case ReadJob(for_words=True), Job(reason=reason):
            return reason in WAITS_TOO_LARGE
    return False


def needs_rights(effect: Effect, result: Any) -> bool:
    """Returns True if a message about the result has to name the rights of the job's user."""
    refused = isinstance(result, Failure) and result.number in rights.NUMBERS
    return refused and isinstance(effect, Submit)


def refused(failure: Failure, request: Request, at: Context) -> WhyInvalid:
    """Returns why Slurm refuses a job."""
    return WhyInvalid(replace(_refused(failure, request, at), outlook=codes(failure.codes)))


def _refused(failure: Failure, request: Request, at: Context) -> Cause:
    partition = at.view.partition_name(request.job.partition)
    if failure.number in _TOO_LARGE:
        large = too_large(request.job, partition, at.hardware, at.view.partitions)
        if large is not None:
            return large
    user, lacks = request.job.user_id, None
    if failure.number in rights.NUMBERS and at.rights is not None:
        if at.rights.unknown and user is not None:
            return Cause.of(Kind.UNKNOWN_USER, user=user)
        lacks = rights.lacking(failure.number, request.job, partition, at.rights)
    values = tuple(_rejected_values(failure, request, at))
    refusal = Cause.of(Kind.SLURM_REFUSES, message=failure.message)
    return Cause.of(Kind.REFUSED_BY_SLURM, parts=(lacks, *values) if lacks else (*values, refusal))


def _rejected_values(failure: Failure, request: Request, at: Context) -> Iterator[Cause]:
    """Yields a cause for each refused value, with the author of the value (an annotation, a
    PriorityClass or the policy). Also yields the values that Slurm knows. Yields nothing if the
    failure's number does not stand for a value."""
    prefix = at.rules.annotation_prefix
    causes = (_value(field, request, prefix) for field in _REFUSED.get(failure.number or 0, ()))
    yield from (each for each in (*causes, _known(failure, request, at)) if each is not None)


def _value(field: str, request: Request, prefix: str) -> Cause | None:
    value, asker = getattr(request.job, field), request.asker(field, prefix)
    # Slurm grants accounts and QOS to single users.
    user = request.job.user_id if field in ("account", "qos") else None
    if value in (None, ()):
        if field not in ("account", "qos", "partition"):  # other fields have no default
            return None
        return Cause.of(Kind.REFUSED_DEFAULT, annotation=f"{prefix}{FIELD_NAMES[field]}", user=user)
    if field == "time_limit_minutes":
        return Cause.of(Kind.REFUSED_MINUTES, asker=asker, minutes=value)
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return Cause.of(Kind.REFUSED_VALUE, asker=asker, value=text, user=user)


def _known(failure: Failure, request: Request, at: Context) -> Cause | None:
    partitions, asked = at.view.partitions, at.view.partition_name(request.job.partition)
    match failure.number:
        case 2000 if partitions:
            names, more = first(partitions)
            return Cause.of(Kind.KNOWN_PARTITIONS, partitions=names, more=more)
        case 2051:
            known = (partitions[name] for name in asked.split(",") if name in partitions)
            limits = ((each.name, each.max_time_minutes) for each in known)
            limited = tuple([(name, most) for name, most in limits if most])
            return Cause.of(Kind.ALLOWED_MINUTES, limits=limited) if limited else None
        case number if number in _FEATURES:
            return _features(asked, at)
    return None


def _features(partition: str, at: Context) -> Cause | None:
    has = together(partition, at.hardware)
    if has is None:
        return None
    features, more = first(sorted(has.features))
    return Cause.of(Kind.KNOWN_FEATURES, partition=partition, features=features, more=more)
