"""What a Pod and the jobs found under its ids say about where its placeholder stands.

Nothing is remembered across a restart: a Pod's attempt number and the jobs that Slurm knows under the
ids that can be computed from it are the whole truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.placement.identity import TRIES_AT_RECOVERY, PlaceholderKey
from extender.placement.job_news import adopt, burnt, end_of
from extender.placement.placeholder import Placeholder, State
from extender.placement.rules import Moment, Rules
from extender.placement.workload import Pod
from slurm_client.model import Job


def possible_ids(pod: Pod, rules: Rules) -> tuple[int, ...]:
    """Returns the ids under which a Pod may have a job: the first tries of this attempt and the last."""
    keys = (
        PlaceholderKey(rules.cluster, pod.namespace, pod.name, pod.uid, attempt, attempt_try)
        for attempt in (pod.attempt - 1, pod.attempt)
        for attempt_try in range(TRIES_AT_RECOVERY)
        if attempt > 0
    )
    written = () if pod.job_id is None or pod.job_id not in rules.ids else (pod.job_id,)
    return tuple(dict.fromkeys((*(key.job_id(rules.ids) for key in keys), *written)))


@dataclass(frozen=True, slots=True)
class _Found:
    key: PlaceholderKey
    job: Job

    @property
    def live(self) -> bool:
        return not self.job.state.ended


def recovered(pod: Pod, jobs: tuple[Job, ...], at: Moment) -> tuple[Placeholder | None, tuple[Job, ...]]:
    """Returns the record of a Pod found at the start (None where it needs none) and its live jobs
    that are no longer wanted."""
    found = _ours(pod, jobs, at)
    chosen = _choose(pod, found)
    stray = tuple(f.job for f in found if f.live and f is not chosen)
    if pod.finished or (pod.deleting and pod.node is None):
        return None, tuple(f.job for f in found if f.live)
    if pod.node is not None:
        return _bound(pod, chosen, at), stray
    return _unbound(pod, found, chosen, at), stray


def _ours(pod: Pod, jobs: tuple[Job, ...], at: Moment) -> tuple[_Found, ...]:
    keyed = ((PlaceholderKey.parse(job.admin_comment), job) for job in jobs)
    ours = (
        _Found(key, job)
        for key, job in keyed
        if key is not None and (key.cluster, key.uid) == (at.rules.cluster, pod.uid)
    )
    return tuple(sorted(ours, key=lambda f: (f.key.attempt, f.key.attempt_try)))


def _choose(pod: Pod, found: tuple[_Found, ...]) -> _Found | None:
    """The job that counts: the one that a bound Pod names, else a live one (running before waiting,
    an old attempt's before this one's), else the last that was more than a burnt id."""
    if pod.node is not None:
        return next((f for f in found if f.job.id == pod.job_id), None)
    live = sorted((f for f in found if f.live), key=lambda f: not f.job.state.running)
    current = [f for f in found if f.key.attempt == pod.attempt and not burnt(f.job)]
    return next(iter(live), current[-1] if current else None)


def _bound(pod: Pod, chosen: _Found | None, at: Moment) -> Placeholder | None:
    """A bound Pod without a job of ours is somebody else's; one whose job is unknown runs on (I5)."""
    if pod.allocation is None or pod.allocation.node != pod.node:
        return None
    attempt_try = chosen.key.attempt_try if chosen else 0
    record = Placeholder(
        pod,
        State.BOUND,
        since=at.now,
        first_seen=at.now,
        attempt=pod.attempt,
        attempt_try=attempt_try,
        job_id=pod.allocation.job_id,
        allocation=pod.allocation,
    )
    if chosen is None or chosen.live:
        return record
    cause = end_of(chosen.job.id, chosen.job.state)
    return record.move(State.EVICTING, at.now, job_over=True, cause=cause)


def _unbound(
    pod: Pod,
    found: tuple[_Found, ...],
    chosen: _Found | None,
    at: Moment,
) -> Placeholder:
    blank = Placeholder(pod, since=at.now, first_seen=at.now, attempt=pod.attempt)
    if chosen is None:
        tried = [f.key.attempt_try for f in found if f.key.attempt == pod.attempt]
        following = max(tried) + 1 if tried else 0
        return replace(blank, attempt_try=following)
    key, job = chosen.key, chosen.job
    numbered = replace(blank, attempt=key.attempt, attempt_try=key.attempt_try, job_id=job.id)
    if key.attempt != pod.attempt:
        return replace(numbered, state=State.REPLACING, written=True)
    return adopt(replace(numbered, state=State.SUBMITTING), job, at)
