"""The extender repeats a request that Slurm refused: after growing pauses, once for all equal Pods, and
after a relevant change in Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.cause import Step
from extender.explain.sentences import sentence
from extender.node_view.view import ClusterView
from extender.pod_request.job_request import Request
from extender.pod_request.pod_end import own_comment, pod_in_words
from extender.record.config import PlacementConfig
from extender.record.events import ClusterObserved, Effect, Failure, Remedy, ReportWaiting, Submit
from extender.record.states import State
from slurm_client.model import Partition
from tests.placement.ledger_world import NO_CLAIM, REQUEST, VIEW, World

MINUTE = 60.0
FIRST, LONGEST = PlacementConfig().retry
NO_ACCOUNT = Failure(Remedy.CHANGE, "Invalid account")


class Site(World):
    """A world in which Slurm refuses requests for the account "new" until `mended` is set."""

    mended = False

    def _submit(self, effect: Submit) -> object:
        wrong = effect.job.account == "new" and not self.mended
        return NO_ACCOUNT if wrong else super()._submit(effect)

    def refused(self, **wish: object) -> str:
        """Creates a Pod with a refused request, and returns the uid. The comment of the job names the
        Pod."""
        comment = own_comment(pod_in_words("default", f"p{self.made + 1}", ""))
        uid = self.create_pod(request=asking(comment=comment, **wish))
        self.settle()
        assert self.state_of(uid) is State.INVALID
        return uid

    def live_on(self, seconds: float) -> list[Effect]:
        """Lets time pass, and wakes the ledger at each requested time. Returns all effects."""
        done, until = self.settle(), self.now + seconds
        while self.now < until:
            wake = max(self.ledger.next_wake(), self.now + 0.001)
            done += self.wait(min(wake, until) - self.now)
        return done

    def told(self, uid: str) -> float:
        """Returns the time of the next try, as shown to the Pod's author."""
        shown = self.shown(uid)
        assert (shown.reason, sentence(shown)) == ("Invalid", "Slurm refuses the job: Invalid account")
        (due,) = shown.dues
        assert due.step is Step.SLURM_ASKED_AGAIN
        return due.at


@pytest.fixture
def site() -> Site:
    return Site()


def asking(**wish: object) -> Request:
    return replace(REQUEST, job=replace(REQUEST.job, **{"account": "new", **wish}))  # type: ignore[arg-type]


def asked(done: list[Effect]) -> list[str]:
    return [effect.uid for effect in done if isinstance(effect, Submit)]


def test_refused_pod_is_retried_at_the_reported_time_and_placed(site: Site) -> None:
    uid = site.refused()
    due = site.told(uid)
    assert FIRST <= due <= 1.25 * FIRST
    site.mended = True
    assert asked(site.live_on(due - 1)) == []
    assert asked(site.live_on(2)) == [uid]
    assert site.state_of(uid) is State.ALLOCATED


def test_reported_backoff_grows_up_to_half_an_hour(site: Site) -> None:
    uid = site.refused()
    rests = []
    for _ in range(7):
        rests.append(site.told(uid) - site.now)
        site.live_on(rests[-1] + 2)
    bases = [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, LONGEST, LONGEST, LONGEST]
    for base, rest in zip(bases, rests, strict=True):
        assert base - 5 <= rest <= 1.25 * base


def test_equal_requests_share_one_try_and_all_go_on_once_it_succeeds(site: Site) -> None:
    uids = {site.refused() for _ in range(60)}
    other = site.refused(cpus=2)
    dues = {site.told(uid) for uid in uids}
    assert len(dues) == 1
    done = asked(site.live_on(2 * MINUTE * 1.25 + 2))
    assert len(done) == 2
    assert other in done
    assert uids & set(done)
    again = {site.told(uid) for uid in uids}
    assert len(again) == 1
    assert min(again) > site.now, "all are told when they are asked for again"
    site.mended = True
    site.live_on(min(again) - site.now + 2)
    assert {site.state_of(uid) for uid in uids} <= {State.QUEUED, State.ALLOCATED}


def test_success_of_a_new_pod_releases_equal_refused_requests(site: Site) -> None:
    refused = site.refused()
    other = site.refused(cpus=2)
    site.mended = True
    site.create_pod(request=asking())
    site.settle()
    assert site.state_of(refused) in (State.QUEUED, State.ALLOCATED)
    assert site.state_of(other) is State.INVALID


def test_another_pod_retries_after_the_first_pod_is_gone(site: Site) -> None:
    first, second = site.refused(), site.refused()
    site.remove_pod(first)
    site.mended = True
    site.live_on(site.told(second) + 1)
    assert site.state_of(second) is State.ALLOCATED
    assert len(site.ledger._retries) == 0


def test_requests_of_deleted_pods_are_forgotten(site: Site) -> None:
    tried, new = site.refused(), site.refused(cpus=2)
    site.live_on(site.told(tried) + 2)
    for uid in (tried, new):
        site.remove_pod(uid)
    site.live_on(2 * LONGEST)
    assert len(site.ledger._retries) == 0


def test_annotated_pod_and_equal_pods_are_retried_at_once(site: Site) -> None:
    annotated, alike = site.refused(), site.refused()
    site.live_on(15)
    site.mended = True
    site.annotate(annotated)
    site.live_on(1)
    assert {site.state_of(uid) for uid in (annotated, alike)} == {State.ALLOCATED}


def test_continually_annotated_pod_is_retried_at_intervals(site: Site) -> None:
    uid = site.refused()
    done = []
    for _ in range(100):
        site.annotate(uid)
        done += site.live_on(1)
    assert 9 <= len(asked(done)) <= 10


def cordoned(name: str) -> ClusterView:
    return VIEW.with_node(name, replace(VIEW.nodes[name], unschedulable=True))


def test_irrelevant_node_change_causes_no_retry_of_a_refused_pod(site: Site) -> None:
    site.refused()
    site.live_on(FIRST / 2)
    for _ in range(5):
        assert asked(site.tell_and_settle(ClusterObserved(VIEW.with_node("n3", None)))) == []


def test_repeated_node_changes_cause_retries_at_intervals(site: Site) -> None:
    site.refused()
    done: list[Effect] = []
    for number in range(60):
        site.tell(ClusterObserved(cordoned(f"n{1 + number % 2}")))
        done += site.live_on(30)
    assert 7 <= len(asked(done)) <= 60 * 30 / FIRST


@pytest.mark.parametrize("what", ["its node is open again", "its partition is made"])
def test_refused_request_is_retried_when_its_node_or_partition_changes(site: Site, what: str) -> None:
    site.tell(ClusterObserved(cordoned("n1")))
    uid = site.refused()
    site.live_on(1.25 * FIRST + 2)  # after this time, the next pause is longer
    site.live_on(1.01 * FIRST)
    site.mended = True
    view = VIEW
    if what == "its partition is made":
        partitions = {**VIEW.partitions, "new": Partition("new", ("n1",))}
        view = replace(cordoned("n1"), partitions=partitions)
    site.tell_and_settle(ClusterObserved(view))
    assert site.state_of(uid) is State.ALLOCATED


def test_forbidden_pod_is_not_retried(site: Site) -> None:
    uid = site.refused()
    site.edit(uid, forbidden=True)
    assert asked(site.live_on(10 * MINUTE)) == []
    shown = site.shown(uid)
    assert (sentence(shown), shown.dues) == ("forbidden", ())


def test_reports_on_many_refused_pods_are_spread_over_time(site: Site) -> None:
    uids = [site.refused() for _ in range(200)]
    site.live_on(1.25 * FIRST)
    told = [effect for effect in site.live_on(1) if isinstance(effect, ReportWaiting)]
    assert len(told) <= 1 / site.rules.in_line_report_pause + 1
    site.live_on(5)
    assert len({site.told(uid) for uid in uids}) == 1


def test_continually_changed_refused_pod_is_retried_at_intervals(site: Site) -> None:
    uid = site.refused()
    done: list[str] = []
    for number in range(200):
        site.change_request(uid, comment=f"change {number}")
        done += asked(site.live_on(0.1))
        if number == 0:
            assert done == [uid]  # the first change is tried at once
    assert len(done) <= 3
    again: list[str] = []
    for _ in range(60):
        site.ask()
        site.answer()
        again += asked(site.live_on(5))
    assert again


def test_waiting_pod_is_reported_before_many_refused_pods(site: Site) -> None:
    uids = [site.create_pod(request=asking()) for _ in range(500)]
    site.live_on(30)
    site.write(site.pods[uids[0]]._replace(touch=1))
    site.live_on(1.5)
    other = site.create_pod(obstacle=NO_CLAIM)
    done = site.live_on(2)
    assert any(isinstance(effect, ReportWaiting) and effect.uid == other for effect in done)
