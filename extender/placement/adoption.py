"""Guests: Pods that another scheduler bound to Slurm's nodes, and the jobs that stand for them there.

A guest's job is pinned to the node where its Pod runs, so that Slurm does not give that room away. It
never ends the Pod, which is somebody else's: only the Pod's end ends the job. Each round compares the
guests that there are with what Slurm says of their jobs. Nothing needs to outlive the leader: the jobs
are under ids that can be computed, at attempt 0, since nobody has tried to place the Pod.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from extender.placement.annotations import LONGEST_MINUTES
from extender.placement.cluster import ClusterView
from extender.placement.endings import with_words
from extender.placement.events import (
    CancelJob,
    Effect,
    Failure,
    NoteAdopted,
    Outcome,
    ReadJob,
    Remedy,
    Submit,
)
from extender.placement.identity import ADOPTED_ATTEMPT, JobIdRange, PlaceholderKey
from extender.placement.occupancy import adopted_as, exempt
from extender.placement.ownership import Claim, is_own
from extender.placement.resources import effective_requests, mebibytes, whole
from extender.placement.rules import Moment, Rules
from extender.placement.steps import BEFORE_ALL
from extender.placement.workload import Dialect, gres_of
from slurm_client.model import UNKNOWN_STATE, Job, JobSpec, JobState, Partition

Manifest = Mapping[str, Any]

COMMENT = "adopted: another scheduler has bound this Pod, which runs on without its job"
_OVER = ("Succeeded", "Failed")
_ENDED_PAUSE_S = 10.0  # Slurm may have preempted it, and would again
_REFUSED_PAUSE_S = (10.0, 600.0)
_NOTE_PAUSE_S = 10.0
_GONE = "Pod is gone"


class Stage(StrEnum):
    WAITING = "waiting"
    """Slurm is asked for the job, or holds it pending: there is no room for what runs there already."""
    RUNNING = "running"
    """Slurm counts the Pod."""
    CANCELLED = "cancelled"
    """Somebody has cancelled the job: this leader does not ask for it again."""
    REFUSED = "refused"
    """Slurm says that there can be no such job. It is asked now and then."""


_KEPT = frozenset({Stage.CANCELLED, Stage.REFUSED})


@dataclass(frozen=True, slots=True)
class Guest:
    """A Pod that runs on a Node without our doing, and what it requests there, as Slurm counts it."""

    uid: str
    namespace: str
    name: str
    node: str
    cpus: int
    memory_mb: int
    gres: tuple[tuple[str, int], ...] = ()
    noted: int | None = None
    """The job that stands on the Pod as its own."""


def guest_of(manifest: Manifest, dialect: Dialect) -> Guest | None:
    """Returns the guest that a Pod is, None where it is not to have a job: it is ours, not bound, over,
    exempt (what Slurm sets apart for the system is for those), or requests nothing that Slurm counts."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    node, phase = spec.get("nodeName"), (manifest.get("status") or {}).get("phase")
    if not dialect.adopts or not node or phase in _OVER or dialect.manages(manifest) or exempt(manifest):
        return None
    try:
        amounts = effective_requests(spec)
    except ValueError:  # too large a number: kube-apiserver lets no other through
        return None
    cpus = whole(amounts.get("cpu", Decimal(0)), dialect.cpu_unit)
    memory_mb, gres = mebibytes(amounts.get("memory", Decimal(0))), gres_of(amounts, dialect)
    if not (cpus or memory_mb or gres):
        return None
    # Slurm has no job without a CPU, and takes no memory for all of it.
    return Guest(
        uid=metadata["uid"],
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        node=node,
        cpus=max(1, cpus),
        memory_mb=max(1, memory_mb),
        gres=gres,
        noted=adopted_as(manifest),
    )


@dataclass(frozen=True, slots=True)
class Adopted:
    """One guest, and where its job stands. Times are the ledger's clock, in seconds."""

    guest: Guest
    key: PlaceholderKey
    job_id: int
    stage: Stage = Stage.WAITING
    ours: bool = False
    """It is certain that the job under this id has our key: it was made or read by us."""
    failures: int = 0
    """How many times in a row it was refused."""
    not_before: float = 0.0
    """When Slurm may be told, or asked for, anything about it again."""
    quiet_until: float = 0.0
    """When the Pod may be written to again, after that failed."""
    job_name: str = ""
    """What the job is called, if it was read."""

    @property
    def called(self) -> str:
        """Returns what its job is called, as far as is known."""
        return self.job_name or f"{self.guest.namespace}/{self.guest.name}"

    def read(self, job: Job) -> Adopted | None:
        """Returns the record after the job under its id was read; None where that is another's."""
        guest = self.guest
        claim = Claim(
            cluster=self.key.cluster,
            uid=guest.uid,
            job_name=f"{guest.namespace}/{guest.name}",
            ids=(self.job_id,),
            attempt=ADOPTED_ATTEMPT,
        )
        return replace(self, ours=True, job_name=job.name) if is_own(job, claim) else None

    def next_try(self, ids: JobIdRange, **changes: Any) -> Adopted:
        """Returns the record with the next id that the Pod may have a job under."""
        key = replace(self.key, attempt_try=self.key.attempt_try + 1)
        return replace(self, key=key, job_id=key.job_id(ids), ours=False, job_name="", **changes)

    def at(self, stage: Stage) -> Adopted:
        """Returns the record in a stage; itself where it is in that one."""
        return self if self.stage is stage else replace(self, stage=stage)


class Adoptions:
    """All guests of a leader. `found` are the live jobs of guests that Slurm had when it began to lead;
    `observer` hears of every record that came into another stage."""

    def __init__(
        self,
        rules: Rules,
        found: Iterable[tuple[PlaceholderKey, Job]] = (),
        observer: Callable[[Adopted], None] = lambda _: None,
    ) -> None:
        self._rules = rules
        self._observer = observer
        self._adopted: dict[str, Adopted] = {}
        self._ending: dict[int, Adopted] = {}
        """By job: those whose Pods are gone, and second ones."""
        self._found: defaultdict[str, list[PlaceholderKey]] = defaultdict(list)
        for key, _ in sorted(found, key=lambda one: not one[1].state.running):
            self._found[key.uid].append(key)

    @property
    def job_ids(self) -> frozenset[int]:
        """Returns the ids of the jobs whose states matter."""
        adopted = (record.job_id for record in self._adopted.values())
        return frozenset((*adopted, *self._ending))

    @property
    def tally(self) -> Mapping[Stage, int]:
        """Returns how many guests there are in each stage."""
        return Counter(record.stage for record in self._adopted.values())

    def see(self, guests: Mapping[str, Guest], view: ClusterView) -> None:
        """Takes who the guests are now. Those on Nodes that Slurm does not have need no job."""
        for uid in self._adopted.keys() - guests.keys():
            record = self._adopted.pop(uid)
            self._ending[record.job_id] = replace(record, not_before=0.0)
        for uid, guest in guests.items():
            known = self._adopted.get(uid)
            if known is not None:
                if known.guest is not guest:
                    self._adopted[uid] = replace(known, guest=guest)
            elif _place(guest, view) is not None:
                self._adopted[uid] = self._begin(guest)

    def round(self, states: Mapping[int, JobState], at: Moment) -> tuple[Effect, ...]:
        """Takes what a healthy Slurm says of the `job_ids` (what is missing it does not know), and
        returns what is to be done: all of it is to be carried out, and answered by `apply`, before the
        next round. What gives resources back comes first. An absence needs no confirmation: what Slurm
        has it does not take twice."""
        effects = [*self._endings(states, at.now)]
        for record in tuple(self._adopted.values()):
            state = states.get(record.job_id)
            moved = self._moved(record, state, at.now)
            self._store(moved)
            effects += self._steps(moved, state if moved.job_id == record.job_id else None, at)
        return tuple(effects)

    def apply(self, outcome: Outcome, now: float) -> None:
        """Takes what came of an effect."""
        effect, result = outcome.effect, outcome.result
        if isinstance(effect, NoteAdopted):
            if isinstance(result, Failure):
                noted = self._adopted[effect.uid]
                self._adopted[effect.uid] = replace(noted, quiet_until=now + _NOTE_PAUSE_S)
            return
        assert isinstance(effect, Submit | ReadJob | CancelJob)
        if effect.job_id in self._ending:
            self._apply_to_ending(effect.job_id, effect, result, now)
        else:
            self._store(self._after(self._adopted[effect.uid], effect, result, now))

    def _begin(self, guest: Guest) -> Adopted:
        """With the job that it has, or else with the first try."""
        ids, found = self._rules.ids, self._found.pop(guest.uid, [])
        for second in found[1:]:
            self._ending[second.job_id(ids)] = Adopted(guest, second, second.job_id(ids), ours=True)
        first = PlaceholderKey(
            self._rules.cluster, guest.namespace, guest.name, guest.uid, ADOPTED_ATTEMPT
        )
        key = found[0] if found else first
        return Adopted(guest, key, key.job_id(ids), ours=bool(found))

    def _store(self, record: Adopted) -> None:
        before = self._adopted[record.guest.uid]
        self._adopted[record.guest.uid] = record
        if record.stage is not before.stage:
            self._observer(record)

    # Jobs that nobody needs any more

    def _endings(self, states: Mapping[int, JobState], now: float) -> Iterator[Effect]:
        """One that arrives when this has been given up is the audit's to find."""
        for job_id, record in tuple(self._ending.items()):
            state = states.get(job_id)
            if state is None or state.ended:
                del self._ending[job_id]
            elif not record.ours:
                yield ReadJob(record.guest.uid, job_id)
            elif now >= record.not_before:
                yield CancelJob(record.guest.uid, job_id, record.called, with_words(COMMENT, _GONE))

    def _apply_to_ending(self, job_id: int, effect: Effect, result: Any, now: float) -> None:
        record = self._ending[job_id]
        if isinstance(effect, CancelJob):
            other = isinstance(result, Failure) and result.remedy is Remedy.OTHER_JOB
            later = now + (0.0 if other else self._rules.recancel)
            self._ending[job_id] = replace(record, ours=not other, not_before=later)
        elif isinstance(result, Job):
            read = record.read(result)
            if read is None:
                del self._ending[job_id]
            else:
                self._ending[job_id] = read

    # Jobs of guests

    def _moved(self, record: Adopted, state: JobState | None, now: float) -> Adopted:
        """Returns the record after Slurm said this of its job."""
        if state is None:
            return record if record.stage in _KEPT else record.at(Stage.WAITING)
        if state.base == UNKNOWN_STATE:  # it could not be read, or understood
            return record
        if not state.ended:
            known = record.at(Stage.RUNNING if state.running else Stage.WAITING)
            return known if record.ours else record
        if record.stage is Stage.CANCELLED or (record.ours and state.base == "CANCELLED"):
            return record.at(Stage.CANCELLED)
        stage = record.stage if record.stage in _KEPT else Stage.WAITING
        pause = _ENDED_PAUSE_S if record.ours and state.base != "TIMEOUT" else 0.0
        later = max(record.not_before, now + pause)
        return record.next_try(self._rules.ids, stage=stage, not_before=later)

    def _steps(self, record: Adopted, state: JobState | None, at: Moment) -> Iterator[Effect]:
        guest, job_id = record.guest, record.job_id
        wanted = job_id if record.stage is Stage.RUNNING else None
        if guest.noted != wanted and at.now >= record.quiet_until:
            yield NoteAdopted(guest.uid, guest.namespace, guest.name, wanted)
        if record.stage is Stage.CANCELLED or at.now < record.not_before:
            return
        if state is not None and not record.ours:
            yield ReadJob(guest.uid, job_id)
        job = _asked(record, at.view) if state is None else None
        if job is not None:
            yield Submit(guest.uid, job_id, job, immediate=False)

    def _after(self, record: Adopted, effect: Effect, result: Any, now: float) -> Adopted:
        if isinstance(result, Failure):
            return self._after_failure(record, result, now)
        if isinstance(effect, Submit):
            return replace(record.at(Stage.WAITING), ours=True, failures=0)
        if not isinstance(result, Job):
            return record
        read = record.read(result)
        return record.next_try(self._rules.ids) if read is None else replace(read, failures=0)

    def _after_failure(self, record: Adopted, failure: Failure, now: float) -> Adopted:
        shortest, longest = _REFUSED_PAUSE_S
        never = failure.remedy is Remedy.CHANGE
        refused = min(longest, shortest * 2 ** min(record.failures, 10))
        pause = refused if never else self._rules.delay(failure.remedy, record.failures)
        held_up = replace(record, failures=record.failures + 1, not_before=now + pause)
        return held_up.at(Stage.REFUSED) if never else held_up


def _place(guest: Guest, view: ClusterView) -> tuple[str, Partition] | None:
    """Returns the node that a guest is on and the partition to ask for it in: the default one, if it has
    the node, else the first that does."""
    node = view.nodes.get(guest.node)
    if node is None:
        return None
    with_it = [each for each in view.partitions.values() if node.slurm_name in each.nodes]
    with_it.sort(key=lambda each: (not each.default, not each.up))
    return (node.slurm_name, with_it[0]) if with_it else None


def _asked(record: Adopted, view: ClusterView) -> JobSpec | None:
    """Before all others: the Pod has its room already. If native jobs have it the job waits, and Slurm
    keeps the node for it meanwhile."""
    guest, place = record.guest, _place(record.guest, view)
    if place is None:
        return None
    node, partition = place
    return JobSpec(
        name=f"{guest.namespace}/{guest.name}",
        cpus=guest.cpus,
        memory_mb=guest.memory_mb,
        gres=guest.gres,
        partition=partition.name,
        comment=COMMENT,
        priority=BEFORE_ALL,
        required_nodes=(node,),
        time_limit_minutes=min(partition.max_time_minutes or LONGEST_MINUTES, LONGEST_MINUTES),
        admin_comment=str(record.key),
    )
