"""Reads the annotations of SchedMD's slurm-bridge, if a setting turns this on (docs/tasks/migrate.md).

Each annotation means the same as in slurm-bridge. For example, a job has a whole node unless `exclusive`
is "false", and `timelimit` counts minutes. An annotation without a counterpart in the extender does
nothing, and the Pod's author gets a warning.
"""

from collections.abc import Mapping
from dataclasses import replace

from extender.pod_request.annotations import (
    ANNOTATIONS,
    DEFAULT_PAGE,
    LONGEST_MINUTES,
    Annotation,
    ParsedAnnotations,
    ValueType,
    read_table,
)
from slurm_client.model import Sharing
from wellknown.job_key import whole_number

PREFIX = "slurmjob.slinky.slurm.net/"
OLD_PREFIX = "slinky.slurm.net/"
"""Prefix of these annotations before slurm-bridge 1.0. slurm-bridge and slurm-operator use the same
prefix for other annotations."""
SECTION = "annotations-of-slurm-bridge"  # anchor on the page of annotations
_SAME = frozenset(
    ("account", "constraints", "group-id", "partition", "priority", "qos", "reservation", "user-id")
)
"""Names of annotations that have the same name and the same meaning in the extender."""


def _alone(value: str) -> Sharing | None:
    """Returns None for "false", because the partition then decides. Any other text means a whole
    node."""
    return None if value.strip().lower() == "false" else Sharing.NONE


def _minutes(value: str) -> int:
    number = whole_number(value.strip())
    if number is None or not 0 < number <= LONGEST_MINUTES:
        raise ValueError
    return number


_ALONE = ValueType("word", "false, or anything else", _alone)
_MINUTES = ValueType("minutes", f"a whole number from 1 to {LONGEST_MINUTES}, 365 days", _minutes)
TABLE: tuple[Annotation, ...] = (
    *(row for row in ANNOTATIONS if row.name in _SAME),
    Annotation("exclusive", "shared", _ALONE, "--exclusive", "false").noted(
        "`false`: the partition decides. Any other value, or no value beside other annotations of"
        " slurm-bridge: `none`, the whole node."
    ),
    Annotation("timelimit", "time_limit_minutes", _MINUTES, "--time", "60").noted("In minutes."),
)
NOT_READ: Mapping[str, str] = {
    "cpu-per-task": "the job gets the CPUs that the Pod requests",
    "gres": "the job gets the devices that the Pod requests",
    "job-name": "a job has the name of its Pod",
    "licenses": "the extender requests no licenses",
    "max-nodes": "a Pod has one node",
    "mem-per-node": "the job gets the memory that the Pod requests",
    "min-nodes": "a Pod has one node",
    "wckey": "the extender passes no wckey to Slurm",
}
"""Names of slurm-bridge's annotations without a counterpart, each with the reason."""
_OLD = frozenset(OLD_PREFIX + name for name in (*(row.name for row in TABLE), *NOT_READ))


def is_theirs(annotation: str) -> bool:
    """Returns True if an annotation with this name is a request to slurm-bridge."""
    return annotation.startswith(PREFIX) or annotation in _OLD


def read_slurm_bridge(annotations: Mapping[str, str], page: str = DEFAULT_PAGE) -> ParsedAnnotations:
    """Returns the request that slurm-bridge's annotations make. The request is empty if the Pod has no
    such annotation. An annotation with PREFIX overrides the same annotation with OLD_PREFIX. Never
    raises."""
    theirs = {key: value for key, value in annotations.items() if is_theirs(key)}
    if not theirs:
        return ParsedAnnotations({})
    read = _read(theirs, PREFIX, page).over(_read(theirs, OLD_PREFIX, page))
    return replace(read, fields={"shared": Sharing.NONE, **read.fields})


def _read(theirs: Mapping[str, str], prefix: str, page: str) -> ParsedAnnotations:
    see = f"({page}#{SECTION})"
    ignored = [name for name in NOT_READ if prefix + name in theirs]
    kept = {key: value for key, value in theirs.items() if key.removeprefix(prefix) not in ignored}
    read = read_table(kept, prefix, TABLE, lambda _: see)
    warnings = (f"annotation {prefix}{name} does nothing: {NOT_READ[name]} {see}" for name in ignored)
    return replace(read, warnings=(*read.warnings, *warnings))
