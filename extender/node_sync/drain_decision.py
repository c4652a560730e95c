"""The decision when a Slurm node is drained because of its Node, and which condition and taint the Node
gets.

A cordon, a taint, a Node that is not ready or a Pod that outstays its job drains the node; its gate
(deploy/slurm) drains it too, where it rejects a job. When the cause is over, the drain is taken back.
The reason in Slurm alone tells which drains are the extender's, so that a crash forgets nothing; all
other drains are a person's, or Slurm's own, and are left alone. A drain and DOWN become a condition on
the Node, and a taint where the settings say so; neither of them drains anything in turn.

A person that resumes a node which the extender drained has the last word until the cause changes or
ends: the condition remembers it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from extender.cluster.node_conditions import NodeCondition, NodeStatus
from extender.record.placeholder import Placeholder
from extender.request.node_constraints import Node, Taint
from extender.request.wording import cut
from kubernetes_client.protocol import Manifest
from slurm_client.model import Node as SlurmNode
from wellknown.names import OUT_OF_SERVICE, NodeReason, RejectionReason

PREFIX = "slurm-extender: "
"""The prefix of the reason of the extender's drains, and of no others."""
TAINT = Taint(OUT_OF_SERVICE, "slurm", "NoSchedule")
"""The extender's taint; a taint of another value or effect belongs to somebody else."""

_OUTSTAYED = f"{PREFIX}Pod "
_PROLOG_REFUSED = f"{PREFIX}the gate refused job "
_CORDONED = f"{PREFIX}cordoned in Kubernetes"
_TAINTED = f"{PREFIX}tainted {{}} in Kubernetes".format
_NOT_READY = f"{PREFIX}not ready in Kubernetes"
_CONDITION = f"{PREFIX}condition "

_LEFT_ALONE = frozenset({"DOWN", "FUTURE", "UNKNOWN"})
_OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
_FORGETS_S = 10.0  # what a killed slurmctld may not have saved, and twice that
_HANDFUL = 5
_LONGEST_REASON = 200


class Why(StrEnum):
    """The causes of a drain, the most urgent first."""

    OUTSTAYED = "outstayed"
    PROLOG_REFUSED = "prolog-refused"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    CONDITION = "condition"
    NOT_READY = "not-ready"


@dataclass(frozen=True, slots=True)
class DrainReason:
    why: Why
    reason: str
    """The reason in Slurm."""


@dataclass(frozen=True, slots=True)
class LingeringPod:
    """A Pod that is still there though its job has ended."""

    pod: str
    overdue: bool


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """The settings of an administrator; the condition is always written."""

    drain: bool = True
    keys: frozenset[str] = frozenset()
    """The keys of the taints that drain."""
    taint: bool = False
    conditions: frozenset[str] = frozenset()
    """The types of the conditions that drain where they are True."""


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """One node as both systems have it."""

    node: Node
    node_status: NodeStatus
    slurm: SlurmNode
    lingering_pods: tuple[LingeringPod, ...] = ()
    unsettled: bool = False
    """Slurm has lost the job of a Pod that runs there, or seems to have: it must start it again."""
    blocked: bool = False
    """The gate has drained it, and would reject the next job there as well."""
    rejects: str = ""
    """Why the Node is closed to all new placeholders; empty if its kubelet rejects no Pods."""

    @property
    def down(self) -> bool:
        return "DOWN" in self.slurm.states

    @property
    def out(self) -> bool:
        return not self.slurm.states.isdisjoint(_OUT)

    @property
    def job_ends(self) -> bool:
        """A job is COMPLETING there: it stays so while it has a process that cannot be killed, for
        which Slurm drains the node (`Kill task failed`). Where the extender's drain came a moment later
        it hides that."""
        return "COMPLETING" in self.slurm.states

    @property
    def drained_by_us(self) -> bool:
        return self.out and not self.down and self.slurm.reason.startswith(PREFIX)

    @property
    def drained_by_its_gate(self) -> bool:
        return self.drained_by_us and self.slurm.reason.startswith(_PROLOG_REFUSED)

    @property
    def told_of_our_drain(self) -> bool:
        """Tells whether the Node's condition names a drain of the extender: if that drain is missing, a
        person has taken it back."""
        told = self.node_status.condition
        return told is not None and told.reason == NodeReason.DRAINED_FOR_KUBERNETES


@dataclass(frozen=True, slots=True)
class DrainContext:
    """What a decision takes into account besides the node itself. A cause that is seen on too many
    nodes at once is more likely wrong than true: no new drain is made for it (invariant I5)."""

    now: float
    """UNIX seconds."""
    drain_settings: DrainSettings = DrainSettings()
    steady: bool = True
    """Slurm has answered without a break, and has not started anew. If not, a drain that is missing may
    be lost."""
    many_not_ready: bool = False
    many_down: bool = False
    many_conditions: bool = False

    @classmethod
    def of(
        cls,
        nodes: Sequence[ObservedNode],
        now: float,
        drain_settings: DrainSettings,
        *,
        steady: bool = True,
    ) -> Self:
        """Returns the context for a cluster of these nodes."""
        not_ready = sum(not each.node_status.ready for each in nodes)
        down = sum(each.down for each in nodes)
        wrong = sum(_condition(each, drain_settings) is not None for each in nodes)
        many = (_too_many(count, len(nodes)) for count in (not_ready, down, wrong))
        return cls(now, drain_settings, steady, *many)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many nodes are drained for each cause, and for how many a drain is suppressed, since they are
    too many."""

    drained: Mapping[Why, int] = field(default_factory=dict)
    suppressed: int = 0
    oldest: Mapping[Why, float] = field(default_factory=dict)
    """Since when the Node of the first of them has been out of service, in UNIX seconds."""

    @classmethod
    def of(cls, nodes: Sequence[ObservedNode], at: DrainContext) -> Self:
        """Returns the tally for a cluster of these nodes."""
        drained, oldest = Counter[Why](), dict[Why, float]()
        for each in nodes:
            cause = drain_reason(each, at.drain_settings) if each.drained_by_us else None
            if cause is None:
                continue
            drained[cause.why] += 1
            if each.told_of_our_drain and (told := each.node_status.condition):
                oldest[cause.why] = min(told.since, oldest.get(cause.why, told.since))
        if not at.drain_settings.drain:
            return cls(drained, oldest=oldest)
        left = [each for each in nodes if not each.out]
        unready = sum(not each.node_status.ready for each in left) if at.many_not_ready else 0
        wrong = (_condition(each, at.drain_settings) is not None for each in left)
        return cls(drained, unready + (sum(wrong) if at.many_conditions else 0), oldest)


@dataclass(frozen=True, slots=True)
class Drain:
    reason: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """An order: take back the extender's drain."""


Order = Drain | Undrain


def alarm(nodes: Sequence[ObservedNode], at: DrainContext) -> str | None:
    """Returns words for the causes that are ignored, since they are seen on too many nodes at once."""
    words = []
    if at.many_not_ready and at.drain_settings.drain:
        unready = sum(not each.node_status.ready for each in nodes)
        words.append(f"{unready} of {len(nodes)} Nodes are not ready: no more of them are drained")
    if at.many_conditions and at.drain_settings.drain:
        wrong = sum(_condition(each, at.drain_settings) is not None for each in nodes)
        words.append(f"{wrong} of {len(nodes)} Nodes have a condition that drains: no more are drained")
    if at.many_down and at.drain_settings.taint:
        down = sum(each.down for each in nodes)
        words.append(f"{down} of {len(nodes)} nodes are down in Slurm: no more of them are tainted")
    return "; ".join(words) or None


def lingering_pods(
    placeholders: Iterable[Placeholder], before: float
) -> dict[str, tuple[LingeringPod, ...]]:
    """Returns by Node the Pods whose jobs have ended; a Pod whose job ended earlier than `before` is
    overdue."""
    found: defaultdict[str, list[LingeringPod]] = defaultdict(list)
    for each in placeholders:
        overdue = max(each.since, each.job.since) <= before
        for member in each.members if each.job.over else ():
            if (node := member.node_in(each.state)) is not None:
                found[node].append(LingeringPod(member.pod.full_name, overdue=overdue))
    return {node: tuple(there) for node, there in found.items()}


def drain_reason(observed: ObservedNode, drain_settings: DrainSettings) -> DrainReason | None:
    """Returns why a node is to be drained, or to stay drained; None where there is no cause."""
    in_the_way = _outstayed(observed) if drain_settings.drain else None
    if in_the_way is not None:
        return in_the_way
    if observed.blocked and observed.drained_by_its_gate:  # the gate drains under any settings
        return DrainReason(Why.PROLOG_REFUSED, observed.slurm.reason)
    return _by_its_node(observed, drain_settings) if drain_settings.drain else None


def _by_its_node(observed: ObservedNode, drain_settings: DrainSettings) -> DrainReason | None:
    if observed.node.unschedulable:
        return DrainReason(Why.CORDONED, _CORDONED)
    for taint in observed.node.taints:
        if taint.key in drain_settings.keys:
            return DrainReason(Why.TAINTED, _TAINTED(taint.key))
    if (reason := _condition(observed, drain_settings)) is not None:
        return DrainReason(Why.CONDITION, reason)
    if not observed.node_status.ready:
        return DrainReason(Why.NOT_READY, _NOT_READY)
    return None


def _condition(observed: ObservedNode, drain_settings: DrainSettings) -> str | None:
    for kind, message in observed.node_status.problems:
        if kind in drain_settings.conditions:
            return cut(f"{_CONDITION}{kind}: {' '.join(message.split())}", _LONGEST_REASON)
    return None


def _outstayed(observed: ObservedNode) -> DrainReason | None:
    for lingering in observed.lingering_pods:
        reason = f"{_OUTSTAYED}{lingering.pod} is still there though its job has ended"
        # For a leader that has just begun no Pod is overdue.
        if lingering.overdue or observed.slurm.reason.startswith(reason):
            return DrainReason(Why.OUTSTAYED, reason)
    return None


def reason_still_holds(reason: str, node: Node) -> bool:
    """Tells whether the reason of the extender's drain still holds, by the Node alone. What is read of a
    Node tells nothing about Pods and conditions: a reason that names one is taken to hold."""
    keys = {taint.key for taint in node.taints}
    return (
        reason.startswith((_OUTSTAYED, _PROLOG_REFUSED, _CONDITION))
        or (reason.startswith(_CORDONED) and node.unschedulable)
        or (reason.startswith(_NOT_READY) and node.away)
        or any(reason.startswith(_TAINTED(key)) for key in keys)
    )


def order(observed: ObservedNode, at: DrainContext) -> Order | None:
    """Returns the order for Slurm, None where the node is left as it is."""
    cause = drain_reason(observed, at.drain_settings)
    if not observed.slurm.states.isdisjoint(_LEFT_ALONE):
        return None
    if observed.drained_by_us:
        if cause is None:
            return None if observed.job_ends else Undrain()
        # Words that Slurm has added to the reason since are kept.
        return None if observed.slurm.reason.startswith(cause.reason) else Drain(cause.reason)
    if observed.out or observed.unsettled or cause is None or _overruled(observed, cause, at):
        return None
    many = {Why.NOT_READY: at.many_not_ready, Why.CONDITION: at.many_conditions}
    if many.get(cause.why, False):
        return None
    return Drain(cause.reason)


def condition_of(observed: ObservedNode, at: DrainContext) -> NodeCondition | None:
    """Returns the Node's condition; None for a node that has never been out of service."""
    cause = drain_reason(observed, at.drain_settings)
    reason = observed.slurm.reason or "no reason is given"
    if observed.drained_by_us and cause is None:
        # Written before the drain is taken back: from then on a missing drain is no person's decision.
        when = "taken back when no job is ending there" if observed.job_ends else "being taken back"
        return NodeCondition(True, NodeReason.RESUMING, f"its drain in Slurm is {when}")
    if observed.drained_by_us:
        return NodeCondition(True, NodeReason.DRAINED_FOR_KUBERNETES, _told("drained", reason))
    if observed.down:
        return NodeCondition(True, NodeReason.DOWN_IN_SLURM, _told("down", reason))
    if observed.out:
        return NodeCondition(True, NodeReason.DRAINED_IN_SLURM, _told("drained", reason))
    if cause is not None and _overruled(observed, cause, at):
        message = f"resumed in Slurm in spite of: {cause.reason}"
        return NodeCondition(False, NodeReason.RESUMED_BY_HAND, message)
    if observed.node_status.condition is None:
        return None
    return NodeCondition(False, NodeReason.IN_SERVICE, "takes new jobs in Slurm")


def rejections_of(observed: ObservedNode) -> NodeCondition | None:
    """Returns the Node's condition about rejected Pods; None if its kubelet has never rejected any. If
    the settings list the condition, it drains the node as every other condition does."""
    if observed.rejects:
        return NodeCondition(True, RejectionReason.KUBELET_REJECTS_PODS, cut(observed.rejects))
    if observed.node_status.rejections is None:
        return None
    return NodeCondition(False, RejectionReason.PODS_ADMITTED, "open to new placeholders")


def wants_taint(observed: ObservedNode, at: DrainContext) -> bool:
    """Tells whether the extender's taint belongs on the Node. The extender's own drain is no reason:
    its cause keeps Pods away already, or does not have to."""
    if not at.drain_settings.taint or not observed.out or observed.drained_by_us:
        return False
    return TAINT in observed.node.taints or not (observed.down and at.many_down)


def taints_wrong(observed: ObservedNode, at: DrainContext) -> bool:
    """Tells whether the extender's taint has to be put on the Node, or taken off it."""
    if not wants_taint(observed, at):
        return TAINT in observed.node.taints
    return not any(_same_place(taint.key, taint.effect) for taint in observed.node.taints)


def with_taint(taints: Sequence[Manifest], *, wanted: bool) -> list[Manifest]:
    """Returns a Node's taints, as manifests, with or without the extender's; all others stay as they
    are."""
    kept = [taint for taint in taints if not _is_ours(taint)]
    if wanted and not any(_same_place(taint["key"], taint["effect"]) for taint in kept):
        kept.append({"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect})
    return kept


def _overruled(observed: ObservedNode, cause: DrainReason, at: DrainContext) -> bool:
    """Tells whether a person has resumed a node that was drained for this cause. A drain that is
    missing soon after it was made, or after an outage, was lost by Slurm."""
    told = observed.node_status.condition
    if told is None or cause.reason not in told.message:
        return False
    lasted = at.steady and at.now - told.since >= _FORGETS_S
    return told.reason == NodeReason.RESUMED_BY_HAND or (observed.told_of_our_drain and lasted)


def _too_many(count: int, total: int) -> bool:
    return count > _HANDFUL and count * 3 > total


def _told(state: str, reason: str) -> str:
    return cut(f"{state} in Slurm: {reason}")


def _is_ours(taint: Manifest) -> bool:
    return Taint(taint["key"], taint.get("value") or "", taint["effect"]) == TAINT


def _same_place(key: str, effect: str) -> bool:
    """Tells whether a taint has this key and effect: a Node has one such taint."""
    return (key, effect) == (TAINT.key, TAINT.effect)
