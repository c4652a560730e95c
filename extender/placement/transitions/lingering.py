"""Containers that may outlive their Pod: it was deleted by force (`kubectl delete --force`).

kube-apiserver drops such a Pod at once, and its kubelet ends the containers within the Pod's own grace.
Until then the job holds what it has: it is ended when that time is over. Where it ends before that, the
Node's gate waits, and so do the Pods that are placed there next (invariant I4). How long is left in the
job's comment, for people and for the next leader. What is deleted by force while nobody leads or
watches cannot be known, nor for the next leader what lingers without a job.
"""

import re
from math import ceil

from extender.pod_request.pod import Pod
from extender.pod_request.pod_end import SEPARATOR, after_words
from extender.record.config import Context
from extender.record.events import HoldJob
from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Job

_WORDS = "Pod gone: its containers may run for another {} s"
_SAID = re.compile(_WORDS.format(r"(\d{1,4})") + rf"(?:{SEPARATOR}|\Z)")


def lingering(record: Placeholder, last: Pod, now: float) -> Placeholder:
    """Returns the record of a Pod that is gone; `last` is its last version."""
    seconds = last.lingers_s
    if not seconds or last.life.node is None or record.job.id is None:
        return record
    return record._replace(lingering=(*record.lingering, (last.life.node, now + seconds)))


def hold(record: Placeholder, job_id: int, now: float) -> HoldJob:
    """Returns the effect that leaves the words on its job: before those of the Pod's author, who could
    leave no room for them."""
    words = _WORDS.format(ceil(record.lingers_until - now))
    return HoldJob(record.uid, job_id, after_words(words, record.request.job.comment))


def still_held(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record of a job whose Pod nobody has seen, after the job was read: for as long as an
    earlier leader said, once more. Whoever owns a job, or asked for it, may have written its comment: no
    Pod's containers may run for longer than the rule of its grace lets them."""
    said = _SAID.match(job.comment)
    nodes = [node.name for name in job.nodes if (node := at.view.node_of(name))] if said else []
    if said is None or not nodes:
        return record
    until = at.now + min(float(said[1]), at.rules.leaves_within)
    held = record._replace(lingering=tuple((name, until) for name in nodes))
    return held.with_comment(job.comment[said.end() :])


def over(record: Placeholder, now: float) -> Placeholder:
    """Returns the record, without the time that its containers had where that is over."""
    if not record.lingering:
        return record
    left = tuple(each for each in record.lingering if each[1] > now)
    ended = not left and record.state in (State.RELEASING, State.REPLACING)
    record = record._replace(lingering=left)
    return record.with_retry(not_before=0.0) if ended else record
