"""Rebuilds the records of a new leader from the Pods, and from the jobs under the Pods' possible job
ids.

The extender remembers nothing across a restart. The Pod's attempt number, and the jobs under the Pod's
possible ids, are enough to rebuild a record.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from extender.explain.cause import Cause, Kind
from extender.jobs.claim import claim_of, key_of, own_ids, own_key
from extender.jobs.phase import Phase
from extender.jobs.verdict import TAKEN, Verdict, judge
from extender.node_view.view import ClusterView
from extender.placement.transitions.kept_back import asking_first
from extender.placement.transitions.lingering import still_held
from extender.placement.transitions.moves import slots_of
from extender.placement.transitions.on_job import (
    bound_ended,
    failed_before_start,
    runs_where_its_pods_are,
    waits_for_its_pods_nodes,
)
from extender.placement.transitions.on_pod import (
    bound_by_its_job,
    grouped,
    not_whole,
    numbered,
    with_carried,
)
from extender.placement.transitions.table import after_poll, after_read
from extender.pod_request.pod import Pod, Scheduling
from extender.record.config import Context, PlacementConfig
from extender.record.member import Member
from extender.record.members import Members, with_slots
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.job_state import JobState
from slurm_client.model import Job
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey

_SPREAD = 1000
_DOOMED = Cause.of(Kind.JOB_FORGOTTEN)


def possible_ids(pod: Pod, rules: PlacementConfig) -> tuple[int, ...]:
    """Returns the possible ids of a Pod's job. These are the ids of the first tries in the current and
    the last attempt, and the id on the Pod."""
    written = () if pod.scheduling.job_id is None else (pod.scheduling.job_id,)
    return tuple(dict.fromkeys((*own_ids(pod, rules), *written)))


def to_read(
    pods: Iterable[Pod],
    states: Mapping[int, JobState],
    rules: PlacementConfig,
) -> Iterator[int]:
    """Yields the ids of the jobs that the extender must read to recover the Pods' records. `states` has
    the states of all jobs in Slurm. The ids belong to live jobs in the placeholders' range, and to
    possible jobs of the Pods.

    Leaves out a job if a running Pod names the job, the job runs, and the Pod has no other live job. The
    extender reads these jobs a little later (`recovered`), because 10,000 such jobs may exist.
    """
    spared, possible = set[int](), set[int]()
    for pod in pods:
        ids = possible_ids(pod, rules)
        if _is_vouched_for(pod, ids, states, rules):
            spared.update(ids)
        else:
            possible.update(ids)
    for job_id, state in states.items():
        unknown = job_id in rules.ids and not (state.ended or job_id in spared)
        if job_id in possible or unknown:
            yield job_id


def not_among(
    pods: Iterable[Pod], states: Mapping[int, JobState], rules: PlacementConfig
) -> Iterator[int]:
    """Yields the possible ids of the Pods' jobs that are missing from `states`."""
    for pod in pods:
        yield from (job_id for job_id in possible_ids(pod, rules) if job_id not in states)


def with_their_pods(
    jobs: Collection[Job], pods: Iterable[Pod], rules: PlacementConfig
) -> Iterator[tuple[str, Job]]:
    """Takes jobs without a key. Yields each job that has a possible id of a workload, with the uid of
    the workload. `verdict.judge` decides whether the job is the workload's."""
    if jobs:
        uids = {job_id: pod.workload.uid for pod in pods for job_id in own_ids(pod, rules)}
        yield from ((uids[job.id], job) for job in jobs if job.id in uids)


def _is_vouched_for(
    pod: Pod, ids: Iterable[int], states: Mapping[int, JobState], rules: PlacementConfig
) -> bool:
    carried = pod.scheduling.allocation
    if (
        pod.life.finished
        or pod.doomed
        or carried is None
        or pod.life.node is None
        or carried.node != pod.life.node
    ):
        return False
    live = [job_id for job_id in ids if job_id in states and not states[job_id].ended]
    runs = live == [carried.job_id] and states[carried.job_id].running
    return runs and own_key(carried.job_id, pod, rules) is not None


class _Found(NamedTuple):
    key: PlaceholderKey
    job: Job
    verdict: Verdict

    @property
    def live(self) -> bool:
        return not self.job.state.ended


def recovered(
    pods: Sequence[Pod], jobs: tuple[Job, ...], at: Context
) -> tuple[Placeholder | None, tuple[tuple[Job, int], ...]]:
    """Returns the record of a workload at the start; None if no record is needed. Also returns the
    workload's live jobs that are not needed, each with its attempt. An annotation about a job counts
    only if the job itself, or `own_key`, confirms the annotation."""
    found = _ours(pods, jobs, at)
    as_read = {pod.uid: pod for pod in pods}
    pods = _numbered_by_their_jobs(pods, found)
    alive, last = _members(pods), max(pods, key=lambda pod: pod.scheduling.attempt)
    if _has_begun(alive):  # the unbound Pods replace members, and join later
        alive = [pod for pod in alive if pod.life.node is not None]
    record = None
    if alive and all(pod.life.node is not None for pod in alive):
        record = _bound(alive, _of_bound(alive, found, at), at)
    elif alive:
        record = _unbound(alive, found, _of_unbound(last, found), at)
    record = record and not_whole(record, at.now)
    kept = None if record is None else record.job.id
    for each in found:
        if record is not None and record.workload.size > 1 and each.job.id == kept:
            record = still_held(record, each.job, at)  # containers of other Pods of the group
    if record is not None:
        members = (each._replace(pod=as_read[each.pod.uid]) for each in record.members)
        record = record._replace(members=Members(members))
    return record, tuple((f.job, f.key.attempt) for f in found if f.live and f.job.id != kept)


def orphan_of(pods: Sequence[Pod], job: Job, attempt: int, at: Context) -> Placeholder:
    """Returns the record of a job that no Pod of the workload needs any more."""
    ended = next((Cause.of(Kind.POD_ENDED, end=pod.life.end) for pod in pods if pod.life.end), None)
    orphan = Placeholder.of_orphan(pods[0].workload, job.id, at.now)
    orphan = orphan._replace(request=pods[0].request, cause=ended).with_asked(attempt=attempt)
    return still_held(orphan.with_job(verdict=TAKEN), job, at)


def _numbered_by_their_jobs(pods: Sequence[Pod], found: tuple[_Found, ...]) -> Sequence[Pod]:
    """Returns the Pods. A bound Pod gets the attempt of the job that the Pod names, because the number
    on a bound Pod may be forged."""
    attempts: dict[int | None, int] = {each.job.id: each.key.attempt for each in found}

    def attempt(of: Scheduling) -> int:
        return attempts.get(of.job_id, of.attempt)

    return [
        pod if pod.life.node is None else pod.with_scheduling(attempt=attempt(pod.scheduling))
        for pod in pods
    ]


def _members(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Returns the Pods for the workload's record. A group may have more Pods than needed, or Pods
    created after its start."""
    alive = [pod for pod in pods if not pod.over]
    begun = max((pod.scheduling.attempt for pod in alive if pod.life.node is not None), default=0)
    alive = [pod for pod in alive if pod.life.node is not None or pod.scheduling.attempt >= begun]
    alive.sort(
        key=lambda pod: (
            pod.life.node is None,
            pod.scheduling.allocation is None,
            -pod.scheduling.attempt,
            pod.created,
        )
    )
    return alive[: pods[0].workload.size]


def _has_begun(pods: Sequence[Pod]) -> bool:
    """Returns True if a gang has begun: some Pods are bound, and each unbound Pod was created after a
    Binding, and so replaces a member. The first members of a gang all exist before its job. Times of
    kube-apiserver have whole seconds, so a replacement from the second of the first Binding counts as a
    first member. If kube-scheduler then rejects this Pod, the gang ends."""
    bound = [pod.life.bound_at for pod in pods if pod.life.node is not None]
    later = (pod.created > min(bound) > "" for pod in pods if pod.life.node is None)
    return bool(bound) and all(later)


def _ours(pods: Sequence[Pod], jobs: tuple[Job, ...], at: Context) -> tuple[_Found, ...]:
    pod = max(pods, key=lambda pod: pod.scheduling.attempt)
    claim = claim_of(pod, at.rules, at.view, pods)
    judged = ((_key(job, pod, at.rules), job, judge(job, claim)) for job in jobs)
    ours = (
        _Found(key, job, verdict) for key, job, verdict in judged if key is not None and verdict.is_ours
    )
    return tuple(sorted(ours, key=lambda f: (f.key.attempt, f.key.attempt_try)))


def _key(job: Job, pod: Pod, rules: PlacementConfig) -> PlaceholderKey | None:
    return key_of(job) or own_key(job.id, pod, rules)


def _of_bound(pods: Sequence[Pod], found: tuple[_Found, ...], at: Context) -> _Found | None:
    """Returns the job to recover for bound Pods. The order is: a live job on the Pods' Nodes; the job
    that the Pods name; any live job. If the named job was elsewhere, an ended job on the Pods' Nodes
    counts. A job from the time when the Pod was adopted does not count, and cannot end the Pod."""
    known = [f for f in found if not f.key.adopted and not failed_before_start(f.job)]
    where = {f.job.id: _is_there(f.job, pods, at.view) for f in known}
    named = {pod.scheduling.job_id for pod in pods}

    def rank(found: _Found) -> tuple[bool, ...]:
        job, there, live = found.job, where[found.job.id], found.live
        is_named, runs = job.id in named, job.state.running
        return not (live and there), there is False, not is_named, not runs, not live

    first = min(known, key=rank, default=None)
    if first is None or first.live or first.job.id in named:
        return first
    return first if where[first.job.id] and named & where.keys() else None


def _is_there(job: Job, pods: Sequence[Pod], view: ClusterView) -> bool | None:
    """Returns True if a job has, or had, the Nodes of bound Pods. Returns False if the job has other
    Nodes, and None if the job got no Nodes."""
    nodes = [view.node_of(name) for name in job.nodes]
    there = [
        any(view.names_it(pod.life.node, name) for name in job.nodes)
        or any(node is not None and node.name == pod.life.node for node in nodes)
        for pod in pods
    ]
    if all(there):
        return True
    if not any(nodes):
        return waits_for_its_pods_nodes(job, pods, view) or None
    return False


def _of_unbound(pod: Pod, found: tuple[_Found, ...]) -> _Found | None:
    """Returns the job to recover for Pods that are not bound yet. Prefers a live job: a job of this
    attempt before a job of another attempt, then a running job before a waiting job. If no job is live,
    returns the last job of this attempt that did not fail before its start."""
    live = [f for f in found if f.live]
    live.sort(key=lambda f: (f.key.attempt != pod.scheduling.attempt, not f.job.state.running))
    current = [
        f for f in found if f.key.attempt == pod.scheduling.attempt and not failed_before_start(f.job)
    ]
    return next(iter(live), current[-1] if current else None)


def _blank(pods: Sequence[Pod], now: float) -> Placeholder:
    """Returns a workload's record that is made from its Pods alone, without a job."""
    record = Placeholder.of(pods[0], now).with_asked(attempt=max(pod.scheduling.attempt for pod in pods))
    return grouped(record, map(Member, pods))


def _bound(pods: Sequence[Pod], chosen: _Found | None, at: Context) -> Placeholder | None:
    """Returns the record of bound Pods; None if another scheduler bound the Pods. If bound Pods have no
    job, another scheduler has bound the Pods. The same is true if the Pods are not on the Nodes of their
    job. But if the job has bound the Pods, Slurm has started the job elsewhere later, and the Pods keep
    their record. If the Pods' own job was not read, or if Slurm does not know the job, the Pods continue
    to run (invariant I5)."""
    record = _blank(pods, at.now)._replace(state=State.BOUND).with_phase(Phase.RUNNING, at.now)
    if chosen is None:
        return _without_job(record, at)
    key, job, _ = chosen
    there = _is_there(job, pods, at.view)
    if not there and any(_runs_by_another(pod, job, at) for pod in pods):
        return _without_job(record, at)
    never_granted = not job.nodes and all(pod.scheduling.allocation is None for pod in pods)
    if never_granted or (there is False and not all(_was_bound_by(pod, job) for pod in pods)):
        return None
    blank = [each._replace(slot=Allocation(job.id, each.pod.life.node or "")) for each in record.members]
    has = slots_of(record, job, at, record.pods)
    members = with_slots(blank, has, bound=True)
    record = record._replace(members=members).with_asked(attempt=key.attempt)
    record = _with_job(record, chosen)
    if chosen.live and there and job.state.running:
        return runs_where_its_pods_are(record, job, at)
    if chosen.live:
        return record.with_job(unread=True)
    return bound_ended(record, job.state, job, at)


def _was_bound_by(pod: Pod, job: Job) -> bool:
    """Returns True if the job was granted the Pod's Node at the time of the Binding."""
    carried = pod.scheduling.allocation
    return carried is not None and (carried.job_id, carried.node) == (job.id, pod.life.node)


def _runs_by_another(pod: Pod, job: Job, at: Context) -> bool:
    """Returns True if another job bound the Pod. A killed slurmctld may restore the job of an earlier
    attempt, and may have forgotten the later job."""
    carried = pod.scheduling.allocation
    if carried is None or carried.node != pod.life.node or carried.job_id == job.id:
        return False
    return own_key(carried.job_id, pod, at.rules) is not None


def _without_job(record: Placeholder, at: Context) -> Placeholder | None:
    carried = record.lead.scheduling.allocation
    key = own_key(carried.job_id, record.lead, at.rules) if carried else None
    if carried is None or key is None:
        return None
    if any(pod.doomed for pod in record.pods):
        return record.with_phase(Phase.ENDED, at.now).move(State.EVICTING, at.now, cause=_DOOMED)
    later = at.now + at.rules.recovery_read_spread * (carried.job_id % _SPREAD) / _SPREAD
    known = with_carried(record.with_asked(attempt=key.attempt), at)
    return known.with_phase(Phase.RUNNING, at.now).with_job(unread=True).with_retry(not_before=later)


def _unbound(
    pods: Sequence[Pod], found: tuple[_Found, ...], chosen: _Found | None, at: Context
) -> Placeholder:
    blank = _blank(pods, at.now)
    carries = with_carried(blank, at)
    if carries.state is State.ALLOCATED:
        # A Binding by the Pods' allocations may be under way, even if the job has ended. Therefore the
        # record holds the Nodes until a Binding is impossible.
        carried = next((f.job for f in found if f.job.id == carries.job.id), None)
        return carries if carried is None else after_poll(carries, carried.state, at)
    if any(pod.scheduling.attempt < blank.attempt for pod in pods):
        return _half_numbered(blank, chosen, at)
    if chosen is None:
        tries = (f.key.attempt_try for f in found if f.key.attempt == blank.attempt)
        following = max(tries, default=-1) + 1
        return asking_first(blank.with_asked(attempt_try=following))
    key, job, _ = chosen
    tried = blank.with_asked(attempt=key.attempt)
    if key.attempt != blank.attempt:
        replacing = _with_job(tried, chosen)._replace(state=State.REPLACING)
        return replacing.with_phase(Phase.ENDING, at.now).with_writes(pods, done=True)
    asked = _with_id(tried, chosen)._replace(state=State.SUBMITTING).with_phase(Phase.ASKED, at.now)
    return after_read(asked, job, at)


def _with_job(record: Placeholder, found: _Found) -> Placeholder:
    return _with_id(record, found).with_job(verdict=found.verdict)


def _with_id(record: Placeholder, found: _Found) -> Placeholder:
    """Returns the record with the id of a job, without a verdict on the job."""
    asked = {"attempt_try": found.key.attempt_try, "generation": found.key.generation}
    return record.with_job(id=found.job.id).with_asked(**asked)


def _half_numbered(blank: Placeholder, chosen: _Found | None, at: Context) -> Placeholder:
    """Returns the record of a group in which some Pods, but not all, have the next attempt's number. The
    extender then writes the number onto the other Pods."""
    before = numbered(blank, blank.attempt).with_asked(attempt=blank.attempt - 1)
    before = before._replace(state=State.REPLACING)
    phase = Phase.ENDED if chosen is None else Phase.ENDING
    before = (before if chosen is None else _with_job(before, chosen)).with_phase(phase, at.now)
    bound = next((each.pod for each in blank.members if each.pod.life.node is not None), None)
    return before if bound is None else bound_by_its_job(with_carried(before, at), bound, at)
