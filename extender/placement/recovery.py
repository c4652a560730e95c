"""What a Pod and the jobs found under its ids say about where its placeholder stands.

Nothing is remembered across a restart: a Pod's attempt number and the jobs that Slurm knows under the
ids that can be computed from it are the whole truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.placement.identity import TRIES_AT_RECOVERY, PlaceholderKey
from extender.placement.job_news import adopt, burnt, end_of
from extender.placement.placeholder import Placeholder, State
from extender.placement.rules import Moment, Rules
from extender.placement.workload import Allocation, Pod
from slurm_client.model import Job


def possible_ids(pod: Pod, rules: Rules) -> tuple[int, ...]:
    """Returns the ids under which a Pod may have a job: the first tries of this attempt and the last,
    and the one that is written on it."""
    written = () if pod.job_id is None or pod.job_id not in rules.ids else (pod.job_id,)
    return tuple(dict.fromkeys((*own_ids(pod, rules), *written)))


def own_ids(pod: Pod, rules: Rules) -> dict[int, PlaceholderKey]:
    """Returns the ids that follow from the Pod's uid, which nobody can forge, with their keys."""
    keys = (
        PlaceholderKey(rules.cluster, pod.namespace, pod.name, pod.uid, attempt, attempt_try)
        for attempt in (pod.attempt - 1, pod.attempt)
        for attempt_try in range(TRIES_AT_RECOVERY)
        if attempt > 0
    )
    return {key.job_id(rules.ids): key for key in keys}


@dataclass(frozen=True, slots=True)
class _Found:
    key: PlaceholderKey
    job: Job

    @property
    def live(self) -> bool:
        return not self.job.state.ended


def recovered(pod: Pod, jobs: tuple[Job, ...], at: Moment) -> tuple[Placeholder | None, tuple[Job, ...]]:
    """Returns the record of a Pod found at the start (None where it needs none) and its live jobs
    that are no longer wanted. What a Pod's annotations say of its job is believed only where the job
    itself, or the id that follows from the Pod's uid, bears it out."""
    found = _ours(pod, jobs, at)
    chosen = _of_bound(pod, found) if pod.node is not None else _of_unbound(pod, found)
    if pod.finished or (pod.deleting and pod.node is None):
        record = None
    elif pod.node is not None:
        record = _bound(pod, chosen, at)
    else:
        record = _unbound(pod, found, chosen, at)
    kept = chosen if record is not None else None
    return record, tuple(f.job for f in found if f.live and f is not kept)


def _ours(pod: Pod, jobs: tuple[Job, ...], at: Moment) -> tuple[_Found, ...]:
    keyed = ((PlaceholderKey.parse(job.admin_comment), job) for job in jobs)
    ours = (
        _Found(key, job)
        for key, job in keyed
        if key is not None and (key.cluster, key.uid) == (at.rules.cluster, pod.uid)
    )
    return tuple(sorted(ours, key=lambda f: (f.key.attempt, f.key.attempt_try)))


def _of_bound(pod: Pod, found: tuple[_Found, ...]) -> _Found | None:
    """The job that a bound Pod names, else the one that runs for it."""
    named = (f for f in found if f.job.id == pod.job_id)
    running = (f for f in found if f.job.state.running)
    return next(named, next(running, None))


def _of_unbound(pod: Pod, found: tuple[_Found, ...]) -> _Found | None:
    """A live job (this attempt's before an old one's, running before waiting), else the last of this
    attempt that was more than a burnt id."""
    live = [f for f in found if f.live]
    live.sort(key=lambda f: (f.key.attempt != pod.attempt, not f.job.state.running))
    current = [f for f in found if f.key.attempt == pod.attempt and not burnt(f.job)]
    return next(iter(live), current[-1] if current else None)


def _bound(pod: Pod, chosen: _Found | None, at: Moment) -> Placeholder | None:
    """A bound Pod without a job of ours is somebody else's, and so is one on another Node than its
    job's; one whose own job Slurm does not know runs on (invariant I5)."""
    record = Placeholder(pod, State.BOUND, since=at.now, first_seen=at.now, attempt=pod.attempt)
    if chosen is None:
        return _without_job(record, at)
    key, job = chosen.key, chosen.job
    node = at.view.node_of(job.nodes[0]) if job.nodes else None
    never_granted = not job.nodes and pod.allocation is None
    if never_granted or (node is not None and node.name != pod.node):
        return None
    allocation = Allocation(job.id, pod.node or "", ",".join(job.gres))
    record = record._replace(
        attempt=key.attempt, attempt_try=key.attempt_try, job_id=job.id, allocation=allocation
    )
    if chosen.live:
        return record
    return record.move(State.EVICTING, at.now, job_over=True, cause=end_of(job.id, job.state))


def _without_job(record: Placeholder, at: Moment) -> Placeholder | None:
    allocation = record.pod.allocation
    own = own_ids(record.pod, at.rules).get(allocation.job_id) if allocation else None
    if allocation is None or own is None:
        return None
    numbered = record._replace(attempt=own.attempt, attempt_try=own.attempt_try)
    return numbered._replace(job_id=allocation.job_id, allocation=allocation)


def _unbound(pod: Pod, found: tuple[_Found, ...], chosen: _Found | None, at: Moment) -> Placeholder:
    blank = Placeholder(pod, since=at.now, first_seen=at.now, attempt=pod.attempt)
    if chosen is None:
        tried = [f.key.attempt_try for f in found if f.key.attempt == pod.attempt]
        following = max(tried) + 1 if tried else 0
        return blank._replace(attempt_try=following)
    key, job = chosen.key, chosen.job
    numbered = blank._replace(attempt=key.attempt, attempt_try=key.attempt_try, job_id=job.id)
    if key.attempt != pod.attempt:
        return numbered._replace(state=State.REPLACING, written=True)
    return adopt(numbered._replace(state=State.SUBMITTING), job, at)
