"""Each thing that may not last is found where it is, and not where it is not."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.anomalies import (
    DUPLICATES,
    GRACE_S,
    LOST,
    OVERCOMMITTED,
    RESTS_S,
    STUCK_NODES,
    UNBOUND_LEAKS,
    WAITS_S,
    Anomaly,
    Lasting,
    Since,
    anomalies,
    of_nodes,
)
from tests.chaos.cluster_spec import CROWD
from tests.chaos.history import SeenJob, SeenNode, SeenPod, read_jobs, read_nodes, read_pod

NODES = {"n1": 8, "n2": 8}
WAITING = SeenPod("u", "p", "", "Pending", deleting=False, cpus=2, gpus=0, job_id=1)
REFUSED = replace(WAITING, job_id=None, odd="denied", told="Invalid")
BOUND = replace(WAITING, node="n1", phase="Running")
JOB = SeenJob(1, "p@default", "root", "RUNNING", "n1", 2, "u")
PENDING = replace(JOB, state="PENDING", node="")
NATIVE = SeenJob(9, "native", "alice", "RUNNING", "n1", 6, "")
FULL = [replace(NATIVE, cpus=8), replace(NATIVE, id=10, node="n2", cpus=8)]


def kinds(pods: list[SeenPod], jobs: list[SeenJob]) -> list[str]:
    return [found.kind for found in anomalies(pods, jobs, NODES)]


@pytest.mark.parametrize(
    ("pods", "jobs"),
    [
        ([], []),
        ([BOUND], [JOB]),
        ([WAITING], [PENDING, *FULL]),
        ([BOUND], [JOB, replace(JOB, id=2, state="CANCELLED")]),
        ([BOUND], [JOB, replace(JOB, id=2, state="COMPLETING")]),
        ([replace(BOUND, phase="Succeeded")], []),
        ([replace(BOUND, deleting=True)], [replace(JOB, state="CANCELLED")]),
        ([replace(BOUND, deleting=True, slowly=True)], [JOB]),
        ([BOUND], [JOB, NATIVE]),
        ([replace(BOUND, phase="Succeeded")], [replace(NATIVE, cpus=8)]),
        ([], [replace(NATIVE, state="PENDING", node="", cpus=99)]),
        ([REFUSED], []),
    ],
)
def test_systems_that_agree_have_none(pods: list[SeenPod], jobs: list[SeenJob]) -> None:
    assert kinds(pods, jobs) == []


def test_a_pod_that_is_refused_has_nothing_and_is_told_so_and_nobody_else_is() -> None:
    assert kinds([REFUSED], [PENDING, *FULL]) == [UNBOUND_LEAKS]
    assert kinds([replace(REFUSED, node="n1")], []) == [UNBOUND_LEAKS]
    assert kinds([replace(REFUSED, told="")], []) == [LOST]
    assert kinds([replace(REFUSED, odd="")], []) == [LOST]


def test_two_live_jobs_of_a_pod() -> None:
    assert kinds([BOUND], [JOB, replace(PENDING, id=2), *FULL])[0] == DUPLICATES


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED"])
def test_a_live_job_without_its_pod(state: str) -> None:
    assert kinds([], [replace(JOB, state=state)]) == [LOST]


@pytest.mark.parametrize(
    "over",
    [replace(BOUND, phase="Succeeded"), replace(BOUND, phase="Failed"), replace(WAITING, deleting=True)],
)
def test_a_live_job_whose_pod_is_over(over: SeenPod) -> None:
    assert kinds([over], [JOB]) == [LOST]


def test_a_pod_that_leaves_slowly_without_a_job() -> None:
    slow = replace(BOUND, deleting=True, slowly=True)
    assert kinds([slow], [replace(JOB, state="CANCELLED")]) == [UNBOUND_LEAKS]


def test_a_pod_that_is_rightly_without_a_job_is_told_so() -> None:
    greedy, denied = replace(WAITING, odd="greedy"), replace(WAITING, odd="denied")
    assert kinds([greedy], []) == [LOST]
    assert kinds([replace(greedy, told="WaitingForSubmitSlot")], []) == []
    assert kinds([denied], []) == [LOST]
    assert kinds([replace(denied, told="Invalid")], []) == []
    assert kinds([replace(WAITING, odd="claim", told="ClaimNotReady")], []) == []
    assert kinds([replace(WAITING, odd="nowhere", told="NotBindable")], []) == []
    for told in ("WaitingForSubmitSlot", "Invalid", "ClaimNotReady", "NotBindable"):
        assert kinds([replace(WAITING, told=told)], []) == [LOST]
        assert kinds([replace(WAITING, odd="modest", told=told)], []) == [LOST]


def test_a_pod_that_kube_scheduler_did_not_bind_rests_for_a_while() -> None:
    (found,) = anomalies([replace(WAITING, told="NotBindable")], [], NODES)
    assert (found.kind, found.grace_s, found.placing) == (LOST, RESTS_S, True)


def test_a_pod_that_waits_without_a_job() -> None:
    assert kinds([WAITING], [replace(PENDING, state="CANCELLED")]) == [LOST]


@pytest.mark.parametrize("job", [PENDING, replace(JOB, node="n2"), replace(JOB, state="CANCELLED")])
def test_a_bound_pod_whose_job_does_not_run_there(job: SeenJob) -> None:
    assert kinds([BOUND], [job]) == [UNBOUND_LEAKS]


def test_a_forgotten_job_that_waits_for_its_cores_has_more_time() -> None:
    (found,) = anomalies([BOUND], [PENDING], NODES)
    assert found.grace_s == WAITS_S
    (found,) = anomalies([BOUND], [replace(JOB, state="CANCELLED")], NODES)
    assert found.grace_s == GRACE_S


def test_who_is_given_the_cores_of_a_pod_whose_job_slurm_forgot_waits_at_the_gate_for_a_while() -> None:
    native = replace(NATIVE, cpus=8)
    found = {each.kind: each for each in anomalies([BOUND], [PENDING, native], NODES)}
    assert found[OVERCOMMITTED].grace_s == WAITS_S
    found = {each.kind: each for each in anomalies([BOUND], [JOB, native], NODES)}
    assert found[OVERCOMMITTED].grace_s == GRACE_S


def test_an_excess_that_forgotten_jobs_do_not_explain_has_no_more_time() -> None:
    others = replace(BOUND, uid="v", cpus=3), replace(JOB, id=2, uid="v")
    explained = [PENDING, others[1], replace(NATIVE, cpus=5)]
    (found,) = (each for each in anomalies([BOUND, others[0]], explained, NODES) if each.about == "n1")
    assert found.grace_s == WAITS_S
    too_much = [PENDING, others[1], replace(NATIVE, cpus=6)]
    (found,) = (each for each in anomalies([BOUND, others[0]], too_much, NODES) if each.about == "n1")
    assert found.grace_s == GRACE_S


def test_a_job_that_runs_for_a_pod_that_is_not_bound() -> None:
    assert kinds([WAITING], [JOB]) == [UNBOUND_LEAKS]


def test_a_pod_that_waits_where_every_job_that_waits_would_fit() -> None:
    assert kinds([WAITING], [PENDING, replace(NATIVE, cpus=8)]) == [LOST]
    first = replace(NATIVE, id=8, state="PENDING", node="", cpus=5)  # does not fit, and goes first
    full = [replace(NATIVE, cpus=4), replace(NATIVE, id=7, node="n2", cpus=4)]
    assert kinds([WAITING], [PENDING, first, *full]) == []
    assert kinds([WAITING], [replace(PENDING, partition=CROWD)]) == [], "it has nodes of its own"


def test_a_node_that_pods_and_native_jobs_ask_too_much_of() -> None:
    assert kinds([BOUND], [JOB, replace(NATIVE, cpus=7)]) == [OVERCOMMITTED]
    leaving = replace(BOUND, deleting=True)  # the native job waits at the gate
    ended = replace(JOB, state="CANCELLED")
    assert kinds([leaving], [ended, replace(NATIVE, cpus=7)]) == []


ADOPTED_POD = replace(BOUND, managed=False, job_id=None)


def test_a_guest_may_be_without_a_job_but_not_elsewhere_than_it() -> None:
    assert kinds([ADOPTED_POD], []) == []
    assert kinds([ADOPTED_POD], [JOB]) == []
    assert kinds([ADOPTED_POD], [replace(JOB, node="n2")]) == [UNBOUND_LEAKS]


@pytest.mark.parametrize("pod", [ADOPTED_POD, BOUND])
def test_a_bound_pod_keeps_its_job_until_it_is_gone(pod: SeenPod) -> None:
    assert kinds([replace(pod, deleting=True)], [JOB]) == []
    assert kinds([replace(pod, phase="Succeeded")], [JOB]) == [LOST]


def test_there_is_no_room_on_a_node_that_is_out_of_service() -> None:
    jobs = [PENDING, replace(NATIVE, cpus=8)]
    assert anomalies([WAITING], jobs, NODES, usable={"n1": 8}) == []


SERVING = SeenNode("n1", cordoned=False, told=False, tainted=False, in_service=True, reason="")
OURS = replace(SERVING, cordoned=True, told=True, in_service=False, reason="slurm-extender: cordoned")
BY_HAND = replace(SERVING, told=True, tainted=True, in_service=False, reason="disk")


@pytest.mark.parametrize("node", [SERVING, OURS, BY_HAND], ids=["serving", "ours", "by hand"])
def test_nodes_that_agree_have_none(node: SeenNode) -> None:
    assert list(of_nodes([node])) == []


@pytest.mark.parametrize(
    "node",
    [
        replace(SERVING, cordoned=True),
        replace(OURS, cordoned=False),
        replace(BY_HAND, told=False),
        replace(BY_HAND, tainted=False),
        replace(SERVING, told=True),
        replace(SERVING, tainted=True),
    ],
)
def test_nodes_that_do_not_have_one(node: SeenNode) -> None:
    assert [found.kind for found in of_nodes([node])] == [STUCK_NODES]


TROUBLE = Anomaly(LOST, "u", "p waits without a job")


def test_what_outlasts_a_grace_of_calm_is_told_once() -> None:
    lasting = Lasting()
    told = [lasting.update(float(now), Since(0.0, 0.0), [TROUBLE]) for now in range(40)]
    assert told.index([TROUBLE]) == 20
    assert sum(map(len, told)) == 1


def test_while_anything_is_disturbed_nothing_lasts_too_long() -> None:
    lasting = Lasting()
    for now in range(100):
        assert not lasting.update(float(now), Since(None, None), [TROUBLE])
    assert not lasting.update(110.0, Since(100.0, 100.0), [TROUBLE])
    assert lasting.update(120.0, Since(100.0, 100.0), [TROUBLE])
    assert lasting.longest_s[LOST] == 120.0


def test_a_blind_kube_scheduler_excuses_what_needs_it_and_nothing_else() -> None:
    pods = [WAITING, replace(WAITING, uid="v", name="q"), replace(WAITING, uid="w", name="r")]
    jobs = [PENDING, replace(JOB, id=2, uid="v"), replace(JOB, id=3, uid="x")]
    seen = anomalies(pods, jobs, NODES)
    assert {each.words: each.placing for each in seen} == {
        "p waits where there is room": True,
        "job 2 runs, q is not bound": True,
        "r waits without a job": False,
        "job 3 lives without its Pod p@default": False,
    }
    lasting = Lasting()
    assert not lasting.update(0.0, Since(0.0, None), seen)
    told = lasting.update(60.0, Since(0.0, None), seen)
    assert told == [each for each in seen if not each.placing]
    assert not lasting.update(80.0, Since(0.0, 70.0), seen)
    assert lasting.update(90.0, Since(0.0, 70.0), seen) == [each for each in seen if each.placing]


def test_a_job_whose_pod_is_gone_may_last_until_it_is_swept() -> None:
    lasting, orphan = Lasting(), anomalies([], [JOB], NODES)
    told = [lasting.update(float(now), Since(0.0, 0.0), orphan) for now in range(60)]
    assert told.index(orphan) == 45


def test_another_grace_does_not_begin_anew_and_the_latest_counts() -> None:
    lasting, longer = Lasting(), replace(TROUBLE, grace_s=WAITS_S)
    assert not lasting.update(0.0, Since(0.0, 0.0), [TROUBLE])
    assert not lasting.update(10.0, Since(0.0, 0.0), [longer])
    assert not lasting.update(40.0, Since(0.0, 0.0), [longer])
    assert lasting.update(41.0, Since(0.0, 0.0), [TROUBLE])
    assert not lasting.update(80.0, Since(0.0, 0.0), [longer])
    lasting.update(90.0, Since(0.0, 0.0), [])
    lasting.update(100.0, Since(0.0, 0.0), [TROUBLE])
    assert not lasting.update(119.0, Since(0.0, 0.0), [longer])
    assert not lasting.update(174.0, Since(0.0, 0.0), [longer])
    assert lasting.update(175.0, Since(0.0, 0.0), [longer])


def test_what_goes_and_comes_again_begins_anew() -> None:
    lasting = Lasting()
    lasting.update(0.0, Since(0.0, 0.0), [TROUBLE])
    lasting.update(10.0, Since(0.0, 0.0), [])
    lasting.update(11.0, Since(0.0, 0.0), [TROUBLE])
    assert not lasting.update(30.0, Since(0.0, 0.0), [TROUBLE])
    assert lasting.update(31.0, Since(0.0, 0.0), [TROUBLE])


def test_a_job_that_is_held_does_not_wait_for_room() -> None:
    assert kinds([WAITING], [PENDING]) == [LOST]
    assert kinds([WAITING], [replace(PENDING, held=True)]) == []
    assert kinds([WAITING], [replace(PENDING, partition="closed")]) == []


def test_a_job_that_lost_its_key_is_the_pods_whose_name_it_has() -> None:
    shown = "JobId=7 JobName={} UserId=root(0) JobState=RUNNING AdminComment=project 7 NodeList=n1\n"
    uid_of = {"p": "u"}.get
    names = ("p@default", "other@default", "p")
    jobs = [read_jobs(shown.format(name), lambda name: uid_of(name, ""))[0] for name in names]
    assert [job.uid for job in jobs] == ["u", "", ""]


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ("gres/gpu:2", 2),
        ("gres/gpu:h100:2", 2),
        ("gres/gpu:h100=4", 4),
        ("gres/gpu:0", 0),
        ("(null)", 0),
    ],
)
def test_what_a_job_asks_for_is_read(asked: str, gpus: int) -> None:
    shown = f"JobId=7 JobState=PENDING Priority=0 NumCPUs=2 TresPerNode={asked}\n"
    assert read_jobs(shown) == [
        SeenJob(7, "", "", "PENDING", "", 2, "", gpus=gpus, held=True),
    ]


def test_scontrols_words_are_read() -> None:
    key = "slurm-extender/c/default/p/u/1.0"
    shown = (
        "JobId=7 JobName=p@default UserId=root(0) JobState=RUNNING Reason=None NodeList=n1"
        f" NumCPUs=2 AdminComment={key} OOMKillStep=0\n"
        "JobId=8 JobName=x UserId=alice(2001) JobState=PENDING NodeList=(null) NumCPUs=1-4 X=/y\n"
    )
    ours, native = read_jobs(shown)
    assert ours == SeenJob(7, "p@default", "root", "RUNNING", "n1", 2, "u")
    assert native == SeenJob(8, "x", "alice", "PENDING", "", 1, "")
    assert read_jobs("No jobs in the system\n") == []


def test_a_pods_manifest_is_read() -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "1"}}
    annotations = {"slurm-extender.io/job-id": "7", "sunk.coreweave.com/partition": "main,low"}
    manifest: dict[str, Any] = {
        "metadata": {
            "uid": "u",
            "name": "p",
            "annotations": annotations,
            "labels": {"odd": "greedy"},
            "deletionTimestamp": "now",
        },
        "spec": {
            "nodeName": "n1",
            "schedulerName": "slurm-scheduler",
            "terminationGracePeriodSeconds": 8,
            "containers": [{"resources": resources}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "slurm-extender.io/Placeholder", "reason": "WaitingForSubmitSlot"}],
        },
    }
    seen = SeenPod(
        "u",
        "p",
        "n1",
        "Running",
        deleting=True,
        cpus=2,
        gpus=1,
        job_id=7,
        odd="greedy",
        told="WaitingForSubmitSlot",
    )
    seen = replace(seen, partitions=frozenset({"main", "low"}), grace_s=8)
    assert read_pod(manifest) == seen
    manifest["metadata"]["deletionGracePeriodSeconds"] = 8
    assert read_pod(manifest) == seen
    manifest["metadata"]["deletionGracePeriodSeconds"] = 86_400
    assert read_pod(manifest) == replace(seen, slowly=True)


def test_nodes_are_read_from_both_systems() -> None:
    shown = (
        "NodeName=n1 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 Reason=disk is old [root@now] X=1\n"
        "NodeName=n2 Arch=x86_64 State=MIXED ThreadsPerCore=1\n"
        "NodeName=slurms-own State=IDLE\n"
    )
    said = [{"type": "slurm-extender.io/SlurmOutOfService", "status": "True"}]
    drained = {
        "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": "slurm-extender.io/out-of-service"}]},
        "status": {"conditions": said},
    }
    cordoned = {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}, "status": {}}
    unknown = {"metadata": {"name": "n3"}, "spec": {}, "status": {}}
    assert read_nodes(shown, [drained, cordoned, unknown]) == [
        replace(BY_HAND, reason="disk is old"),
        replace(SERVING, name="n2", cordoned=True),
    ]
