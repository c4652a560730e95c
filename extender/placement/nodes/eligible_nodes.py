"""Finds the Slurm nodes that a job may use. If no node is left, explains the cause to the Pod's
author."""

import re
from dataclasses import replace

from extender.explain.cause import Cause, Due, Kind, Step
from extender.node_view.view import ClusterView, Exclusion, Wish
from extender.pod_request.constraints.node_constraints import gains
from extender.pod_request.constraints.pod_constraints import ClosedNodes
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import State
from wellknown.names import ELSEWHERE

_NAMED = 3
_OURS = re.compile(rf"\d+ {ELSEWHERE}, |, \d+ {ELSEWHERE}")


def excluded_nodes_of(record: Placeholder, at: Context) -> Exclusion:
    """Returns the Slurm nodes that the job must not use. The author excludes these nodes, or Kubernetes
    closes the nodes to the Pod."""
    return at.view.exclusion(_wish(record, at))


def _wish(record: Placeholder, at: Context) -> Wish:
    request, (offered, until) = record.request, record.rejections.offered
    return Wish(
        request.constraints,
        at.view.partition_name(request.job.partition),
        request.job.excluded_nodes,
        request.job.required_nodes,
        frozenset(name for name, until in record.rejections.nodes if until > at.now),
        closed_by_pods(record, at),
        offered if until > at.now else None,
        at.rejecting(record.workload.namespace, request),
    )


def closed_by_pods(record: Placeholder, at: Context) -> int:
    """Returns the Nodes that a workload's Pod cannot use because of other Pods, as a set of the view's
    Nodes."""
    closed = _closed(record, at)
    return closed.apart if record.rejections.spread_ignored else closed.all


def _closed(record: Placeholder, at: Context) -> ClosedNodes:
    if record.workload.size > 1 or not record.members:
        return ClosedNodes()
    return at.closed_by_pods(record.lead.scheduling.constraints, record.request.constraints)


def offered_instead(record: Placeholder, found: FeasibleNodes, at: Context) -> Placeholder:
    """Returns the record after kube-scheduler has offered Nodes. For a while, the next job may use only
    these Nodes. If the ledger's own estimate of topology spread closes one of these Nodes, the ledger
    does not know all Pods. Then the ledger leaves the spread to kube-scheduler. If kube-scheduler offers
    too many Nodes, their names are not known, and each of the Nodes may be closed.
    """
    closed, names = _closed(record, at).spread, found.names
    ignored = bool(closed & at.view.named(names)) if names else closed != 0
    offered = (
        (found.taken, at.now + at.rules.offer_validity) if found.nodes else record.rejections.offered
    )
    return record.with_rejections(offered=offered, spread_ignored=ignored)


def with_spread_ignored(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record. If the ledger's estimate of topology spread may keep the Pod waiting for ever,
    leaves the spread to kube-scheduler. The estimate may close all Nodes although all other Pods are
    bound, or may leave open only Nodes that are busy in Slurm."""
    rejections, ignoring = record.rejections, record.with_rejections(spread_ignored=True)
    if rejections.spread_ignored or not (record.members and record.lead.scheduling.constraints.spread):
        return record
    if record.state is State.QUEUED:
        longest = at.rules.rest_unbindable(rejections.because_of_pods + 1)
        return ignoring if at.now > record.since + longest else record
    lasts = record.state is State.SEEN and _closed(record, at).lasting
    stuck = lasts and has_no_node(record, at) and not has_no_node(ignoring, at)
    return ignoring if stuck else record


def is_blocked(record: Placeholder, at: Context) -> bool:
    """Returns True if other Pods close all Nodes to a Pod, and none of the Nodes is closed only for a
    limited time. Then a Node can open only if another Pod gets or leaves a Node, or if a Node
    changes."""
    timed = record.rejections.nodes or record.rejections.offered[1]
    return not timed and closed_by_pods(record, at) != 0 and has_no_node(record, at)


def is_beside(record: Placeholder, at: Context) -> bool:
    """Returns True if Slurm has granted a Node that other Pods close, and the allocation is not written
    onto the Pod yet."""
    if record.state is not State.ALLOCATED or record.in_flight:
        return False
    closed = closed_by_pods(record, at)
    granted = (m.slot.node for m in record.members if m.slot and not m.pod.scheduling.allocation)
    return closed != 0 and bool(closed & at.view.named(granted))


def is_outdated(record: Placeholder, at: Context) -> bool:
    """Returns True if the excluded nodes of a waiting job must be updated in Slurm. Returns False if all
    nodes would be excluded, because Slurm rejects such a job."""
    excluded = excluded_nodes_of(record, at)
    return excluded.nodes != record.job.asked.excluded and not excluded.leaves_none


def has_no_node(record: Placeholder, at: Context) -> bool:
    """Returns True if all nodes, or all required nodes, are closed to the Pod. If a job for one node
    requires several nodes, Slurm takes any of the nodes (24.11, 26.05)."""
    return excluded_nodes_of(record, at).leaves_none


def regained(name: str, before: ClusterView, view: ClusterView) -> bool:
    """Returns True if a rejected Node has changed so that the Node may fit now."""
    old, new = before.nodes.get(name), view.nodes.get(name)
    return old is not None and new is not None and old is not new and gains(old, new)


def no_node(record: Placeholder, at: Context) -> Cause:
    """Returns the cause that explains why no Node is open to a Pod."""
    wish = _wish(record, at)
    return Cause.of(Kind.NO_OPEN_NODE, partition=wish.partition, closed=at.view.why_none(wish))


def in_its_words(rejection: str) -> str:
    """Returns kube-scheduler's message about Nodes. Leaves out the part from /filter, which is about all
    Nodes except the allocated Node."""
    return _OURS.sub("", rejection).rstrip(". ")


def why_rejected(record: Placeholder) -> Cause:
    """Returns the cause for the end of an attempt: kube-scheduler rejected Slurm's Node."""
    name, _ = record.rejections.nodes[-1]
    cause = Cause.of(Kind.NODE_REFUSED, node=name, message=_message(record))
    return replace(cause, dues=exclusions(record))


def beside(record: Placeholder, cause: Cause) -> Cause:
    """Returns a cause that also names the Nodes that are excluded for now. These Nodes may be the reason
    why the Pod waits."""
    nodes = record.rejections.nodes
    if not nodes:
        return cause
    names, several = tuple([name for name, _ in nodes[-_NAMED:]]), len(nodes) > 1
    refused = Cause.of(Kind.NODES_REFUSED, nodes=names, message=_message(record), several=several)
    return replace(cause, aside=refused, dues=cause.dues + exclusions(record))


def exclusions(record: Placeholder) -> tuple[Due, ...]:
    """Returns the times at which the last excluded Nodes are allowed again."""
    return tuple(Due(Step.NODE_ALLOWED, at, name) for name, at in record.rejections.nodes[-_NAMED:])


def _message(record: Placeholder) -> str:
    return in_its_words(record.last_rejection)
