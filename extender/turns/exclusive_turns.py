"""The order of submissions for Pods that close Nodes to other Pods of the same template, for example by
anti-affinity or by host ports.

If the extender requested the jobs of two such Pods at once, Slurm might grant the same Node to both
Pods. Therefore the Pods of a template take turns, and the extender requests one job at a time. A turn
ends after the grant, or after the job has waited in Slurm's queue for `_TURN_S`. If Slurm has no room
for a job of the template, each further turn ends as soon as the job is queued. In this way all jobs gain
age in Slurm's queue.

Pods of different templates do not wait for each other. If two of their grants conflict, the ledger gives
the later grant back.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import inf

from extender.explain.cause import Cause, Kind
from extender.pod_request.constraints.pod_constraints import PodConstraints
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.equivalence import Owner, Turn, demand_of, turn_of
from extender.turns.ranking import Ranking

_TURN_S = 5.0
"""Time in Slurm's queue after which a Pod's turn ends. Slurm starts jobs on idle nodes earlier."""
_NO_ROOM = frozenset({"Resources", "Priority"})
"""Slurm's pending reasons for jobs that wait for nodes, and not for a person or a limit."""


def turn_ends(record: Placeholder) -> float:
    """Returns the time at which the turn of a Pod with a queued job ends; infinity for other Pods."""
    queued = record.state is State.QUEUED and record.workload.size == 1 and record.members
    return record.since + _TURN_S if queued and record.lead.scheduling.constraints.exclusive else inf


def template_of(record: Placeholder, queue: str) -> Hashable | None:
    """Returns a key that is equal for all Pods of a template. Returns None for a group, and for a Pod
    without rules against other Pods, because such Pods need no order."""
    if (
        record.workload.size > 1
        or not record.members
        or not record.lead.scheduling.constraints.exclusive
    ):
        return None
    job, lead = record.request.job, record.lead
    owner = Owner.of(record.workload.namespace, job)
    demand = demand_of(job), record.request.constraints.signature
    return lead.scheduling.constraints.rules, queue, owner, demand, lead.priority, job.priority


@dataclass(slots=True)
class _Template:
    """The Pods of a template: Pods that wait for their turns, Pods with the turn, and Pods after their
    turns."""

    waiting: Ranking[str, Turn] = field(default_factory=Ranking)
    submitting: dict[str, Cause] = field(default_factory=dict)
    """Pods whose jobs are being submitted. The value is the reason that the extender reports on the
    waiting Pods."""
    queued: dict[str, Cause] = field(default_factory=dict)
    """Pods with a job in Slurm's queue, while their turns last. The value is the same reason."""
    without_room: set[str] = field(default_factory=set)
    """Pods after their turns whose jobs wait in Slurm's queue, because Slurm has no room."""

    @property
    def asking(self) -> dict[str, Cause]:
        """Returns the Pods that have the turn."""
        return self.submitting if self.without_room else self.submitting | self.queued

    @property
    def head(self) -> str | None:
        """Returns the Pod whose job is requested next; None while another Pod has the turn."""
        first = None if self.asking else self.waiting.first()
        return first and first[1]

    def put(self, record: Placeholder, now: float, *, waits: bool, asks: bool) -> None:
        """Notes the new state of a Pod. `waits` is True if the Pod waits for its turn. `asks` is True if
        the extender has requested the Pod's job."""
        uid, cause = record.uid, record.cause
        self.drop(uid)
        if waits:
            self.waiting.put(uid, turn_of(record.lead))
        elif asks and record.state is State.SUBMITTING:
            self.submitting[uid] = _asked_for(record)
        elif asks and now < turn_ends(record):
            self.queued[uid] = _asked_for(record)
        elif asks and cause is not None and cause.reason in _NO_ROOM:
            self.without_room.add(uid)

    def drop(self, uid: str) -> None:
        """Removes a Pod."""
        self.waiting.drop(uid)
        self.submitting.pop(uid, None)
        self.queued.pop(uid, None)
        self.without_room.discard(uid)

    @property
    def is_empty(self) -> bool:
        """Returns True if no Pod is left that matters to other Pods."""
        return not (self.waiting or self.submitting or self.queued or self.without_room)


def _asked_for(record: Placeholder) -> Cause:
    pod, job = record.workload.full_name, record.job.id
    return Cause.of(Kind.ONE_AT_A_TIME, turn_s=_TURN_S, pod=pod, job=job)


class ExclusiveTurns:
    """Gives the Pods of each template their turns."""

    def __init__(self) -> None:
        self._templates: dict[Hashable, _Template] = {}
        self._of: dict[str, Hashable] = {}
        self._heeding: dict[str, PodConstraints] = {}
        """Constraints of Pods whose allowed Nodes depend on other Pods: Pods whose jobs are being
        submitted or wait in Slurm's queue, and Pods without an open Node."""

    def follow(self, record: Placeholder, queue: str, now: float, *, ready: bool) -> tuple[str, ...]:
        """Notes the new state of a Pod. `ready` is False if the Pod waits for another reason, such as a
        backoff. Returns the Pods whose turn has begun or ended."""
        uid = record.uid
        self._heeding.pop(uid, None)
        waits = record.state is State.SEEN and ready
        asks = record.state in (State.SUBMITTING, State.QUEUED) and not record.in_line
        if not (waits or asks) and uid not in self._of:
            return ()
        key = template_of(record, queue) if waits or asks else None
        moved = () if self._of.get(uid, key) == key else self.forget(uid)
        if key is None:
            return moved
        self._of[uid] = key
        template = self._templates.setdefault(key, _Template())
        before = template.head
        template.put(record, now, waits=waits, asks=asks)
        if asks:
            self._heeding[uid] = record.lead.scheduling.constraints
        return (*moved, *_moved(before, template.head))

    def forget(self, uid: str) -> tuple[str, ...]:
        """Removes a Pod. Returns the Pods whose turn has begun."""
        self._heeding.pop(uid, None)
        key = self._of.pop(uid, None)
        if key is None:
            return ()
        template = self._templates.setdefault(key, _Template())
        before = template.head
        template.drop(uid)
        if template.is_empty:
            del self._templates[key]
        return tuple(each for each in _moved(before, template.head) if each != uid)

    def waits(self, uid: str) -> bool:
        """Returns True if another Pod of the template goes first."""
        template = self._templates.get(self._of.get(uid))
        return template is not None and uid in template.waiting and template.head != uid

    def why(self, uid: str) -> Cause | None:
        """Returns the reason for which a Pod waits for other Pods of the template."""
        if not self.waits(uid):
            return None
        asking = self._templates[self._of[uid]].asking.values()
        return next(iter(asking), Cause.of(Kind.ONE_AT_A_TIME, turn_s=_TURN_S, pod="", job=None))

    def block(self, record: Placeholder) -> None:
        """Notes a Pod for which other Pods close all Nodes. `affected` then also checks this Pod."""
        self._heeding[record.uid] = record.lead.scheduling.constraints

    def affected(self, moved: Iterable[PodConstraints]) -> tuple[str, ...]:
        """Returns the Pods to review after a change of other Pods. `moved` has the constraints of the
        changed Pods."""
        others = tuple(moved)
        heeding = self._heeding.items() if others else ()
        return tuple(uid for uid, pod in heeding if any(pod.heeds(each) for each in others))

    @property
    def heeding(self) -> tuple[str, ...]:
        """Returns the Pods to review after a change of Nodes."""
        return tuple(self._heeding)


def _moved(before: str | None, after: str | None) -> tuple[str, ...]:
    return () if before == after else tuple(each for each in (after, before) if each is not None)
