"""What Pods wait for, in a few words that an alert or a dashboard can count by: pure."""

from enum import StrEnum

from extender.explain.pending_reasons import waits_for_its_owner
from extender.placement.transitions.kept_back import REASONS
from extender.record.states import State


class WaitsFor(StrEnum):
    TURN = "turn"
    """Its turn to be asked for: as many placeholders as may compete in Slurm's queue already."""
    KUBERNETES = "kubernetes"
    """Something in Kubernetes: a claim, another gate, a Node that kube-scheduler takes (`kept_back`)."""
    ANSWER = "answer"
    """Slurm's answer to the submission; also while Slurm rejects it for now, or is down."""
    RESOURCES = "resources"
    """Slurm's queue: resources that other jobs have, or a partition or node that is closed."""
    OWNER = "owner"
    """Slurm's queue, for a limit of its owner, for a person, or for a time: also on an idle cluster."""
    BINDING = "binding"
    """kube-scheduler and /bind: Slurm has granted the job."""
    AUTHOR = "author"
    """The Pod's author: what it asks for can never run."""


_BY_STATE = {
    State.SUBMITTING: WaitsFor.ANSWER,
    State.ALLOCATED: WaitsFor.BINDING,
    State.INVALID: WaitsFor.AUTHOR,
}


def waits_for(state: State, reason: str) -> WaitsFor | None:
    """Returns what a Pod waits for by state and its cause's reason; None if bound, or leaving."""
    if state is State.SEEN:
        return WaitsFor.KUBERNETES if reason in REASONS else WaitsFor.TURN
    if state is State.QUEUED:
        return WaitsFor.OWNER if waits_for_its_owner(reason) else WaitsFor.RESOURCES
    return _BY_STATE.get(state)
