"""Recovers the ledger from Slurm and Kubernetes at the start of a leader. `placement.recovery` makes the
decisions.

The leader lists every managed Pod and the states of all jobs. Then the leader reads the jobs with a
possible id of a Pod, and the live jobs in the placeholders' range. The leader does not read jobs that
are known to run for a running Pod. A live job whose Pod is proven gone is an orphan, and is ended.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime

import structlog

from extender.execution import pod_patches
from extender.execution.dispatcher import Dispatcher
from extender.execution.pod_watch import PodWatch
from extender.jobs.claim import is_of_pods, key_of
from extender.node_view.read_jobs import read_all
from extender.placement.recovery import not_among, to_read, with_their_pods
from extender.placement.transitions.attempts import cause_of
from extender.pod_request.pod import Pod, attempt_of
from extender.record.config import PlacementConfig
from extender.record.events import Failure, OrphanFound, Recovered
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.cooperative import yielding
from service.health import Health, common_problem
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.job_key import PlaceholderKey, generation_of, whole_number
from wellknown.names import JOB_ID

log = structlog.get_logger()


async def recover(
    pods: Iterable[Pod],
    slurm: Slurm,
    kubernetes: Kubernetes,
    rules: PlacementConfig,
    dispatcher: Dispatcher,
    *,
    adoptable: Callable[[Manifest], bool],
    adopted: Container[str] = (),
) -> tuple[tuple[PlaceholderKey, Job], ...]:
    """Passes the state of every workload to the dispatcher, and returns the live jobs of adopted Pods.
    `adoptable` returns True for the manifest of an adopted Pod. `adopted` has the uids of the known
    adopted Pods. Raises the errors of Slurm and of kube-apiserver. After an error, the caller may repeat
    the call, but only before any other event."""
    pods = tuple(pods)
    log.info("Pods listed", pods=len(pods))
    jobs, without_key = await _jobs_that_matter(pods, slurm, rules)
    by_uid: dict[str, list[Job]] = defaultdict(list)
    for key, job in jobs:
        by_uid[key.uid].append(job)
    for uid, job in await asyncio.to_thread(list, with_their_pods(without_key, pods, rules)):
        by_uid[uid].append(job)
    workloads: dict[str, list[Pod]] = defaultdict(list)
    async for pod in yielding(pods):
        workloads[pod.workload.uid].append(pod)
    others = [
        (key, job)
        for key, job in jobs
        if not (
            job.state.ended or (key.uid in workloads and is_of_pods(key, job.id, workloads[key.uid]))
        )
    ]
    orphans = [
        OrphanFound(key, job.id, job)
        for key, job in others
        if not (key.adopted and key.uid in adopted) and await is_over(key, job.id, kubernetes, adoptable)
    ]
    over = {orphan.job_id for orphan in orphans}
    log.info("jobs read", jobs=len(jobs), orphans=len(orphans))
    await dispatcher.feed_all(
        Recovered(tuple(members), tuple(by_uid[uid])) for uid, members in workloads.items()
    )
    for orphan in orphans:
        dispatcher.feed(orphan)
    log.info("recovered", pods=len(pods), jobs=len(jobs), orphans=len(orphans))
    return tuple((key, job) for key, job in others if key.adopted and job.id not in over)


async def tell_those_who_wait(
    pods: PodWatch, kubernetes: Kubernetes, failure: Failure, health: Health
) -> None:
    """Writes a condition about the failed recovery onto waiting Pods that have no condition yet."""
    cause, now = cause_of(failure), datetime.now(UTC)
    try:
        for pod in await pods.list():
            if pod.gated and not pod.shows_wait:
                patch = pod_patches.waiting(pod, cause, None, now)
                await kubernetes.patch_pod_status(pod.namespace, pod.name, patch)
    except KubernetesError as error:
        tell = health.news(common_problem(error), log.warning)
        tell("conditions of waiting Pods not written", error=str(error))


async def _jobs_that_matter(
    pods: tuple[Pod, ...], slurm: Slurm, rules: PlacementConfig
) -> tuple[list[tuple[PlaceholderKey, Job]], list[Job]]:
    """Returns the jobs with a key of this cluster, and the jobs without any key."""
    states = await slurm.all_states()
    if states.nameless:  # an entry without a readable id may be any missing job
        lacking = await asyncio.to_thread(list, not_among(pods, states, rules))
        states.update(await slurm.states(lacking))
    wanted = await asyncio.to_thread(list, to_read(pods, states, rules))
    read = [(key_of(job), job) for job in await read_all(wanted, slurm)]
    keyed = [(key, job) for key, job in read if key is not None and key.cluster == rules.cluster]
    return keyed, [job for key, job in read if key is None]


async def is_over(
    key: PlaceholderKey, job_id: int, kubernetes: Kubernetes, adoptable: Callable[[Manifest], bool]
) -> bool:
    """Returns True if the attempt or the adopted Pod of a job has ended. Reads the Pod by name, because
    absence from a list is not enough to end a job (invariant I5). A gang has no Pod with the name in the
    key, so the function lists the namespace, without the cache of kube-apiserver."""
    if key.generation:
        return await _has_no_pods(key, job_id, kubernetes)
    manifest = await kubernetes.read_pod(key.namespace, key.name)
    if manifest is None or manifest["metadata"]["uid"] != key.uid:
        return True
    if key.adopted:
        return not adoptable(manifest)
    return attempt_of(manifest["metadata"].get("annotations") or {}) > key.attempt


async def _has_no_pods(key: PlaceholderKey, job_id: int, kubernetes: Kubernetes) -> bool:
    """Returns True if no Pod of a gang's attempt is left."""
    listed = await kubernetes.list("pods", f"metadata.namespace={key.namespace}")
    for manifest in listed["items"]:
        metadata = manifest["metadata"]
        annotations = metadata.get("annotations") or {}
        named = whole_number(annotations.get(JOB_ID, "")) == job_id
        alike = generation_of([metadata["uid"]]) == key.generation
        if (named or alike) and attempt_of(annotations) <= key.attempt:
            return False
    return True
