"""Both systems compared: what differs, what is in motion, and who mends it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.audit.compare import Finding, FindingKind, Snapshot, compare, shared_ids, unclear
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.pod import Pod
from slurm_client.model import Job, JobState
from slurm_client.model import Node as SlurmNode
from tests.builders import RULES, changed, kube_node, placeholder_job, pod, view
from wellknown.job_key import JobIdRange, PlaceholderKey
from wellknown.names import ATTEMPT, GATE, JOB_ID, NODE

NOW = datetime(2026, 11, 21, 8, 10, tzinfo=UTC)  # ten minutes after the builders' Pods were created
JUST_NOW = "2026-11-21T08:09:30Z"
PLAIN = pod()
JOB = placeholder_job(PLAIN, node="n1")
NATIVE = Job(4711, JobState("RUNNING"), name="train.sh", nodes=("n1",))
NODES = (kube_node("n1"), kube_node("n2"))


def bound(job: Job | None = JOB, node: str = "n1", says: str = "n1", **given: object) -> Pod:
    told = {} if job is None else {JOB_ID: str(job.id), NODE: says}
    return pod(gates=(), node=node, phase="Running", annotations=told, **given)


def gated(job: Job | None = None, **given: object) -> Pod:
    return pod(annotations={} if job is None else {JOB_ID: str(job.id)}, **given)


def audited(
    pods: Sequence[Pod],
    *jobs: Job,
    over: Collection[Job] = (),
    nodes: Sequence[Node] = NODES,
    slurm: Sequence[SlurmNode] = (),
) -> tuple[Finding, ...]:
    """As `extender.audit` reads: only what is unclear in detail."""
    states = {job.id: job.state for job in jobs}
    wanted = set(unclear(pods, states, RULES))
    reading = Snapshot(
        NOW,
        tuple(pods),
        states,
        {job.id: job for job in jobs if job.id in wanted},
        frozenset(job.id for job in over),
        view(*nodes),
        tuple(slurm),
    )
    return compare(reading, RULES)


def the_one(*found: Finding) -> Finding:
    (finding,) = found
    assert finding.cause
    assert finding.fix
    return finding


# What agrees, and what is in motion


@pytest.mark.parametrize(
    ("of", "jobs"),
    [
        (gated(JOB), [replace(JOB, state=JobState("PENDING"))]),
        (gated(), [replace(JOB, state=JobState("PENDING"))]),  # its id is not written yet
        (bound(), [JOB]),
        (bound(), [replace(JOB, state=JobState.parse("RUNNING,CONFIGURING"))]),
        (bound(deleting=True), []),
        (bound(deleting=True), [replace(JOB, state=JobState("CANCELLED"))]),
        (changed(bound(), finished=True), []),
        (pod(gates=(), annotations={JOB_ID: str(JOB.id), NODE: "n1"}), [JOB]),
        (pod(gates=(GATE, "somebody-elses"), annotations={}), []),
    ],
)
def test_what_fits_is_no_difference(of: Pod, jobs: list[Job]) -> None:
    told = changed(of, told_to_wait=of.gated)
    assert audited([told], NATIVE, *jobs) == ()


def test_native_jobs_and_those_that_their_pods_name_are_not_read() -> None:
    states = {job.id: job.state for job in (NATIVE, JOB)}
    assert list(unclear([bound()], states, RULES)) == []
    assert list(unclear([], states, RULES)) == [JOB.id]
    assert list(unclear([], states, RULES, known={JOB.id})) == []


def test_a_pod_that_names_a_native_job_is_told_of_and_the_job_is_left_alone() -> None:
    found = the_one(*audited([bound(NATIVE)], NATIVE))
    assert (found.kind, found.pod, found.mended) == (FindingKind.FOREIGN_KEY, "default/p", False)
    assert audited([bound(replace(JOB, id=4711))], replace(JOB, id=4711)) == ()


def test_a_job_of_a_pod_that_was_not_listed_and_is_there_is_no_orphan() -> None:
    assert audited([], JOB) == ()


# Jobs


def test_a_job_whose_pod_is_proven_gone_is_an_orphan_that_the_leader_ends() -> None:
    found = the_one(*audited([], JOB, over=[JOB]))
    assert (found.kind, found.job_id, found.pod) == (FindingKind.ORPHAN_JOB, JOB.id, "default/p")
    assert found.mended
    assert found.key == PlaceholderKey.parse(JOB.admin_comment)


def test_a_live_job_of_a_pod_that_has_finished_is_an_orphan() -> None:
    found = the_one(*audited([changed(bound(), finished=True)], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)


def test_a_live_job_of_an_attempt_that_is_over_is_an_orphan() -> None:
    later = pod(annotations={ATTEMPT: "2"})
    found = the_one(*audited([changed(later, told_to_wait=True)], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)


def test_a_live_job_of_a_waiting_pod_whose_request_is_refused_is_an_orphan() -> None:
    asked = gated()
    request = replace(asked.request, problems=("no such account",))
    refused = changed(asked, request=request, told_to_wait=True)
    found = the_one(*audited([refused], JOB))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.ORPHAN_JOB, JOB.id, True)
    bound_before = bound()._replace(request=request)
    assert audited([bound_before], JOB) == ()


@pytest.mark.parametrize("order", [1, -1])
def test_the_job_of_a_group_is_no_orphan_while_one_of_its_pods_lives(order: int) -> None:
    group = PLAIN.workload._replace(size=2)
    alive = bound()._replace(group=group)
    ended = changed(alive, uid="other", name="other", finished=True)
    assert audited([alive, ended][::order], JOB) == ()
    found = the_one(*audited([ended], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)


def test_the_job_of_a_waiting_group_that_lacks_a_pod_is_an_orphan() -> None:
    group = PLAIN.workload._replace(size=2)
    waiting = changed(gated(), group=group, told_to_wait=True)
    found = the_one(*audited([waiting], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)
    other = waiting._replace(uid="other", name="other")
    assert FindingKind.ORPHAN_JOB not in {each.kind for each in audited([waiting, other], JOB)}


def test_an_orphan_that_has_ended_is_none() -> None:
    over = replace(JOB, state=JobState("CANCELLED"))
    assert audited([], over, over=[over]) == ()


def test_a_second_live_job_is_ended_by_the_leader_and_the_one_that_the_pod_names_stays() -> None:
    second = placeholder_job(PLAIN, attempt_try=2, node="n2")
    found = the_one(*audited([bound()], JOB, second))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.TWO_JOBS, second.id, True)


def test_of_two_live_jobs_that_the_pod_does_not_name_neither_is_ended_by_itself() -> None:
    first, second = (placeholder_job(PLAIN, "PENDING", attempt_try=each) for each in (0, 1))
    found = the_one(*audited([gated()], first, second))
    assert (found.kind, found.mended) == (FindingKind.TWO_JOBS, False)


def test_a_job_that_runs_is_not_ended_for_one_that_does_not() -> None:
    second = placeholder_job(PLAIN, attempt_try=2, node="n1")
    waits = replace(JOB, state=JobState("PENDING"))
    found = {finding.kind: finding for finding in audited([bound()], waits, second)}
    assert (found[FindingKind.TWO_JOBS].job_id, found[FindingKind.TWO_JOBS].mended) == (second.id, False)


@pytest.mark.parametrize("comment", ["", "by hand", "slurm-extender/no/key"])
def test_a_job_in_our_range_without_our_key_is_foreign_and_never_ours_to_end(comment: str) -> None:
    found = the_one(*audited([], replace(JOB, admin_comment=comment), over=[JOB]))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.FOREIGN_KEY, JOB.id, False)


def test_a_placeholder_of_another_cluster_is_told_and_is_no_difference() -> None:
    elsewhere = str(PlaceholderKey("elsewhere", "default", "p", "u1", 1))
    found = the_one(*audited([], replace(JOB, admin_comment=elsewhere), over=[JOB]))
    assert (found.kind, found.kind.differs, found.mended) == (FindingKind.OTHER_CLUSTER, False, False)
    words = str(shared_ids([found], JobIdRange(end=50_000_000)))
    assert "other Kubernetes clusters have ids of this one's range (33554432 to 49999999)" in words


def test_a_pod_whose_job_has_an_id_that_was_in_the_range_before_is_told() -> None:
    rules = replace(RULES, ids=JobIdRange(end=JOB.id))
    reading = Snapshot(NOW, (bound(),), {JOB.id: JOB.state}, {}, frozenset(), view(*NODES))
    found = the_one(*compare(reading, rules))
    assert (found.kind, found.job_id) == (FindingKind.FOREIGN_KEY, JOB.id)


def test_ids_that_no_other_cluster_has_are_no_trouble() -> None:
    assert shared_ids(audited([], JOB, over=[JOB]), JobIdRange()) is None


# Pods


def test_a_bound_pod_whose_job_slurm_does_not_know_is_without_job() -> None:
    found = the_one(*audited([bound()]))
    assert (found.kind, found.job_id, found.node) == (FindingKind.POD_WITHOUT_JOB, JOB.id, "n1")
    assert found.mended
    assert "does not know" in found.cause


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "PENDING", "SUSPENDED"])
def test_a_bound_pod_whose_job_no_longer_runs_is_without_job(state: str) -> None:
    found = the_one(*audited([bound()], replace(JOB, state=JobState(state))))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.POD_WITHOUT_JOB, JOB.id, True)
    assert state in found.cause


WAITS = replace(JOB, state=JobState("PENDING"), nodes=(), required_nodes=("n1",), reason="Resources")


@pytest.mark.parametrize("job", [WAITS, replace(WAITS, id=placeholder_job(PLAIN, attempt_try=1).id)])
def test_a_job_that_waits_for_the_node_where_its_pod_runs_says_so(job: Job) -> None:
    """Slurm had lost its state: nobody deletes the Pod. Its job may be the next try, too."""
    found = the_one(*audited([bound()], job))
    assert (found.kind, found.job_id, found.node) == (FindingKind.JOB_WAITS, job.id, "n1")
    assert not found.mended
    assert "Resources" in found.cause
    assert "squeue -w n1" in found.fix


@pytest.mark.parametrize("other", [{"restart_count": 1}, {"required_nodes": ("n2",)}])
def test_a_job_that_was_requeued_or_may_start_elsewhere_has_left_its_pod(other: dict[str, Any]) -> None:
    found = the_one(*audited([bound()], replace(WAITS, **other)))
    assert (found.kind, found.mended) == (FindingKind.POD_WITHOUT_JOB, True)


def test_of_thousands_of_jobs_that_wait_for_their_pods_nodes_few_are_read() -> None:
    of = [pod(name=f"p{n}", uid=f"u{n}") for n in range(1000)]
    jobs = [placeholder_job(each, "PENDING", required_nodes=("n1",)) for each in of]
    bounds = [
        bound(job)._replace(uid=each.uid, name=each.name) for each, job in zip(of, jobs, strict=True)
    ]
    assert len(list(unclear(bounds, {job.id: job.state for job in jobs}, RULES))) == 100
    found = audited(bounds, *jobs)
    assert (len(found), {finding.kind for finding in found}) == (1000, {FindingKind.JOB_WAITS})


def test_a_pod_that_was_bound_by_others_has_no_job_and_a_person_must_see_to_it() -> None:
    found = the_one(*audited([bound(None)]))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.POD_WITHOUT_JOB, None, False)


@pytest.mark.parametrize("state", [None, "CANCELLED"])
def test_a_pod_that_waits_by_a_job_that_is_not_there_is_without_job(state: str | None) -> None:
    jobs = [replace(JOB, state=JobState(state))] if state else []
    found = the_one(*audited([gated(JOB)], *jobs))
    assert (found.kind, found.job_id, found.node) == (FindingKind.POD_WITHOUT_JOB, JOB.id, "")


def test_a_pod_on_another_node_than_its_job_is_on_the_wrong_node() -> None:
    found = the_one(*audited([bound(node="n2")], JOB))
    assert (found.kind, found.job_id, found.node) == (FindingKind.WRONG_NODE, JOB.id, "n2")
    assert not found.mended


def test_a_job_that_has_lost_its_key_is_told_and_stays_its_pods() -> None:
    submitted = int(datetime.fromisoformat(PLAIN.created).timestamp())
    unsigned = replace(JOB, admin_comment="by hand", submit_time=submitted)
    found = the_one(*audited([bound(None)], unsigned))
    assert (found.kind, found.job_id, found.mended) == (FindingKind.FOREIGN_KEY, JOB.id, False)
    assert "AdminComment" in found.cause


def test_a_pod_that_names_the_job_of_another_is_told_and_the_other_is_not() -> None:
    victim = bound()
    forger = pod(name="forger", gates=(), node="n1", annotations={JOB_ID: str(JOB.id), NODE: "n1"})
    for listed in ([victim, forger], [forger, victim]):
        found = the_one(*audited(listed, JOB))
        assert (found.kind, found.pod) == (FindingKind.FOREIGN_KEY, "default/forger")


def test_a_pod_that_nothing_is_told_about_and_no_job_waits_for_is_stuck_at_our_gate() -> None:
    found = the_one(*audited([gated()]))
    assert (found.kind, found.pod) == (FindingKind.STUCK_GATE, "default/p")


@pytest.mark.parametrize(
    "waits", [gated()._replace(created=JUST_NOW), changed(gated(), told_to_wait=True)]
)
def test_a_pod_that_has_just_come_or_knows_why_it_waits_is_not_stuck(waits: Pod) -> None:
    assert audited([waits]) == ()


def test_those_in_line_are_given_the_time_that_telling_them_all_takes() -> None:
    one = gated()
    many = [one._replace(uid=f"u{number}", name=f"p{number}") for number in range(50_000)]
    assert audited(many) == ()


def test_a_pod_whose_job_runs_and_whose_gate_stands_is_stuck() -> None:
    found = the_one(*audited([gated(JOB)], JOB))
    assert (found.kind, found.job_id) == (FindingKind.STUCK_GATE, JOB.id)


# Nodes


def drained(reason: str, *states: str) -> SlurmNode:
    return SlurmNode("n1", frozenset(states or ("IDLE", "DRAIN")), 8, 1000, reason=reason)


def test_a_drain_of_ours_on_an_open_node_is_stuck() -> None:
    found = the_one(*audited([], slurm=[drained("slurm-extender: cordoned in Kubernetes")]))
    assert (found.kind, found.node, found.mended) == (FindingKind.STUCK_DRAIN, "n1", True)


@pytest.mark.parametrize(
    ("node", "slurm"),
    [
        (kube_node("n1"), drained("disk is broken")),
        (kube_node("n1"), drained("slurm-extender: cordoned in Kubernetes", "IDLE")),
        (kube_node("n1"), drained("slurm-extender: cordoned in Kubernetes", "DRAIN", "COMPLETING")),
        (kube_node("n1", unschedulable=True), drained("slurm-extender: cordoned in Kubernetes")),
        (
            kube_node("n1", taints=({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},)),
            drained("slurm-extender: not ready in Kubernetes"),
        ),
        (
            kube_node("n1", taints=({"key": "repair", "effect": "NoSchedule"},)),
            drained("slurm-extender: tainted repair in Kubernetes"),
        ),
        (kube_node("n1"), drained("slurm-extender: Pod default/p is still there")),
        (kube_node("n1"), drained("slurm-extender: the gate refused job 7: Pods default/p")),
        (kube_node("another"), drained("slurm-extender: its Node is gone")),
    ],
)
def test_drains_of_others_and_those_with_a_cause_are_not_stuck(node: Node, slurm: SlurmNode) -> None:
    assert audited([], nodes=[node], slurm=[slurm]) == ()


def test_nodes_that_name_the_same_slurm_node_are_a_difference() -> None:
    nodes = (kube_node("n1", {"slurm": "gpu"}), kube_node("n2", {"slurm": "gpu"}))
    job = replace(JOB, nodes=("gpu",))
    found = the_one(*audited([bound(job)], job, nodes=nodes))  # the Pod is where its job is
    assert (found.kind, found.node, found.mended) == (FindingKind.CONTESTED_NODE, "gpu", False)
    assert found.cause == "Nodes n1, n2 name Slurm's node gpu: none stands for it, and it gets no Pods"


def test_a_difference_is_the_same_whatever_its_words_are_by_then() -> None:
    first = audited([bound()], replace(JOB, state=JobState("CANCELLED")))
    assert first == audited([bound()])
