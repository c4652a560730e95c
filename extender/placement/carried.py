"""The allocation that a Pod carries: whoever wrote it there, the Pod is placed by it, or may yet be.

A record may know nothing of it: another replica that believed to lead wrote it, or the record is new.
It is believed where the id that it names follows from the Pod's uid, which nobody can forge; what has
become of the job is then for Slurm to say, like of any other.
"""

from __future__ import annotations

from extender.placement.identity import TRIES_AT_RECOVERY, PlaceholderKey
from extender.placement.placeholder import Placeholder, State
from extender.placement.rules import Moment, Rules
from extender.placement.workload import Pod

_TOOK_NONE = frozenset({State.SEEN, State.REFUSED, State.SUBMITTING, State.QUEUED})


def own_ids(pod: Pod, rules: Rules) -> dict[int, PlaceholderKey]:
    """Returns the ids that follow from a Pod's uid, each with its key: the first tries of this attempt
    and the last."""
    keys = (
        PlaceholderKey(rules.cluster, pod.namespace, pod.name, pod.uid, attempt, attempt_try)
        for attempt in (pod.attempt - 1, pod.attempt)
        for attempt_try in range(TRIES_AT_RECOVERY)
        if attempt > 0
    )
    return {key.job_id(rules.ids): key for key in keys}


def with_carried(placeholder: Placeholder, at: Moment) -> Placeholder:
    """Returns the record with the allocation that its Pod carries, where it has none and that one is of
    its attempt. Slurm is asked about the job before anything is made of it."""
    carried = placeholder.pod.allocation
    if carried is None or placeholder.allocation is not None:
        return placeholder
    if carried.job_id != placeholder.job_id:
        key = own_ids(placeholder.pod, at.rules).get(carried.job_id)
        if key is None or key.attempt != placeholder.attempt:
            return placeholder
        placeholder = placeholder.submitted_as(at.rules.cluster, at.rules.ids, key.attempt_try)
    if placeholder.state in _TOOK_NONE:
        placeholder = placeholder.move(State.ALLOCATED, at.now)
    return placeholder._replace(allocation=carried, doubted=at.now, immediate=False)
