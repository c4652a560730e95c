"""What keeps a Pod out of line though nothing is wrong with what it asks for: it could not use a job.

A job holds its node, and may have preempted somebody for it, from the moment that Slurm starts it. So
none is asked for while it is known that kube-scheduler would bind the Pod nowhere: other scheduling
gates hold it back, or an object is missing that it refers to (`claims`). Whatever else makes
kube-scheduler refuse every Node is known by its having done so: a PreFilter plugin that fails asks no
extender at all. Such a Pod has no gate any more, and kube-scheduler looks at it whenever what it failed
for may have changed. Where it finds Nodes then, it asks /filter about them, which notes that on the Pod
(`FeasibleNodes`): only then Slurm is asked again, so that nobody is preempted for another attempt as
vain as the last. Or it says that Nodes lack room (`pod.lacks_room`): then all plugins' PreFilter has
passed (each Node is told the reason of the first plugin alone that refuses it), and Slurm may make room
where Kubernetes may not. What comes after these may still refuse: each attempt is followed by a longer
rest.
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
"""Of the causes that `kept_back` gives."""


class UnbindablePods:
    """The Pods for which no job is asked since kube-scheduler refuses every Node; `heard` is told of
    every change."""

    def __init__(self, heard: "Callable[[UnbindablePods], object]" = lambda _: None) -> None:
        self._heard = heard
        self._names: dict[str, str] = {}

    def note(self, record: Placeholder, why: Cause | None) -> None:
        """Takes note of why a Pod is kept back; None: it is not, or it is gone."""
        uid, belongs = record.uid, why is not None and why.reason == Reason.NOT_BINDABLE
        if belongs is (uid in self._names):
            return
        if belongs:
            self._names[uid] = record.workload.full_name
        else:
            del self._names[uid]
        self._heard(self)

    @property
    def words(self) -> str | None:
        """What is in vain, for a person; None where that is not more than a few."""
        if len(self._names) <= _A_FEW:
            return None
        names = ", ".join(islice(self._names.values(), _NAMED))
        return (
            f"kube-scheduler bound {len(self._names)} Pods to no Node that Slurm chose, and finds none"
            f" for them (first {names}): no jobs are asked for; each Pod's condition says why"
        )


def kept_back(record: Placeholder, now: float) -> Cause | None:
    """Returns why a Pod is not to be in line yet; None where it may be."""
    if record.lacking:
        return Cause.of(Kind.PODS_MISSING, missing=record.lacking)
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
    """Returns the record of an attempt that is over since kube-scheduler did not bind the Pod, and
    offered no other Node. It was asked and refused, or (the first time: kube-scheduler may have been
    down) has said nothing. A Pod that has our gate still, since its allocation could not be written, is
    one that kube-scheduler never looks at: it only rests."""
    if names_other_pods(record.said):  # the places of other Pods change all the time
        return record.with_rejections(asks_first=not record.gated, rests_until=0.0)
    unbindable = record.rejections.in_a_row + 1
    in_a_row = unbindable if record.node_rejected else unbindable - 1
    until, asks_first = at.now + at.rules.rest_unbindable(in_a_row), not record.gated
    return record.with_rejections(in_a_row=unbindable, asks_first=asks_first, rests_until=until)


def awake(record: Placeholder) -> Placeholder:
    """Returns the record of a Pod one of whose Nodes another Pod has left: that may have been all that
    was wrong. Where it was refused several times in a row, it was not, and Pods leave all the time."""
    return record.with_rejections(rests_until=0.0) if record.rejections.in_a_row <= 1 else record


def asking_first(record: Placeholder) -> Placeholder:
    """Returns the record of a Pod of which it is not known why its last attempt was in vain: another
    replica made it, or this one before it was started anew."""
    vain = any(pod.scheduling.attempt > 1 for pod in record.pods) and not record.gated
    return record.with_rejections(asks_first=True, in_a_row=1) if vain else record


def as_found(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record of a Pod whose turn it is: for a while only those Nodes count that
    kube-scheduler has found for it, where it was asked first."""
    found = record.lead.scheduling.feasible_nodes
    if found is None or not found.nodes or not record.rejections.asks_first:
        return record
    nodes = frozenset(found.names)
    avoid = tuple((name, until) for name, until in record.rejections.nodes if name not in nodes)
    return offered_instead(record.with_rejections(nodes=avoid), found, at)


def may_be_given(request: Request, nodes: Iterable[str], view: ClusterView) -> bool:
    """Tells whether Slurm might choose one of the Nodes that kube-scheduler has found for a Pod: only
    then it is worth asking. True where nothing is known of the partition."""
    job, partition = request.job, view.partition_name(request.job.partition)
    wish = Wish(request.constraints, partition, job.excluded_nodes, job.required_nodes)
    return view.leaves_any_of(nodes, wish)


def _may_ask(record: Placeholder) -> bool:
    """Tells whether kube-scheduler has found Nodes since this attempt was numbered (that takes what it
    found before off the Pod), or would if there were room."""
    pods = record.pods
    if any(pod.scheduling.attempt < record.attempt for pod in pods):
        return False
    if all(pod.gated for pod in pods):  # kube-scheduler has looked at others of the group, and they went
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
    said = in_its_words(next(rejections, record.said))
    return Cause.of(Kind.NOT_BINDABLE, in_a_row=in_a_row, said=said)
