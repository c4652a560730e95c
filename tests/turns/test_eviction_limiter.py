"""Tests of the eviction limiter. At most a limited number of deletions pass in any minute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.explain.sentences import sentence
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from extender.record.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    Event,
    EvictPod,
    Failure,
    JobRead,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    ReadJob,
    Recovered,
    Remedy,
    ReportWaiting,
    Tick,
)
from extender.record.placeholder import Placeholder
from extender.record.states import State
from extender.turns.eviction_limiter import EvictionLimiter
from slurm_client.model import Job
from tests.builders import (
    RULES,
    cause_of,
    changed,
    kube_node,
    placeholder_job,
    placeholder_of,
    pod,
    view,
)
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey


class Story:
    """A ledger with a clock, and the reports of the eviction limiter."""

    def __init__(self, limit: int) -> None:
        self.now = 1000.0
        self.told: list[str | None] = []
        self.named: list[str] = []
        self.ledger = Ledger(PlacementConfig(evictions_per_minute=limit), throttled=self.hear)
        self.tell(ClusterObserved(view(kube_node("n1"))))

    def hear(self, eviction_limiter: EvictionLimiter, record: Placeholder | None) -> None:
        self.told.append(eviction_limiter.words)
        if record is not None:
            self.named.append(record.workload.name)

    def tell(self, *events: Event) -> list[Effect]:
        return [effect for event in events for effect in self.ledger.apply(event, self.now)]

    def lose_jobs_of(
        self, *numbers: int, namespace: str = "default", to: str = "CANCELLED"
    ) -> list[str]:
        """Ends the jobs of Pods, by default with scancel. Returns the names of the Pods that the ledger
        deletes at once."""
        pods = [bound(n, namespace) for n in numbers]
        return deleted(self.tell(*(Recovered((each,), (ended(each, to),)) for each in pods)))

    def pass_time(self, seconds: float) -> list[str]:
        self.now += seconds
        return deleted(self.tell(Tick()))


def bound(number: int, namespace: str = "default") -> Pod:
    name, uid = f"p{number}", f"u{number}"
    blank = _BOUND._replace(name=name, uid=uid, namespace=namespace)
    job_id = placeholder_job(blank).id
    return changed(blank, job_id=job_id, allocation=Allocation(job_id, "n1"))


_BOUND = pod(gates=(), node="n1")


def ended(of: Pod, base: str = "CANCELLED") -> Job:
    return placeholder_job(of, base, node="n1")


def deleted(effects: list[Effect]) -> list[str]:
    return [effect.pod.name for effect in effects if isinstance(effect, EvictPod)]


def names(first: int, end: int) -> list[str]:
    return [f"p{number}" for number in range(first, end)]


def test_a_wave_of_preemption_passes_at_once() -> None:
    story = Story(RULES.evictions_per_minute)
    assert story.lose_jobs_of(*range(50)) == names(0, 50)
    assert story.told == []


def test_evictions_over_the_limit_wait_for_the_sliding_minute() -> None:
    story = Story(limit=3)
    assert story.lose_jobs_of(0, 1) == names(0, 2)
    assert story.pass_time(30) == []
    assert story.lose_jobs_of(2, 3, 4, 5, 6) == names(2, 3)
    assert story.pass_time(29.9) == []
    assert story.ledger.next_wake() == 1060.0
    assert story.pass_time(0.1) == names(3, 5)
    assert story.pass_time(29.9) == []
    assert story.pass_time(0.1) == names(5, 6)
    assert story.pass_time(30) == names(6, 7)


def test_later_evictions_do_not_overtake_waiting_evictions() -> None:
    story = Story(limit=1)
    assert story.lose_jobs_of(0, 1) == names(0, 1)
    story.now += 60.0
    assert story.lose_jobs_of(2) == names(1, 2)
    assert story.pass_time(60.0) == names(2, 3)


def test_limiter_reports_number_and_reasons_of_delayed_evictions() -> None:
    story = Story(limit=1)
    story.lose_jobs_of(*range(6))
    said = story.told[-1]
    assert said is not None
    assert "1 deletions a minute" in said
    assert "5 are held back (5 SlurmJobCancelled), first default/p1, default/p2, default/p3" in said
    assert story.named == names(1, 6)
    for _ in range(5):
        story.pass_time(60.0)
    assert story.told[-1] is None


@pytest.mark.parametrize("end", ["CANCELLED", "PREEMPTED", "TIMEOUT"])
def test_limit_of_zero_delays_every_eviction(end: str) -> None:
    """An administrator sets the limit to 0 because of a mistake that the extender cannot detect."""
    story = Story(limit=0)
    assert story.lose_jobs_of(0, 1, to=end) == []
    assert story.pass_time(3600.0) == []
    assert "2 are held back" in (story.told[-1] or "")


def test_delayed_eviction_is_reported_on_its_pod_once() -> None:
    story = Story(limit=0)
    story.lose_jobs_of(0)
    story.now += 1.0
    (word,) = story.tell(Tick())
    assert isinstance(word, ReportWaiting)
    assert word.cause.reason == "EvictionThrottled"
    assert "was cancelled in Slurm" in sentence(word.cause)
    assert story.tell(Outcome(word, None)) == []
    assert story.tell(PodObserved(bound(0)._replace(resource_version="101"))) == []


def test_reports_of_many_delayed_evictions_are_spread_over_time() -> None:
    """Thousands of evictions may be delayed, and other Pods also need messages."""
    story = Story(limit=0)
    story.lose_jobs_of(*range(100))
    story.now += 1.0
    assert len(story.tell(Tick())) == 50
    story.now += 1.1
    assert len(story.tell(Tick())) == 50


def test_deleted_pod_leaves_its_turn_to_the_next_eviction() -> None:
    story = Story(limit=1)
    story.lose_jobs_of(0, 1, 2)
    story.tell(PodVanished("u1"))
    assert "1 are held back" in (story.told[-1] or "")
    assert story.pass_time(60.0) == names(2, 3)


def test_a_deletion_that_has_to_be_repeated_counts_once() -> None:
    story = Story(limit=2)
    assert story.lose_jobs_of(0) == names(0, 1)
    refused = Failure(Remedy.FRESHER, "the Pod has changed", system="Kubernetes")
    story.tell(Outcome(EvictPod("u0", bound(0), cause_of("SlurmJobCancelled")), refused))
    assert story.pass_time(1.0) == names(0, 1)
    assert story.lose_jobs_of(1, 2) == names(1, 2)


def running(count: int, *, limit: int) -> Story:
    """Returns a story with `count` Pods and their running jobs."""
    story = Story(limit)
    story.tell(*(Recovered((bound(n),), (placeholder_job(bound(n), node="n1"),)) for n in range(count)))
    return story


def ended_jobs(effects: list[Effect]) -> list[str]:
    return [effect.uid for effect in effects if isinstance(effect, CancelJob)]


def jobs_ended_after(story: Story, seconds: float) -> list[str]:
    story.now += seconds
    return ended_jobs(story.tell(Tick()))


def seen_again(number: int) -> Pod:
    return bound(number)._replace(resource_version="101")


def job_of_has_ended(story: Story, number: int) -> JobsPolled:
    job = ended(bound(number))
    return JobsPolled(frozenset({job.id}), {job.id: job.state}, story.now)


def missing(*numbers: int) -> list[Event]:
    """Returns the events for Pods that are missing from a new list of all Pods."""
    return [PodVanished(f"u{n}", seen=False) for n in numbers]


def test_jobs_of_pods_missing_from_a_list_end_at_the_limiters_rate() -> None:
    story = running(5, limit=2)
    assert ended_jobs(story.tell(*missing(*range(5)))) == ["u0", "u1"]
    assert "3 are held back (3 OrphanJob), first default/p2" in (story.told[-1] or "")
    assert len(story.ledger.holding("n1")) == 3  # the Pods may still run
    assert jobs_ended_after(story, 60.0) == ["u2", "u3"]
    assert jobs_ended_after(story, 60.0) == ["u4"]
    assert story.told[-1] is None


def test_a_pod_that_was_missing_and_is_seen_again_keeps_its_job() -> None:
    story = running(3, limit=1)
    assert ended_jobs(story.tell(*missing(0, 1, 2))) == ["u0"]
    assert story.tell(PodObserved(seen_again(1))) == []
    assert "1 are held back" in (story.told[-1] or "")
    for _ in range(3):
        assert "u1" not in jobs_ended_after(story, 60.0)
    assert story.told[-1] is None
    assert ended_jobs(story.tell(PodVanished("u1"))) == ["u1"]


def test_delayed_eviction_of_a_temporarily_missing_pod_keeps_its_turn() -> None:
    story = running(2, limit=1)
    for n in (0, 1):
        job = replace(placeholder_job(bound(n), node="n1"), preempt_time=1)
        story.tell(JobRead(f"u{n}", job))
    story.tell(*missing(1))
    assert deleted(story.tell(PodObserved(seen_again(1)))) == []
    assert "1 are held back" in (story.told[-1] or "")
    assert story.pass_time(60.0) == names(1, 2)


@pytest.mark.parametrize("over", [True, False])
def test_missing_pod_seen_again_is_evicted_after_its_job_has_ended(over: bool) -> None:
    """The cancellation of the job may reach Slurm late, or never."""
    story = running(1, limit=2)
    assert ended_jobs(story.tell(*missing(0))) == ["u0"]
    if over:
        story.tell(job_of_has_ended(story, 0))
    (read,) = story.tell(PodObserved(seen_again(0)))
    assert isinstance(read, ReadJob)
    assert deleted(story.tell(Outcome(read, placeholder_job(bound(0), node="n1")))) == []
    assert story.ledger.holding("n1")
    story.now += 1.0
    assert deleted(story.tell(job_of_has_ended(story, 0))) == names(0, 1)


def test_missing_pod_seen_again_as_terminating_causes_no_action() -> None:
    story = running(1, limit=2)
    story.tell(*missing(0))
    assert story.tell(PodObserved(changed(seen_again(0), deleting=True))) == []
    assert story.ledger.holding("n1") == ()


def test_missing_pod_whose_job_has_ended_leaves_the_limiter() -> None:
    story = running(3, limit=1)
    story.tell(*missing(0, 1, 2))
    assert story.tell(job_of_has_ended(story, 1)) == []
    assert "1 are held back" in (story.told[-1] or "")
    assert [each.lead.name for each in story.ledger.holding("n1")] == ["p2"]


def test_orphan_jobs_count_and_jobs_of_deleted_pods_do_not() -> None:
    story = Story(limit=1)
    jobs = [placeholder_job(pod(name=f"o{n}", uid=f"gone{n}"), node="n1") for n in range(3)]
    keys = [PlaceholderKey.parse(job.admin_comment) for job in jobs]
    read = story.tell(*(OrphanFound(key, job.id) for key, job in zip(keys, jobs, strict=True) if key))
    found = story.tell(*(Outcome(effect, job) for effect, job in zip(read, jobs, strict=True)))
    assert [effect.job_id for effect in found if isinstance(effect, CancelJob)] == [jobs[0].id]
    assert "2 OrphanJob" in (story.told[-1] or "")
    running = [Recovered((bound(n),), (placeholder_job(bound(n), node="n1"),)) for n in range(5)]
    story.tell(*running)
    gone = story.tell(*(PodVanished(f"u{n}") for n in range(5)))
    assert len([effect for effect in gone if isinstance(effect, CancelJob)]) == 5


# Counted evictions, and the order of turns


@pytest.mark.parametrize("end", ["TIMEOUT", "DEADLINE", "COMPLETED"])
def test_regular_job_ends_are_neither_delayed_nor_counted(end: str) -> None:
    story = Story(limit=1)
    assert story.lose_jobs_of(*range(100), to=end) == names(0, 100)
    assert story.told == []
    assert story.lose_jobs_of(100, 101) == names(100, 101)
    assert story.lose_jobs_of(102, to=end) == names(102, 103)
    assert "1 are held back (1 SlurmJobCancelled)" in (story.told[-1] or "")


@pytest.mark.parametrize("end", ["CANCELLED", "PREEMPTED", "FAILED", "OUT_OF_MEMORY"])
def test_job_ends_that_may_be_mistakes_count(end: str) -> None:
    """slurmctld reports the same state after scancel by the owner and by an administrator, so every
    cancellation counts."""
    story = Story(limit=3)
    assert story.lose_jobs_of(*range(5), to=end) == names(0, 3)
    assert "2 are held back" in (story.told[-1] or "")


def test_a_preemption_passes_beside_a_namespace_that_ends_all_its_jobs() -> None:
    """The evicted Pod must leave soon: Slurm has given the node to another job, and the Prolog gate
    delays the other job."""
    story = Story(RULES.evictions_per_minute)
    assert len(story.lose_jobs_of(*range(2000), namespace="greedy")) == 282
    story.now += 1.0
    preempted = story.lose_jobs_of(*range(2000, 2100), namespace="served", to="PREEMPTED")
    assert preempted == names(2000, 2100)
    assert len(story.pass_time(59.0)) == 207  # three quarters, rounded up, of 500 - 125 - 100


def test_preemption_passes_beside_many_namespaces_that_end_all_their_jobs() -> None:
    """A quarter of the limit is reserved for preempted Pods, so the jobs that get these nodes do not
    wait for a minute."""
    story = Story(RULES.evictions_per_minute)
    lost = [range(2000 * n, 2000 * (n + 1)) for n in range(6)]
    gone = [len(story.lose_jobs_of(*jobs, namespace=f"greedy-{jobs.start}")) for jobs in lost]
    assert gone == [282, 70, 18, 4, 1, 0]
    preempted = story.lose_jobs_of(*range(20_000, 20_126), namespace="served", to="PREEMPTED")
    assert preempted == names(20_000, 20_125)
    assert story.pass_time(60.0)[0] == "p20125"


def test_namespace_that_ends_all_its_jobs_leaves_turns_to_other_namespaces() -> None:
    story = Story(RULES.evictions_per_minute)
    story.lose_jobs_of(*range(2000), namespace="greedy")
    story.now += 1.0
    assert story.lose_jobs_of(*range(2000, 2020), namespace="modest") == names(2000, 2020)
    story.now += 1.0
    assert story.lose_jobs_of(2020, namespace="late") == names(2020, 2021)


def test_waiting_preemptions_go_before_other_evictions() -> None:
    story = Story(limit=2)
    story.lose_jobs_of(0, 1, 2, 3)
    story.lose_jobs_of(4, 5, 6, to="PREEMPTED")
    assert story.pass_time(60.0) == names(4, 6)
    assert story.pass_time(60.0) == ["p6", "p2"]
    assert story.pass_time(60.0) == names(3, 4)


def test_waiting_evictions_alternate_between_namespaces() -> None:
    story = Story(limit=3)
    story.lose_jobs_of(*range(10), namespace="a")
    story.lose_jobs_of(*range(10, 12), namespace="b")
    story.lose_jobs_of(12, namespace="c")
    assert story.pass_time(60.0) == ["p3", "p10", "p12"]
    assert story.pass_time(60.0) == ["p4", "p11", "p5"]
    assert story.pass_time(60.0) == names(6, 9)


def test_outdated_list_of_pods_is_limited_like_a_mass_cancellation() -> None:
    story = running(100, limit=4)
    assert len(ended_jobs(story.tell(*missing(*range(100))))) == 3
    assert "97 are held back (97 OrphanJob)" in (story.told[-1] or "")


class Queue:
    """A single eviction limiter. Records the passed evictions, and checks that no eviction passes before
    its turn."""

    def __init__(self, limit: int) -> None:
        self.now = 0.0
        self.limit = limit
        self.eviction_limiter = EvictionLimiter(limit)
        self.waiting: dict[str, Placeholder] = {}
        self.passed: list[tuple[float, str]] = []
        """Time and namespace of each counted eviction."""
        self.overtaken: Counter[tuple[str, str]] = Counter()
        """For each pair of namespaces: number of turns of the second namespace since the last turn of
        the first namespace, while the first namespace waits."""
        self._numbers = count()

    def ask(self, namespace: str, reason: str) -> None:
        number = next(self._numbers)
        evicting = placeholder_of(bound(number, namespace), State.EVICTING, cause=cause_of(reason))
        self.waiting[evicting.uid] = evicting
        self._try(evicting)

    def look(self) -> None:
        for uid in self.eviction_limiter.turns(self.now):
            assert self._try(self.waiting[uid]), "a turn is used"

    def _try(self, record: Placeholder) -> bool:
        if not self.eviction_limiter.passes(record, self.now):
            return False
        del self.waiting[record.uid]
        if not is_foreseen(record):
            self._it_was_its_turn(record)
            self.passed.append((self.now, record.lead.namespace))
        return True

    def _it_was_its_turn(self, record: Placeholder) -> None:
        of_minute = [namespace for at, namespace in self.passed if self.now < at + 60.0]
        assert len(of_minute) < self.limit, "more than may be in a minute"
        if is_preempted(record):
            return
        assert len(of_minute) < self.limit - self.limit // 4, "what is kept for preemptions is used"
        assert not any(map(is_preempted, self.waiting.values())), "a preemption is overtaken"
        taken, own = Counter(of_minute), record.lead.namespace
        for other in {each.lead.namespace for each in self.waiting.values()} - {own}:
            if taken[other] < 3 * (self.limit - self.limit // 4 - len(of_minute)):
                self.overtaken[other, own] += 1
                assert self.overtaken[other, own] <= 1, f"{own} had two turns, and {other} none"
        for pair in [pair for pair in self.overtaken if pair[0] == own]:
            del self.overtaken[pair]


def is_preempted(record: Placeholder) -> bool:
    return record.cause is not None and record.cause.reason == "SlurmJobPreempted"


def is_foreseen(record: Placeholder) -> bool:
    return record.cause is not None and record.cause.reason == "SlurmJobTimeout"


_ENDS = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from([*["SlurmJobCancelled"] * 3, "SlurmJobPreempted", "SlurmJobTimeout"]),
)
_MOMENTS = st.lists(st.tuples(st.lists(_ENDS, max_size=12), st.floats(0.0, 40.0)), max_size=25)


@given(limit=st.integers(1, 9), moments=_MOMENTS)
def test_the_rate_holds_and_preemptions_go_first_and_namespaces_take_turns(
    limit: int, moments: list[tuple[list[tuple[str, str]], float]]
) -> None:
    queue = Queue(limit)
    for ends, pause in moments:
        for namespace, reason in ends:
            queue.ask(namespace, reason)
        queue.look()
        assert not any(map(is_foreseen, queue.waiting.values()))
        queue.now += pause
    while queue.waiting:
        queue.look()
        if queue.waiting:
            assert queue.now < queue.eviction_limiter.opens <= queue.now + 60.0, "nobody is forgotten"
            queue.now = queue.eviction_limiter.opens
