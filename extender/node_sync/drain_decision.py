"""When a node of Slurm is drained for its Node's sake, and what the Node is told of the node.

A cordon, a taint, a Node that is not ready or a Pod that outstays its job drains the node; its gate
(deploy/slurm) drains it too, where it refuses a job. When that is over, the drain is taken back. Which
drains are ours is told by their reason in Slurm alone, so that a crash forgets nothing; all others are
a person's, or Slurm's own, and are left alone. A drain and DOWN become a condition on the Node, and a
taint where that is wished; neither drains anything in turn.

Who resumes a node that we drained has the last word until the cause is another one, or gone: the
condition remembers it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from extender.cluster.node_conditions import NodeCondition, NodeStatus
from extender.placement.placeholder import Placeholder
from extender.request.node_constraints import Node, Taint
from extender.request.wording import cut
from slurm_client.model import Node as SlurmNode
from wellknown.names import OUT_OF_SERVICE, NodeReason

Manifest = Mapping[str, Any]

PREFIX = "slurm-extender: "
"""What the reason of every drain of ours begins with, and of no other."""
TAINT = Taint(OUT_OF_SERVICE, "slurm", "NoSchedule")
"""With this value it is ours; one of another value or effect is somebody else's."""

_OUTSTAYED = f"{PREFIX}Pod "
_PROLOG_REFUSED = f"{PREFIX}the gate refused job "
_CORDONED = f"{PREFIX}cordoned in Kubernetes"
_TAINTED = f"{PREFIX}tainted {{}} in Kubernetes".format
_NOT_READY = f"{PREFIX}not ready in Kubernetes"
_AWAY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""What Kubernetes taints a Node with that is not ready."""

_LEFT_ALONE = frozenset({"DOWN", "FUTURE", "UNKNOWN"})
_OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
_FORGETS_S = 10.0  # what a killed slurmctld may not have saved, and twice that
_HANDFUL = 5


class Why(StrEnum):
    """What a node may be drained for, the most pressing first."""

    OUTSTAYED = "outstayed"
    PROLOG_REFUSED = "prolog-refused"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    NOT_READY = "not-ready"


@dataclass(frozen=True, slots=True)
class DrainReason:
    why: Why
    reason: str
    """As Slurm is to tell it."""


@dataclass(frozen=True, slots=True)
class LingeringPod:
    """A Pod that is still there though its job has ended."""

    pod: str
    overdue: bool


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """What an administrator wants of all this; the condition is always written."""

    drain: bool = True
    keys: frozenset[str] = frozenset()
    """Of the taints that drain."""
    taint: bool = False


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """One node as both systems have it now."""

    node: Node
    node_status: NodeStatus
    slurm: SlurmNode
    lingering_pods: tuple[LingeringPod, ...] = ()
    unsettled: bool = False
    """Slurm has lost the job of a Pod that runs there, or seems to have: it must start it again."""
    blocked: bool = False
    """Where the gate drained it: the next job there would be refused as well."""

    @property
    def down(self) -> bool:
        return "DOWN" in self.slurm.states

    @property
    def out(self) -> bool:
        return not self.slurm.states.isdisjoint(_OUT)

    @property
    def job_ends(self) -> bool:
        """A job is COMPLETING there: it stays so while it has a process that cannot be killed, for which
        Slurm drains the node (`Kill task failed`). Where our drain came a moment later it hides that."""
        return "COMPLETING" in self.slurm.states

    @property
    def drained_by_us(self) -> bool:
        return self.out and not self.down and self.slurm.reason.startswith(PREFIX)

    @property
    def drained_by_its_gate(self) -> bool:
        return self.drained_by_us and self.slurm.reason.startswith(_PROLOG_REFUSED)

    @property
    def told_of_our_drain(self) -> bool:
        """A drain of ours that is missing from now on was taken back by a person."""
        told = self.node_status.condition
        return told is not None and told.reason == NodeReason.DRAINED_FOR_KUBERNETES


@dataclass(frozen=True, slots=True)
class DrainContext:
    """What a decision takes into account besides the node itself.

    What is seen on too many nodes at once is more likely wrong than so: nothing is done for it that was
    not done before (invariant I5)."""

    now: float
    """UNIX seconds."""
    drain_settings: DrainSettings = DrainSettings()
    steady: bool = True
    """Slurm has answered without a break. If not, a drain that is missing may be lost."""
    many_not_ready: bool = False
    many_down: bool = False

    @classmethod
    def of(
        cls,
        cases: Sequence[ObservedNode],
        now: float,
        drain_settings: DrainSettings,
        *,
        steady: bool = True,
    ) -> DrainContext:
        """Returns them for a cluster of these nodes."""
        not_ready = sum(not case.node_status.ready for case in cases)
        down = sum(case.down for case in cases)
        total = len(cases)
        return cls(now, drain_settings, steady, _too_many(not_ready, total), _too_many(down, total))


@dataclass(frozen=True, slots=True)
class Tally:
    """How many nodes are drained for each cause, and how many are not, for being too many."""

    drained: Mapping[Why, int] = field(default_factory=dict)
    suppressed: int = 0

    @classmethod
    def of(cls, cases: Sequence[ObservedNode], at: DrainContext) -> Tally:
        """Returns it for a cluster of these nodes."""
        causes = (drain_reason(case, at.drain_settings) for case in cases if case.drained_by_us)
        unready = sum(not case.node_status.ready for case in cases if not case.out)
        drained = Counter(cause.why for cause in causes if cause is not None)
        return cls(drained, unready if at.many_not_ready and at.drain_settings.drain else 0)


@dataclass(frozen=True, slots=True)
class Drain:
    reason: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """Take back a drain of ours."""


Order = Drain | Undrain


def alarm(cases: Sequence[ObservedNode], at: DrainContext) -> str | None:
    """Returns what is not acted upon for being seen on too many nodes at once."""
    words = []
    if at.many_not_ready and at.drain_settings.drain:
        unready = sum(not case.node_status.ready for case in cases)
        words.append(f"{unready} of {len(cases)} Nodes are not ready: no more of them are drained")
    if at.many_down and at.drain_settings.taint:
        down = sum(case.down for case in cases)
        words.append(f"{down} of {len(cases)} nodes are down in Slurm: no more of them are tainted")
    return "; ".join(words) or None


def lingering_pods(
    placeholders: Iterable[Placeholder], before: float
) -> dict[str, tuple[LingeringPod, ...]]:
    """Returns by Node the Pods whose jobs have ended; those whose did before a moment are overdue."""
    found: defaultdict[str, list[LingeringPod]] = defaultdict(list)
    for each in placeholders:
        if each.holds is not None and each.job_over:
            pod = f"{each.pod.namespace}/{each.pod.name}"
            found[each.holds].append(
                LingeringPod(pod, overdue=max(each.since, each.over_since) <= before)
            )
    return {node: tuple(there) for node, there in found.items()}


def drain_reason(case: ObservedNode, drain_settings: DrainSettings) -> DrainReason | None:
    """Returns why a node is to be drained, or to stay so; None where nothing speaks for it."""
    in_the_way = _outstayed(case) if drain_settings.drain else None
    if in_the_way is not None:
        return in_the_way
    if case.blocked and case.drained_by_its_gate:  # it is the gate that drains, whatever is wished
        return DrainReason(Why.PROLOG_REFUSED, case.slurm.reason)
    if not drain_settings.drain:
        return None
    if case.node.unschedulable:
        return DrainReason(Why.CORDONED, _CORDONED)
    for taint in case.node.taints:
        if taint.key in drain_settings.keys:
            return DrainReason(Why.TAINTED, _TAINTED(taint.key))
    if not case.node_status.ready:
        return DrainReason(Why.NOT_READY, _NOT_READY)
    return None


def _outstayed(case: ObservedNode) -> DrainReason | None:
    for stay in case.lingering_pods:
        reason = f"{_OUTSTAYED}{stay.pod} is still there though its job has ended"
        # For a leader that has just begun no Pod is overdue.
        if stay.overdue or case.slurm.reason.startswith(reason):
            return DrainReason(Why.OUTSTAYED, reason)
    return None


def reason_still_holds(reason: str, node: Node) -> bool:
    """Tells whether a Node by itself shows what a drain of ours says of it. Of Pods it knows nothing:
    one that is said to outstay its job, or to be in another's way, is taken to do so."""
    keys = {taint.key for taint in node.taints}
    return (
        reason.startswith((_OUTSTAYED, _PROLOG_REFUSED))
        or (reason.startswith(_CORDONED) and node.unschedulable)
        or (reason.startswith(_NOT_READY) and not keys.isdisjoint(_AWAY))
        or any(reason.startswith(_TAINTED(key)) for key in keys)
    )


def order(case: ObservedNode, at: DrainContext) -> Order | None:
    """Returns what is to be done in Slurm, None where the node is to be left as it is."""
    cause = drain_reason(case, at.drain_settings)
    if not case.slurm.states.isdisjoint(_LEFT_ALONE):
        return None
    if case.drained_by_us:
        if cause is None:
            return None if case.job_ends else Undrain()
        # What Slurm has added to the reason since is left to be read.
        return None if case.slurm.reason.startswith(cause.reason) else Drain(cause.reason)
    if case.out or case.unsettled or cause is None or _overruled(case, cause, at):
        return None
    if cause.why is Why.NOT_READY and at.many_not_ready:
        return None
    return Drain(cause.reason)


def condition_of(case: ObservedNode, at: DrainContext) -> NodeCondition | None:
    """Returns what the Node's condition is to say; None where there is nothing to be told of a node that
    has never been out of service."""
    cause, reason = drain_reason(case, at.drain_settings), case.slurm.reason or "no reason is given"
    if case.drained_by_us and cause is None:
        # Written before the drain is taken back: from then on a missing drain is nobody's word.
        when = "taken back when no job is ending there" if case.job_ends else "being taken back"
        return NodeCondition(True, NodeReason.RESUMING, f"its drain in Slurm is {when}")
    if case.drained_by_us:
        return NodeCondition(True, NodeReason.DRAINED_FOR_KUBERNETES, _told("drained", reason))
    if case.out:
        known, state = NodeReason.DRAINED_IN_SLURM, "drained"
        if case.down:
            known, state = NodeReason.DOWN_IN_SLURM, "down"
        return NodeCondition(True, known, _told(state, reason))
    if cause is not None and _overruled(case, cause, at):
        return NodeCondition(
            False, NodeReason.RESUMED_BY_HAND, f"resumed in Slurm in spite of: {cause.reason}"
        )
    if case.node_status.condition is None:
        return None
    return NodeCondition(False, NodeReason.IN_SERVICE, "takes new jobs in Slurm")


def wants_taint(case: ObservedNode, at: DrainContext) -> bool:
    """Tells whether our taint belongs on the Node. A drain of ours is no reason: what it is for keeps
    Pods away already, or is not to."""
    if not at.drain_settings.taint or not case.out or case.drained_by_us:
        return False
    return TAINT in case.node.taints or not (case.down and at.many_down)


def taints_wrong(case: ObservedNode, at: DrainContext) -> bool:
    """Tells whether our taint is to be put on the Node, or taken off it."""
    if not wants_taint(case, at):
        return TAINT in case.node.taints
    return not any(_same_place(taint.key, taint.effect) for taint in case.node.taints)


def with_taint(taints: Sequence[Manifest], *, wanted: bool) -> list[Manifest]:
    """Returns a Node's taints, as manifests, with or without ours; all others stay as they are."""
    kept = [taint for taint in taints if not _is_ours(taint)]
    if wanted and not any(_same_place(taint["key"], taint["effect"]) for taint in kept):
        kept.append({"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect})
    return kept


def _overruled(case: ObservedNode, cause: DrainReason, at: DrainContext) -> bool:
    """Tells whether a person has resumed a node that was drained for this very cause. A drain that is
    missing soon after it was made, or after an outage, is one that Slurm has lost."""
    told = case.node_status.condition
    if told is None or cause.reason not in told.message:
        return False
    lasted = at.steady and at.now - told.since >= _FORGETS_S
    return told.reason == NodeReason.RESUMED_BY_HAND or (case.told_of_our_drain and lasted)


def _too_many(count: int, total: int) -> bool:
    return count > _HANDFUL and count * 3 > total


def _told(state: str, reason: str) -> str:
    return cut(f"{state} in Slurm: {reason}")


def _is_ours(taint: Manifest) -> bool:
    return Taint(taint["key"], taint.get("value") or "", taint["effect"]) == TAINT


def _same_place(key: str, effect: str) -> bool:
    """A Node has one taint of a key and an effect."""
    return (key, effect) == (TAINT.key, TAINT.effect)
