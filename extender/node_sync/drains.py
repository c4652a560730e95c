"""The reasons of drains in Slurm, and the holders that may set, replace and clear a drain. The functions
do no I/O.

The reason in Slurm is the only record of a drain. The prefix of the reason names the holder. So a new
leader continues with all drains, and a person takes over a drain by another reason. A holder replaces
the drains of lower holders (`Holder`), and clears only its own drains. A pool clears its drain, or
replaces the drain by a drain for a Node's state. The extender never replaces or clears a drain of a
person or of Slurm."""

from enum import IntEnum, StrEnum
from typing import Final

from extender.pod_request.constraints.node_constraints import Node
from slurm_client.model import Node as SlurmNode

PREFIX: Final = "slurm-extender: "
"""Prefix of the reasons of all drains for a Node's state, including the gate's drains. No other reason
has this prefix."""
POOL_PREFIX: Final = "slurm-extender pool "
"""Prefix of the reasons of a pool's drains."""
TAKE_BACK: Final = ""
"""Takes the place of a reason, as an order to take a drain back."""
OUT: Final = frozenset({"DOWN", "DRAIN", "FAIL"})
"""States in which Slurm starts no new jobs on a node."""
_HANDFUL: Final = 5


class Holder(IntEnum):
    """Holders of nodes that are out of service, in ascending order. OTHERS: persons, scripts, Slurm."""

    NOBODY = 0
    NODE_STATE = 1
    POOL = 2
    OTHERS = 3


class DrainCause(StrEnum):
    """Causes of a drain for a Node's state, the most urgent first."""

    OUTSTAYED = "outstayed"
    PROLOG_REFUSED = "prolog-refused"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    CONDITION = "condition"
    NOT_READY = "not-ready"


_REASONS: Final = {
    DrainCause.OUTSTAYED: f"{PREFIX}Pod {{}} is still there though its job has ended",
    DrainCause.PROLOG_REFUSED: f"{PREFIX}the gate refused job {{}}",
    DrainCause.CORDONED: f"{PREFIX}cordoned in Kubernetes",
    DrainCause.TAINTED: f"{PREFIX}tainted {{}} in Kubernetes",
    DrainCause.CONDITION: f"{PREFIX}condition {{}}",
    DrainCause.NOT_READY: f"{PREFIX}not ready in Kubernetes",
}


class PoolCause(StrEnum):
    """Causes of a pool's drains, with their texts in the reason."""

    LEAVES = "the Node leaves the pool"
    CORDONED = "the Node is cordoned, and slurmd has left it"
    DELETED = "its slurmd Pod is being deleted"
    GONE = "its Node is gone from Kubernetes"
    ROLL_OUT = "roll-out of "


def holder_of(node: SlurmNode) -> Holder:
    """Returns the holder of a node by its states and its reason."""
    if node.states.isdisjoint(OUT):
        return Holder.NOBODY
    if node.reason.startswith(PREFIX):
        return Holder.NODE_STATE
    return Holder.POOL if node.reason.startswith(POOL_PREFIX) else Holder.OTHERS


def reason_for(cause: DrainCause, detail: str = "") -> str:
    """Returns the reason in Slurm of a drain for a Node's state."""
    return _REASONS[cause].format(detail)


def pool_reason(pool: str, cause: PoolCause, detail: str = "") -> str:
    """Returns the reason in Slurm of a pool's drain."""
    return f"{POOL_PREFIX}{pool}: {cause}{detail}"


def cause_of(reason: str) -> DrainCause | None:
    """Returns the cause of a drain from the reason in Slurm. Returns None for reasons of pools, persons
    and Slurm."""
    named = (cause for cause, text in _REASONS.items() if reason.startswith(text.partition("{")[0]))
    return next(named, None)


def too_many(count: int, total: int) -> bool:
    """Returns True if more than a handful, and more than a third, of all Nodes seem wrong at once."""
    return count > _HANDFUL and count * 3 > total


def reason_still_holds(reason: str, node: Node) -> bool:
    """Returns False if the Node alone shows that the cause of a reason has ended. `Node` has neither
    Pods nor conditions, so a reason with a Pod or a condition counts as still true."""
    tainted = (reason_for(DrainCause.TAINTED, taint.key) for taint in node.taints)
    shown = {
        None: False,
        DrainCause.CORDONED: node.unschedulable,
        DrainCause.NOT_READY: node.away,
        DrainCause.TAINTED: reason.startswith(tuple(tainted)),
    }
    return shown.get(cause_of(reason), True)
