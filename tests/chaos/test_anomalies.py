"""Tests of anomalies: each kind is found, and systems without an anomaly have no finding."""

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
from wellknown.allocation import Allocation

NODES = {"n1": 8, "n2": 8}
WAITING = SeenPod("u", "p", "", "Pending", deleting=False, cpus=2, gpus=0, job_id=1)
REFUSED = replace(WAITING, job_id=None, odd="denied", told="Invalid")
BOUND = replace(WAITING, node="n1", phase="Running")
JOB = SeenJob(1, "p@default", "root", "RUNNING", "n1", 2, "u")
PENDING = replace(JOB, state="PENDING", node="")
NATIVE = SeenJob(9, "native", "alice", "RUNNING", "n1", 6, "")
FULL = [replace(NATIVE, cpus=8), replace(NATIVE, id=10, node="n2", cpus=8)]
GUEST = replace(BOUND, managed=False, job_id=None)
SLOW = replace(BOUND, deleting=True, slowly=True)
ENDED = replace(JOB, state="CANCELLED")
GREEDY, DENIED = replace(WAITING, odd="greedy"), replace(WAITING, odd="denied")
TOLD = ("WaitingForSubmitSlot", "Invalid", "ClaimNotReady", "NotBindable")
FIRST = replace(NATIVE, id=8, state="PENDING", node="", cpus=5)  # before the Pod's job, without room
HALF_FULL = [replace(NATIVE, cpus=4), replace(NATIVE, id=7, node="n2", cpus=4)]


@pytest.mark.parametrize(
    ("pods", "jobs", "kinds"),
    [
        ([], [], []),
        ([BOUND], [JOB], []),
        ([WAITING], [PENDING, *FULL], []),
        ([BOUND], [JOB, replace(ENDED, id=2)], []),
        ([BOUND], [JOB, replace(JOB, id=2, state="COMPLETING")], []),
        ([replace(BOUND, phase="Succeeded")], [], []),
        ([replace(BOUND, deleting=True)], [ENDED], []),
        ([SLOW], [JOB], []),
        ([BOUND], [JOB, NATIVE], []),
        ([replace(BOUND, phase="Succeeded")], [replace(NATIVE, cpus=8)], []),
        ([], [replace(NATIVE, state="PENDING", node="", cpus=99)], []),
        # A rejected Pod has no job, but a condition with the reason. No other Pod may have this
        # condition.
        ([REFUSED], [], []),
        ([REFUSED], [PENDING, *FULL], [UNBOUND_LEAKS]),
        ([replace(REFUSED, node="n1")], [], [UNBOUND_LEAKS]),
        ([replace(REFUSED, told="")], [], [LOST]),
        ([replace(REFUSED, odd="")], [], [LOST]),
        # Two live jobs of a Pod.
        ([BOUND], [JOB, replace(PENDING, id=2), *FULL], [DUPLICATES, OVERCOMMITTED]),
        # A live job whose Pod is gone, or has ended.
        ([], [JOB], [LOST]),
        ([], [replace(JOB, state="PENDING")], [LOST]),
        ([], [replace(JOB, state="SUSPENDED")], [LOST]),
        ([replace(BOUND, phase="Succeeded")], [JOB], [LOST]),
        ([replace(BOUND, phase="Failed")], [JOB], [LOST]),
        ([replace(WAITING, deleting=True)], [JOB], [LOST]),
        # A Pod with a long grace period whose job has ended.
        ([SLOW], [ENDED], [UNBOUND_LEAKS]),
        # Such a Pod rightly has no job if the Pod has a condition with the reason.
        ([GREEDY], [], [LOST]),
        ([replace(GREEDY, told="WaitingForSubmitSlot")], [], []),
        ([DENIED], [], [LOST]),
        ([replace(DENIED, told="Invalid")], [], []),
        ([replace(WAITING, odd="claim", told="ClaimNotReady")], [], []),
        ([replace(WAITING, odd="nowhere", told="NotBindable")], [], []),
        *(([replace(WAITING, told=told)], [], [LOST]) for told in TOLD),
        *(([replace(WAITING, odd="modest", told=told)], [], [LOST]) for told in TOLD),
        ([WAITING], [replace(PENDING, state="CANCELLED")], [LOST]),
        # A bound Pod whose job does not run on the node, and a running job of an unbound Pod.
        ([BOUND], [PENDING], [UNBOUND_LEAKS]),
        ([BOUND], [replace(JOB, node="n2")], [UNBOUND_LEAKS]),
        ([BOUND], [ENDED], [UNBOUND_LEAKS]),
        ([WAITING], [JOB], [UNBOUND_LEAKS]),
        # A Pod that waits although every waiting job would fit. The crowd has its own nodes.
        ([WAITING], [PENDING, replace(NATIVE, cpus=8)], [LOST]),
        ([WAITING], [PENDING, FIRST, *HALF_FULL], []),
        ([WAITING], [replace(PENDING, partition=CROWD)], []),
        ([WAITING], [PENDING], [LOST]),
        ([WAITING], [replace(PENDING, held=True)], []),
        ([WAITING], [replace(PENDING, partition="closed")], []),
        # Pods and native jobs request more CPUs than the node has. In the second case, the native job
        # waits at the gate.
        ([BOUND], [JOB, replace(NATIVE, cpus=7)], [OVERCOMMITTED]),
        ([replace(BOUND, deleting=True)], [ENDED, replace(NATIVE, cpus=7)], []),
        # An adopted Pod may have no job, but no job on another node.
        ([GUEST], [], []),
        ([GUEST], [JOB], []),
        ([GUEST], [replace(JOB, node="n2")], [UNBOUND_LEAKS]),
        # A bound Pod keeps its job until the Pod is gone.
        ([replace(BOUND, deleting=True)], [JOB], []),
        ([replace(GUEST, deleting=True)], [JOB], []),
        ([replace(GUEST, phase="Succeeded")], [JOB], [LOST]),
    ],
)
def test_anomalies_are_found(pods: list[SeenPod], jobs: list[SeenJob], kinds: list[str]) -> None:
    assert [found.kind for found in anomalies(pods, jobs, NODES)] == kinds


def test_pod_not_bound_by_kube_scheduler_may_wait() -> None:
    (found,) = anomalies([replace(WAITING, told="NotBindable")], [], NODES)
    assert (found.kind, found.grace_s, found.placing) == (LOST, RESTS_S, True)


OTHER, OTHERS_JOB = replace(BOUND, uid="v", cpus=3), replace(JOB, id=2, uid="v")


@pytest.mark.parametrize(
    ("pods", "jobs", "about", "grace_s"),
    [
        # A forgotten job that waits for its cores has more time.
        ([BOUND], [PENDING], "u", WAITS_S),
        ([BOUND], [ENDED], "u", GRACE_S),
        # A native job with the cores of a Pod whose job is forgotten waits at the gate for some time.
        ([BOUND], [PENDING, replace(NATIVE, cpus=8)], "n1", WAITS_S),
        ([BOUND], [JOB, replace(NATIVE, cpus=8)], "n1", GRACE_S),
        # An excess that forgotten jobs do not explain has no more time.
        ([BOUND, OTHER], [PENDING, OTHERS_JOB, replace(NATIVE, cpus=5)], "n1", WAITS_S),
        ([BOUND, OTHER], [PENDING, OTHERS_JOB, NATIVE], "n1", GRACE_S),
    ],
)
def test_anomaly_after_a_lost_slurm_state_has_more_time(
    pods: list[SeenPod], jobs: list[SeenJob], about: str, grace_s: float
) -> None:
    found = [each for each in anomalies(pods, jobs, NODES) if each.about == about]
    assert [each.grace_s for each in found] == [grace_s]


def test_node_out_of_service_has_no_room() -> None:
    jobs = [PENDING, replace(NATIVE, cpus=8)]
    assert anomalies([WAITING], jobs, NODES, usable={"n1": 8}) == []


def test_bound_pod_may_wait_for_a_node_that_failed_only_in_slurm() -> None:
    down = {"n2": 8}
    assert anomalies([BOUND], [PENDING], NODES, usable=down) == []
    assert [each.kind for each in anomalies([BOUND], [PENDING], NODES, usable=NODES)] == [UNBOUND_LEAKS]
    assert [each.kind for each in anomalies([BOUND], [], NODES, usable=down)] == [UNBOUND_LEAKS]
    assert [each.kind for each in anomalies([WAITING], [JOB], NODES, usable=down)] == [UNBOUND_LEAKS]


SERVING = SeenNode("n1", cordoned=False, told=False, tainted=False, in_service=True, reason="")
OURS = replace(SERVING, cordoned=True, told=True, in_service=False, reason="slurm-extender: cordoned")
BY_HAND = replace(SERVING, told=True, tainted=True, in_service=False, reason="disk")


@pytest.mark.parametrize(
    ("node", "agree"),
    [
        (SERVING, True),
        (OURS, True),
        (BY_HAND, True),
        (replace(SERVING, cordoned=True), False),
        (replace(OURS, cordoned=False), False),
        (replace(BY_HAND, told=False), False),
        (replace(BY_HAND, tainted=False), False),
        (replace(SERVING, told=True), False),
        (replace(SERVING, tainted=True), False),
    ],
)
def test_nodes_that_differ_in_both_systems_are_found(node: SeenNode, agree: bool) -> None:
    assert [found.kind for found in of_nodes([node])] == ([] if agree else [STUCK_NODES])


@pytest.mark.parametrize(
    ("reason", "grace_s"),
    [
        ("slurm-extender: the gate refused job 7: Pods default/p1", WAITS_S),
        ("slurm-extender: Pod default/p1 is still there though its job has ended", GRACE_S),
    ],
)
def test_node_drained_by_its_gate_has_more_time(reason: str, grace_s: float) -> None:
    (found,) = of_nodes([replace(OURS, cordoned=False, reason=reason)])
    assert (found.kind, found.grace_s) == (STUCK_NODES, grace_s)


PROBLEM = Anomaly(LOST, "u", "p waits without a job")


def test_anomaly_that_outlasts_its_grace_is_reported_once() -> None:
    lasting = Lasting()
    told = [lasting.update(float(now), Since(0.0, 0.0), [PROBLEM]) for now in range(40)]
    assert told.index([PROBLEM]) == 20
    assert sum(map(len, told)) == 1


def test_disturbance_stops_the_count_of_grace() -> None:
    lasting = Lasting()
    for now in range(100):
        assert not lasting.update(float(now), Since(None, None), [PROBLEM])
    assert not lasting.update(110.0, Since(100.0, 100.0), [PROBLEM])
    assert lasting.update(120.0, Since(100.0, 100.0), [PROBLEM])
    assert lasting.longest_s[LOST] == 120.0


def test_blind_kube_scheduler_excuses_only_anomalies_of_placing() -> None:
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


def test_orphan_job_may_last_until_the_next_audit() -> None:
    lasting, orphan = Lasting(), anomalies([], [JOB], NODES)
    told = [lasting.update(float(now), Since(0.0, 0.0), orphan) for now in range(60)]
    assert told.index(orphan) == 45


def test_latest_grace_counts_from_the_first_sighting() -> None:
    lasting, longer = Lasting(), replace(PROBLEM, grace_s=WAITS_S)
    assert not lasting.update(0.0, Since(0.0, 0.0), [PROBLEM])
    assert not lasting.update(10.0, Since(0.0, 0.0), [longer])
    assert not lasting.update(40.0, Since(0.0, 0.0), [longer])
    assert lasting.update(41.0, Since(0.0, 0.0), [PROBLEM])
    assert not lasting.update(80.0, Since(0.0, 0.0), [longer])
    lasting.update(90.0, Since(0.0, 0.0), [])
    lasting.update(100.0, Since(0.0, 0.0), [PROBLEM])
    assert not lasting.update(119.0, Since(0.0, 0.0), [longer])
    assert not lasting.update(174.0, Since(0.0, 0.0), [longer])
    assert lasting.update(175.0, Since(0.0, 0.0), [longer])


def test_anomaly_that_returns_has_a_new_grace() -> None:
    lasting = Lasting()
    lasting.update(0.0, Since(0.0, 0.0), [PROBLEM])
    lasting.update(10.0, Since(0.0, 0.0), [])
    lasting.update(11.0, Since(0.0, 0.0), [PROBLEM])
    assert not lasting.update(30.0, Since(0.0, 0.0), [PROBLEM])
    assert lasting.update(31.0, Since(0.0, 0.0), [PROBLEM])


def test_job_without_a_key_belongs_to_the_pod_of_its_name() -> None:
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
def test_request_of_a_job_is_read(asked: str, gpus: int) -> None:
    shown = f"JobId=7 JobState=PENDING Priority=0 NumCPUs=2 TresPerNode={asked}\n"
    assert read_jobs(shown) == [SeenJob(7, "", "", "PENDING", "", 2, "", gpus=gpus, held=True)]


def test_output_of_scontrol_is_read() -> None:
    key = "slurm-extender/c/default/p/u/1.0"
    shown = (
        "JobId=7 JobName=p@default UserId=root(0) JobState=RUNNING Reason=None NodeList=n1"
        f" NumCPUs=2 AdminComment={key} OOMKillStep=0 Nodes=n1 CPU_IDs=0,3 Mem=100 GRES=\n"
        "JobId=8 JobName=x UserId=alice(2001) JobState=PENDING NodeList=(null) NumCPUs=1-4 X=/y\n"
    )
    ours, native = read_jobs(shown)
    cores = frozenset({0, 3})
    assert ours == SeenJob(7, "p@default", "root", "RUNNING", "n1", 2, "u", cores=cores)
    assert native == SeenJob(8, "x", "alice", "PENDING", "", 1, "")
    assert read_jobs("No jobs in the system\n") == []


def test_manifest_of_a_pod_is_read() -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "1"}}
    annotations = Allocation(7, "n1", cores="2-3").annotations()
    annotations["sunk.coreweave.com/partition"] = "main,low"
    names = {"uid": "u", "name": "p", "annotations": annotations, "labels": {"odd": "greedy"}}
    told = {"type": "slurm-extender.io/Placeholder", "reason": "WaitingForSubmitSlot"}
    manifest: dict[str, Any] = {
        "metadata": {**names, "deletionTimestamp": "now"},
        "spec": {
            "nodeName": "n1",
            "schedulerName": "slurm-scheduler",
            "terminationGracePeriodSeconds": 8,
            "containers": [{"resources": resources}],
        },
        "status": {"phase": "Running", "conditions": [told]},
    }
    seen = replace(BOUND, deleting=True, gpus=1, job_id=7, odd="greedy", told="WaitingForSubmitSlot")
    seen = replace(seen, partitions=frozenset({"main", "low"}), grace_s=8, cores=frozenset({2, 3}))
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
    taints = [{"key": "slurm-extender.io/out-of-service"}]
    drained = {"metadata": {"name": "n1"}, "spec": {"taints": taints}, "status": {"conditions": said}}
    cordoned = {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}, "status": {}}
    unknown = {"metadata": {"name": "n3"}, "spec": {}, "status": {}}
    assert read_nodes(shown, [drained, cordoned, unknown]) == [
        replace(BY_HAND, reason="disk is old"),
        replace(SERVING, name="n2", cordoned=True),
    ]
