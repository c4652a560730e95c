"""Keeps back Pods that kube-scheduler could not bind to any Node. The extender requests no job for such
a Pod yet.

The job of such a Pod would hold a node without use, and might preempt another job. A Pod is kept back
because of missing Pods of its group, other scheduling gates, or missing claims (`claims`), or because
kube-scheduler rejects every Node. A Pod without gates stays in kube-scheduler's queue. If kube-scheduler
later finds Nodes, /filter notes the Nodes on the Pod (`FeasibleNodes`), and the extender requests a job
again. The extender also requests a job if kube-scheduler reports that Nodes lack room
(`pod.lacks_room`), because Slurm can make room. In this case all PreFilter plugins of kube-scheduler
accept the Pod, because kube-scheduler reports for each Node only the first plugin that rejects the Node.
Later plugins may still reject the Node. So each attempt is followed by a longer pause.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from extender.explain.cause import Cause, Due, Kind, Step
from extender.node_view.view import ClusterView, Wish
from extender.placement.nodes.eligible_nodes import exclusions, in_its_words, offered_instead
from extender.pod_request.constraints.pod_constraints import names_other_pods
from extender.pod_request.job_request import Request
from extender.record.config import Context
from extender.record.placeholder import Placeholder
from wellknown.names import Reason

_A_FEW, _NAMED = 5, 3
REASONS = frozenset(
    {Reason.PODS_MISSING, Reason.SCHEDULING_GATED, Reason.CLAIM_NOT_READY, Reason.NOT_BINDABLE}
)
"""Reasons of the causes from `kept_back`."""


class UnbindablePods:
    """The Pods for which kube-scheduler rejects every Node. Calls `on_change` after each change."""

    def __init__(self, on_change: "Callable[[UnbindablePods], object]" = lambda _: None) -> None:
        self._on_change = on_change
        self._names: dict[str, str] = {}

    def note(self, record: Placeholder, why: Cause | None) -> None:
        """Notes why a Pod is kept back. `why` is None for a Pod that is not kept back, or is gone."""
        uid, belongs = record.uid, why is not None and why.reason == Reason.NOT_BINDABLE
        if belongs is (uid in self._names):
            return
        if belongs:
            self._names[uid] = record.workload.full_name
        else:
            del self._names[uid]
        self._on_change(self)

    @property
    def words(self) -> str | None:
        """Returns a message about the Pods without a bindable Node; None if there are only a few such
        Pods."""
        if len(self._names) <= _A_FEW:
            return None
        names = ", ".join(islice(self._names.values(), _NAMED))
        return (
            f"kube-scheduler bound {len(self._names)} Pods to no Node that Slurm chose, and finds no"
            f" other Node (first {names}): the extender requests no jobs; see each Pod's condition"
        )


def kept_back(record: Placeholder, now: float) -> Cause | None:
    """Returns why a Pod may not wait in line for a turn yet; None if the Pod may wait in line."""
    if record.lacking:
        exist, gang = len(record.members), record.workload
        return Cause.of(Kind.PODS_MISSING, exist=exist, size=gang.size, gang=gang.name)
    gates = tuple(dict.fromkeys(gate for pod in record.pods for gate in pod.other_gates))
    if gates:
        return Cause.of(Kind.GATED, gates=gates)
    obstacle = next(
        (pod.scheduling.obstacle for pod in record.pods if pod.scheduling.obstacle is not None), None
    )
    if obstacle is not None:
        return obstacle
    until = record.rejections.rests_until
    rests = (Due(Step.NOT_BEFORE, until),) if now < until else ()
    if rests or (record.rejections.asks_first and not _may_ask(record)):
        return replace(_not_bindable(record), dues=rests + exclusions(record))
    return None


def rested(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record after kube-scheduler has bound no Pod and offered no Node. The next attempt
    waits for a pause, and the pauses grow. If kube-scheduler gave no message, the first attempt does not
    count, because kube-scheduler may have been down. A gated Pod waits only for the pause, because
    kube-scheduler finds no Nodes for gated Pods."""
    if names_other_pods(record.last_rejection):  # the places of other Pods change all the time
        return record.with_rejections(asks_first=not record.gated, rests_until=0.0)
    unbindable = record.rejections.in_a_row + 1
    in_a_row = unbindable if record.node_rejected else unbindable - 1
    until, asks_first = at.now + at.rules.rest_unbindable(in_a_row), not record.gated
    return record.with_rejections(in_a_row=unbindable, asks_first=asks_first, rests_until=until)


def awake(record: Placeholder) -> Placeholder:
    """Ends the pause of a Pod after another Pod has left a rejected Node, unless the Pod was rejected
    several times in a row."""
    return record.with_rejections(rests_until=0.0) if record.rejections.in_a_row <= 1 else record


def asking_first(record: Placeholder) -> Placeholder:
    """Returns the record of a Pod whose last attempt failed under an earlier leader, for an unknown
    reason. kube-scheduler must find a Node before the extender requests another job."""
    vain = any(pod.scheduling.attempt > 1 for pod in record.pods) and not record.gated
    return record.with_rejections(asks_first=True, in_a_row=1) if vain else record


def as_found(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record of a Pod whose turn has come. If kube-scheduler had to find Nodes before this
    turn, the job may for a while use only these Nodes."""
    found = record.lead.scheduling.feasible_nodes
    if found is None or not found.nodes or not record.rejections.asks_first:
        return record
    nodes = frozenset(found.names)
    avoid = tuple((name, until) for name, until in record.rejections.nodes if name not in nodes)
    return offered_instead(record.with_rejections(nodes=avoid), found, at)


def may_be_given(request: Request, nodes: Iterable[str], view: ClusterView) -> bool:
    """Returns True if Slurm might choose one of the Nodes that kube-scheduler found for a Pod. Also
    returns True if the partition is unknown."""
    job, partition = request.job, view.partition_name(request.job.partition)
    wish = Wish(request.constraints, partition, job.excluded_nodes, job.required_nodes)
    return view.leaves_any_of(nodes, wish)


def _may_ask(record: Placeholder) -> bool:
    """Returns True if kube-scheduler has found Nodes in this attempt, or would find Nodes if the Nodes
    had more room. Results of earlier attempts do not count: the write of the attempt's number removes
    these results."""
    pods = record.pods
    if any(pod.scheduling.attempt < record.attempt for pod in pods):
        return False
    if all(
        pod.gated for pod in pods
    ):  # kube-scheduler has tried only other Pods of the group, which are now gone
        return True
    return any(
        pod.scheduling.lacks_room
        or (pod.scheduling.feasible_nodes is not None and not pod.scheduling.feasible_nodes.job_id)
        for pod in pods
    )


def _not_bindable(record: Placeholder) -> Cause:
    in_a_row = record.rejections.in_a_row
    if record.gated:
        return Cause.of(Kind.NOT_WRITABLE, in_a_row=in_a_row)
    rejections = (pod.scheduling.node_rejection for pod in record.pods if pod.scheduling.node_rejection)
    message = in_its_words(next(rejections, record.last_rejection))
    return Cause.of(Kind.NOT_BINDABLE, in_a_row=in_a_row, message=message)
