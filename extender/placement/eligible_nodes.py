"""The nodes that a placeholder's job may have: Slurm is told which it may not."""

from __future__ import annotations

from extender.cluster.view import Exclusion, Wish
from extender.placement.condition_reason import ConditionReason
from extender.placement.config import Context
from extender.placement.placeholder import Placeholder
from wellknown.names import Reason

NO_ELIGIBLE_NODE = Reason.NO_ELIGIBLE_NODE


def excluded_nodes_of(record: Placeholder, at: Context) -> Exclusion:
    """What the Pod's author excludes, and what Kubernetes would refuse."""
    return at.view.exclusion(_wish(record, at))


def _wish(record: Placeholder, at: Context) -> Wish:
    request, (offered, until) = record.request, record.rejections.offered
    return Wish(
        request.constraints,
        at.view.partition_name(request.job.partition),
        request.job.excluded_nodes,
        request.job.required_nodes,
        frozenset(name for name, until in record.rejections.nodes if until > at.now),
        offered if until > at.now else None,
    )


def is_outdated(record: Placeholder, at: Context) -> bool:
    """Tells whether a job that waits goes by Nodes as they were. All nodes are never excluded: Slurm
    would call that a mistake."""
    excluded = excluded_nodes_of(record, at)
    return excluded.nodes != record.job.excluded and not excluded.leaves_none


def has_no_node(record: Placeholder, at: Context) -> bool:
    """Tells whether all nodes are closed to the Pod, or all of those that it requires: then asking is
    pointless, and Slurm would call it a mistake of the Pod's author. Of several required nodes Slurm
    gives a job of one node any that it can (24.11, 26.05)."""
    return excluded_nodes_of(record, at).leaves_none


def no_node(record: Placeholder, at: Context) -> ConditionReason:
    """Returns why no job is asked for a Pod to which no Node is open."""
    wish = _wish(record, at)
    why = at.view.why_none(wish)
    return ConditionReason(
        NO_ELIGIBLE_NODE, f"no Node of partition {wish.partition} is open to this Pod: {why}"
    )
