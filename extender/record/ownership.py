"""Whether a job in Slurm is a workload's own: whatever ends, adopts or believes a job asks here.

The key in a job's AdminComment proves it: only root and SlurmUser can write that. But a job_submit
plugin, or an administrator's `scontrol update`, can overwrite it. Such a job still has the id that
follows from its Pod's uid, which users cannot choose. With its Pod's name, and submitted after its Pod
was created, it is the Pod's, too: asking for another would give the Pod two (invariant I1).

A job whose id Slurm chose has no key. Its name tells whose it is: nobody can make it up who does not
know the extender's secret, though everybody may give a job of theirs the name that another has. Its
owner may rename it: once it was read it is known by its `Identity`, which is written onto the Pod with a
proof.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from functools import partial
from hmac import compare_digest
from typing import NamedTuple, Self

from extender.cluster.view import ClusterView
from extender.record.config import PlacementConfig
from extender.request.pod import Pod
from extender.request.workload import Workload
from slurm_client.model import Job
from wellknown.job_key import (
    TRIES_AT_RECOVERY,
    JobIdRange,
    PlaceholderKey,
    is_own_name,
    job_name,
    pod_named,
    whole_number,
    without_seal,
)

_OTHER_ATTEMPTS = 20  # a third of a millisecond
_CLOCKS_DIFFER_S = 300
"""Slurm's own authentication takes no message that is older: clocks differ by less."""


class OwnedBy(Enum):
    """The owner of a job, as one workload sees it."""

    OURS = auto()
    """It has the workload's key; or it is known by its name or `Identity`, since Slurm chose its id."""
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

    @property
    def text(self) -> str:
        """Returns what is written of it onto a Pod, beside the id."""
        return f"{self.submit_time or 0}/{self.sluid}"

    @classmethod
    def parse(cls, job_id: int, text: str) -> Self | None:
        """Returns the identity of which `text` was written; None where it says nothing."""
        time, slash, sluid = text.partition("/")
        submit_time = whole_number(time)
        return None if not slash or submit_time is None else cls(job_id, sluid, submit_time or None)


def own_ids(pod: Pod, rules: PlacementConfig) -> tuple[int, ...]:
    """Returns the ids that follow from a Pod's uid (the first tries of this attempt and the last), and
    the one that it names with proof."""
    ids, named = (key.job_id(rules.ids) for key in own_keys(pod, rules)), proven(pod, rules)
    return tuple(ids) if named is None else (*ids, named.job_id)


def own_key(job_id: int, pod: Pod, rules: PlacementConfig) -> PlaceholderKey | None:
    """Returns the key of the one of a Pod's own ids that this is, None where it is none."""
    if job_id in rules.ids:
        return next((key for key in own_keys(pod, rules) if key.job_id(rules.ids) == job_id), None)
    return _proven(pod, rules)[0] if job_id == pod.job_id else None


def proof(key: PlaceholderKey, job: Identity, rules: PlacementConfig) -> str:
    """Returns what nobody can write onto a Pod who does not know the extender's secret: which job is the
    Pod's own, where Slurm chose its id, and of which attempt and try. Empty where there is no secret."""
    if not rules.secret:
        return ""
    code = key.proof(f"{job.job_id}/{job.text}", rules.secret)
    return f"{key.attempt}.{key.attempt_try}/{job.text}/{code}"


def proven(pod: Pod, rules: PlacementConfig) -> Identity | None:
    """Returns the job that a Pod names with proof; None: it names none whose id Slurm chose."""
    return _proven(pod, rules)[1]


def _proven(pod: Pod, rules: PlacementConfig) -> tuple[PlaceholderKey, Identity] | tuple[None, None]:
    """Whatever number of an attempt is on the Pod: everybody that may edit it may write that."""
    if not (rules.secret and pod.proof) or pod.job_id is None or pod.job_id in rules.ids:
        return None, None
    numbers, _, rest = pod.proof.partition("/")
    attempt, attempt_try = (whole_number(each) for each in numbers.partition(".")[::2])
    job, (uid, namespace, name, *_) = Identity.parse(pod.job_id, rest.rpartition("/")[0]), pod.workload
    if job is None or attempt is None or attempt_try is None:
        return None, None
    key = PlaceholderKey(rules.cluster, namespace, name, uid, attempt, attempt_try)
    told = compare_digest(proof(key, job, rules).encode(), pod.proof.encode())
    return (key, job) if told else (None, None)


def own_keys(pod: Pod, rules: PlacementConfig) -> Iterator[PlaceholderKey]:
    """Yields the keys that a Pod's jobs can have: the likeliest first, mostly the only one that is asked
    for."""
    return _keys(pod.workload, (pod.attempt, pod.attempt - 1), rules)


def own_key_by_name(job: Job, pod: Pod, rules: PlacementConfig) -> PlaceholderKey | None:
    """Returns the key by whose name a job was asked for, None where that is none of a Pod's.

    Anybody can make up such a name but for its seal, and another secret makes another seal: of a job
    that the Pod names, and of its user (as far as that is known), the rest is enough."""
    sealed = job.id != pod.job_id or pod.request.job.user_id not in (None, job.user_id)
    return key_named(job.name, pod.workload, pod.attempt, rules, sealed=sealed)


def _keys(
    workload: Workload, attempts: Iterable[int], rules: PlacementConfig
) -> Iterator[PlaceholderKey]:
    uid, namespace, name, *_ = workload
    return (
        PlaceholderKey(rules.cluster, namespace, name, uid, each, attempt_try)
        for each in attempts
        for attempt_try in range(TRIES_AT_RECOVERY)
        if each > 0
    )


def nobodys_key(job: Job, rules: PlacementConfig) -> PlaceholderKey:
    """Returns a key for a job that was asked for by the name of a Pod that is no more: its uid, of which
    the name has a hash alone, is no Pod's."""
    namespace, name = pod_named(job.name)
    return PlaceholderKey(rules.cluster, namespace, name, without_seal(job.name).rpartition("#")[2], 1)


def key_named(
    name: str, workload: Workload, attempt: int, rules: PlacementConfig, *, sealed: bool = True
) -> PlaceholderKey | None:
    """Returns the key by whose name a job was asked for, None where that is none of the workload's. The
    number of its attempt may be forged: others are tried, too. `sealed`: the seal has to fit."""
    if pod_named(name) != (workload.namespace, workload.name):
        return None
    if sealed and not is_own_name(name, rules.cluster, rules.secret):
        return None
    told, attempts = without_seal(name), (attempt, attempt - 1, *range(1, _OTHER_ATTEMPTS))
    keys = _keys(workload, attempts, rules) if told != name else ()
    return next((key for key in keys if without_seal(key.own_name(rules.secret)) == told), None)


def _no_key(_: Job) -> PlaceholderKey | None:
    return None


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
    computed: Container[int] = JobIdRange()
    """The ids that the extender chooses. Any other is Slurm's choice, and may be another job's by now,
    of the same workload even."""
    named: Callable[[Job], PlaceholderKey | None] = _no_key
    """Returns the key by whose name a job was asked for; None: that is no name of the workload's."""


def claim_of(pod: Pod, rules: PlacementConfig, view: ClusterView) -> Claim:
    """Returns the claim of a Pod of this Kubernetes cluster to its own jobs."""
    claim = claim_for(pod.workload, (pod,), pod.attempt, own_ids(pod, rules), rules, view)
    return replace(claim, known=proven(pod, rules), named=partial(own_key_by_name, pod=pod, rules=rules))


def claim_for(
    workload: Workload,
    pods: Iterable[Pod],
    attempt: int,
    ids: Container[int],
    rules: PlacementConfig,
    view: ClusterView,
) -> Claim:
    """Returns the claim of a workload in an attempt, as far as some of its Pods tell where it runs;
    `ids` are those that its jobs can have."""
    nodes = (view.nodes.get(pod.node or "") for pod in pods)
    return Claim(
        computed=rules.ids,
        named=lambda job: key_named(job.name, workload, attempt, rules),
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


def chosen_identity(job: Job | None, rules: PlacementConfig) -> Identity | None:
    """Returns by what a job is known whose id Slurm chose; None for others."""
    return None if job is None or job.id in rules.ids else identity_of(job)


def owner_of(job: Job, claim: Claim) -> OwnedBy:
    """Returns the owner of a job."""
    if job.id not in claim.computed:
        return OwnedBy.OURS if _is_chosen(job, claim) else OwnedBy.FOREIGN
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


def _is_chosen(job: Job, claim: Claim) -> bool:
    """Tells whether a job whose id Slurm chose is the workload's. One that is known is that very job or
    another, whatever it is called by now."""
    key, known = claim.named(job) or key_of(job), claim.known
    named = key is not None and _is_of(key, claim)
    return named if known is None or known.job_id != job.id else is_that_job(job, known, named=named)


def is_that_job(job: Job, known: Identity, *, named: bool) -> bool:
    """Tells whether a job is the one that is known under its id, which Slurm chose; `named`: it has that
    one's name."""
    if known.sluid and job.sluid:
        return known.sluid == job.sluid
    return known.submit_time == job.submit_time and (named or _started_at_once(job))


def _started_at_once(job: Job) -> bool:
    """Where jobs have no SLUID: tells whether a job started as soon as it was submitted. What gets the
    id of a job that slurmctld forgot does not: a slurmctld that was killed starts none in its first 2 s
    (24.11, measured)."""
    if job.start_time is None or job.submit_time is None:
        return False
    return job.start_time - job.submit_time <= 1


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
