"""The annotations of SchedMD's slurm-bridge, read as the extender's own where a setting says so: for
Pods that were written for it (docs/migrate.md).

They mean what they mean there: a job has its node for itself unless `exclusive` is "false", and
`timelimit` counts minutes. What has no counterpart here is told to the author, and does nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from extender.request.annotations import (
    ANNOTATIONS,
    DEFAULT_PAGE,
    LONGEST_MINUTES,
    Annotation,
    ParsedAnnotations,
    ValueType,
    read_table,
)
from kubernetes_client.protocol import Manifest
from slurm_client.model import Sharing
from wellknown.job_key import whole_number

PREFIX = "slurmjob.slinky.slurm.net/"
SECTION = "annotations-of-slurm-bridge"
"""Where the page of annotations has them."""
_SAME = frozenset(
    ("account", "constraints", "group-id", "partition", "priority", "qos", "reservation", "user-id")
)
"""Those that are as the extender's own of the same name."""


def _alone(value: str) -> Sharing | None:
    """Only "false" shares: the job has what its partition says then."""
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
        "`false`: what the partition says. Anything else, and absent beside other annotations of"
        " slurm-bridge: `none`, the whole node, as there."
    ),
    Annotation("timelimit", "time_limit_minutes", _MINUTES, "--time", "60").noted("Minutes."),
)
NOT_READ: Mapping[str, str] = {
    "cpu-per-task": "Slurm is asked for the CPUs that the Pod requests",
    "gres": "Slurm is asked for the devices that the Pod requests",
    "job-name": "a job is called after its Pod",
    "licenses": "no licenses are asked for",
    "max-nodes": "a Pod has one node",
    "mem-per-node": "Slurm is asked for the memory that the Pod requests",
    "min-nodes": "a Pod has one node",
    "wckey": "no wckey is told to Slurm",
}
"""Those that do nothing here, and why."""


def read_slurm_bridge(annotations: Mapping[str, str], page: str = DEFAULT_PAGE) -> ParsedAnnotations:
    """Returns the request that slurm-bridge's annotations make; an empty one where there are none.
    Never raises."""
    theirs = {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
    if not theirs:
        return ParsedAnnotations({})
    see = f"({page}#{SECTION})"
    ignored = [name for name in NOT_READ if theirs.pop(PREFIX + name, None) is not None]
    read = read_table(theirs, PREFIX, TABLE, lambda _: see)
    told = (f"annotation {PREFIX}{name} does nothing: {NOT_READ[name]} {see}" for name in ignored)
    fields: dict[str, Any] = {"shared": Sharing.NONE, **read.fields}
    return replace(read, fields=fields, warnings=(*read.warnings, *told))


def misplaced(manifest: Manifest | None) -> str | None:
    """Returns a warning for the author of a Job or the like that has such annotations itself, where
    slurm-bridge reads them: here its Pods have them."""
    metadata = (manifest or {}).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    found = next((key for key in annotations or () if str(key).startswith(PREFIX)), None)
    if found is None:
        return None
    return (
        f"annotation {found} of this object does nothing: write it into the metadata of the Pod template"
    )
