"""The order of submissions for Pods that close Nodes to other Pods of the same template.

If the extender asked Slurm for two such Pods at once, Slurm might grant the same Node to both. The
extender therefore asks for a single Pod of each template at a time. Pods of different templates do not
wait for each other: if two grants conflict, the ledger gives the later grant back.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from extender.placement.line import Owner, Turn, demand_of, turn_of
from extender.placement.ranking import Ranking
from extender.record.condition_reason import ConditionReason
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.request.pod_constraints import PodConstraints
from wellknown.names import Reason

ONE_AT_A_TIME = ConditionReason(
    Reason.WAITING_FOR_SUBMIT_SLOT,
    "waits in line: Pods of this template must be placed apart, so Slurm is asked for one Pod at a time",
    normal=True,
)


def template_of(record: Placeholder, queue: str) -> Hashable | None:
    """Returns a key, equal for all Pods of a template. Returns None for a group, and for a Pod without
    rules against other Pods: such Pods need no order."""
    if record.workload.size > 1 or not record.members or not record.lead.constraints.exclusive:
        return None
    job, lead = record.request.job, record.lead
    owner = Owner.of(record.workload.namespace, job)
    demand = demand_of(job), record.request.constraints.signature
    return lead.constraints.rules, queue, owner, demand, lead.priority, job.priority


@dataclass(slots=True)
class _Template:
    """The waiting Pods of a template, and the Pods with a job in submission or in Slurm's queue."""

    waiting: Ranking[str, Turn] = field(default_factory=Ranking)
    asking: set[str] = field(default_factory=set)

    @property
    def head(self) -> str | None:
        """Returns the next Pod to ask Slurm for; None while the extender asks for another Pod."""
        first = None if self.asking else self.waiting.first()
        return first and first[1]


class ExclusiveTurns:
    """Gives the Pods of each template their turns."""

    def __init__(self) -> None:
        self._templates: dict[Hashable, _Template] = {}
        self._of: dict[str, Hashable] = {}
        self._heeding: dict[str, PodConstraints] = {}
        """Constraints of Pods whose allowed Nodes depend on other Pods: Pods in Slurm's queue, and Pods
        without an open Node."""

    def follow(self, record: Placeholder, queue: str, *, ready: bool) -> tuple[str, ...]:
        """Follows the state of a Pod. `ready` is False if the Pod waits for another reason, such as a
        backoff. Returns the Pods whose turn has come or gone."""
        uid = record.uid
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
        template.waiting.put(uid, turn_of(record.lead) if waits else None)
        (template.asking.add if asks else template.asking.discard)(uid)
        self._heed(record, heeds=asks)
        return (*moved, *_moved(before, template.head))

    def forget(self, uid: str) -> tuple[str, ...]:
        """Removes a Pod. Returns the Pods whose turn has come."""
        self._heeding.pop(uid, None)
        key = self._of.pop(uid, None)
        if key is None:
            return ()
        template = self._templates[key]
        before = template.head
        template.waiting.drop(uid)
        template.asking.discard(uid)
        if not (template.asking or template.waiting):
            del self._templates[key]
        return tuple(each for each in _moved(before, template.head) if each != uid)

    def waits(self, uid: str) -> bool:
        """Returns True if another Pod of the template goes first."""
        key = self._of.get(uid)
        if key is None:
            return False
        template = self._templates[key]
        return uid in template.waiting and template.head != uid

    def block(self, record: Placeholder) -> None:
        """Records that other Pods close all Nodes to a Pod. `affected` then also returns the Pod."""
        self._heed(record, heeds=True)

    def _heed(self, record: Placeholder, *, heeds: bool) -> None:
        if heeds:
            self._heeding[record.uid] = record.lead.constraints
        else:
            self._heeding.pop(record.uid, None)

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
