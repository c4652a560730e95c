"""The allocation that a Pod carries: whoever wrote it there, the Pod is placed by it, or may yet be.

A record may know nothing of it: another replica that believed to lead wrote it, or the record is new.
It is believed where the id that it names follows from the Pod's uid, which nobody can forge; what has
become of the job is then for Slurm to say, like of any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.placement.config import Context, PlacementConfig
from extender.placement.placeholder import Placeholder
from extender.placement.states import State
from extender.request.pod import Pod
from wellknown.allocation import Allocation
from wellknown.job_key import TRIES_AT_RECOVERY, PlaceholderKey

_TOOK_NONE = frozenset({State.SEEN, State.INVALID, State.SUBMITTING, State.QUEUED})


def own_ids(pod: Pod, rules: PlacementConfig) -> tuple[int, ...]:
    """Returns the ids that follow from a Pod's uid: the first tries of this attempt and the last."""
    return tuple(key.job_id(rules.ids) for key in _own_keys(pod, rules))


def own_key(job_id: int, pod: Pod, rules: PlacementConfig) -> PlaceholderKey | None:
    """Returns the key of the one of a Pod's own ids that this is, None where it is none."""
    return next((key for key in _own_keys(pod, rules) if key.job_id(rules.ids) == job_id), None)


def _own_keys(pod: Pod, rules: PlacementConfig) -> Iterator[PlaceholderKey]:
    """The likeliest first, which mostly is the only one that is asked for."""
    uid, namespace, name, *_ = pod.workload
    return (
        PlaceholderKey(rules.cluster, namespace, name, uid, attempt, attempt_try)
        for attempt in (pod.attempt, pod.attempt - 1)
        for attempt_try in range(TRIES_AT_RECOVERY)
        if attempt > 0
    )


def with_carried(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record with the allocations that its Pods carry, where they have none and those are of
    its attempt. Slurm is asked about the job before anything is made of it."""
    for member in record.members:
        carried = member.pod.allocation
        if carried is not None and member.slot is None:
            record = _with_carried(record, member.pod, carried, at)
    return record


def _with_carried(record: Placeholder, pod: Pod, carried: Allocation, at: Context) -> Placeholder:
    if carried.job_id != record.job.id:
        key = own_key(carried.job_id, pod, at.rules)
        if key is None or key.attempt != record.attempt:
            return record
        if record.state is State.EVICTING:  # it may be bound there; its job is over all the same
            return record.with_member(pod, slot=carried)
        record = record.submitted_as(key.attempt_try, at.rules)
    if record.state in _TOOK_NONE:
        record = record.move(State.ALLOCATED, at.now)
    job = record.job.suspect(at.now)._replace(immediate=False)
    return record._replace(job=job).with_member(pod, slot=carried)
