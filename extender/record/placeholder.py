"""The record of a placeholder: the state of one workload's job and Pods. A placeholder is the Slurm job
that holds resources for a workload. A workload is a Pod, or a group of Pods.

A record never changes: each change creates a new version. The record combines four state machines, and
each is a tuple:

- `state`: the progress of the placement, by the table in `states`;
- `job`: the extender's knowledge of the job in Slurm, by the table in `phase` (`TrackedJob`);
- `members`: the Pods, their slots, and the writes to the Pods (`Member`);
- `retry`: the time of the next effect (`Retry`).

`rejections` has the Nodes that kube-scheduler rejected, and the requests that Slurm rejected. A record
without members stands for a job that no Pod needs.
"""

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Self

from extender.explain.cause import Cause, Kind
from extender.jobs.phase import Phase
from extender.jobs.tracked_job import NOBODY_ASKED, Asked, TrackedJob
from extender.pod_request.constraints.node_constraints import ANYWHERE
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Pod
from extender.pod_request.workload import Workload
from extender.record.config import PlacementConfig
from extender.record.member import Member
from extender.record.members import Members, is_bound, is_in_flight, is_unlisted, is_written
from extender.record.rejections import NO_OFFER, Rejections
from extender.record.retry import Retry, Waits
from extender.record.states import HOLDING, MOVES, OPEN, OVER, WATCHED, State, phase_in
from slurm_client.model import JobSpec
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey, generation_of

REPEATEDLY = 5  # failures within some three seconds; a single failure may be a coincidence
NO_NODES: frozenset[str] = frozenset()
_UNKNOWN = Request(JobSpec("", 0, 0), ANYWHERE)


class IllegalMove(RuntimeError):
    """Raised for a move that the table of states does not contain. This is a defect of the extender."""


class LingeringContainers(NamedTuple):
    """Containers that may still run although their Pod is gone, because the Pod was deleted by force."""

    slot: Allocation
    """The Node, cores and devices of the containers."""
    until: float
    """Time by which the containers have ended, by the ledger's clock."""


class Placeholder(NamedTuple):
    """The placeholder of one workload. Times are the ledger's clock, in seconds.

    During a Pod's life, the record is copied some twenty times. Records are tuples because the copy of a
    frozen dataclass takes eight times as long.
    """

    uid: str
    """The ledger's own key for the record: the uid of the workload. For a job without Pods, the key also
    contains the job's id (`orphan_uid`)."""
    workload: Workload
    request: Request = _UNKNOWN
    """Request to Slurm for the whole workload."""
    members: Members = Members()
    state: State = State.SEEN
    since: float = 0.0
    """Time of the last change of the state."""
    first_seen: float = 0.0
    """Time at which the first Pod was first seen."""
    cause: Cause | None = None
    """Why the Pod is rejected, evicted or placed again, or why a bound Pod runs without a job.
    Otherwise, why the Pod waits."""
    lingering: tuple[LingeringContainers, ...] = ()
    """Containers of deleted Pods that may still run. Until these containers have ended, the extender
    does not end the job. If the job is over already, the extender still keeps other Pods from the
    Nodes."""
    job: TrackedJob = TrackedJob()
    retry: Retry = Retry()
    rejections: Rejections = Rejections()

    @classmethod
    def of(cls, pod: Pod, now: float = 0.0) -> Self:
        """Returns the first record of a workload. `pod` is the first Pod of the workload that the
        extender saw."""
        workload, members = pod.workload, Members([Member(pod)])
        request, job = (
            workload.request([pod.request]),
            TrackedJob(asked=Asked(attempt=pod.scheduling.attempt)),
        )
        return cls(workload.uid, workload, request, members, since=now, first_seen=now, job=job)

    @classmethod
    def of_orphan(cls, workload: Workload, job_id: int, now: float) -> Self:
        """Returns the record of a job without a Pod. The extender then ends this job."""
        job = TrackedJob(job_id, Phase.ENDING, now)
        return cls(orphan_uid(workload, job_id), workload, state=State.RELEASING, since=now, job=job)

    # The next version

    def with_job(self, **changes: Any) -> Self:
        """Returns the record with changed fields of `job`."""
        return self._replace(job=self.job._replace(**changes))

    def with_phase(self, phase: Phase, now: float) -> Self:
        """Returns the record with the job in another phase. Raises IllegalPhase."""
        return self._replace(job=self.job.to(phase, now))

    def with_asked(self, **changes: Any) -> Self:
        """Returns the record with changed fields of `job.asked`, the submission."""
        return self.with_job(asked=self.job.asked._replace(**changes))

    def with_mistrust(self, **changes: Any) -> Self:
        """Returns the record with changed fields of `job.mistrust`, the counts of unexpected events."""
        return self.with_job(mistrust=self.job.mistrust._replace(**changes))

    def with_member(self, of: Pod, /, **changes: Any) -> Self:
        """Returns the record with changed fields of one member. `of` is any version of the member's
        Pod."""
        return self._replace(members=self.members.with_one(of.uid, **changes))

    def with_writes(self, of: Iterable[Pod], /, **changes: Any) -> Self:
        """Returns the record with changed fields of the writes (`Member.write`) for these Pods."""
        found = (member for pod in of if (member := self.member(pod.uid)) is not None)
        changed = [each._replace(write=each.write._replace(**changes)) for each in found]
        return self._replace(members=self.members.with_versions(changed))

    def with_members(self, **changes: Any) -> Self:
        """Returns the record with changed fields of all members."""
        return self._replace(members=self.members.with_all(**changes))

    def with_retry(self, **changes: Any) -> Self:
        """Returns the record with changed fields of `retry`. If `not_before` changes, the next effect
        waits only for this time, and no longer for a turn or for the eviction limiter."""
        if "not_before" in changes:
            changes["waits"] = Waits.FOR_TIME
        return self._replace(retry=self.retry._replace(**changes))

    def with_rejections(self, **changes: Any) -> Self:
        """Returns the record with changed fields of `rejections`."""
        return self._replace(rejections=self.rejections._replace(**changes))

    def with_comment(self, comment: str) -> Self:
        """Returns the record with the user's comment for the job."""
        job = replace(self.request.job, comment=comment or None)
        return self._replace(request=replace(self.request, job=job))

    def current_rejections(self, now: float) -> Self:
        """Returns the record without expired rejections."""
        nodes, offered = self.rejections.nodes, self.rejections.offered
        if not nodes and not offered[1]:
            return self
        nodes = tuple(each for each in nodes if each[1] > now)
        return self.with_rejections(nodes=nodes, offered=offered if offered[1] > now else NO_OFFER)

    def move(self, state: State, now: float, *, cause: Cause | None = None) -> Self:
        """Returns the record in another state, without the data of the old state.

        Raises IllegalMove if the table has no such move.
        """
        if state not in MOVES[self.state]:
            raise IllegalMove(f"{self.workload.full_name}: {self.state} -> {state}")
        job, rejections, members = self.job, self.rejections, self.members
        job = job.to(phase_in(state, job.phase), now)
        if job.mistrust.misses:
            job = job._replace(mistrust=job.mistrust._replace(misses=0))
        if rejections.waiting_for_departures or rejections.rejection_counts:
            rejections = rejections._replace(waiting_for_departures=False, rejection_counts=False)
        return self._replace(
            state=state,
            since=now,
            cause=cause,
            job=job,
            retry=Retry(self.retry.in_flight, asked_why=self.retry.asked_why),
            rejections=rejections,
            members=Members([each.before_writes() for each in members]),
        )

    def replaced(self, now: float, cause: Cause | None) -> Self:
        """Returns the record of a workload whose allocation must be given back. If a Pod is bound
        already, all Pods are evicted, because a bound Pod cannot be bound again."""
        bound = self.state is State.ALLOCATED and any(pod.life.node for pod in self.pods)
        return self.move(State.EVICTING if bound else State.REPLACING, now, cause=cause)

    def submitted_as(self, attempt_try: int, rules: PlacementConfig, **asked: Any) -> Self:
        """Returns the record with the job id of another try. The job under this id is not known yet."""
        job_id = replace(self.key(rules.cluster), attempt_try=attempt_try).job_id(rules.ids)
        blank = self.unclaimed().with_job(id=job_id, unread=False)
        generation = generation_of(pod.uid for pod in self.pods) if self.workload.size > 1 else ""
        asked |= {"attempt_try": attempt_try, "generation": generation, "owner": NOBODY_ASKED}
        blank = blank.with_asked(**asked)
        written = any(each.write.done for each in self.members)
        return blank.with_writes(self.pods, done=False) if written else blank

    def next_try(self, rules: PlacementConfig) -> Self:
        """Returns the record with the id of this attempt's next try."""
        return self.submitted_as(self.job.asked.attempt_try + 1, rules)

    def unclaimed(self) -> Self:
        """Returns the record with the same job id, but without any knowledge of the job."""
        return self._replace(job=self.job.unclaimed())

    # Members

    @property
    def attempt(self) -> int:
        """Returns the number of the attempt, from 1 on."""
        return self.job.asked.attempt

    @property
    def unseen(self) -> bool:
        """Returns True if the extender knows only the job, and has seen no Pod of the workload."""
        return not self.members and not self.workload.created

    @property
    def pods(self) -> list[Pod]:
        """Returns the Pods of all members."""
        return [each.pod for each in self.members]

    def member(self, uid: str) -> Member | None:
        """Returns the member with a Pod's uid; None if the Pod is no member."""
        return self.members.get(uid)

    @property
    def lacking(self) -> int:
        """Returns the number of missing Pods of the workload."""
        return self.workload.size - len(self.members)

    def is_by_its_job(self, pod: Pod) -> bool:
        """Returns True if a Pod's own annotations say that the workload's job places the Pod."""
        carried = pod.scheduling.allocation
        if carried is None or carried.job_id != self.job.id:
            return False
        return pod.life.node in (None, carried.node)

    def takes(self, pod: Pod) -> bool:
        """Returns True if another Pod of the workload can be placed with the members. A running gang
        takes a Pod for the slot of a member that is gone."""
        if not self.lacking:
            return False
        if self.state is State.BOUND and pod.life.node is None:
            return self._admits_replacement(pod)
        return self.state in OPEN or (self.state not in OVER and self.is_by_its_job(pod))

    def _admits_replacement(self, pod: Pod) -> bool:
        """Returns True if an unbound Pod may join the bound members. If all members are leaving, the Pod
        waits for the next start of the gang."""
        alike = not self.request.problems and self.workload.alike(self.lead.request, pod.request)
        stay = any(each.life.node is not None and not each.leaving for each in self.pods)
        runs = self.job.phase is Phase.RUNNING and pod.scheduling.attempt <= self.attempt
        return alike and stay and runs

    @property
    def lead(self) -> Pod:
        """Returns the Pod whose priority and age count for the workload."""
        return self.members[0].pod

    @property
    def write_done(self) -> bool:
        """Returns True if the write that this state requires is done on all Pods."""
        return self.members.count(is_written) == len(self.members)

    @property
    def in_flight(self) -> bool:
        """Returns True while an effect on the job or on a Pod is under way."""
        return self.retry.in_flight or self.members.count(is_in_flight) > 0

    @property
    def bound_pods(self) -> list[Pod]:
        """Returns the Pods that are bound. In BOUND, a Pod that replaces a member may be unbound."""
        return [pod for pod in self.pods if pod.life.node is not None]

    @property
    def unbound_members(self) -> list[Member]:
        """Returns the members without a Node. In BOUND, these replace members that are gone."""
        return [] if self.all_bound else [each for each in self.members if not is_bound(each)]

    def why_without_slot(self, member: Member) -> Cause | None:
        """Returns why a Pod that replaces a member has no slot yet: the job has no slot for the Pod, or
        containers of the lost member still run. Returns None if the Pod has a slot, or gets a slot
        next."""
        if self.job.unverified or member.write.in_flight or member.written:
            return None
        if member.slot is None:
            return Cause.of(Kind.GANG_BEGUN)
        if not self.lingers_on(member.slot):
            return None
        return Cause.of(Kind.CORES_IN_USE, job=self.job.id, node=member.slot.node)

    @property
    def all_bound(self) -> bool:
        """Returns True if all Pods of the record are bound."""
        return self.members.count(is_bound) == len(self.members)

    @property
    def gated(self) -> bool:
        """Returns True if at least one Pod has the extender's scheduling gate."""
        return any(pod.gated for pod in self.pods)

    @property
    def last_rejection(self) -> str:
        """Returns kube-scheduler's last message about rejected Nodes."""
        return next((each.last_rejection for each in self.members if each.last_rejection), "")

    @property
    def unlisted(self) -> bool:
        """Returns True if a Pod was missing from the last list of all Pods."""
        return self.members.count(is_unlisted) > 0

    @property
    def leaving(self) -> bool:
        """Returns True if all bound Pods are being deleted, or all Pods if no Pod is bound."""
        return all(pod.leaving for pod in self.bound_pods or self.pods)

    # Derived values

    @property
    def in_line(self) -> bool:
        """Returns True if the workload waits for its turn to request a job. This includes workloads that
        Slurm has rejected for now."""
        waits = self.state is State.SUBMITTING and self.retry.waits is Waits.FOR_TURN
        return self.state is State.SEEN or waits

    @property
    def node_rejected(self) -> bool:
        """Returns True if a Pod shows that kube-scheduler rejects an allocated Node."""
        return any(each.rejects(self.job.id) for each in self.members)

    @property
    def watched(self) -> bool:
        """Returns True if the extender must watch the job's state. If the workload has ended (DONE), the
        extender watches the job even after the job's end."""
        return self.state in WATCHED and (self.state is State.DONE or not self.job.over)

    @property
    def has_lost_job(self) -> bool:
        """Returns True if a healthy Slurm does not know the job, but the Pods are bound or may be
        bound."""
        job = self.job
        return job.phase is Phase.LOST or (self.state is State.BOUND and job.phase is Phase.ASKED)

    @property
    def stays(self) -> bool:
        """Returns True if the Pods are bound, and nothing makes the Pods leave. Such Pods may use cores
        of another Pod's job: a killed slurmctld has forgotten their own job, or has started their job
        again on cores that are still in use."""
        return self.state is State.BOUND and not self.leaving

    @property
    def misses_job(self) -> bool:
        """Returns True if a healthy Slurm did not know the job in the last poll."""
        return self.has_lost_job or self.job.mistrust.misses > 0

    @property
    def evicted_for(self) -> Cause | None:
        """Returns why the Pods are to be evicted. Returns None if a Pod is missing from the list of all
        Pods, because then the extender ends only the job."""
        return None if self.unlisted else self.cause

    @property
    def throttled(self) -> bool:
        """Returns True if the eviction limiter delays the eviction of the Pods."""
        return self.state is State.EVICTING and self.retry.waits is Waits.FOR_LIMITER

    @property
    def lingers_until(self) -> float:
        """Returns the time at which the last containers of deleted Pods have ended; 0 if there are no
        such containers."""
        return max([each.until for each in self.lingering]) if self.lingering else 0.0

    def lingers_on(self, slot: Allocation) -> bool:
        """Returns True if containers of a deleted Pod may still run on the Node of a slot."""
        return any(each.slot.node == slot.node for each in self.lingering)

    @property
    def holds(self) -> frozenset[str]:
        """Returns the Nodes where the Pods are or may still be bound, and the Nodes with containers of
        deleted Pods. The job's state does not matter."""
        if self.state not in HOLDING and not self.lingering:  # the common case
            return NO_NODES
        nodes = {each.slot.node for each in self.lingering}
        if self.state in HOLDING and not self.kept_unbound:
            nodes.update(node for each in self.members if (node := each.node_in(self.state)))
        return frozenset(nodes)

    @property
    def grants(self) -> frozenset[tuple[str, str]]:
        """Returns, for each Node of `holds`, the Slurm node that granted the slot, and the Node. Both
        names are needed because the Node's label may have changed since the grant."""
        nodes = self.holds
        if not nodes:  # the common case
            return frozenset()
        slots = [each.slot for each in self.members]
        slots += [each.slot for each in self.lingering]
        slots += [pod.scheduling.allocation for pod in self.pods]
        there = [slot for slot in slots if slot is not None and slot.node in nodes]
        return frozenset((slot.slurm_node or slot.node, slot.node) for slot in there)

    def names_on(self, nodes: Container[str]) -> list[str]:
        """Returns the names of the Pods on the given Nodes. If no Pod is there, returns the workload's
        name."""
        there = [each for each in self.members if each.node_in(self.state) in nodes]
        return [each.pod.full_name for each in there] or [self.workload.full_name]

    @property
    def kept_unbound(self) -> bool:
        """Returns True if the next attempt cannot be written onto a Pod, but no Binding by the job can
        be under way."""
        if self.state is not State.REPLACING or not any(each.kept_unbound for each in self.members):
            return False
        return all(each.write.done or each.kept_unbound for each in self.members)

    def key(self, cluster: str) -> PlaceholderKey:
        """Returns the key of the current try."""
        (uid, namespace, name, *_), asked = self.workload, self.job.asked
        numbers = asked.attempt, asked.attempt_try, asked.generation
        return PlaceholderKey(cluster, namespace, name, uid, *numbers)

    @property
    def rejected_by_slurm(self) -> bool:
        """Returns True if Slurm rejects the workload's request."""
        own = self.request.problems or self.rejections.forbidden_because is not None
        return self.state is State.INVALID and not own


def orphan_uid(workload: Workload, job_id: int) -> str:
    """Returns the ledger's key for a job without a Pod."""
    return f"{workload.uid}#{job_id}"
