"""Handles Pods that close Nodes to each other, for example by anti-affinity. The ledger uses
`placed_pods` and `exclusive_turns` through this module."""

from collections.abc import Callable

from extender.explain.cause import Cause
from extender.node_view.view import ClusterView
from extender.placement.nodes.eligible_nodes import is_beside, is_blocked, no_node, with_spread_ignored
from extender.placement.nodes.placed_pods import PlacedPods
from extender.placement.transitions.attempts import set_apart
from extender.pod_request.constraints.node_constraints import NodeConstraints
from extender.pod_request.constraints.pod_constraints import ClosedNodes, PodConstraints
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.exclusive_turns import ExclusiveTurns


class PodsApart:
    """Keeps track of placed Pods and of turns. If the ledger must review a Pod, adds the Pod to
    `to_review`."""

    def __init__(self, to_review: dict[str, None]) -> None:
        self._placed, self._turns = PlacedPods(), ExclusiveTurns()
        self._to_review = to_review

    def closed_in(self, view: ClusterView) -> Callable[[PodConstraints, NodeConstraints], ClosedNodes]:
        """Returns the function for `Context.closed_by_pods`, for the Nodes of a view."""
        return lambda pod, nodes: self._placed.closed_to(pod, nodes, view)

    def checked(self, record: Placeholder, at: Context) -> Placeholder:
        """Returns the record. If another Pod closes the Node of a new grant, gives the grant back. If
        topology spread may keep the Pod waiting for ever, leaves the spread to kube-scheduler."""
        record = with_spread_ignored(record, at)
        conflicts = not self._placed.holds(record.uid) and is_beside(record, at)
        return set_apart(record, at) if conflicts else record

    def keeps(self, record: Placeholder, queue: str, at: Context, *, ready: bool) -> bool:
        """Notes a new version of a record. Returns True if the Pod may not wait in line yet. Either
        another Pod of the template has the turn, or other Pods close all Nodes."""
        moved = self._placed.follow(record.uid, record)
        turned = self._turns.follow(record, queue, at.now, ready=ready)
        self._to_review |= dict.fromkeys((*self._turns.affected(moved), *turned))
        if record.state is not State.SEEN or self._turns.waits(record.uid):
            return record.state is State.SEEN
        blocked = is_blocked(record, at)
        if blocked:
            self._turns.block(record)
        return blocked

    def forget(self, uid: str) -> None:
        """Removes a workload after its end."""
        moved = self._placed.follow(uid, None)
        self._to_review |= dict.fromkeys((*self._turns.forget(uid), *self._turns.affected(moved)))

    @property
    def heeding(self) -> tuple[str, ...]:
        """Returns the Pods to review after a change of Nodes."""
        return self._turns.heeding

    def why(self, record: Placeholder, at: Context) -> Cause | None:
        """Returns why a Pod may not wait in line yet because of other Pods; None if other Pods are not
        the reason."""
        if is_blocked(record, at):
            return no_node(record, at)
        return self._turns.why(record.uid)
