"""What a Pod and the jobs found under its ids say about where its placeholder stands.

Nothing is remembered across a restart: a Pod's attempt number and the jobs that Slurm knows under the
ids that can be computed from it are the whole truth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from extender.cluster.view import ClusterView
from extender.placement.config import Context, PlacementConfig
from extender.placement.kept_back import asking_first
from extender.placement.on_job import (
    after_poll,
    after_read,
    end_of,
    failed_before_start,
    waits_for_its_pods_node,
)
from extender.placement.ownership import claim_of, is_own, key_of
from extender.placement.placeholder import ConditionReason, Placeholder, State
from extender.placement.pod_allocation import own_ids, own_key, with_carried
from extender.request.pod import Pod
from slurm_client.model import Job, JobState
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey
from wellknown.names import Reason

_SPREAD = 1000
_DOOMED = ConditionReason(Reason.SLURM_JOB_ENDED, "its job in Slurm had ended, and is forgotten by now")


def possible_ids(pod: Pod, rules: PlacementConfig) -> tuple[int, ...]:
    """Returns the ids under which a Pod may have a job: the first tries of this attempt and the last,
    and the one that is written on it."""
    written = () if pod.job_id is None or pod.job_id not in rules.ids else (pod.job_id,)
    return tuple(dict.fromkeys((*own_ids(pod, rules), *written)))


def to_read(
    pods: Iterable[Pod], states: Mapping[int, JobState], rules: PlacementConfig
) -> Iterator[int]:
    """Yields the ids of the jobs that have to be read before it is known where the Pods stand, of all
    the `states` in Slurm: those that live, and those that a Pod may have had.

    Not that of a Pod that runs, where the Pod names it, it runs, and no other of the Pod's lives: there
    may be 10,000 of those. It is read a little later (`recovered`).
    """
    spared, possible = set[int](), set[int]()
    for pod in pods:
        ids = possible_ids(pod, rules)
        if _is_vouched_for(pod, ids, states, rules):
            spared.update(ids)
        else:
            possible.update(ids)
    for job_id, state in states.items():
        if job_id in rules.ids and (job_id in possible or not (state.ended or job_id in spared)):
            yield job_id


def not_among(
    pods: Iterable[Pod], states: Mapping[int, JobState], rules: PlacementConfig
) -> Iterator[int]:
    """Yields the ids under which a Pod may have a job, and which are not among `states`."""
    for pod in pods:
        yield from (job_id for job_id in possible_ids(pod, rules) if job_id not in states)


def with_their_pods(
    jobs: Collection[Job], pods: Iterable[Pod], rules: PlacementConfig
) -> Iterator[tuple[str, Job]]:
    """Yields jobs without a key, each with the uid of the Pod whose id it has. Whether it is that Pod's
    is for `ownership.whose` to say."""
    if jobs:
        uids = {job_id: pod.uid for pod in pods for job_id in own_ids(pod, rules)}
        yield from ((uids[job.id], job) for job in jobs if job.id in uids)


def _is_vouched_for(
    pod: Pod, ids: Iterable[int], states: Mapping[int, JobState], rules: PlacementConfig
) -> bool:
    carried = pod.allocation
    if pod.finished or pod.doomed or carried is None or pod.node is None or carried.node != pod.node:
        return False
    live = [job_id for job_id in ids if job_id in states and not states[job_id].ended]
    return (
        live == [carried.job_id]
        and states[carried.job_id].running
        and own_key(carried.job_id, pod, rules) is not None
    )


@dataclass(frozen=True, slots=True)
class _Found:
    key: PlaceholderKey
    job: Job

    @property
    def live(self) -> bool:
        return not self.job.state.ended

    @property
    def unsigned(self) -> bool:
        return key_of(self.job) is None


def recovered(
    pod: Pod, jobs: tuple[Job, ...], at: Context
) -> tuple[Placeholder | None, tuple[Job, ...]]:
    """Returns the record of a Pod found at the start (None where it needs none) and its live jobs
    that are no longer wanted. What a Pod's annotations say of its job is believed only where the job
    itself, or the id that follows from the Pod's uid, bears it out."""
    found = _ours(pod, jobs, at)
    chosen = _of_bound(pod, found, at) if pod.node is not None else _of_unbound(pod, found)
    if pod.finished or (pod.deleting and pod.node is None):
        record = None
    elif pod.node is not None:
        record = _bound(pod, chosen, at)
    else:
        record = _unbound(pod, found, chosen, at)
    kept = None if record is None else record.job_id
    return record, tuple(f.job for f in found if f.live and f.job.id != kept)


def _ours(pod: Pod, jobs: tuple[Job, ...], at: Context) -> tuple[_Found, ...]:
    claim = claim_of(pod, at.rules.cluster, own_ids(pod, at.rules), at.view)
    keyed = ((key_of(job) or own_key(job.id, pod, at.rules), job) for job in jobs if is_own(job, claim))
    ours = (_Found(key, job) for key, job in keyed if key is not None)
    return tuple(sorted(ours, key=lambda f: (f.key.attempt, f.key.attempt_try)))


def _of_bound(pod: Pod, found: tuple[_Found, ...], at: Context) -> _Found | None:
    """The job that lives where a bound Pod is, whatever the Pod says: else the one that it names, or one
    that lives; and where the one that it names was elsewhere, one that ended where the Pod is. One from
    when the Pod was an adopted Pod may not end it."""
    known = [f for f in found if not f.key.adopted and not failed_before_start(f.job)]
    where = {f.job.id: _is_there(f.job, pod, at.view) for f in known}

    def rank(found: _Found) -> tuple[bool, ...]:
        job, there, live = found.job, where[found.job.id], found.live
        return (
            not (live and there),
            there is False,
            job.id != pod.job_id,
            not job.state.running,
            not live,
        )

    first = min(known, key=rank, default=None)
    if first is None or first.live or first.job.id == pod.job_id:
        return first
    return first if where[first.job.id] and pod.job_id in where else None


def _is_there(job: Job, pod: Pod, view: ClusterView) -> bool | None:
    """Tells whether a job has, or had, the Node of a bound Pod; None where it was given none."""
    if job.nodes and view.names_it(pod.node, job.nodes[0]):
        return True
    node = view.node_of(job.nodes[0]) if job.nodes else None
    if node is None:
        return waits_for_its_pods_node(job, pod, view) or None
    return node.name == pod.node


def _of_unbound(pod: Pod, found: tuple[_Found, ...]) -> _Found | None:
    """A live job (this attempt's before an old one's, running before waiting), else the last of this
    attempt that was more than a burnt id."""
    live = [f for f in found if f.live]
    live.sort(key=lambda f: (f.key.attempt != pod.attempt, not f.job.state.running))
    current = [f for f in found if f.key.attempt == pod.attempt and not failed_before_start(f.job)]
    return next(iter(live), current[-1] if current else None)


def _bound(pod: Pod, chosen: _Found | None, at: Context) -> Placeholder | None:
    """A bound Pod without a job of ours is somebody else's, and so is one on another Node than its
    job's; one whose own job was not read, or is not known to Slurm, runs on (invariant I5)."""
    record = Placeholder(pod, State.BOUND, since=at.now, first_seen=at.now, attempt=pod.attempt)
    if chosen is None:
        return _without_job(record, at)
    key, job = chosen.key, chosen.job
    there = _is_there(job, pod, at.view)
    if not there and _runs_by_another(pod, job, at):
        return _without_job(record, at)
    never_granted = not job.nodes and pod.allocation is None
    if never_granted or there is False:
        return None
    allocation = Allocation(job.id, pod.node or "", ",".join(job.gres))
    record = record._replace(
        attempt=key.attempt,
        attempt_try=key.attempt_try,
        job_id=job.id,
        allocation=allocation,
        ours=True,
        unsigned=chosen.unsigned,
        job_name=job.name,
    )
    if chosen.live:
        return record
    return record.move(State.EVICTING, at.now, job_over=True, cause=end_of(job.id, job.state))


def _runs_by_another(pod: Pod, job: Job, at: Context) -> bool:
    """A slurmctld that was killed may bring back the job of an earlier attempt, and have forgotten the
    one that a Pod was bound by."""
    carried = pod.allocation
    if carried is None or carried.node != pod.node or carried.job_id == job.id:
        return False
    return own_key(carried.job_id, pod, at.rules) is not None


def _without_job(record: Placeholder, at: Context) -> Placeholder | None:
    carried = record.pod.allocation
    key = own_key(carried.job_id, record.pod, at.rules) if carried else None
    if carried is None or key is None:
        return None
    if record.pod.doomed:
        return record.move(State.EVICTING, at.now, job_over=True, cause=_DOOMED)
    later = at.now + at.rules.verified * (carried.job_id % _SPREAD) / _SPREAD
    known = with_carried(record._replace(attempt=key.attempt), at)
    return known._replace(unverified_since=inf, not_before=later)


def _unbound(pod: Pod, found: tuple[_Found, ...], chosen: _Found | None, at: Context) -> Placeholder:
    blank = Placeholder(pod, since=at.now, first_seen=at.now, attempt=pod.attempt)
    carries = with_carried(blank, at)
    if carries.allocation is not None:
        return _allocated(carries, found, at)
    if chosen is None:
        tried = [f.key.attempt_try for f in found if f.key.attempt == pod.attempt]
        following = max(tried) + 1 if tried else 0
        return asking_first(blank._replace(attempt_try=following))
    key, job = chosen.key, chosen.job
    numbered = blank._replace(attempt=key.attempt, attempt_try=key.attempt_try, job_id=job.id)
    if key.attempt != pod.attempt:
        return numbered._replace(state=State.REPLACING, written=True, ours=True, job_name=job.name)
    return after_read(numbered._replace(state=State.SUBMITTING), job, at)


def _allocated(record: Placeholder, found: tuple[_Found, ...], at: Context) -> Placeholder:
    """A Binding of what the Pod carries may be under way, whatever has become of the job: so it holds
    its Node until that is proven to be over."""
    jobs = (f.job for f in found if f.job.id == record.job_id)
    job = next(jobs, None)
    return record if job is None else after_poll(record, job.state, at)
