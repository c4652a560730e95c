"""Finds the jobs in Slurm that belong to a workload, by the ids and keys of the extender's jobs.

The key in a job's AdminComment proves that the job belongs to the workload, because only root and
SlurmUser can write an AdminComment. A job_submit plugin or an administrator (`scontrol update`) can
overwrite the key. Then the id still names the workload: the extender computes the id from the Pod's uid,
and only root and SlurmUser may choose the id of a job.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from extender.pod_request.workload import Workload
from slurm_client.model import Job
from wellknown.job_key import (
    TRIES_AT_RECOVERY,
    JobIdRange,
    PlaceholderKey,
    generation_of,
    job_name,
)

MAX_TRIES = 100
"""Maximum number of tries (job ids) for one attempt to place a Pod. Only the ids of these tries belong
to the Pod. Each time that the node of a running Pod fails in Slurm alone, the Pod needs another try of
the same attempt."""


class Keys(Protocol):
    """The settings that determine the keys and ids of a Kubernetes cluster's jobs."""

    @property
    def cluster(self) -> str:
        """Name of the Kubernetes cluster in the keys."""
        ...

    @property
    def ids(self) -> JobIdRange:
        """Ids reserved for the cluster's placeholders."""
        ...


class JobIdentity(NamedTuple):
    """Identifies one job for ever. The id alone is not enough: if slurmctld loses its last seconds in a
    crash, Slurm may give the id to another job."""

    job_id: int
    sluid: str
    """Slurm's own unique id of the job; empty before 25.11."""
    submit_time: int | None


def identity_of(job: Job) -> JobIdentity:
    """Returns the identity of a job."""
    return JobIdentity(job.id, job.sluid, job.submit_time)


class Charged(NamedTuple):
    """User, account and partition of a job, as Slurm reports."""

    user: str = ""
    """Name of the user; the number if Slurm does not report the name."""
    account: str = ""
    partition: str = ""


def charged_of(job: Job) -> Charged:
    """Returns the user, the account and the partition of a job. Equal values share one tuple."""
    return _shared(job.user_name or str(job.user_id), job.account, job.partition)


_shared = lru_cache(maxsize=1024)(Charged)


def key_of(job: Job) -> PlaceholderKey | None:
    """Returns the key in a job's AdminComment; None if the AdminComment is no key."""
    return PlaceholderKey.parse(job.admin_comment)


def own_keys(pod: Pod, keys: Keys, tries: int = TRIES_AT_RECOVERY) -> Iterator[PlaceholderKey]:
    """Yields the keys that a Pod's jobs can have, the most probable key first. `tries` is the number of
    tries to consider for each attempt."""
    uid, namespace, name, *_ = pod.workload
    return (
        PlaceholderKey(keys.cluster, namespace, name, uid, attempt, attempt_try)
        for attempt in (pod.scheduling.attempt, pod.scheduling.attempt - 1)
        for attempt_try in range(tries)
        if attempt > 0
    )


def own_ids(pod: Pod, keys: Keys) -> tuple[int, ...]:
    """Returns the job ids computed from a Pod's uid, for the first tries of the current attempt and of
    the attempt before."""
    return tuple(key.job_id(keys.ids) for key in own_keys(pod, keys))


def own_key(job_id: int, pod: Pod, keys: Keys) -> PlaceholderKey | None:
    """Returns the key that a Pod's job with this id must have; None if the Pod cannot have a job with
    this id."""
    own = own_keys(pod, keys, MAX_TRIES)
    return next((key for key in own if key.job_id(keys.ids) == job_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """Facts about a workload, to find out whether a job belongs to the workload."""

    cluster: str
    workload: Workload
    ids: Container[int]
    """Possible ids of the workload's jobs."""
    attempt: int | None = None
    """The only valid attempt; None if every attempt is valid."""
    pods: tuple[Pod, ...] = ()
    """Pods of the workload."""
    view: ClusterView = field(default_factory=ClusterView)
    """Nodes of Kubernetes and of Slurm."""
    taken: bool = False
    """True if Slurm accepted a submission under one of `ids` (HTTP 200), or if a read showed the
    workload's job. False again after the extender finds that Slurm has lost this job, or that the id
    belongs to another job."""
    generation: str = ""
    """Generation of the gang's Pods at the submission: the first digits of the lowest uid
    (`generation_of`). Empty if unknown, and for a workload of one Pod."""
    known: JobIdentity | None = None
    """Identity of the workload's job, from the first read that showed the key; None before this read."""

    @property
    def job_name(self) -> str:
        """Returns the name of the workload's jobs."""
        return job_name(self.workload.namespace, self.workload.name)

    @property
    def slurm_nodes(self) -> frozenset[str]:
        """Returns the Slurm nodes of the Nodes to which the Pods are bound."""
        nodes = (self.view.nodes.get(pod.life.node or "") for pod in self.pods)
        return frozenset(node.slurm_name for node in nodes if node is not None)


def is_of_pods(key: PlaceholderKey, job_id: int, pods: Iterable[Pod]) -> bool:
    """Returns True if a job with this key of the workload may belong to the present Pods. Returns False
    for the job of an earlier gang with the same name. The Pod whose uid gave the key's generation may be
    gone. So a job that a Pod names (`scheduling.job_id`) also belongs to the Pods."""
    if not key.generation:
        return True
    return any(
        generation_of([pod.uid]) == key.generation or pod.scheduling.job_id == job_id for pod in pods
    )


def claim_of(pod: Pod, keys: Keys, view: ClusterView, members: Sequence[Pod] = ()) -> JobClaim:
    """Returns the claim of a Pod to its own jobs. `members` are all Pods of the Pod's workload."""
    ids, pods = own_ids(pod, keys), tuple(members) or (pod,)
    return JobClaim(cluster=keys.cluster, workload=pod.workload, ids=ids, pods=pods, view=view)
