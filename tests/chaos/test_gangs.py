"""Tests of the checks of gangs: a gang is a workload of several Pods with one job."""

from dataclasses import replace

import pytest

from tests.chaos.anomalies import DUPLICATES, LOST, UNBOUND_LEAKS, WRONG_KILLS, Since, anomalies
from tests.chaos.checker import Causes, Checker
from tests.chaos.gangs import PartlyBound, limit_s, too_long
from tests.chaos.history import SeenJob, SeenPod, gang_key, read_jobs, read_pod
from tests.chaos.plan import gangs
from tests.chaos.workload import _member
from wellknown.job_key import PlaceholderKey

NODES = {"n1": 8, "n2": 8}
FIRST = SeenPod(
    "u0", "g-0", "", "Pending", deleting=False, cpus=1, gpus=0, job_id=1, gang="g", gang_size=2
)
SECOND = replace(FIRST, uid="u1", name="g-1")
BOUND = [replace(FIRST, node="n1", phase="Running"), replace(SECOND, node="n2", phase="Running")]
JOB = SeenJob(1, "g@default", "root", "RUNNING", "n[1-2]", 2, gang_key("g"))
PENDING = replace(JOB, state="PENDING", node="")
CALM = Since(0.0, 0.0)


@pytest.mark.parametrize(
    ("pods", "jobs", "kinds"),
    [
        (BOUND, [JOB], set()),
        ([FIRST, SECOND], [replace(PENDING, held=True)], set()),
        ([replace(FIRST, told="PodsMissing", job_id=None)], [], set()),
        ([replace(BOUND[0], phase="Succeeded"), BOUND[1]], [JOB], set()),
        ([FIRST, SECOND], [], {LOST}),
        ([], [JOB], {LOST}),
        ([replace(each, phase="Succeeded") for each in BOUND], [JOB], {LOST}),
        (BOUND, [JOB, replace(JOB, id=2)], {DUPLICATES}),
        (BOUND, [replace(JOB, node="n1")], {UNBOUND_LEAKS}),
        ([BOUND[0], SECOND], [JOB], {UNBOUND_LEAKS}),
    ],
)
def test_anomalies_of_a_gang(pods: list[SeenPod], jobs: list[SeenJob], kinds: set[str]) -> None:
    assert {found.kind for found in anomalies(pods, jobs, NODES)} == kinds


def checked(causes: Causes, *last: SeenPod, jobs: tuple[SeenJob, ...] = (JOB,)) -> list[str]:
    """Returns the kinds of violations of a running gang whose Pods are seen as `last` in the end."""
    checker = Checker(causes, NODES)
    for pod in BOUND:
        checker.pod_seen(1, pod)
    checker.jobs_seen(2, 2, CALM, [JOB])
    checker.jobs_seen(3, 3, CALM, list(jobs))
    for pod in last:
        checker.pod_seen(4, pod)
    checker.conclude()
    return [each.kind for each in checker.violations]


def test_eviction_of_a_member_needs_a_cause() -> None:
    gone = replace(BOUND[1], deleting=True)
    assert checked(Causes(), gone) == [WRONG_KILLS]
    assert checked(Causes(deleted={"g-1": 3.5}), gone) == []
    assert checked(Causes(deleted={"g-0": 3.5}), gone) == [WRONG_KILLS]
    assert checked(Causes(cancelled={"g": 3.5}), gone) == []
    assert checked(Causes(), gone, jobs=(replace(JOB, state="PREEMPTED"),)) == []


def test_only_times_with_a_part_of_a_whole_gang_bound_count() -> None:
    partly = PartlyBound()
    partly.note(1.0, FIRST, [FIRST])
    partly.note(2.0, BOUND[0], [BOUND[0]])  # the second member does not exist
    partly.note(3.0, SECOND, [BOUND[0], SECOND])
    partly.note(4.5, BOUND[1], BOUND)
    partly.note(6.0, replace(BOUND[0], deleting=True), [replace(BOUND[0], deleting=True), BOUND[1]])
    (found,) = partly.found
    assert (found.gang, found.size, found.seconds) == ("g", 2, 1.5)
    assert too_long([found], 1.0) == [found]
    assert too_long([found], 2.0) == []
    assert limit_s(16) == 1.08


def test_pods_and_jobs_of_a_gang_have_the_same_workload() -> None:
    (plan, *_) = gangs(1, 60)
    manifest = _member(plan, f"{plan.name}-0")
    manifest["metadata"] |= {"uid": "u0"}
    key = PlaceholderKey("local", "default", plan.name, "gang-01d92d389ab061e352faa39a62acc7a3", 1, 0)
    shown = f"JobId=7 JobName={plan.name}@default JobState=PENDING AdminComment={key}"
    (job,) = read_jobs(shown)
    seen = read_pod(manifest)
    assert job.uid == seen.workload == gang_key(plan.name)
    assert seen.gang_size == plan.size == len(plan.comes)
