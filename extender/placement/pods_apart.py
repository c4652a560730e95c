"""The ledger's books on Pods that close Nodes to each other: places of Pods, and turns of templates."""

from collections.abc import Callable

from extender.cluster.view import ClusterView
from extender.placement.attempts import set_apart
from extender.placement.eligible_nodes import is_beside, is_blocked, no_node
from extender.placement.exclusive_turns import ONE_AT_A_TIME, ExclusiveTurns
from extender.placement.placed_pods import PlacedPods
from extender.record.condition_reason import ConditionReason
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.request.node_constraints import NodeConstraints
from extender.request.pod_constraints import PodConstraints


class PodsApart:
    """Adds the Pods that the ledger must look at again to `to_review`."""

    def __init__(self, to_review: dict[str, None]) -> None:
        self._placed, self._turns = PlacedPods(), ExclusiveTurns()
        self._to_review = to_review

    def closed_in(self, view: ClusterView) -> Callable[[PodConstraints, NodeConstraints], int]:
        """Returns `Context.closed_by_pods` for these Nodes."""
        return lambda pod, nodes: self._placed.closed_to(pod, nodes, view)

    def checked(self, record: Placeholder, at: Context) -> Placeholder:
        """Returns a record; a new grant on a Node that other Pods close is given back."""
        conflicts = not self._placed.holds(record.uid) and is_beside(record, at)
        return set_apart(record, at) if conflicts else record

    def keeps(self, record: Placeholder, queue: str, at: Context, *, ready: bool) -> bool:
        """Takes note of a record. Returns True if the Pod is not in line because of other Pods: Slurm is
        asked for another Pod of its template, or other Pods close all Nodes."""
        moved = self._placed.follow(record.uid, record)
        turned = self._turns.follow(record, queue, ready=ready)
        self._to_review |= dict.fromkeys((*self._turns.affected(moved), *turned))
        if record.state is not State.SEEN or self._turns.waits(record.uid):
            return record.state is State.SEEN
        blocked = record.lead.constraints.exclusive and is_blocked(record, at)
        if blocked:
            self._turns.block(record)
        return blocked

    def forget(self, uid: str) -> None:
        """Takes out a workload that is over."""
        moved = self._placed.follow(uid, None)
        self._to_review |= dict.fromkeys((*self._turns.forget(uid), *self._turns.affected(moved)))

    @property
    def heeding(self) -> tuple[str, ...]:
        """Returns the Pods whose Nodes may change with other Pods or with Nodes."""
        return self._turns.heeding

    def why(self, record: Placeholder, at: Context) -> ConditionReason | None:
        """Returns why other Pods keep a Pod out of line; None if they do not."""
        if record.lead.constraints.exclusive and is_blocked(record, at):
            return no_node(record, at)
        return ONE_AT_A_TIME if self._turns.waits(record.uid) else None
