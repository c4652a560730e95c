"""Not more than so many deletions a minute, whatever has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.placement.breaker import Breaker
from extender.placement.events import (
    CancelJob,
    ClusterObserved,
    Effect,
    Event,
    EvictPod,
    Failure,
    GraceStarted,
    JobsPolled,
    OrphanFound,
    Outcome,
    PodObserved,
    PodVanished,
    ReadJob,
    Recovered,
    Remedy,
    ShowCause,
    Tick,
)
from extender.placement.identity import PlaceholderKey
from extender.placement.ledger import Ledger
from extender.placement.placeholder import Cause, Placeholder
from extender.placement.rules import Rules
from extender.placement.workload import JOB_ID, NODE, Pod
from slurm_client.model import Job
from tests.builders import RULES, kube_node, placeholder_job, pod, view


class Story:
    """A ledger and its clock, and what is heard of its breaker."""

    def __init__(self, limit: int) -> None:
        self.now = 1000.0
        self.told: list[str | None] = []
        self.named: list[str] = []
        self.ledger = Ledger(Rules(deletions_a_minute=limit), held_back=self.hear)
        self.tell(ClusterObserved(view(kube_node("n1"))))

    def hear(self, breaker: Breaker, record: Placeholder | None) -> None:
        self.told.append(breaker.words)
        if record is not None:
            self.named.append(record.pod.name)

    def tell(self, *events: Event) -> list[Effect]:
        return [effect for event in events for effect in self.ledger.apply(event, self.now)]

    def lose_jobs_of(self, *numbers: int) -> list[str]:
        """Their jobs are cancelled; returns whose Pods are to be deleted at once."""
        return deleted(self.tell(*(Recovered(bound(n), (ended(bound(n)),)) for n in numbers)))

    def pass_time(self, seconds: float) -> list[str]:
        self.now += seconds
        return deleted(self.tell(Tick()))


def bound(number: int) -> Pod:
    blank = pod(name=f"p{number}", uid=f"u{number}", gates=(), node="n1")
    told = {JOB_ID: str(placeholder_job(blank).id), NODE: "n1"}
    return pod(name=f"p{number}", uid=f"u{number}", gates=(), node="n1", annotations=told)


def ended(of: Pod) -> Job:
    return placeholder_job(of, "CANCELLED", node="n1")


def deleted(effects: list[Effect]) -> list[str]:
    return [effect.pod.name for effect in effects if isinstance(effect, EvictPod)]


def names(first: int, end: int) -> list[str]:
    return [f"p{number}" for number in range(first, end)]


def test_a_wave_of_preemption_passes_at_once() -> None:
    story = Story(RULES.deletions_a_minute)
    assert story.lose_jobs_of(*range(50)) == names(0, 50)
    assert story.told == []


def test_what_is_over_the_limit_waits_until_the_minute_has_slid_on() -> None:
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


def test_those_who_come_later_do_not_overtake() -> None:
    story = Story(limit=1)
    assert story.lose_jobs_of(0, 1) == names(0, 1)
    story.now += 60.0
    assert story.lose_jobs_of(2) == names(1, 2)
    assert story.pass_time(60.0) == names(2, 3)


def test_it_says_how_many_are_held_back_and_why_and_when_none_is_any_more() -> None:
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


def test_a_limit_of_none_holds_everything() -> None:
    story = Story(limit=0)
    assert story.lose_jobs_of(0, 1) == []
    assert story.pass_time(3600.0) == []
    assert "2 are held back" in (story.told[-1] or "")


def test_a_pod_that_is_held_back_is_told_so_once() -> None:
    story = Story(limit=0)
    story.lose_jobs_of(0)
    story.now += 1.0
    (word,) = story.tell(Tick())
    assert isinstance(word, ShowCause)
    assert word.cause.reason == "EvictionHeldBack"
    assert "was cancelled in Slurm" in word.cause.message
    assert story.tell(Outcome(word, None)) == []
    assert story.tell(PodObserved(replace(bound(0), resource_version="101"))) == []


def test_those_who_are_held_back_are_told_one_after_the_other() -> None:
    """There may be thousands, and other Pods wait to be written to."""
    story = Story(limit=0)
    story.lose_jobs_of(*range(100))
    story.now += 1.0
    assert len(story.tell(Tick())) == 50
    story.now += 1.1
    assert len(story.tell(Tick())) == 50


def test_a_pod_that_goes_by_itself_waits_no_more_and_takes_nobodys_turn() -> None:
    story = Story(limit=1)
    story.lose_jobs_of(0, 1, 2)
    story.tell(PodVanished("u1"))
    assert "1 are held back" in (story.told[-1] or "")
    assert story.pass_time(60.0) == names(2, 3)


def test_a_deletion_that_has_to_be_repeated_counts_once() -> None:
    story = Story(limit=2)
    assert story.lose_jobs_of(0) == names(0, 1)
    refused = Failure(Remedy.FRESHER, "the Pod has changed", system="Kubernetes")
    story.tell(Outcome(EvictPod("u0", bound(0), Cause("SlurmJobCancelled", "")), refused))
    assert story.pass_time(1.0) == names(0, 1)
    assert story.lose_jobs_of(1, 2) == names(1, 2)


def run(story: Story, count: int) -> None:
    """So many Pods with their jobs, which run."""
    story.tell(*(Recovered(bound(n), (placeholder_job(bound(n), node="n1"),)) for n in range(count)))


def ended_jobs(effects: list[Effect]) -> list[str]:
    return [effect.uid for effect in effects if isinstance(effect, CancelJob)]


def seen_again(number: int) -> Pod:
    return replace(bound(number), resource_version="101")


def missing(*numbers: int) -> list[Event]:
    """They are not in a new list of all Pods."""
    return [PodVanished(f"u{n}", seen=False) for n in numbers]


def test_the_jobs_of_pods_that_nobody_saw_go_end_at_the_breakers_pace() -> None:
    story = Story(limit=2)
    run(story, 5)
    assert ended_jobs(story.tell(*missing(*range(5)))) == ["u0", "u1"]
    assert "3 are held back (3 OrphanJob), first default/p2" in (story.told[-1] or "")
    assert len(story.ledger.holding("n1")) == 3  # they may run on there
    story.now += 60.0
    assert ended_jobs(story.tell(Tick())) == ["u2", "u3"]
    story.now += 60.0
    assert ended_jobs(story.tell(Tick())) == ["u4"]
    assert story.told[-1] is None


def test_a_pod_that_was_missing_and_is_seen_again_keeps_its_job() -> None:
    story = Story(limit=1)
    run(story, 3)
    assert ended_jobs(story.tell(*missing(0, 1, 2))) == ["u0"]
    assert story.tell(PodObserved(replace(bound(1), resource_version="101"))) == []
    assert "1 are held back" in (story.told[-1] or "")
    for _ in range(3):
        story.now += 60.0
        assert "u1" not in ended_jobs(story.tell(Tick()))
    assert story.told[-1] is None
    assert ended_jobs(story.tell(PodVanished("u1"))) == ["u1"]


def test_a_pod_that_is_held_back_and_was_missing_for_a_while_gets_its_turn_all_the_same() -> None:
    story = Story(limit=1)
    run(story, 2)
    for n in (0, 1):
        job = replace(placeholder_job(bound(n), node="n1"), preempt_time=1)
        story.tell(GraceStarted(f"u{n}", job))
    story.tell(*missing(1))
    assert deleted(story.tell(PodObserved(seen_again(1)))) == []
    assert "1 are held back" in (story.told[-1] or "")
    assert story.pass_time(60.0) == names(1, 2)


@pytest.mark.parametrize("over", [True, False])
def test_a_pod_that_was_taken_for_gone_and_is_seen_again_goes_by_its_job(over: bool) -> None:
    """Its cancellation may not have arrived yet, or may never."""
    story = Story(limit=2)
    run(story, 1)
    assert ended_jobs(story.tell(*missing(0))) == ["u0"]
    job = placeholder_job(bound(0)).id
    if over:
        story.tell(JobsPolled(frozenset({job}), {job: ended(bound(0)).state}, story.now))
    (read,) = story.tell(PodObserved(seen_again(0)))
    assert isinstance(read, ReadJob)
    assert deleted(story.tell(Outcome(read, placeholder_job(bound(0), node="n1")))) == []
    assert story.ledger.holding("n1")
    story.now += 1.0
    polled = JobsPolled(frozenset({job}), {job: ended(bound(0)).state}, story.now)
    assert deleted(story.tell(polled)) == names(0, 1)


def test_a_pod_that_was_taken_for_gone_and_is_told_to_leave_begins_nothing_anew() -> None:
    story = Story(limit=2)
    run(story, 1)
    story.tell(*missing(0))
    assert story.tell(PodObserved(replace(seen_again(0), deleting=True))) == []
    assert story.ledger.holding("n1") == ()


def test_a_missing_pod_whose_job_ends_meanwhile_has_nothing_to_wait_for() -> None:
    story = Story(limit=1)
    run(story, 3)
    story.tell(*missing(0, 1, 2))
    job = placeholder_job(bound(1)).id
    polled = JobsPolled(frozenset({job}), {job: ended(bound(1)).state}, story.now)
    assert story.tell(polled) == []
    assert "1 are held back" in (story.told[-1] or "")
    assert [each.pod.name for each in story.ledger.holding("n1")] == ["p2"]


def test_orphan_jobs_count_and_jobs_of_pods_that_were_seen_to_go_do_not() -> None:
    story = Story(limit=1)
    jobs = [placeholder_job(pod(name=f"o{n}", uid=f"gone{n}"), node="n1") for n in range(3)]
    keys = [PlaceholderKey.parse(job.admin_comment) for job in jobs]
    read = story.tell(*(OrphanFound(key, job.id) for key, job in zip(keys, jobs, strict=True) if key))
    found = story.tell(*(Outcome(effect, job) for effect, job in zip(read, jobs, strict=True)))
    assert [effect.job_id for effect in found if isinstance(effect, CancelJob)] == [jobs[0].id]
    assert "2 OrphanJob" in (story.told[-1] or "")
    running = [Recovered(bound(n), (placeholder_job(bound(n), node="n1"),)) for n in range(5)]
    story.tell(*running)
    gone = story.tell(*(PodVanished(f"u{n}") for n in range(5)))
    assert len([effect for effect in gone if isinstance(effect, CancelJob)]) == 5
