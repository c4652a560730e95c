"""The adoption of Pods that another scheduler bound to Slurm's nodes.

An adopted Pod gets a job on its node, so that Slurm does not give the Pod's resources to another job.
The end of the job never ends the Pod; the end of the Pod ends the job. In each round, the leader
(`adopter`) compares the adopted Pods with the states of their jobs. A new leader needs no stored state,
because each leader computes the same job ids from the Pods' names and uids (attempt 0 in the key).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from extender.jobs.claim import MAX_TRIES, JobClaim
from extender.jobs.verdict import judge
from extender.node_view.view import ClusterView
from extender.pod_request.annotations import LONGEST_MINUTES
from extender.pod_request.job_request import gres_of
from extender.pod_request.pod_end import pod_in_words, with_words
from extender.pod_request.translation import TranslationConfig
from extender.pod_request.workload import Workload
from extender.policy.rules import OPEN, Choice, Policy, for_adopted
from extender.record.config import Context, PlacementConfig
from extender.record.events import (
    CancelJob,
    Effect,
    Failure,
    Outcome,
    ReadJob,
    RecordAdoption,
    Remedy,
    Submit,
)
from extender.unmanaged.capacity import adopted_as, exempt, is_mirror
from kubernetes_client.protocol import Manifest
from slurm_client.job_state import UNKNOWN_STATE, JobState
from slurm_client.model import Job, JobSpec, Partition
from wellknown.job_key import ADOPTED_ATTEMPT, JobIdRange, PlaceholderKey, job_name
from wellknown.pauses import Pauses
from wellknown.resources import effective_requests, mebibytes, whole

COMMENT = "adopted: another scheduler bound this Pod; the Pod runs on if this job ends"
_OVER = ("Succeeded", "Failed")
_ENDED_PAUSE_S = 10.0  # Slurm may have preempted the job, and would also preempt a new job
_REJECTED_PAUSES = Pauses(10.0, 600.0)
_NOTE_PAUSE_S = 10.0
_GONE = "Pod is gone"
_ANY = Choice()


class Stage(StrEnum):
    WAITING = "waiting"  # the job is requested, or pends until other jobs free the resources
    RUNNING = "running"
    CANCELLED = "cancelled"  # a person cancelled the job: this leader requests no other job
    REJECTED_BY_SLURM = "rejected_by_slurm"  # the leader repeats the request, after growing pauses
    NO_RULE = "no_rule"  # no rule of the policy gives the Pod a user


_KEPT = frozenset({Stage.CANCELLED, Stage.REJECTED_BY_SLURM})


@dataclass(frozen=True, slots=True)
class AdoptedPod:
    """A Pod that another scheduler bound to a Node, with the requests in Slurm's units."""

    uid: str
    namespace: str
    name: str
    node: str
    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, int], ...] = ()
    noted: int | None = None  # id of the job in the Pod's annotation
    comment: str = COMMENT  # of the job
    service_account: str = "default"


def adoptable(manifest: Manifest, translation: TranslationConfig) -> AdoptedPod | None:
    """Returns the Pod of a manifest if the extender adopts the Pod, otherwise None. The extender does
    not adopt a managed Pod, a Pod without a Node, an ended Pod, or a Pod without requests that Slurm
    counts. Pods of DaemonSets and critical Pods (`exempt`) are not adopted, because Slurm sets resources
    apart for these Pods. Mirror Pods are not adopted, because the kubelet runs a static Pod without
    asking Slurm."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    node, phase = spec.get("nodeName"), (manifest.get("status") or {}).get("phase")
    if not translation.adopts or not node or phase in _OVER:
        return None
    if translation.manages(manifest) or exempt(manifest) or is_mirror(manifest):
        return None
    try:
        amounts = effective_requests(spec)
    except ValueError:  # a number is too large; kube-apiserver has rejected all other invalid amounts
        return None
    cpus = whole(amounts.get("cpu", Decimal(0)), translation.cpu_unit)
    memory_mb, gres = mebibytes(amounts.get("memory", Decimal(0))), gres_of(amounts, translation)
    if not (cpus or memory_mb or gres):
        return None
    namespace, name = metadata.get("namespace") or "default", metadata["name"]
    # In Slurm, a job has at least one CPU, and a request for 0 memory means all memory of the node.
    return AdoptedPod(
        uid=metadata["uid"],
        namespace=namespace,
        name=name,
        node=node,
        cpus=max(1, cpus),
        memory_mb=max(1, memory_mb),
        gres=gres,
        noted=adopted_as(manifest),
        comment=with_words(pod_in_words(namespace, name, translation.cluster_name), COMMENT),
        service_account=spec.get("serviceAccountName") or "default",
    )


@dataclass(frozen=True, slots=True)
class Adopted:
    """One adopted Pod, and the stage of the Pod's job. Times are in seconds, by the ledger's clock
    (`Dispatcher.now`)."""

    adopted_pod: AdoptedPod
    key: PlaceholderKey
    job_id: int
    stage: Stage = Stage.WAITING
    owned: bool = False  # the job was submitted or read, so the job's key names this Pod
    failures: int = 0  # consecutive failed calls to Slurm
    not_before: float = 0.0  # earliest time of the next request or cancellation
    quiet_until: float = 0.0  # after a failed write to the Pod: earliest time of the next write
    job_name: str = ""  # known after the first read of the job
    cpus: int = 0  # CPUs of the job, 0 if unknown; may differ from the Pod's request

    @property
    def called(self) -> str:
        """Returns the last known name of the job."""
        return self.job_name or job_name(self.adopted_pod.namespace, self.adopted_pod.name)

    def read(self, job: Job) -> Self | None:
        """Returns this record with the facts from a read of the job. Returns None if the job belongs to
        another Pod."""
        pod = self.adopted_pod
        claim = JobClaim(
            cluster=self.key.cluster,
            workload=Workload(pod.uid, pod.namespace, pod.name),
            ids=(self.job_id,),
            attempt=ADOPTED_ATTEMPT,
        )
        if not judge(job, claim).is_ours:
            return None
        return replace(self, owned=True, job_name=job.name, cpus=job.cpus_per_node or 0)

    def next_try(self, ids: JobIdRange, **changes: Any) -> Self:
        """Returns the record with the next of the Pod's possible job ids, for another job."""
        key = replace(self.key, attempt_try=self.key.attempt_try + 1)
        fresh = replace(self, key=key, job_id=key.job_id(ids), owned=False, job_name="", cpus=0)
        return replace(fresh, **changes)

    def at(self, stage: Stage) -> Self:
        """Returns the record in this stage. If the record is already in this stage, returns the same
        object."""
        return self if self.stage is stage else replace(self, stage=stage)


class Adoptions:
    """All adopted Pods of a leader. `found` has the jobs of adopted Pods that exist in Slurm when this
    leader starts. `observer` is called with each record that enters another stage. `policy` returns the
    current policy."""

    def __init__(
        self,
        config: PlacementConfig,
        found: Iterable[tuple[PlaceholderKey, Job]] = (),
        observer: Callable[[Adopted], None] = lambda _: None,
        policy: Callable[[], Policy] = lambda: OPEN,
    ) -> None:
        self._config, self._observer, self._policy = config, observer, policy
        self._adopted: dict[str, Adopted] = {}
        self._ending: dict[int, Adopted] = {}  # by id: jobs of Pods that are gone, and second jobs
        self._on: defaultdict[str, set[str]] = defaultdict(set)  # Node -> uids of adopted Pods
        self._found: defaultdict[str, list[tuple[PlaceholderKey, Job]]] = defaultdict(list)
        for key, job in sorted(found, key=lambda one: not one[1].state.running):
            self._found[key.uid].append((key, job))

    @property
    def job_ids(self) -> frozenset[int]:
        """Returns the ids of the jobs whose states `round` needs."""
        adopted = (record.job_id for record in self._adopted.values())
        return frozenset((*adopted, *self._ending))

    @property
    def tally(self) -> Mapping[Stage, int]:
        """Returns the number of adopted Pods in each stage."""
        return Counter(record.stage for record in self._adopted.values())

    def cpus_on(self, node: str, per_core: int) -> int:
        """Returns the number of CPUs that the running jobs of adopted Pods have on a Node. Slurm gives
        each job whole cores."""
        records = (self._adopted[uid] for uid in self._on.get(node, ()))
        run = (each.cpus for each in records if each.stage is Stage.RUNNING)
        return sum(-(-cpus // per_core) * per_core for cpus in run)

    def see(self, adopted_pods: Mapping[str, AdoptedPod], view: ClusterView) -> None:
        """Takes the current adopted Pods, by uid. If a known Pod is no longer among these Pods, the
        Pod's job will be ended. A Pod on a Node without a Slurm node needs no job."""
        for uid in self._adopted.keys() - adopted_pods.keys():
            record = self._adopted.pop(uid)
            self._on[record.adopted_pod.node].discard(uid)
            self._ending[record.job_id] = replace(record, not_before=0.0)
        for uid, adopted_pod in adopted_pods.items():
            known = self._adopted.get(uid)
            if known is not None:
                if known.adopted_pod is not adopted_pod:
                    self._adopted[uid] = replace(known, adopted_pod=adopted_pod)
            elif _place(adopted_pod, view) is not None:
                self._adopted[uid] = self._begin(adopted_pod)
                self._on[adopted_pod.node].add(uid)

    def round(self, states: Mapping[int, JobState], at: Context) -> tuple[Effect, ...]:
        """Takes the states of the `job_ids`, and returns effects, with cancellations first. Before the
        next round, the caller carries out each effect, and calls `apply`. If Slurm reports no state of a
        job, the job is requested without further checks, because Slurm rejects a second job with the
        same id."""
        effects = [*self._endings(states, at.now)]
        for record in tuple(self._adopted.values()):
            state = states.get(record.job_id)
            moved = self._moved(record, state, at.now)
            self._store(moved)
            effects += self._steps(moved, state if moved.job_id == record.job_id else None, at)
        return tuple(effects)

    def whose(self, effect: Effect) -> AdoptedPod:
        """Returns the adopted Pod of an effect."""
        assert isinstance(effect, Submit | ReadJob | CancelJob | RecordAdoption)
        ending = None if effect.job_id is None else self._ending.get(effect.job_id)
        return (ending or self._adopted[effect.uid]).adopted_pod

    def apply(self, outcome: Outcome, now: float) -> None:
        """Takes the outcome of an effect."""
        effect, result = outcome.effect, outcome.result
        if isinstance(effect, RecordAdoption):
            if isinstance(result, Failure):
                noted = self._adopted[effect.uid]
                self._adopted[effect.uid] = replace(noted, quiet_until=now + _NOTE_PAUSE_S)
            return
        assert isinstance(effect, Submit | ReadJob | CancelJob)
        if effect.job_id in self._ending:
            self._apply_to_ending(effect.job_id, effect, result, now)
        else:
            self._store(self._after(self._adopted[effect.uid], effect, result, now))

    def _begin(self, adopted_pod: AdoptedPod) -> Adopted:
        """Returns the record of a new adopted Pod. If Slurm had jobs of the Pod when this leader
        started, the record has one of these jobs, and the other jobs are ended. Without such a job, the
        record has the job id in the Pod's annotation, because this job may have lost its key. Without an
        annotation, the record has the first of the Pod's possible job ids."""
        ids, found = self._config.ids, self._found.pop(adopted_pod.uid, [])
        for second, _ in found[1:]:
            job_id = second.job_id(ids)
            self._ending[job_id] = Adopted(adopted_pod, second, job_id, owned=True)
        own = adopted_pod.namespace, adopted_pod.name, adopted_pod.uid
        first = PlaceholderKey(self._config.cluster, *own, ADOPTED_ATTEMPT)
        if not found:
            tries = (replace(first, attempt_try=number) for number in range(MAX_TRIES))
            noted = (key for key in tries if key.job_id(ids) == adopted_pod.noted)
            key = first if adopted_pod.noted is None else next(noted, first)
            return Adopted(adopted_pod, key, key.job_id(ids))
        key, job = found[0]
        return Adopted(adopted_pod, key, key.job_id(ids), owned=True, cpus=job.cpus_per_node or 0)

    def _store(self, record: Adopted) -> None:
        before = self._adopted[record.adopted_pod.uid]
        self._adopted[record.adopted_pod.uid] = record
        if record.stage is not before.stage:
            self._observer(record)

    # Jobs that are not needed any more

    def _endings(self, states: Mapping[int, JobState], now: float) -> Iterator[Effect]:
        """Yields the effects that end the jobs in `_ending`. A job that Slurm does not report is
        forgotten. If Slurm reports such a job later, the audit finds the job."""
        for job_id, record in tuple(self._ending.items()):
            state = states.get(job_id)
            if state is None or state.ended:
                del self._ending[job_id]
            elif not record.owned:
                yield ReadJob(record.adopted_pod.uid, job_id)
            elif now >= record.not_before:
                words = with_words(record.adopted_pod.comment, _GONE)
                yield CancelJob(record.adopted_pod.uid, job_id, record.called, words)

    def _apply_to_ending(self, job_id: int, effect: Effect, result: Any, now: float) -> None:
        record = self._ending[job_id]
        if isinstance(effect, CancelJob):
            other = isinstance(result, Failure) and result.remedy is Remedy.OTHER_JOB
            later = now + (0.0 if other else self._config.recancel)
            self._ending[job_id] = replace(record, owned=not other, not_before=later)
        elif isinstance(result, Job):
            if (read := record.read(result)) is None:
                del self._ending[job_id]
            else:
                self._ending[job_id] = read

    # Jobs of adopted Pods

    def _moved(self, record: Adopted, state: JobState | None, now: float) -> Adopted:
        """Returns the record after Slurm has reported this state of the job. `state` is None if Slurm
        does not know the job."""
        if state is None:
            pod = record.adopted_pod
            adopts = self._policy().adopts(pod.namespace, pod.service_account)
            without_job = Stage.WAITING if adopts else Stage.NO_RULE
            return record if record.stage in _KEPT else record.at(without_job)
        if state.base == UNKNOWN_STATE:
            return record
        if not state.ended:
            known = record.at(Stage.RUNNING if state.running else Stage.WAITING)
            return known if record.owned else record
        if record.stage is Stage.CANCELLED or (record.owned and state.base == "CANCELLED"):
            return record.at(Stage.CANCELLED)
        stage = record.stage if record.stage in _KEPT else Stage.WAITING
        pause = _ENDED_PAUSE_S if record.owned and state.base != "TIMEOUT" else 0.0
        later = max(record.not_before, now + pause)
        return record.next_try(self._config.ids, stage=stage, not_before=later)

    def _steps(self, record: Adopted, state: JobState | None, at: Context) -> Iterator[Effect]:
        adopted_pod, job_id = record.adopted_pod, record.job_id
        wanted = job_id if record.stage is Stage.RUNNING else None
        if adopted_pod.noted != wanted and at.now >= record.quiet_until:
            yield RecordAdoption(adopted_pod.uid, adopted_pod.namespace, adopted_pod.name, wanted)
        if record.stage is Stage.CANCELLED or at.now < record.not_before:
            return
        if state is not None and not record.owned:
            yield ReadJob(adopted_pod.uid, job_id)
        job = _asked(record, at.view, self._policy()) if state is None else None
        if job is not None:
            yield Submit(adopted_pod.uid, job_id, job, immediate=False)

    def _after(self, record: Adopted, effect: Effect, result: Any, now: float) -> Adopted:
        if isinstance(result, Failure):
            return self._after_failure(record, result, now)
        if isinstance(effect, Submit):
            cpus = effect.job.cpus
            return replace(record.at(Stage.WAITING), owned=True, failures=0, cpus=cpus)
        if not isinstance(result, Job):
            return record
        read = record.read(result)
        return record.next_try(self._config.ids) if read is None else replace(read, failures=0)

    def _after_failure(self, record: Adopted, failure: Failure, now: float) -> Adopted:
        never = failure.remedy is Remedy.CHANGE
        pause = (
            _REJECTED_PAUSES.after(record.failures)
            if never
            else self._config.delay(failure.remedy, record.failures)
        )
        held_up = replace(record, failures=record.failures + 1, not_before=now + pause)
        return held_up.at(Stage.REJECTED_BY_SLURM) if never else held_up


def _place(
    adopted_pod: AdoptedPod, view: ClusterView, ruled: Choice = _ANY
) -> tuple[str, Partition] | None:
    """Returns the Slurm node of an adopted Pod, and a partition of the node for the job. Prefers
    partitions that the policy's rule for the Pod permits, then the default partition, then partitions
    that are up."""
    node = view.nodes.get(adopted_pod.node)
    if node is None or view.node_of(node.slurm_name) is not node:
        return None
    with_it = [each for each in view.partitions.values() if node.slurm_name in each.nodes]
    with_it.sort(key=lambda each: (not ruled.permits(each.name), not each.default, not each.up))
    return (node.slurm_name, with_it[0]) if with_it else None


def _asked(record: Adopted, view: ClusterView, policy: Policy) -> JobSpec | None:
    """Returns the job to request. Returns None if the policy does not allow the adoption, or if the node
    is in no partition. The job gets the highest priority that the policy's rule allows, because the Pod
    already uses the resources. If native jobs have the resources, the job waits in Slurm's queue."""
    adopted_pod = record.adopted_pod
    if not policy.adopts(adopted_pod.namespace, adopted_pod.service_account):
        return None
    rule = policy.rule_for(adopted_pod.namespace, adopted_pod.service_account)
    partitions = _ANY if rule is None else rule.fields.get("partition", _ANY)
    place = _place(adopted_pod, view, partitions)
    if place is None:
        return None
    node, partition = place
    job = JobSpec(
        name=job_name(adopted_pod.namespace, adopted_pod.name),
        cpus=adopted_pod.cpus,
        memory_mb=adopted_pod.memory_mb,
        gres=adopted_pod.gres,
        partition=partition.name,
        comment=adopted_pod.comment,
        required_nodes=(node,),
        time_limit_minutes=min(partition.max_time_minutes or LONGEST_MINUTES, LONGEST_MINUTES),
        admin_comment=str(record.key),
    )
    return for_adopted(job, rule)
