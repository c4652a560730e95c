"""Containers that may outlive a Pod that was deleted by force (`kubectl delete --force`).

kube-apiserver drops such a Pod at once, and the kubelet ends the containers within the Pod's own grace
period. The job keeps its resources until the grace period has passed. If the job ends earlier, the
Node's gate and the next Pods wait for the containers (invariant I4). The job's comment has the remaining
time, for people and for the next leader. Other replicas, and the next leader after the end of the job,
read notes on Nodes (`node_view.lingering_notes`). The extender does not know of deletions that happen
while no leader watches.
"""

import re
from collections.abc import Container, Iterable
from math import ceil

from extender.jobs.slots import whole_on
from extender.pod_request.pod import Pod
from extender.pod_request.pod_end import SEPARATOR, after_words
from extender.record.config import Context
from extender.record.events import HoldJob
from extender.record.placeholder import LingeringContainers, Placeholder
from extender.record.states import State
from slurm_client.model import Job
from wellknown.allocation import Allocation

_WORDS = "Pod gone: its containers may run for another {} s"
_WORDS_PATTERN = re.compile(_WORDS.format(r"(\d{1,6})") + rf"(?:{SEPARATOR}|\Z)")


def lingering(
    record: Placeholder, last: Pod, left_slots: Iterable[Allocation], now: float
) -> Placeholder:
    """Returns the record with the containers that may outlive a Pod. `last` is the last version of the
    Pod, which is gone. The containers may also be on earlier slots: the node agent may not have moved
    the containers yet, and moves no containers without a Pod."""
    seconds, node, slot = last.lingers_s, last.life.node, last.scheduling.allocation
    if not seconds or node is None or record.job.id is None:
        return record
    if slot is None or slot.node != node:  # the cores are not known
        slot = Allocation(record.job.id, node)
    slots = dict.fromkeys((*left_slots, slot))
    new = tuple([LingeringContainers(each, now + seconds) for each in slots])
    return record._replace(lingering=record.lingering + new)


def hold(record: Placeholder, job_id: int, now: float) -> HoldJob:
    """Returns the effect that writes the remaining time into the job's comment. The time comes before
    the author's comment, because the author's comment may fill the space."""
    words = _WORDS.format(ceil(record.lingers_until - now))
    return HoldJob(record.uid, job_id, after_words(words, record.request.job.comment))


def still_held(record: Placeholder, job: Job, at: Context) -> Placeholder:
    """Returns the record of a job without a Pod after the job was read. If an earlier leader has written
    a remaining time into the job's comment, this time begins again. The job's user may have written the
    comment, so the time is at most the longest allowed grace period."""
    match = _WORDS_PATTERN.match(job.comment)
    nodes = {name: node.name for name in job.nodes if (node := at.view.node_of(name))} if match else {}
    if match is None or not nodes:
        return record
    until = at.now + min(float(match[1]), at.rules.leaves_within)
    slots = (whole_on(slurm, job.grant, job.id, name) for slurm, name in nodes.items())
    found = tuple([LingeringContainers(slot, until) for slot in slots if slot is not None])
    held = record._replace(lingering=found)
    return held.with_comment(job.comment[match.end() :])


def without_expired(record: Placeholder, at: Context) -> Placeholder:
    """Returns the record without expired lingering containers. While the kubelet of a Node does not
    report to Kubernetes, the kubelet may not know of the deletion. Then the time begins again."""
    if not record.lingering:
        return record
    again = at.now + at.rules.leaves_within
    lasts = (
        each._replace(until=again) if each.until <= at.now and _is_away(each, at) else each
        for each in record.lingering
    )
    left = tuple(each for each in lasts if each.until > at.now)
    ended = not left and record.state in (State.RELEASING, State.REPLACING)
    record = record._replace(lingering=left)
    return record.with_retry(not_before=0.0) if ended else record


def prolonged(record: Placeholder, nodes: Container[str], at: Context) -> Placeholder:
    """Returns the record after the kubelets of some Nodes report to Kubernetes again. Each kubelet
    learns of the deletion only now, so the time of the containers begins again."""
    again = at.now + at.rules.leaves_within
    lingering = tuple(
        each._replace(until=max(each.until, again)) if each.slot.node in nodes else each
        for each in record.lingering
    )
    return record._replace(lingering=lingering)


def _is_away(containers: LingeringContainers, at: Context) -> bool:
    node = at.view.nodes.get(containers.slot.node)
    return node is not None and node.away
