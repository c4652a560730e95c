"""Whether a job in Slurm is a workload's own: whatever ends, adopts or believes a job asks here.

The key in a job's AdminComment proves it: only root and SlurmUser can write that. But a job_submit
plugin, or an administrator's `scontrol update`, can overwrite it. Such a job still has the id that
follows from its Pod's uid, which users cannot choose. With its Pod's name, and submitted after its Pod
was created, it is the Pod's, too: asking for another would give the Pod two (invariant I1).

A job that was read with its key is known by its `Identity` from then on, whatever becomes of the key.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from extender.cluster.view import ClusterView
from extender.record.config import PlacementConfig
from extender.request.pod import Pod
from extender.request.workload import Workload
from slurm_client.model import Job
from wellknown.job_key import TRIES_AT_RECOVERY, PlaceholderKey, job_name

_CLOCKS_DIFFER_S = 300
"""Slurm's own authentication takes no message that is older: clocks differ by less."""


class OwnedBy(Enum):
    """The owner of a job, as one workload sees it."""

    OURS = auto()
    """The job has the workload's key."""
    UNSIGNED = auto()
    """It is the workload's, and has lost its key."""
    FOREIGN = auto()
    """It is somebody else's, or nobody can tell."""


class Identity(NamedTuple):
    """Names one job for ever. An id may stand for another job after slurmctld lost its last seconds."""

    job_id: int
    sluid: str
    """Empty before 25.11."""
    submit_time: int | None


def own_ids(pod: Pod, rules: PlacementConfig) -> tuple[int, ...]:
    """Returns the ids that follow from a Pod's uid: the first tries of this attempt and of the last."""
    return tuple(key.job_id(rules.ids) for key in own_keys(pod, rules))


def own_key(job_id: int, pod: Pod, rules: PlacementConfig) -> PlaceholderKey | None:
    """Returns the key of a Pod's job with this id; None if no job of the Pod has the id."""
    return next((key for key in own_keys(pod, rules) if key.job_id(rules.ids) == job_id), None)


def own_keys(pod: Pod, rules: PlacementConfig) -> Iterator[PlaceholderKey]:
    """Yields the keys that a Pod's jobs can have, the most probable key first."""
    uid, namespace, name, *_ = pod.workload
    return (
        PlaceholderKey(rules.cluster, namespace, name, uid, attempt, attempt_try)
        for attempt in (pod.attempt, pod.attempt - 1)
        for attempt_try in range(TRIES_AT_RECOVERY)
        if attempt > 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is known of a workload, for a job to be compared with."""

    cluster: str
    uid: str
    job_name: str
    """What its jobs are called: name@namespace."""
    ids: Container[int]
    """The ids that its jobs can have."""
    created: str = ""
    """The Pod's creationTimestamp; empty where it is not known."""
    attempt: int | None = None
    """The only attempt that counts; None: each does."""
    slurm_nodes: frozenset[str] = frozenset()
    """The Slurm nodes of the Nodes that its Pods are bound to."""
    size: int = 1
    """How many nodes its jobs have."""
    taken: bool = False
    """Slurm has accepted a submission under the id (HTTP 200), and has not been heard to lose it."""
    known: Identity | None = None
    """The workload's job, as it was when it was first read."""


def claim_of(pod: Pod, rules: PlacementConfig, view: ClusterView) -> Claim:
    """Returns the claim of a Pod of this Kubernetes cluster to its own jobs."""
    return claim_for(pod.workload, (pod,), own_ids(pod, rules), rules, view)


def claim_for(
    workload: Workload,
    pods: Iterable[Pod],
    ids: Container[int],
    rules: PlacementConfig,
    view: ClusterView,
) -> Claim:
    """Returns the claim of a workload, as far as some of its Pods tell where it runs; `ids` are those
    that its jobs can have."""
    nodes = (view.nodes.get(pod.node or "") for pod in pods)
    return Claim(
        cluster=rules.cluster,
        uid=workload.uid,
        job_name=job_name(workload.namespace, workload.name),
        ids=ids,
        created=workload.created,
        slurm_nodes=frozenset(node.slurm_name for node in nodes if node is not None),
        size=workload.size,
    )


def key_of(job: Job) -> PlaceholderKey | None:
    """Returns the key that a job has; None: none of ours."""
    return PlaceholderKey.parse(job.admin_comment)


def identity_of(job: Job) -> Identity:
    """Returns what names this very job."""
    return Identity(job.id, job.sluid, job.submit_time)


def owner_of(job: Job, claim: Claim) -> OwnedBy:
    """Returns the owner of a job."""
    key = key_of(job)
    if key is not None:
        return OwnedBy.OURS if _is_of(key, claim) else OwnedBy.FOREIGN
    taken = claim.taken if claim.known is None else claim.known == identity_of(job)
    may_be = job.id in claim.ids
    mine = may_be and (taken or _is_named(job, claim) or _runs_at_its_pod(job, claim))
    return OwnedBy.UNSIGNED if mine else OwnedBy.FOREIGN


def _is_of(key: PlaceholderKey, claim: Claim) -> bool:
    same = (key.cluster, key.uid) == (claim.cluster, claim.uid)
    return same and claim.attempt in (None, key.attempt)


def is_own(job: Job, claim: Claim) -> bool:
    """Tells whether a job is the workload's, with or without its key."""
    return owner_of(job, claim) is not OwnedBy.FOREIGN


def _is_named(job: Job, claim: Claim) -> bool:
    return job.name == claim.job_name and not _is_older(job, claim.created)


def _is_older(job: Job, created: str) -> bool:
    """Tells whether a job was there before its Pod: then it was an earlier Pod's of that name."""
    if not created:
        return False
    at = datetime.fromisoformat(created).timestamp()
    return job.submit_time is None or job.submit_time + _CLOCKS_DIFFER_S < at


def _runs_at_its_pod(job: Job, claim: Claim) -> bool:
    """Tells whether it holds what the Pod uses: its owner may have renamed it, too."""
    there = claim.slurm_nodes and claim.slurm_nodes.issubset(job.nodes)
    return bool(there) and job.state.running and len(job.nodes) == claim.size
