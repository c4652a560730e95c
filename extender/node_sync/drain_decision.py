"""Decides when a Slurm node is drained because of its Node, and when the Node gets a condition and a
taint.

The extender drains a node for five causes: a cordon, a taint, a condition, a Node that is not ready, and
a Pod that stays after the end of its job. The gate (deploy/slurm) drains the node after the gate has
rejected a job. After the end of the cause, the extender takes the drain back. The module `drains` finds
the holder of a drain. If a node is drained or DOWN in Slurm, the Node gets a condition, and a taint if
the settings say so. Neither this condition nor this taint drains a node. If a person resumes a node that
the extender drained, the node stays in service until the cause changes or ends. The Node's condition
records the resume."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from extender.explain.wording import cut
from extender.node_sync.drains import (
    OUT,
    TAKE_BACK,
    DrainCause,
    Holder,
    cause_of,
    holder_of,
    reason_for,
    too_many,
)
from extender.node_view.node_conditions import NodeCondition, NodeStatus
from extender.pod_request.constraints.node_constraints import Node, Taint
from extender.record.placeholder import Placeholder
from kubernetes_client.protocol import Manifest
from slurm_client.model import Node as SlurmNode
from wellknown.names import OUT_OF_SERVICE, NodeReason, RejectionReason

TAINT = Taint(OUT_OF_SERVICE, "slurm", "NoSchedule")
"""The extender's taint. A taint with another value or effect belongs to another program."""

_LEFT_ALONE = frozenset({"DOWN", "FUTURE", "UNKNOWN"})
_DOWN = "down"
_FORGETS_S = 10.0  # twice 5 s: a killed slurmctld may lose the changes of its last 5 s
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class OutstayingPod:
    """A Pod that is still on a Node after the end of its job."""

    pod: str
    overdue: bool


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """An administrator's settings for drains and taints. The Node's condition is always written."""

    drain: bool = True
    keys: frozenset[str] = frozenset()
    """The keys of the taints that drain a node."""
    taint: bool = False
    conditions: frozenset[str] = frozenset()
    """The types of the conditions that drain a node while their status is True."""


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """One node, as read from both systems."""

    node: Node
    node_status: NodeStatus
    slurm: SlurmNode
    outstaying_pods: tuple[OutstayingPod, ...] = ()
    unsettled: bool = False
    """True if Slurm has lost, or seems to have lost, the job of a running Pod, and must start the job
    again."""
    blocked: bool = False
    """True if the gate has drained the node, and would reject the next job."""
    rejects: str = ""
    """The reason why the Node is closed to all new placeholders. Empty if the Node's kubelet rejects no
    Pods."""

    @property
    def down(self) -> bool:
        return "DOWN" in self.slurm.states

    @property
    def out(self) -> bool:
        return not self.slurm.states.isdisjoint(OUT)

    @property
    def job_ends(self) -> bool:
        """True while a job on the node is COMPLETING. If a process of the job cannot be killed, Slurm
        drains the node (`Kill task failed`). While the node has an earlier drain, Slurm's drain is not
        visible."""
        return "COMPLETING" in self.slurm.states

    @property
    def drained_by_us(self) -> bool:
        return not self.down and holder_of(self.slurm) is Holder.NODE_STATE

    @property
    def drained_by_its_gate(self) -> bool:
        return self.drained_by_us and cause_of(self.slurm.reason) is DrainCause.PROLOG_REFUSED

    @property
    def shows_our_drain(self) -> bool:
        """True if the Node's condition names the extender's drain. If Slurm then has no such drain, a
        person took the drain back."""
        condition = self.node_status.condition
        return condition is not None and condition.reason == NodeReason.DRAINED_FOR_KUBERNETES


@dataclass(frozen=True, slots=True)
class DrainContext:
    """All input of a decision except the node itself. A cause on too many nodes at once is probably
    wrong, so the extender makes no new drain for the cause (invariant I5)."""

    now: float
    """UNIX seconds."""
    drain_settings: DrainSettings = DrainSettings()
    steady: bool = True
    """True if Slurm has answered without a break, and has not restarted. Otherwise Slurm may have lost a
    drain that is missing."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Causes on too many nodes at once, each with a message for the health report. `_DOWN` is the cause
    of taints."""

    @classmethod
    def of(
        cls,
        nodes: Sequence[ObservedNode],
        now: float,
        drain_settings: DrainSettings,
        *,
        steady: bool = True,
    ) -> Self:
        drains, total = drain_settings.drain, len(nodes)
        unready = sum(drains and not each.node_status.ready for each in nodes)
        wrong = sum(drains and any(_conditions(each, drain_settings)) for each in nodes)
        down = sum(drain_settings.taint and each.down for each in nodes)
        counts = (
            (DrainCause.NOT_READY, unready, "Nodes are not ready: no more of them are drained"),
            (DrainCause.CONDITION, wrong, "Nodes have a condition that drains: no more are drained"),
            (_DOWN, down, "nodes are down in Slurm: no more of them are tainted"),
        )
        many = (
            (cause, f"{count} of {total} {words}")
            for cause, count, words in counts
            if too_many(count, total)
        )
        return cls(now, drain_settings, steady, dict(many))


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of drained nodes for each cause, and number of suppressed drains. A drain is suppressed if
    its cause holds on too many nodes."""

    drained: Mapping[DrainCause, int] = field(default_factory=dict)
    suppressed: int = 0
    oldest: Mapping[DrainCause, float] = field(default_factory=dict)
    """For each cause: the earliest time since which a Node is out of service, in UNIX seconds."""

    @classmethod
    def of(cls, nodes: Sequence[ObservedNode], at: DrainContext) -> Self:
        drained, oldest = Counter[DrainCause](), dict[DrainCause, float]()
        for each in nodes:
            cause = cause_of(drain_reason(each, at.drain_settings)) if each.drained_by_us else None
            if cause is None:
                continue
            drained[cause] += 1
            if each.shows_our_drain and (condition := each.node_status.condition):
                oldest[cause] = min(condition.since, oldest.get(cause, condition.since))
        left = (_reasons(each, at.drain_settings) for each in nodes if not each.out)
        suppressed = sum(len(at.ignored.keys() & set(map(cause_of, each))) for each in left)
        return cls(drained, suppressed, oldest)


def outstaying_pods(
    placeholders: Iterable[Placeholder], before: float
) -> dict[str, tuple[OutstayingPod, ...]]:
    """Returns the Pods whose jobs have ended, by Node. A Pod whose job ended before `before` is
    overdue."""
    found: defaultdict[str, list[OutstayingPod]] = defaultdict(list)
    for each in placeholders:
        overdue = max(each.since, each.job.since) <= before
        for member in each.members if each.job.over else ():
            if (node := member.node_in(each.state)) is not None:
                found[node].append(OutstayingPod(member.pod.full_name, overdue=overdue))
    return {node: tuple(there) for node, there in found.items()}


def drain_reason(observed: ObservedNode, drain_settings: DrainSettings) -> str:
    """Returns the reason for draining a node, or for keeping the drain; empty if no cause holds."""
    return next(_reasons(observed, drain_settings), "")


def _reasons(observed: ObservedNode, drain_settings: DrainSettings) -> Iterator[str]:
    """Yields the reasons in the order of `DrainCause`."""
    if drain_settings.drain:
        yield from _outstayed(observed)
    if observed.blocked and observed.drained_by_its_gate:  # the gate drains under any settings
        yield observed.slurm.reason
    if not drain_settings.drain:
        return
    if observed.node.unschedulable:
        yield reason_for(DrainCause.CORDONED)
    keys = (taint.key for taint in observed.node.taints if taint.key in drain_settings.keys)
    yield from (reason_for(DrainCause.TAINTED, key) for key in keys)
    yield from _conditions(observed, drain_settings)
    if not observed.node_status.ready:
        yield reason_for(DrainCause.NOT_READY)


def _outstayed(observed: ObservedNode) -> Iterator[str]:
    for outstaying in observed.outstaying_pods:
        reason = reason_for(DrainCause.OUTSTAYED, outstaying.pod)
        # For a new leader, no Pod is overdue yet, so a drain for the Pod stays.
        if outstaying.overdue or observed.slurm.reason.startswith(reason):
            yield reason


def _conditions(observed: ObservedNode, drain_settings: DrainSettings) -> Iterator[str]:
    for kind, message in observed.node_status.problems:
        if kind in drain_settings.conditions:
            words = f"{kind}: {' '.join(message.split())}"
            yield cut(reason_for(DrainCause.CONDITION, words), _LONGEST_REASON)


def order(observed: ObservedNode, at: DrainContext) -> str | None:
    """Returns the reason of a drain to make, TAKE_BACK to take a drain back, or None to change
    nothing."""
    wanted = drain_reason(observed, at.drain_settings)
    if not observed.slurm.states.isdisjoint(_LEFT_ALONE):
        return None
    if observed.drained_by_us:
        if not wanted:
            return None if observed.job_ends else TAKE_BACK
        # Keeps a text that Slurm has added to the reason.
        return None if observed.slurm.reason.startswith(wanted) else wanted
    if observed.out or observed.unsettled or not wanted or _overruled(observed, wanted, at):
        return None
    return None if cause_of(wanted) in at.ignored else wanted


def condition_of(observed: ObservedNode, at: DrainContext) -> NodeCondition | None:
    """Returns the Node's condition; None for a node that has never been out of service."""
    wanted = drain_reason(observed, at.drain_settings)
    reason = observed.slurm.reason or "no reason is given"
    if observed.drained_by_us and not wanted:
        # The extender writes this condition before the extender takes the drain back. So if the drain is
        # missing beside this condition, no person has taken the drain back.
        when = "taken back when no job is ending there" if observed.job_ends else "being taken back"
        return NodeCondition(True, NodeReason.RESUMING, f"its drain in Slurm is {when}")
    if observed.drained_by_us:
        return NodeCondition(True, NodeReason.DRAINED_FOR_KUBERNETES, _message("drained", reason))
    if observed.down:
        return NodeCondition(True, NodeReason.DOWN_IN_SLURM, _message("down", reason))
    if observed.out:
        return NodeCondition(True, NodeReason.DRAINED_IN_SLURM, _message("drained", reason))
    if wanted and _overruled(observed, wanted, at):
        message = f"resumed in Slurm in spite of: {wanted}"
        return NodeCondition(False, NodeReason.RESUMED_BY_HAND, message)
    if observed.node_status.condition is None:
        return None
    return NodeCondition(False, NodeReason.IN_SERVICE, "takes new jobs in Slurm")


def rejections_of(observed: ObservedNode) -> NodeCondition | None:
    """Returns the Node's condition about rejected Pods; None if the Node's kubelet has never
    rejected a Pod."""
    if observed.rejects:
        return NodeCondition(True, RejectionReason.KUBELET_REJECTS_PODS, cut(observed.rejects))
    if observed.node_status.rejections is None:
        return None
    return NodeCondition(False, RejectionReason.PODS_ADMITTED, "open to new placeholders")


def wants_taint(observed: ObservedNode, at: DrainContext) -> bool:
    """Returns True if the Node should have the extender's taint. If the extender itself has drained the
    node, the Node gets no taint."""
    if not at.drain_settings.taint or not observed.out or observed.drained_by_us:
        return False
    return TAINT in observed.node.taints or not (observed.down and _DOWN in at.ignored)


def taints_wrong(observed: ObservedNode, at: DrainContext) -> bool:
    """Returns True if the extender's taint is missing, or is on the Node without a reason."""
    if not wants_taint(observed, at):
        return TAINT in observed.node.taints
    return not any(_same_place(taint.key, taint.effect) for taint in observed.node.taints)


def with_taint(taints: Sequence[Manifest], *, wanted: bool) -> list[Manifest]:
    """Returns the taints of a Node, as manifests. If `wanted`, the extender's taint is included. Other
    taints stay."""
    kept = [taint for taint in taints if not _is_ours(taint)]
    if wanted and not any(_same_place(taint["key"], taint["effect"]) for taint in kept):
        kept.append({"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect})
    return kept


def _overruled(observed: ObservedNode, wanted: str, at: DrainContext) -> bool:
    """Returns True if a person has resumed a node that was drained for this reason. If a drain is
    missing a few seconds after the drain was made, or after an outage, Slurm has lost the drain."""
    condition = observed.node_status.condition
    if condition is None or wanted not in condition.message:
        return False
    lasted = at.steady and at.now - condition.since >= _FORGETS_S
    return condition.reason == NodeReason.RESUMED_BY_HAND or (observed.shows_our_drain and lasted)


def _message(state: str, reason: str) -> str:
    return cut(f"{state} in Slurm: {reason}")


def _is_ours(taint: Manifest) -> bool:
    return Taint(taint["key"], taint.get("value") or "", taint["effect"]) == TAINT


def _same_place(key: str, effect: str) -> bool:
    """Returns True for the key and effect of the extender's taint. A Node cannot have two taints with
    the same key and effect."""
    return (key, effect) == (TAINT.key, TAINT.effect)
