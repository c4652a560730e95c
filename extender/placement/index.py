"""The records of all placeholders, by uid, by state, and by Node. `LedgerReader` has the queries."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, KeysView

from extender.jobs.overlap import common, units_on
from extender.placement.transitions.on_pod import may_begin_again
from extender.pod_request.pod import Pod
from extender.record.member import Member
from extender.record.members import changed_members
from extender.record.placeholder import NO_NODES, Placeholder
from extender.record.states import WATCHED, State
from wellknown.allocation import Allocation


class Records:
    """The records by uid. A new version of a record replaces the last version."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Placeholder] = {}
        self._in: dict[State, dict[str, None]] = {state: {} for state in State}
        """State -> the uids of the records in this state, in the order of their arrival in the state."""
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        """Node -> the uids of records with Pods on the Node, or with Pods to be bound there."""
        self._held: dict[str, frozenset[str]] = {}
        """Uid -> the Nodes held by the record, if any."""
        self._granted: dict[str, frozenset[tuple[str, str]]] = {}
        """Uid -> pairs: a Slurm node that granted a slot to the record, and the held Node."""
        self._granted_by: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Slurm node -> pairs: the uid of a record with a slot granted by this node, and the held
        Node."""
        self.kept_out: dict[str, Pod] = {}
        """Uid -> a Pod that the Pod's group cannot take now. The ledger offers the Pod to the group
        again later."""
        self._of_member: dict[str, str] = {}
        """Uid of a group's Pod -> the uid of the group."""
        self._lingering: set[str] = set()
        """Uids of records with containers that may outlive their Pods."""
        self._by_job: dict[int, set[str]] = {}
        """Job id -> the uids of the records with this job: the workload's record, and perhaps a
        tombstone."""

    def __iter__(self) -> Iterator[Placeholder]:
        return iter(self._by_uid.values())

    def __getitem__(self, uid: str) -> Placeholder:
        return self._by_uid[uid]

    def get(self, uid: str) -> Placeholder | None:
        """Returns a record; None if there is no such record."""
        return self._by_uid.get(uid)

    def of_pod(self, uid: str) -> Placeholder | None:
        """Returns the record of a Pod's workload; None if there is no such record."""
        return self._by_uid.get(self._of_member.get(uid, uid))

    def of(self, *states: State) -> list[Placeholder]:
        """Returns the records in some states: state after state, and in the order of arrival within a
        state."""
        return [self._by_uid[uid] for state in states for uid in self._in[state]]

    def holding(self, node: str) -> tuple[Placeholder, ...]:
        """Returns the records that hold a Node (`Placeholder.holds`)."""
        return tuple(self._by_uid[uid] for uid in self._on.get(node, ()))

    def nodes_granted_by(self, slurm_node: str) -> frozenset[str]:
        """Returns the held Nodes for which a Slurm node granted slots."""
        return frozenset(node for _, node in self._granted_by.get(slurm_node, ()))

    def others_on(self, slot: Allocation, uid: str) -> Iterator[Placeholder]:
        """Yields the other records that use cores or devices of a slot, by their Pods or by containers
        of deleted Pods. `uid` is the uid of the slot's own record."""
        for each in self.holding(slot.node):
            if each.uid == uid:
                continue
            if any(units_on(pod, slot) for pod in each.pods) or any(
                common(left.slot, slot) for left in each.lingering
            ):
                yield each

    @property
    def anything_lingers(self) -> bool:
        """Returns True if the containers of any record may outlive their Pods."""
        return bool(self._lingering)

    @property
    def all_lingering(self) -> tuple[Placeholder, ...]:
        """Returns the records with containers that may outlive their Pods."""
        return tuple(self._by_uid[uid] for uid in self._lingering)

    def lingering(self, node: str) -> tuple[Placeholder, ...]:
        """Returns the records that hold a Node, and have lingering containers: the containers may
        outlive their Pods."""
        return tuple(each for each in self.holding(node) if each.lingering)

    @property
    def jobs(self) -> KeysView[int]:
        """Returns a live view of the ids of the records' jobs."""
        return self._by_job.keys()

    def with_jobs(self, job_ids: Iterable[int]) -> list[Placeholder]:
        """Returns the records of some jobs."""
        return [self._by_uid[uid] for each in job_ids for uid in self._by_job.get(each, ())]

    def next_for(self, record: Placeholder, now: float) -> Pod | None:
        """Returns a waiting Pod of this group, if the group can take the Pod now; None if no such Pod
        waits."""
        pods, over = self.kept_out.values(), may_begin_again(record, now)
        own = (pod for pod in pods if pod.workload.uid == record.uid and (over or record.takes(pod)))
        return next(own, None)

    def put(self, record: Placeholder) -> None:
        """Stores a record."""
        uid = record.uid
        before = self._by_uid.get(uid)
        self._by_uid[uid] = record
        if before is None or before.job.id != record.job.id:
            self._leave_job(uid, before and before.job.id)
            if record.job.id is not None:
                self._by_job.setdefault(record.job.id, set()).add(uid)
        changed = changed_members(before.members if before else (), record.members)
        if changed is None and record.workload.size > 1:
            for each in before.members if before else ():
                self._of_member.pop(each.pod.uid, None)
            self._of_member |= {each.pod.uid: uid for each in record.members}
        (self._lingering.add if record.lingering else self._lingering.discard)(uid)
        if before is None or before.state is not record.state:
            if before is not None:
                del self._in[before.state][uid]
            self._in[record.state][uid] = None
        if before is None or changed is None or _may_hold_others(before, record, changed):
            self._move(uid, record.holds, lambda: record.grants)

    def drop(self, uid: str) -> None:
        """Forgets a record, if known."""
        before = self._by_uid.pop(uid, None)
        self._lingering.discard(uid)
        if before is not None:
            self._leave_job(uid, before.job.id)
            for each in before.members:
                self._of_member.pop(each.pod.uid, None)
            del self._in[before.state][uid]
            self._move(uid, NO_NODES, frozenset)

    def _leave_job(self, uid: str, job_id: int | None) -> None:
        if job_id is not None:
            self._by_job[job_id].discard(uid)
            if not self._by_job[job_id]:
                del self._by_job[job_id]

    def _move(
        self, uid: str, now: frozenset[str], grants: Callable[[], frozenset[tuple[str, str]]]
    ) -> None:
        """Notes the held Nodes of a record, and the record's grants if the Nodes have changed."""
        was = self._held.pop(uid, NO_NODES)
        if now:
            self._held[uid] = now
        if was == now:
            return
        for node in was - now:
            self._on[node].discard(uid)
            if not self._on[node]:
                del self._on[node]
        for node in now - was:
            self._on[node].add(uid)
        self._move_grants(uid, grants())

    def _move_grants(self, uid: str, now: frozenset[tuple[str, str]]) -> None:
        for slurm_node, node in self._granted.pop(uid, ()):
            self._granted_by[slurm_node].discard((uid, node))
            if not self._granted_by[slurm_node]:
                del self._granted_by[slurm_node]
        if now:
            self._granted[uid] = now
        for slurm_node, node in now:
            self._granted_by[slurm_node].add((uid, node))


def _may_hold_others(
    before: Placeholder, record: Placeholder, changed: Iterable[tuple[Member, Member]]
) -> bool:
    """Returns False if two versions of a record certainly hold the same Nodes."""
    state = record.state
    if before.state is not state or before.lingering != record.lingering:
        return True
    # In REPLACING, a write onto one Pod may change the held Nodes of all Pods (`kept_unbound`).
    return state is State.REPLACING or any(a.node_in(state) != b.node_in(state) for a, b in changed)


class LedgerReader:
    """Read access to the records of all placeholders."""

    def __init__(self) -> None:
        self._records = Records()

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        """Yields every record, tombstones included."""
        return iter(self._records)

    def record_of(self, uid: str) -> Placeholder | None:
        """Returns the record under a Pod's uid or under one of the ledger's own keys."""
        return self._records.of_pod(uid)

    def allocated(self, uid: str) -> tuple[Placeholder, Member] | None:
        """Returns the record and the member of a Pod with an allocation, but without a Binding; None for
        other Pods."""
        record = self._records.of_pod(uid)
        member = None if record is None else record.member(uid)
        if record is None or member is None or record.state is not State.ALLOCATED:
            return None
        carried = member.slot is not None and member.pod.scheduling.allocation == member.slot
        return (record, member) if carried and member.pod.life.node is None else None

    def holding(self, node: str) -> tuple[Placeholder, ...]:
        """Returns the records with Pods on a Node, or with Pods to be bound there."""
        return self._records.holding(node)

    def nodes_granted_by(self, slurm_node: str) -> frozenset[str]:
        """Returns the held Nodes for which a Slurm node granted slots. The current labels of the Nodes
        do not matter."""
        return self._records.nodes_granted_by(slurm_node)

    @property
    def job_ids(self) -> KeysView[int]:
        """Returns a live view of the ids of the records' jobs."""
        return self._records.jobs

    def has_job(self, job_id: int) -> bool:
        """Returns True if the ledger knows that a job is a placeholder, even if the job has lost its
        key."""
        return any(record.job.is_ours for record in self._records.with_jobs((job_id,)))

    @property
    def evicting(self) -> Iterator[Placeholder]:
        """Yields the records whose jobs ended before the Pods ended."""
        return iter(self._records.of(State.EVICTING))

    def watched_jobs(self) -> frozenset[int]:
        """Returns the ids of the jobs to watch."""
        return frozenset(
            p.job.id for p in self._records.of(*WATCHED) if p.job.id is not None and p.watched
        )

    def watched_of(self, job_ids: Iterable[int]) -> frozenset[int]:
        """Returns the jobs to watch among the given jobs."""
        records = self._records.with_jobs(job_ids)
        return frozenset(each.job.known_id for each in records if each.watched)

    def waits(self) -> bool:
        """Returns True if a job waits in Slurm's queue, so that a change in Slurm may change a Pod's
        state at once."""
        return bool(self._records.of(State.QUEUED))
