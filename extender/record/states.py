"""States of a placeholder, and the one table of legal moves between the states."""

from collections.abc import Mapping
from enum import StrEnum

from extender.jobs.phase import OVER as OVER_PHASES
from extender.jobs.phase import Phase


class State(StrEnum):
    SEEN = "Seen"
    """The Pod waits for a turn. Slurm does not know the Pod."""
    SUBMITTING = "Submitting"
    """A submission is under way, has an unknown outcome, or is rejected for now."""
    QUEUED = "Queued"
    """Slurm holds the job pending."""
    ALLOCATED = "Allocated"
    """Slurm runs the job; the Pod is not bound yet."""
    BOUND = "Bound"
    """The Pod is bound to the Node that stands for the job's node."""
    REPLACING = "Replacing"
    """The allocation cannot be used. The extender gives the allocation back before the next attempt."""
    EVICTING = "Evicting"
    """The job ended first, or has only its GraceTime left; the Pod is being deleted."""
    RELEASING = "Releasing"
    """The Pod ended first; the job is being cancelled."""
    INVALID = "Invalid"
    """The Pod's request can never run. The Pod keeps the gate until the Pod is changed or deleted."""
    DONE = "Done"
    """The workload has ended. The record is kept for a while as a tombstone: if slurmctld restores the
    cancelled job, the extender cancels the job again."""


MOVES: Mapping[State, Mapping[State, str]] = {
    State.SEEN: {
        State.SUBMITTING: "a place in Slurm's queue is free",
        State.ALLOCATED: "another replica has placed the Pod",
        State.INVALID: "the request of the Pod is invalid",
        State.REPLACING: "a deposed replica asked for a job, and the Pod cannot use one now",
        State.DONE: "the Pod is gone, and no job was made",
    },
    State.SUBMITTING: {
        State.QUEUED: "Slurm queues the job",
        State.ALLOCATED: "Slurm grants nodes at once, or granted nodes before a crash of the extender",
        State.INVALID: "Slurm rejects the job",
        State.EVICTING: "the job was cancelled before the extender learned of the job",
        State.REPLACING: "the job lost the node, or does not match the request of the Pod",
        State.RELEASING: "the Pod is gone, the job may exist",
    },
    State.QUEUED: {
        State.ALLOCATED: "Slurm starts the job",
        State.SUBMITTING: "a killed slurmctld forgot the job, or another replica used up the id",
        State.EVICTING: "the waiting job was cancelled",
        State.REPLACING: "the job lost the node, or does not match the current request of the Pod",
        State.RELEASING: "the Pod is gone",
    },
    State.ALLOCATED: {
        State.BOUND: "/bind succeeded",
        State.REPLACING: "kube-scheduler rejects the Node, the job was lost, or the id is another job's",
        State.EVICTING: "the job was cancelled, or only a part of the group was bound in time",
        State.RELEASING: "the Pod is gone",
    },
    State.BOUND: {
        State.EVICTING: "the job ended, no longer runs, or is being preempted",
        State.REPLACING: "the bound Pods of a gang are gone, and their replacements are unbound",
        State.RELEASING: "the Pod ended",
    },
    State.REPLACING: {
        State.SEEN: "the old job is over, the next attempt may begin",
        State.ALLOCATED: "/bind was faster for a part of the gang, and may bind the rest",
        State.BOUND: "/bind was faster than the extender",
        State.EVICTING: "/bind was faster, and the job is over",
        State.RELEASING: "the Pod is gone",
    },
    State.EVICTING: {
        State.RELEASING: "the Pod is gone",
        State.REPLACING: "another replica ended the job, not an administrator",
    },
    State.RELEASING: {State.DONE: "the job is over"},
    State.INVALID: {
        State.SEEN: "the Pod was changed, or the extender repeats the rejected request",
        State.ALLOCATED: "another replica had placed the Pod before",
        State.REPLACING: "a deposed replica asked for a job all the same",
        State.DONE: "the Pod is gone, and no job was made",
    },
    State.DONE: {State.RELEASING: "the job came back with a restarted slurmctld"},
}
"""Legal moves from each state, each with its cause. `make docs` draws the table."""


_PHASES: Mapping[State, Phase] = {
    State.SEEN: Phase.UNASKED,
    State.SUBMITTING: Phase.ASKED,
    State.QUEUED: Phase.PENDING,
    State.ALLOCATED: Phase.RUNNING,
    State.BOUND: Phase.RUNNING,
    State.REPLACING: Phase.ENDING,
    State.EVICTING: Phase.ENDING,
    State.RELEASING: Phase.ENDING,
    State.INVALID: Phase.UNASKED,
    State.DONE: Phase.ENDED,
}


def phase_in(state: State, phase: Phase) -> Phase:
    """Returns the phase of the job after its placeholder has moved to a state. `phase` is the job's
    phase before the move. If the Pods become bound, a SUSPECT job stays SUSPECT. A LOST job becomes
    ASKED, because the extender requests the job again."""
    match state:
        case State.BOUND if phase is Phase.SUSPECT:
            return phase
        case State.BOUND if phase is Phase.LOST:
            return Phase.ASKED
        case State.REPLACING if phase in OVER_PHASES:
            return phase
        case State.EVICTING | State.RELEASING if phase in OVER_PHASES:
            return Phase.ENDED
    return _PHASES[state]


WATCHED = (
    State.BOUND,
    State.QUEUED,
    State.ALLOCATED,
    State.REPLACING,
    State.EVICTING,
    State.RELEASING,
    State.DONE,
)
"""States in which the extender watches the job. BOUND comes first for a reason: if Slurm has lost all
jobs, the extender first requests the jobs of running Pods again."""


HOLDING = frozenset({State.ALLOCATED, State.BOUND, State.REPLACING, State.EVICTING})
"""States in which a Pod has a Node, or may still be bound to a Node."""
WITHOUT_JOB = frozenset({State.SEEN, State.INVALID})
OPEN = WITHOUT_JOB | {State.REPLACING}
"""States in which a group accepts another Pod. The Pod then takes part in the next attempt."""
ASKED = frozenset({State.SUBMITTING, State.QUEUED})
UNBOUND = ASKED | {State.ALLOCATED}
IN_QUEUES = ASKED | {State.SEEN}
"""States in which a Pod waits for a turn, or for Slurm."""
OVER = frozenset({State.RELEASING, State.DONE})
