"""Rebuilds the ledger from both systems at the start: what `placement.recovery` decides about.

Every Pod of ours is listed, every job state in our range is listed, and the jobs that may matter are
read: those under an id that a Pod could have used, and those that live, but for those that are seen to
run for a Pod that runs. A live job whose Pod is proven gone is an orphan, and ended.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from extender import pod_writes
from extender.dispatcher import Dispatcher
from extender.kubernetes_api import KubernetesApi, KubernetesError
from extender.placement.adoption import guest_of
from extender.placement.events import Failure, OrphanFound, Recovered
from extender.placement.identity import PlaceholderKey, whole_number
from extender.placement.ownership import key_of
from extender.placement.recovery import not_among, to_read, with_their_pods
from extender.placement.rules import Rules
from extender.placement.steps import trouble
from extender.placement.workload import ATTEMPT, Dialect, Pod
from extender.pod_watch import PodWatch
from slurm_client.errors import Unreadable
from slurm_client.model import Job
from slurm_client.protocol import Slurm

_READERS = 16
log = structlog.get_logger()


async def recover(
    pods: Iterable[Pod],
    slurm: Slurm,
    kubernetes: KubernetesApi,
    rules: Rules,
    dispatcher: Dispatcher,
    *,
    dialect: Dialect,
    guests: Container[str] = (),
) -> tuple[tuple[PlaceholderKey, Job], ...]:
    """Tells the dispatcher where every workload stands, and returns the live jobs of guests; the uids of
    some may be known already. Raises both systems' errors; may be repeated only before anything else was
    fed."""
    pods = tuple(pods)
    log.info("Pods listed", pods=len(pods))
    jobs, unsigned = await _jobs_that_matter(pods, slurm, rules)
    by_uid: dict[str, list[Job]] = defaultdict(list)
    for key, job in jobs:
        by_uid[key.uid].append(job)
    for uid, job in await asyncio.to_thread(list, with_their_pods(unsigned, pods, rules)):
        by_uid[uid].append(job)
    known = {pod.uid for pod in pods}
    others = [(key, job) for key, job in jobs if key.uid not in known and not job.state.ended]
    orphans = [
        OrphanFound(key, job.id, job)
        for key, job in others
        if not (key.adopted and key.uid in guests) and await is_over(key, kubernetes, dialect)
    ]
    over = {orphan.job_id for orphan in orphans}
    log.info("jobs read", jobs=len(jobs), orphans=len(orphans))
    await dispatcher.feed_all(Recovered(pod, tuple(by_uid[pod.uid])) for pod in pods)
    for orphan in orphans:
        dispatcher.feed(orphan)
    log.info("recovered", pods=len(pods), jobs=len(jobs), orphans=len(orphans))
    return tuple((key, job) for key, job in others if key.adopted and job.id not in over)


async def tell_those_who_wait(pods: PodWatch, kubernetes: KubernetesApi, failure: Failure) -> None:
    """Tells the Pods that nobody has told anything yet why they wait for a recovery that fails."""
    cause, now = trouble(failure), datetime.now(UTC)
    try:
        for pod in await pods.list():
            if pod.gated and not pod.told_to_wait:
                patch = pod_writes.waiting(pod, cause, None, now)
                await kubernetes.patch_pod_status(pod.namespace, pod.name, patch)
    except KubernetesError as error:
        log.warning("Pods not told", error=str(error))


async def _jobs_that_matter(
    pods: tuple[Pod, ...], slurm: Slurm, rules: Rules
) -> tuple[list[tuple[PlaceholderKey, Job]], list[Job]]:
    """Returns the jobs with a key of this cluster, and those without any key."""
    states = await slurm.all_states()
    if states.nameless:  # each may be any job that the answer lacks
        lacking = await asyncio.to_thread(list, not_among(pods, states, rules))
        states.update(await slurm.states(lacking))
    wanted = await asyncio.to_thread(list, to_read(pods, states, rules))
    read = [(key_of(job), job) for job in await read_all(wanted, slurm)]
    keyed = [(key, job) for key, job in read if key is not None and key.cluster == rules.cluster]
    return keyed, [job for key, job in read if key is None]


async def read_all(job_ids: Iterable[int], slurm: Slurm) -> list[Job]:
    """Returns the jobs that Slurm knows under some ids, but for those of which its answer cannot be
    read: nothing is concluded of them, nor ends for them. Raises SlurmError."""
    left, jobs = iter(job_ids), list[Job]()

    async def read() -> None:
        for job_id in left:
            with suppress(Unreadable):
                job = await slurm.job(job_id)
                if job is not None:
                    jobs.append(job)

    await asyncio.gather(*(read() for _ in range(_READERS)))
    return jobs


async def is_over(key: PlaceholderKey, kubernetes: KubernetesApi, dialect: Dialect) -> bool:
    """Tells whether what a job was made for is over: its attempt, or the guest. Absence from a list is
    not enough to end a job (invariant I5): the Pod is asked for by name."""
    manifest = await kubernetes.read_pod(key.namespace, key.name)
    if manifest is None or manifest["metadata"]["uid"] != key.uid:
        return True
    if key.adopted:
        return guest_of(manifest, dialect) is None
    annotations = manifest["metadata"].get("annotations") or {}
    return (whole_number(annotations.get(ATTEMPT, "")) or 1) > key.attempt
