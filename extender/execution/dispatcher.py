"""The dispatcher carries out the ledger's effects, and reports the outcomes to the ledger. The
dispatcher decides nothing.

Each lane is a queue of effects with a limited number of workers. Cancellations and evictions have their
own lanes, so that neither a burst of submissions nor a slow Slurm delays an eviction. Effects that only
inform people have another lane, so that such effects delay no placement.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from time import perf_counter
from typing import Any, Protocol

import structlog

from extender.execution import pod_patches
from extender.execution.failures import failure_of
from extender.explain.cause import Cause
from extender.explain.message import next_steps
from extender.node_view.node_hardware import with_whole_cores
from extender.node_view.pods_on_node import vacated_in
from extender.node_view.slurm_nodes import HardwareOfNodes, SlurmNodes
from extender.node_view.user_rights import RightsOfUsers
from extender.placement.ledger import Ledger
from extender.placement.transitions.asked import needs_hardware, needs_rights
from extender.placement.transitions.waiting import granted
from extender.pod_request.pod import Pod, attempt_of
from extender.record.events import (
    CancelJob,
    CheckDepartures,
    Effect,
    Event,
    EvictPod,
    ExcludeNodes,
    Failure,
    HoldJob,
    Outcome,
    ReadJob,
    RecordAdoption,
    RecordJobId,
    ReportWaiting,
    Submit,
    Tick,
    WriteAllocation,
    WriteAttempt,
)
from kubernetes_client.errors import Conflict, NotFound, Rejected
from kubernetes_client.protocol import Kubernetes
from service.cooperative import Together, yielding
from slurm_client.errors import InvalidRequest, SlurmError
from slurm_client.model import Grant, Job, JobChanges
from slurm_client.protocol import Slurm
from wellknown.log_fields import Named, PodName, about
from wellknown.names import ADOPTED, ATTEMPT, GRANTED, JOB_ID, Reason

log = structlog.get_logger()

_EVENT_WRITERS = 2
_MAX_QUEUED_EVENTS = 10_000  # Events that wait to be written: some 20 MB
_MAX_KNOWN_EVENTS = 1_000
_COMMENT_TIMEOUT_S = 1.0  # for a comment, and for a question to accounting
_COMMENT_BACKOFF_S = 30.0
_SLOW_ACCOUNTING_S = 0.1
_MAX_READS = 20
_DueEvent = tuple[float, dict[str, Any], int | None]  # the due time, the Event, the cancelled job


class Observer(Protocol):
    """An observer of the outcomes of effects and Events."""

    def done(self, effect: Effect, seconds: float) -> None: ...

    def failed(
        self, effect: Effect, seconds: float, failure: Failure, about_it: Mapping[str, Any]
    ) -> None:
        """Notes a failed effect. `about_it` has the log fields of the effect's Pod and job."""

    def event_failed(self, event: Mapping[str, Any], failure: Failure) -> None: ...


class Dispatcher:
    """The only caller of `Ledger.apply`. The clock is the event loop's."""

    def __init__(  # noqa: PLR0913 -- the called systems, and observers
        self,
        ledger: Ledger,
        slurm: Slurm,
        kubernetes: Kubernetes,
        observer: Observer,
        workers: int = 16,
        *,
        slurm_nodes: SlurmNodes | None = None,
        allowed: Callable[[], Awaitable[None]] | None = None,
        events_after_s: float = 1.0,
    ) -> None:
        """`slurm_nodes` is shared with other parts of the extender. `allowed` waits until effects may be
        carried out."""
        self._ledger, self._slurm, self._kubernetes = ledger, slurm, kubernetes
        self._observer, self._workers = observer, workers
        self._hardware = HardwareOfNodes(slurm_nodes or SlurmNodes(slurm))
        self._rights = RightsOfUsers(slurm)
        self._allowed, self._events_after_s = allowed, events_after_s
        self._together = Together()  # gives turns to /filter between many effects
        self._submissions, self._writes = asyncio.Queue[Effect](), asyncio.Queue[Effect]()
        self._endings, self._evictions = asyncio.Queue[Effect](), asyncio.Queue[Effect]()
        self._words = asyncio.Queue[Effect]()  # may get reads for all waiting jobs of a window at once
        self._events: asyncio.Queue[_DueEvent] = asyncio.Queue(_MAX_QUEUED_EVENTS)
        self._of_owners = OrderedDict[str, None]()
        """Names of the last Events about controllers of gangs."""
        self._drops_events = False  # True after a logged loss, until no Event waits
        self._no_comments_until = self._no_accounting_until = -inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = inf
        self._carry: dict[type, Callable[[Any], Awaitable[Any]]] = {
            Submit: self._submit,
            ReadJob: self._read_job,
            ExcludeNodes: self._exclude_nodes,
            HoldJob: self._hold_job,
            CancelJob: self._cancel_job,
            WriteAllocation: self._write_allocation,
            CheckDepartures: self._look_at_node,
            WriteAttempt: self._write_attempt,
            ReportWaiting: self._show_cause,
            EvictPod: self._evict_pod,
            RecordJobId: self._note_job,
            RecordAdoption: self._note_adopted,
        }

    def feed(self, event: Event) -> None:
        """Applies an event to the ledger and queues the effects. Never waits."""
        for effect in self._ledger.apply(event, self.now()):
            self._lane(effect).put_nowait(effect)
        self._set_alarm()

    async def feed_all(self, events: Iterable[Event]) -> None:
        """Feeds very many events. Other work gets turns in between. No Tick comes before the last
        event."""
        self._hold_alarm()
        async for event in yielding(events):
            self.feed(event)
        self._alarm_due = inf
        self._set_alarm()

    def now(self) -> float:
        """Returns the ledger's clock, in seconds."""
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Runs the workers of all lanes for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for lane in (self._submissions, self._writes, self._endings, self._evictions):
                    for _ in range(self._workers):
                        tasks.create_task(self._work(lane))
                for _ in range(max(1, self._workers // 2)):  # leaves connections to other calls
                    tasks.create_task(self._work(self._words))
                for _ in range(_EVENT_WRITERS):
                    tasks.create_task(self._record())
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def carry_out(self, effect: Effect) -> Any:
        """Carries out an effect and returns its result. Raises the systems' own errors."""
        return await self._carry[type(effect)](effect)

    async def outcome_of(self, effect: Effect, pod: Named | None = None) -> Outcome:
        """Carries out an effect, as soon as allowed, and returns the outcome. `pod` is the effect's Pod,
        if the ledger has no record of the Pod."""
        if self._allowed is not None:
            await self._allowed()
        start, result = perf_counter(), None
        try:
            result = await self.carry_out(effect)
        except Exception as error:  # noqa: BLE001 -- the ledger must get any error
            about_it = self._about(effect, pod)
            result = failure_of(error, about_it)
            self._observer.failed(effect, perf_counter() - start, result, about_it)
        else:
            self._observer.done(effect, perf_counter() - start)
        if needs_hardware(effect, result):
            return Outcome(effect, result, await self._hardware.by_partition())
        if isinstance(effect, Submit) and needs_rights(effect, result):
            return Outcome(effect, result, rights=await self._rights.of(effect.job.user_id))
        return Outcome(effect, result)

    def _about(self, effect: Effect, pod: Named | None) -> dict[str, Any]:
        """Returns the log fields of an effect's Pod and job."""
        record = self._ledger.record_of(effect.uid)
        pod = record.workload if record is not None else pod
        job_id = getattr(effect, "job_id", record.job.id if record is not None else None)
        return {"uid": effect.uid} | about(pod, job_id)

    async def _work(self, lane: asyncio.Queue[Effect]) -> None:
        while True:
            effect = await lane.get()
            await self._together.may_begin()
            self.feed(await self.outcome_of(effect))
            lane.task_done()

    def _lane(self, effect: Effect) -> asyncio.Queue[Effect]:
        match effect:
            case HoldJob() | CancelJob() | WriteAttempt():
                return self._endings
            case EvictPod():
                return self._evictions
            case ReadJob(for_words=True) | ReportWaiting():
                return self._words
            case Submit() | ReadJob() | ExcludeNodes():
                return self._submissions
        return self._writes

    def _set_alarm(self) -> None:
        due = self._ledger.next_wake()
        if due >= self._alarm_due:
            return  # an early alarm costs nothing
        self._hold_alarm()
        self._alarm_due = due
        self._alarm = asyncio.get_running_loop().call_at(due, self._ring)

    def _hold_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_due = None, -inf  # no later alarm is set

    def _ring(self) -> None:
        self._alarm, self._alarm_due = None, inf
        self.feed(Tick())

    # Slurm

    async def _submit(self, effect: Submit) -> Grant | None:
        job = effect.job
        if job.tasks is not None:
            job = with_whole_cores(job, await self._hardware.by_partition())
        if not effect.immediate:
            await self._slurm.submit(job, effect.job_id)
            return None
        await self._slurm.allocate(job, effect.job_id)
        with suppress(SlurmError):  # the job is granted all the same, and is read later
            return await self._slurm.grant(effect.job_id)
        return None

    async def _read_job(self, effect: ReadJob) -> Job | None:
        return await self._slurm.job(effect.job_id)

    async def _exclude_nodes(self, effect: ExcludeNodes) -> None:
        await self._slurm.update(effect.job_id, JobChanges(excluded_nodes=effect.nodes))

    async def _hold_job(self, effect: HoldJob) -> None:
        await self._slurm.update(effect.job_id, JobChanges(comment=effect.comment))

    async def _cancel_job(self, effect: CancelJob) -> None:
        # A comment is mostly for people. If the comment fails, the job is cancelled all the same.
        if effect.comment_first:
            with suppress(InvalidRequest):  # the job has ended
                await self._slurm.update(effect.job_id, JobChanges(comment=effect.comment))
        elif self.now() >= self._no_comments_until:
            await self._write_comment(effect)
        await self._slurm.cancel(effect.job_id, effect.name)

    async def _write_comment(self, effect: CancelJob) -> None:
        """Writes a job's comment, with a short timeout. Without the timeout, a slow slurmctld would
        delay all cancellations that wait behind this cancellation."""
        try:
            async with asyncio.timeout(_COMMENT_TIMEOUT_S):
                await self._slurm.update(effect.job_id, JobChanges(comment=effect.comment))
        except TimeoutError:
            self._no_comments_until = self.now() + _COMMENT_BACKOFF_S
        except SlurmError:
            pass

    # Kubernetes

    async def _write_allocation(self, effect: WriteAllocation) -> str:
        pod, allocation, version = effect.pod, effect.allocation, effect.pod.resource_version
        if effect.nominate:
            nomination = pod_patches.nomination(pod, allocation, _wall_clock())
            nominated = await self._kubernetes.patch_pod_status(pod.namespace, pod.name, nomination)
            version = nominated["metadata"]["resourceVersion"]
        patch = pod_patches.grant(pod, allocation, version, effect.attempt)
        written = await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
        if effect.learned_at is not None:
            now, ours = _wall_clock(), self.now() - effect.learned_at
            cause = granted(allocation, pod_patches.age(pod, now), ours)
            self._tell(pod_patches.event(pod, cause, now, action="Placing"))
        return str(written["metadata"]["resourceVersion"])

    async def _look_at_node(self, effect: CheckDepartures) -> float:
        listed = await self._kubernetes.list("pods", f"spec.nodeName={effect.node}")
        within = self._ledger.rules.leaves_within
        return vacated_in(listed.get("items") or (), _wall_clock(), within)

    async def _write_attempt(self, effect: WriteAttempt) -> None:
        pod = effect.pod
        patch = pod_patches.next_attempt(pod, effect.attempt)
        await self._kubernetes.patch_pod(pod.namespace, pod.name, patch)
        now, cause = _wall_clock(), effect.cause
        times = "" if cause is None else next_steps(cause, now, self.now())
        status = pod_patches.no_nomination(pod, cause, now, times)
        await self._kubernetes.patch_pod_status(pod.namespace, pod.name, status)

    async def _show_cause(self, effect: ReportWaiting) -> None:
        pod, now = effect.pod, _wall_clock()
        if not effect.event_alone:
            times = next_steps(effect.cause, now, self.now())
            patch = pod_patches.waiting(pod, effect.cause, effect.job_id, now, times)
            await self._kubernetes.patch_pod_status(pod.namespace, pod.name, patch)
        action = "Evicting" if effect.cause.reason == Reason.EVICTION_THROTTLED else "Placing"
        self._tell_all(pod, effect.cause, action)

    async def _note_job(self, effect: RecordJobId) -> None:
        numbers = {JOB_ID: str(effect.job_id), ATTEMPT: str(effect.attempt)}
        granted = {} if effect.granted is None else {GRANTED: effect.granted.granted}
        patch = pod_patches.annotated(effect.pod.uid, numbers | granted)
        await self._kubernetes.patch_pod(effect.pod.namespace, effect.pod.name, patch)

    async def _note_adopted(self, effect: RecordAdoption) -> None:
        noted = None if effect.job_id is None else str(effect.job_id)
        patch = pod_patches.annotated(effect.uid, {ADOPTED: noted})
        await self._kubernetes.patch_pod(effect.namespace, effect.name, patch)

    async def _evict_pod(self, effect: EvictPod) -> None:
        if effect.in_this_attempt:
            await self._evict_in_its_attempt(effect)
            return
        pod, cause, now = effect.pod, effect.cause, _wall_clock()
        as_seen, written = {"uid": pod.uid}, None
        patch = pod_patches.disruption(pod, cause, now, in_any_version=effect.in_any_version)
        try:
            written = await self._kubernetes.patch_pod_status(pod.namespace, pod.name, patch)
        except NotFound:
            return
        except Conflict:  # kube-apiserver itself tries five times
            if not effect.in_any_version:
                raise
        except Rejected as error:  # for example by a webhook: the Pod is deleted all the same
            _log_no_disruption(pod, error)
            if not effect.in_any_version:
                as_seen["resourceVersion"] = pod.resource_version
        self._tell_all(pod, cause, "Evicting", effect.cancelled)
        if written is not None and not effect.in_any_version:
            # A decision that was based on an old version of the Pod deletes nothing.
            as_seen["resourceVersion"] = written["metadata"]["resourceVersion"]
        await self._kubernetes.delete_pod(pod.namespace, pod.name, as_seen, pod.life.eviction_grace)

    async def _evict_in_its_attempt(self, effect: EvictPod) -> None:
        """Reads the Pod, and deletes the version that was read. Repeats this up to `_MAX_READS`
        times. Even if a client writes a hundred times a second, the client seldom writes between the
        two calls."""
        pod, cause, now = effect.pod, effect.cause, _wall_clock()
        disruption = pod_patches.disruption(pod, cause, now, in_any_version=True)
        where = pod.namespace, pod.name
        for number in range(_MAX_READS):
            current = await self._kubernetes.read_pod(*where)
            if current is None or current["metadata"]["uid"] != pod.uid:
                return
            if attempt_of(current["metadata"].get("annotations") or {}) != pod.scheduling.attempt:
                raise Conflict(409, "another attempt at placing the Pod has begun")
            with suppress(Conflict):
                if number == 0:
                    self._tell_all(pod, cause, "Evicting", effect.cancelled)
                    try:
                        current = await self._kubernetes.patch_pod_status(*where, disruption)
                    except Rejected as error:
                        _log_no_disruption(pod, error)
                as_read = {"uid": pod.uid, "resourceVersion": current["metadata"]["resourceVersion"]}
                await self._kubernetes.delete_pod(*where, as_read, pod.life.eviction_grace)
                return
        raise Conflict(409, "other clients write to the Pod all the time")

    def _tell_all(self, pod: Pod, cause: Cause, action: str, cancelled: int | None = None) -> None:
        """Queues an Event about a Pod. Also queues an Event about the controller of a gang, but only
        one for all members."""
        now = _wall_clock()
        self._tell(pod_patches.event(pod, cause, now, action=action), cancelled)
        if pod.life.owner is None:
            return
        event = pod_patches.owner_event(pod, pod.life.owner, cause, now, action=action)
        name = event["metadata"]["name"]
        if name not in self._of_owners and not self._events.full():
            self._of_owners[name] = None
            while len(self._of_owners) > _MAX_KNOWN_EVENTS:
                self._of_owners.popitem(last=False)
            self._tell(event, cancelled)

    def _tell(self, event: dict[str, Any], cancelled: int | None = None) -> None:
        """Queues an Event. No other work waits for the Event, or fails if the Event is lost."""
        if not self._events.full():
            self._events.put_nowait((self.now() + self._events_after_s, event, cancelled))
        elif not self._drops_events:
            self._drops_events = True
            log.warning("Events are dropped: too many wait to be made", waiting=self._events.qsize())

    async def _record(self) -> None:
        """Writes Events for ever. Evictions go first, also evictions that become known soon, because a
        node waits for each evicted Pod."""
        while True:
            due, event, cancelled = await self._events.get()
            await asyncio.sleep(due - self.now())
            await self._evictions.join()
            self._drops_events = self._drops_events and not self._events.empty()
            try:
                if cancelled is not None and (who := await self._canceller(cancelled)):
                    event["message"] += f", by {who}"
                await self._kubernetes.create_event(event["metadata"]["namespace"], event)
            except Exception as error:  # noqa: BLE001 -- see _tell
                failure = failure_of(error, about(PodName.of(event["involvedObject"])))
                self._observer.event_failed(event, failure)

    async def _canceller(self, job_id: int) -> str | None:
        """Returns the user that cancelled a job, according to Slurm's accounting. After a slow answer,
        the extender does not ask accounting for a while, because other Events wait for this call."""
        began = self.now()
        if began < self._no_accounting_until:
            return None
        try:
            async with asyncio.timeout(_COMMENT_TIMEOUT_S):
                return await self._slurm.canceller(job_id)
        except (TimeoutError, SlurmError):
            return None
        finally:
            if self.now() - began > _SLOW_ACCOUNTING_S:
                self._no_accounting_until = self.now() + _COMMENT_BACKOFF_S


def _log_no_disruption(pod: Named, error: Rejected) -> None:
    log.warning("a Pod is evicted without a condition", **about(pod), error=str(error))


def _wall_clock() -> datetime:
    return datetime.now(UTC)
