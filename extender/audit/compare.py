"""Compares Slurm with Kubernetes, and finds the cause and the fix of each difference. Changes nothing.

A difference may be temporary, so callers report a difference only after several readings have found the
difference."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from extender.explain.cause import Cause, Kind
from extender.jobs.claim import claim_of, is_of_pods, key_of, own_ids, own_key
from extender.jobs.verdict import judge
from extender.node_sync.drains import Holder, holder_of, reason_still_holds
from extender.node_view.view import ClusterView
from extender.placement.recovery import with_their_pods
from extender.placement.transitions.on_job import waits_for_its_pods_nodes
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from slurm_client.job_state import JobState
from slurm_client.model import Job
from slurm_client.model import Node as SlurmNode
from wellknown.job_key import JobIdRange, PlaceholderKey
from wellknown.names import JOB_ID
from wellknown.node_mapping import in_words

_REPORTED_WITHIN_S = 60.0
_MOST_READ = 100
"""Largest number of waiting jobs of running Pods that an audit reads. A loss of Slurm's state may leave
thousands of such jobs."""


class FindingKind(StrEnum):
    ORPHAN_JOB = "OrphanJob"
    """A live job has a placeholder's key, but the Pod or the attempt has ended, or the Pod may have no
    job."""
    POD_WITHOUT_JOB = "PodWithoutJob"
    """A Pod is bound, but its job does not run; or a Pod waits for a job that Slurm does not know."""
    JOB_WAITS = "JobWaits"
    """Slurm has lost the job of a bound Pod, and the next job waits because the Node is in use."""
    TWO_JOBS = "TwoJobs"
    """A second live job of a Pod."""
    WRONG_NODE = "WrongNode"
    """A Pod is on a Node that does not stand for the node of the Pod's job."""
    FOREIGN_KEY = "ForeignKey"
    """A live job has an id in the placeholders' range but no key, or a Pod names the job of another
    owner."""
    STUCK_GATE = "StuckGate"
    """The extender's scheduling gate is on a Pod without a condition, or on a Pod whose job already
    runs."""
    STUCK_DRAIN = "StuckDrain"
    """A node is drained with a reason from the extender, and the reason does not hold for the node's
    Node."""
    CONTESTED_NODE = "ContestedNode"
    """Several Nodes name the same Slurm node."""
    OTHER_CLUSTER = "OtherCluster"
    """A placeholder of another Kubernetes cluster: information, not a difference."""

    @property
    def differs(self) -> bool:
        """True if the two systems disagree."""
        return self is not FindingKind.OTHER_CLUSTER


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference. Two findings of the same difference are equal, even if the messages differ."""

    kind: FindingKind
    cause: Cause = field(compare=False)
    fix: str = field(compare=False)
    pod: str = ""
    """namespace/name."""
    job_id: int | None = None
    node: str = ""
    mended: bool = field(default=False, compare=False)
    """True if the leader corrects the difference."""
    key: PlaceholderKey | None = field(default=None, compare=False)
    """The key of the job, if the job is an orphan or a second job."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A reading of Slurm and Kubernetes. The Pods are read first."""

    at: datetime
    pods: tuple[Pod, ...]
    states: Mapping[int, JobState]
    jobs: Mapping[int, Job]
    """The jobs from `unclear`, with their details."""
    over: frozenset[int]
    """The jobs from `unclear` whose Pod, or attempt, has certainly ended."""
    view: ClusterView
    nodes: tuple[SlurmNode, ...] = ()


def shared_ids(findings: Iterable[Finding], ids: JobIdRange) -> str | None:
    """Returns a warning if placeholders of other clusters have ids in this range, because each such job
    needs a read."""
    if not any(finding.kind is FindingKind.OTHER_CLUSTER for finding in findings):
        return None
    return (
        f"jobs of other Kubernetes clusters have ids in this cluster's range ({ids.first} to"
        f" {ids.end - 1}), and a new leader reads each of them: give each cluster its own range"
        " (SLURM_EXTENDER_JOB_ID_FIRST, SLURM_EXTENDER_JOB_ID_END), and cancel the jobs of deleted"
        " clusters (`slurm-extender audit` lists them)"
    )


def unclear(
    pods: Iterable[Pod],
    states: Mapping[int, JobState],
    config: PlacementConfig,
    known: Container[int] = (),
) -> Iterator[int]:
    """Yields the ids of live jobs to read: jobs that a Pod names wrongly, and jobs in the placeholders'
    range that no Pod names. Leaves out `known` jobs that no Pod names. Adds at most _MOST_READ waiting
    jobs of running Pods."""
    naming = {pod.scheduling.job_id: pod for pod in pods if pod.scheduling.job_id is not None}
    waiting = 0
    for job_id, state in states.items():
        pod = naming.get(job_id)
        if (job_id in config.ids or pod is not None) and not state.ended:
            if not _fits(pod, config) if pod is not None else job_id not in known:
                yield job_id
            elif (
                pod is not None and pod.life.node is not None and state.pending and waiting < _MOST_READ
            ):
                waiting += 1
                yield job_id


def _fits(pod: Pod, config: PlacementConfig) -> bool:
    """Returns True if a Pod has a valid annotation for the job that the Pod names. Returns False, for
    example, for a Pod that was bound by hand."""
    there = pod.scheduling.allocation is not None and pod.scheduling.allocation.node == pod.life.node
    return (
        (pod.life.node is None or there)
        and not pod.life.finished
        and pod.scheduling.job_id in own_ids(pod, config)
    )


def compare(reading: Snapshot, config: PlacementConfig) -> tuple[Finding, ...]:
    """Returns all differences in a reading."""
    pods: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in reading.pods:
        pods[pod.workload.uid].append(pod)
    own: defaultdict[str, list[Job]] = defaultdict(list)
    found = [*_stuck_drains(reading), *_contested(reading.view)]
    missing_keys = _missing_keys(reading, config)
    for job in reading.jobs.values():
        if job.state.ended:
            continue
        key = key_of(job) or missing_keys.get(job.id)
        if job.id in missing_keys:
            found.append(_without_key(job))
        orphan = _orphan(job, key, pods, reading, config)
        if orphan is not None:
            found.append(orphan)
        elif key is not None:
            own[key.uid].append(job)
    unreported = sum(1 for pod in reading.pods if _is_unreported(pod))
    for pod in reading.pods:
        members, read = pods[pod.workload.uid], own[pod.workload.uid]
        found += _of_pod(pod, members, read, unreported, reading, config)
    return tuple(dict.fromkeys(found))


def _missing_keys(reading: Snapshot, config: PlacementConfig) -> Mapping[int, PlaceholderKey]:
    """Finds the Pods' jobs whose keys are missing. Returns the right key of each such job, by job id."""
    without = [job for job in reading.jobs.values() if not job.state.ended and key_of(job) is None]
    pods = {pod.workload.uid: pod for pod in reading.pods} if without else {}
    found = dict[int, PlaceholderKey]()
    for uid, job in with_their_pods(without, pods.values(), config):
        pod = pods[uid]
        key = own_key(job.id, pod, config)
        if key is not None and judge(job, claim_of(pod, config, reading.view)).is_ours:
            found[job.id] = key
    return found


def _without_key(job: Job) -> Finding:
    cause = Cause.of(Kind.JOB_WITH_OTHER_COMMENT, job=job.id, name=job.name)
    fix = "find the job_submit plugin or the user that overwrites AdminComment; the Pod keeps the job"
    return Finding(FindingKind.FOREIGN_KEY, cause, fix, job_id=job.id)


def _orphan(
    job: Job,
    key: PlaceholderKey | None,
    pods: Mapping[str, list[Pod]],
    reading: Snapshot,
    config: PlacementConfig,
) -> Finding | None:
    """Returns the finding about a job that should not exist, or has no key. Returns None for a Pod's own
    job."""
    if key is None and job.id not in config.ids:
        return None  # the job of another owner, with an id that a Pod names
    if key is None:
        cause = Cause.of(Kind.JOB_WITHOUT_OUR_KEY, job=job.id, name=job.name)
        fix = (
            "ask the job's owner to let Slurm choose ids, or change SLURM_EXTENDER_JOB_ID_FIRST;"
            " the extender does not cancel the job"
        )
        return Finding(FindingKind.FOREIGN_KEY, cause, fix, job_id=job.id)
    whose = f"{key.namespace}/{key.name}"
    if key.cluster != config.cluster:
        cause = Cause.of(Kind.JOB_OF_OTHER_CLUSTER, job=job.id, pod=whose, cluster=key.cluster)
        fix = f"nothing while the other cluster exists; if the cluster is deleted: scancel {job.id}"
        return Finding(FindingKind.OTHER_CLUSTER, cause, fix, whose, job.id)
    listed = pods.get(key.uid, [])
    if not is_of_pods(key, job.id, listed):
        listed = []
    if not listed and job.id not in reading.over:
        return None  # the Pod exists, although the list lacks the Pod
    alive = [pod for pod in listed if not pod.life.finished]
    if not alive or any(key.attempt < pod.scheduling.attempt for pod in alive):
        why = Cause.of(Kind.ATTEMPT_OVER, attempt=key.attempt)
    elif may_have_no_job(alive):
        obstacles = (pod.scheduling.obstacle for pod in alive if pod.scheduling.obstacle)
        why = next(obstacles, Cause.of(Kind.POD_INVALID))
    else:
        return None
    cause = Cause.of(Kind.ORPHAN_JOB, job=job.id, state=job.state.text, pod=whose, why=why)
    fix = f"the leader cancels the job; by hand: scancel {job.id}"
    return Finding(FindingKind.ORPHAN_JOB, cause, fix, whose, job.id, mended=True, key=key)


def may_have_no_job(pods: Sequence[Pod]) -> bool:
    """Returns True if a workload waits and may have no job, because a Pod is invalid, is missing or
    could not use a job. A former leader may still have requested a job for the workload."""
    workload, obstacle = pods[0].workload, any(pod.scheduling.obstacle is not None for pod in pods)
    invalid = workload.request([pod.request for pod in pods]).problems
    needs_none = obstacle or invalid or len(pods) < workload.size
    return bool(needs_none) and all(
        pod.life.node is None and pod.scheduling.allocation is None for pod in pods
    )


def _of_pod(
    pod: Pod,
    members: Sequence[Pod],
    read: list[Job],
    unreported: int,
    reading: Snapshot,
    config: PlacementConfig,
) -> Iterator[Finding]:
    """Yields the findings about a Pod. `members` are the Pods of the Pod's workload. `read` has the live
    jobs with the workload's key. `unreported` is the number of Pods without a condition."""
    if pod.life.finished or pod.life.deleting:
        return
    live = {job.id for job in read}
    state = reading.states.get(pod.scheduling.job_id or 0)
    if _is_forged(pod, live, config):
        yield _names_another(pod)
        yield from _elsewhere(pod, read, reading)
        return
    if state is not None and not state.ended and pod.scheduling.job_id is not None:
        live.add(pod.scheduling.job_id)
    runs = state is not None and state.running and pod.scheduling.job_id in live
    yield from _more_than_one(pod, read, live, runs=runs)
    own = [job for job in read if job.id == pod.scheduling.job_id or pod.scheduling.job_id not in live]
    if pod.life.node is None:
        yield from _waiting(pod, live, state, unreported, reading, config)
    elif not runs and not any(job.state.running for job in own):
        yield from _unheld(pod, members, next(iter(own), None), state, reading)
    yield from _elsewhere(pod, own, reading)


def _is_forged(pod: Pod, live: set[int], config: PlacementConfig) -> bool:
    return (
        pod.scheduling.job_id is not None
        and pod.scheduling.job_id not in live
        and own_key(pod.scheduling.job_id, pod, config) is None
    )


def _names_another(pod: Pod) -> Finding:
    name, job_id = pod.full_name, pod.scheduling.job_id
    cause = Cause.of(Kind.OTHER_JOB_NAMED, annotation=JOB_ID, job=job_id)
    fix = f"kubectl annotate pod -n {pod.namespace} {pod.name} {JOB_ID}-; find out what writes it"
    return Finding(FindingKind.FOREIGN_KEY, cause, fix, name, job_id)


def _more_than_one(pod: Pod, read: list[Job], live: set[int], *, runs: bool) -> Iterator[Finding]:
    """Yields the findings about further jobs of a Pod. The job that the Pod names stays, unless only
    another job runs. In this case the Pod may use the other job's resources, and a person must check."""
    if len(live) < 2:
        return
    kept = pod.scheduling.job_id if pod.scheduling.job_id in live else min(live)
    for job in read:
        if job.id != kept:
            cause = Cause.of(Kind.SECOND_JOB, job=job.id, state=job.state.text, kept=kept)
            fix = f"the leader cancels the job that the Pod does not name; by hand: scancel {job.id}"
            name, key = pod.full_name, key_of(job)
            mended = (
                key is not None and kept == pod.scheduling.job_id and (runs or not job.state.running)
            )
            yield Finding(FindingKind.TWO_JOBS, cause, fix, name, job.id, mended=mended, key=key)


def _unheld(
    pod: Pod, members: Sequence[Pod], job: Job | None, state: JobState | None, reading: Snapshot
) -> Iterator[Finding]:
    """Yields the finding about a bound Pod without a running job. `state` is the state of the job that
    the Pod names."""
    name, node, job_id = pod.full_name, pod.life.node or "", pod.scheduling.job_id
    if job is not None:
        job_id, state = job.id, job.state
    if job_id is None:
        cause = Cause.of(Kind.BOUND_BY_OTHERS, node=node)
        yield Finding(FindingKind.POD_WITHOUT_JOB, cause, _placing_anew(pod), name, None, node)
    elif state is None:
        cause = Cause.of(Kind.BOUND_AND_JOB_UNKNOWN, node=node, job=job_id)
        fix = f"the leader requests the job from Slurm again, on {node}; see the leader's log"
        yield Finding(FindingKind.POD_WITHOUT_JOB, cause, fix, name, job_id, node, mended=True)
    elif state.pending and (job is None or waits_for_its_pods_nodes(job, members, reading.view)):
        yield _waits_for_its_node(pod, job, job_id, reading.view)
    elif state.ended or state.pending or state.suspended:
        cause = Cause.of(Kind.BOUND_AND_JOB_OVER, node=node, job=job_id, state=state.text)
        fix = "the leader deletes the Pod, unless the eviction limiter prevents the deletion (/readyz)"
        yield Finding(FindingKind.POD_WITHOUT_JOB, cause, fix, name, job_id, node, mended=True)


def _placing_anew(pod: Pod) -> str:
    return f"kubectl delete pod -n {pod.namespace} {pod.name}, so that Slurm places its replacement"


def _waits_for_its_node(pod: Pod, job: Job | None, job_id: int, view: ClusterView) -> Finding:
    """Returns the finding about a bound Pod's job that waits for the Pod's Node. Slurm does not report
    what occupies the node, so the fix names the commands with which a person can look."""
    word = job.reason if job is not None else ""
    cause = Cause.of(Kind.BOUND_AND_JOB_WAITS, node=pod.life.node, job=job_id, word=word)
    where = view.nodes.get(pod.life.node or "")
    slurm_node = where.slurm_name if where is not None else pod.life.node
    fix = (
        f"the job starts when the node has room: see squeue -w {slurm_node}, and sinfo -R;"
        f" or {_placing_anew(pod)}"
    )
    return Finding(FindingKind.JOB_WAITS, cause, fix, pod.full_name, job_id, pod.life.node or "")


def _waiting(
    pod: Pod,
    live: set[int],
    state: JobState | None,
    unreported: int,
    reading: Snapshot,
    config: PlacementConfig,
) -> Iterator[Finding]:
    """Yields the findings about a Pod that is not bound."""
    name = pod.full_name
    if not live and pod.scheduling.job_id is not None:
        known = None if state is None else state.text
        cause = Cause.of(Kind.WAITS_WITHOUT_JOB, job=pod.scheduling.job_id, state=known)
        fix = "the leader requests the job from Slurm again, or deletes the Pod if a user cancelled it"
        yield Finding(FindingKind.POD_WITHOUT_JOB, cause, fix, name, pod.scheduling.job_id, mended=True)
    elif live and pod.gated and not pod.other_gates and state is not None and state.running:
        cause = Cause.of(Kind.GATED_AND_JOB_RUNS, job=pod.scheduling.job_id)
        fix = "check that a leader runs (/readyz) and may patch Pods: the leader lifts the gate"
        yield Finding(FindingKind.STUCK_GATE, cause, fix, name, pod.scheduling.job_id)
    elif not live and _is_unreported(pod) and _age(pod, reading.at) > _patience(unreported, config):
        cause = Cause.of(Kind.GATED_WITHOUT_CAUSE)
        fix = "check that a leader runs (/readyz), and that the Pod is in the leader's scope"
        yield Finding(FindingKind.STUCK_GATE, cause, fix, name)


def _is_unreported(pod: Pod) -> bool:
    return pod.gated and pod.life.node is None and pod.scheduling.job_id is None and not pod.shows_wait


def _patience(unreported: int, config: PlacementConfig) -> float:
    """Returns the longest normal time until a Pod has a condition. Waiting Pods get conditions one after
    the other, so the time grows with the number of Pods."""
    return _REPORTED_WITHIN_S + unreported * config.in_line_report_pause


def _age(pod: Pod, at: datetime) -> float:
    return (at - datetime.fromisoformat(pod.created)).total_seconds() if pod.created else 0.0


def _elsewhere(pod: Pod, read: list[Job], reading: Snapshot) -> Iterator[Finding]:
    """Yields the finding about a bound Pod whose job runs on another node."""
    for job in read:
        if pod.life.node is None or not job.state.running or not job.nodes:
            continue
        if not any(reading.view.names_it(pod.life.node, name) for name in job.nodes):
            node = reading.view.node_of(job.nodes[0])
            cause = Cause.of(
                Kind.BOUND_BESIDE_JOB,
                node=pod.life.node,
                job=job.id,
                runs_on=None if node is None else node.name,
                slurm_node=job.nodes[0],
            )
            fix = f"{_placing_anew(pod)}; find out what bound the Pod"
            yield Finding(FindingKind.WRONG_NODE, cause, fix, pod.full_name, job.id, pod.life.node)


def _contested(view: ClusterView) -> Iterator[Finding]:
    for slurm_node in view.names.contested:
        fix = (
            "correct the labels of Nodes with names of Slurm nodes (SLURM_EXTENDER_NODE_NAME_LABEL),"
            " or delete the Node that no longer exists"
        )
        cause = Cause.of(Kind.CONTESTED_NODE, message=in_words(view.names, slurm_node))
        yield Finding(FindingKind.CONTESTED_NODE, cause, fix, node=slurm_node)


def _stuck_drains(reading: Snapshot) -> Iterator[Finding]:
    for node in reading.nodes:
        stands = reading.view.node_of(node.name)
        drained = "DRAIN" in node.states and "COMPLETING" not in node.states
        ours = drained and holder_of(node) is Holder.NODE_STATE
        if ours and stands is not None and not reason_still_holds(node.reason, stands):
            cause = Cause.of(Kind.DRAIN_OUTDATED, reason=node.reason, node=stands.name)
            fix = (
                "the leader clears the drain;"
                f" by hand: scontrol update nodename={node.name} state=undrain"
            )
            yield Finding(FindingKind.STUCK_DRAIN, cause, fix, node=node.name, mended=True)
