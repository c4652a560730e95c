"""Causes of a Pod's wait, as a few values for alerts and dashboards."""

from enum import StrEnum

from extender.explain.pending_reasons import waits_for_its_owner
from extender.placement.transitions.kept_back import REASONS
from extender.record.states import State


class WaitsFor(StrEnum):
    TURN = "turn"
    """A turn for the Pod's job, because the maximum number of placeholders is already in Slurm's
    queue."""
    KUBERNETES = "kubernetes"
    """Kubernetes: a claim, another gate, other Pods of the group, or a Node that kube-scheduler accepts
    (`kept_back`)."""
    ANSWER = "answer"
    """Slurm's reply to the submission. Pods also wait for this reply while Slurm is down, or rejects the
    job for now."""
    RESOURCES = "resources"
    """Slurm's queue: other jobs use the resources, or a partition or a node is closed."""
    OWNER = "owner"
    """Slurm's queue: a limit of the owner, a person or a time delays the job, even on an idle
    cluster."""
    BINDING = "binding"
    """kube-scheduler and /bind, after Slurm has granted the job."""
    AUTHOR = "author"
    """The Pod's author: the request can never run."""


_BY_STATE = {
    State.SUBMITTING: WaitsFor.ANSWER,
    State.ALLOCATED: WaitsFor.BINDING,
    State.INVALID: WaitsFor.AUTHOR,
}


def waits_for(state: State, reason: str) -> WaitsFor | None:
    """Returns the cause of the wait from state and reason; None if the Pod is bound or leaving."""
    if state is State.SEEN:
        return WaitsFor.KUBERNETES if reason in REASONS else WaitsFor.TURN
    if state is State.QUEUED:
        return WaitsFor.OWNER if waits_for_its_owner(reason) else WaitsFor.RESOURCES
    return _BY_STATE.get(state)
