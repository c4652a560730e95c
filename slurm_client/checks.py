"""Checks for requests that Slurm would accept, but understand in another way."""

import re
from typing import Final

from slurm_client import ownership
from slurm_client.errors import InvalidRequest
from slurm_client.gres import SHARED
from slurm_client.model import MOST_CPUS, MOST_MINUTES, JobSpec, Sharing
from wellknown.quoting import quoted

_NODE_NAME: Final = re.compile(r"\w[\w.-]*", re.ASCII)

TEXTS: Final = (
    *("partition", "account", "qos", "reservation", "comment", "constraints", "prefer"),
    "current_working_directory",
)
"""The text fields of JobSpec. Requests to Slurm contain these texts unchanged, under the same names."""


def check_node(name: str) -> None:
    """Raises InvalidRequest if `name` is not the name of a single node. Slurm itself would accept
    expressions for several nodes. Some characters would also change the path of the call."""
    if not _NODE_NAME.fullmatch(name):
        raise InvalidRequest(f"{quoted(name)} is no name of a node")


def check(spec: JobSpec) -> None:
    """Raises InvalidRequest for requests that Slurm (24.11, 26.05) changes without an error, or carries
    out despite an error."""
    _check_amounts(spec)
    if spec.shared is not None and spec.shared not in {*Sharing}:
        # Slurm would answer HTTP 500, and still run a job with the whole node (26.05.5).
        raise InvalidRequest(f"shared is {quoted(spec.shared)}; allowed are {', '.join(Sharing)}")
    minutes = spec.time_limit_minutes
    if minutes is not None and minutes > MOST_MINUTES:
        raise InvalidRequest(f"a time limit of {minutes} minutes; Slurm counts to {MOST_MINUTES}")
    for field, number in (("user_id", spec.user_id), ("group_id", spec.group_id)):
        if number is not None and not ownership.may_own(number):
            raise InvalidRequest(f"{field} is {number}; allowed is {ownership.OWNERS}")
    for field in TEXTS:
        if "\0" in (getattr(spec, field) or ""):
            raise InvalidRequest(f"{field} has a NUL; Slurm would not see what follows it")


def _check_amounts(spec: JobSpec) -> None:
    if not 0 < spec.cpus <= MOST_CPUS:
        raise InvalidRequest(f"cpus is {spec.cpus}; Slurm counts from 1 to {MOST_CPUS} on a node")
    if spec.tasks is None:
        return
    if spec.tasks < spec.nodes:
        raise InvalidRequest(f"{spec.tasks} packed tasks cannot be on {spec.nodes} nodes")
    if spec.required_nodes and len(spec.required_nodes) != spec.tasks:
        raise InvalidRequest("packed tasks cannot name nodes, except a node for each task")
    if any(name.partition(":")[0] in SHARED for name, _ in spec.gres):
        # Slurm gives a task parts of a single GPU on each node, and spreads the tasks (24.11, 26.05).
        raise InvalidRequest("packed tasks cannot have parts of GPUs (shard, mps)")
