"""Tests of the comparison of both systems: differences, changes in progress, and corrections."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.audit.compare import Finding, FindingKind, Snapshot, compare, shared_ids, unclear
from extender.explain.sentences import sentence
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.pod import Pod
from slurm_client.job_state import JobState
from slurm_client.model import Job
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
    """Compares both systems as `extender.audit` does: reads only unclear jobs in detail."""
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


def state(text: str) -> Job:
    return replace(JOB, state=JobState(text))


def signed(comment: str) -> Job:
    """Returns the job with another AdminComment."""
    submitted = int(datetime.fromisoformat(PLAIN.created).timestamp())
    return replace(JOB, admin_comment=comment, submit_time=submitted)


def drained(reason: str, *states: str) -> SlurmNode:
    return SlurmNode("n1", frozenset(states or ("IDLE", "DRAIN")), 8, 1000, reason=reason)


CORDONED = "slurm-extender: cordoned in Kubernetes"
WAITS = replace(JOB, state=JobState("PENDING"), nodes=(), required_nodes=("n1",), reason="Resources")
LEFT: list[dict[str, Any]] = [{"restart_count": 1}, {"required_nodes": ("n2",)}]
SECOND = placeholder_job(PLAIN, attempt_try=2, node="n2")
TWO = [placeholder_job(PLAIN, "PENDING", attempt_try=each) for each in (0, 1)]
REFUSED: dict[str, Any] = {"request": replace(gated().request, problems=("no such account",))}
WAITING = changed(gated(), told_to_wait=True)
LATER = changed(pod(annotations={ATTEMPT: "2"}), told_to_wait=True)
ENDED = changed(bound(), finished=True)
WRONG_KEY = signed("slurm-extender/no/key")
WITHOUT_POD = {"no key", "comment", "wrong key", "lost key", "open Node"}
KIND = FindingKind

FOUND: dict[str, tuple[tuple[Finding, ...], FindingKind, int | None, str, bool]] = {
    "gone Pod": (audited([], JOB, over=[JOB]), KIND.ORPHAN_JOB, JOB.id, "", True),
    "finished Pod": (audited([ENDED], JOB), KIND.ORPHAN_JOB, JOB.id, "", True),
    "attempt that is over": (audited([LATER], JOB), KIND.ORPHAN_JOB, JOB.id, "", True),
    "refused Pod": (audited([changed(WAITING, **REFUSED)], JOB), KIND.ORPHAN_JOB, JOB.id, "", True),
    "second job": (audited([bound()], JOB, SECOND), KIND.TWO_JOBS, SECOND.id, "", True),
    "neither job is named": (audited([gated()], *TWO), KIND.TWO_JOBS, TWO[1].id, "", False),
    "native job": (audited([bound(NATIVE)], NATIVE), KIND.FOREIGN_KEY, 4711, "", False),
    "no key": (audited([], signed(""), over=[JOB]), KIND.FOREIGN_KEY, JOB.id, "", False),
    "comment": (audited([], signed("by hand"), over=[JOB]), KIND.FOREIGN_KEY, JOB.id, "", False),
    "wrong key": (audited([], WRONG_KEY, over=[JOB]), KIND.FOREIGN_KEY, JOB.id, "", False),
    "lost key": (audited([bound(None)], signed("by hand")), KIND.FOREIGN_KEY, JOB.id, "", False),
    "unknown job": (audited([bound()]), KIND.POD_WITHOUT_JOB, JOB.id, "n1", True),
    **{
        text: (audited([bound()], state(text)), KIND.POD_WITHOUT_JOB, JOB.id, "n1", True)
        for text in ("CANCELLED", "PREEMPTED", "PENDING", "SUSPENDED")
    },
    **{
        str(left): (audited([bound()], replace(WAITS, **left)), KIND.POD_WITHOUT_JOB, JOB.id, "n1", True)
        for left in LEFT
    },
    "bound by others": (audited([bound(None)]), KIND.POD_WITHOUT_JOB, None, "n1", False),
    "waits by no job": (audited([gated(JOB)]), KIND.POD_WITHOUT_JOB, JOB.id, "", True),
    "over": (audited([gated(JOB)], state("CANCELLED")), KIND.POD_WITHOUT_JOB, JOB.id, "", True),
    "wrong node": (audited([bound(node="n2")], JOB), KIND.WRONG_NODE, JOB.id, "n2", False),
    "told nothing": (audited([gated()]), KIND.STUCK_GATE, None, "", False),
    "runs gated": (audited([gated(JOB)], JOB), KIND.STUCK_GATE, JOB.id, "", False),
    "open Node": (audited([], slurm=[drained(CORDONED)]), KIND.STUCK_DRAIN, None, "n1", True),
}


@pytest.mark.parametrize("case", FOUND)
def test_difference_is_found(case: str) -> None:
    """The last field is True if the leader corrects the difference, and False if a person must act."""
    found, *fields = FOUND[case]
    finding = the_one(*found)
    assert [finding.kind, finding.job_id, finding.node, finding.mended] == fields
    assert finding.pod == ("" if case in WITHOUT_POD else "default/p")


@pytest.mark.parametrize(
    "found",
    [
        audited([], JOB),  # the Pod exists, but was not listed
        audited([], state("CANCELLED"), over=[state("CANCELLED")]),
        audited([bound(replace(JOB, id=4711))], replace(JOB, id=4711)),
        audited([changed(bound(), **REFUSED)], JOB),
        audited([gated()._replace(created=JUST_NOW)]),
        audited([WAITING]),
        audited([gated()._replace(uid=f"u{number}", name=f"p{number}") for number in range(50_000)]),
    ],
)
def test_change_in_progress_is_no_difference(found: tuple[Finding, ...]) -> None:
    assert found == ()


def test_cause_names_the_problem() -> None:
    causes = {"unknown job": "does not know", "lost key": "AdminComment"}
    causes |= {text: text for text in ("CANCELLED", "PREEMPTED", "PENDING", "SUSPENDED")}
    for case, words in causes.items():
        assert words in sentence(FOUND[case][0][0].cause)
    assert FOUND["gone Pod"][0][0].key == PlaceholderKey.parse(JOB.admin_comment)


# Agreement, and changes in progress


@pytest.mark.parametrize(
    ("of", "jobs"),
    [
        (gated(JOB), [replace(JOB, state=JobState("PENDING"))]),
        (gated(), [replace(JOB, state=JobState("PENDING"))]),  # the Pod does not name the job yet
        (bound(), [JOB]),
        (bound(), [replace(JOB, state=JobState.parse("RUNNING,CONFIGURING"))]),
        (bound(deleting=True), []),
        (bound(deleting=True), [replace(JOB, state=JobState("CANCELLED"))]),
        (changed(bound(), finished=True), []),
        (pod(gates=(), annotations={JOB_ID: str(JOB.id), NODE: "n1"}), [JOB]),
        (pod(gates=(GATE, "somebody-elses"), annotations={}), []),
    ],
)
def test_matching_pods_and_jobs_are_no_difference(of: Pod, jobs: list[Job]) -> None:
    told = changed(of, told_to_wait=of.gated)
    assert audited([told], NATIVE, *jobs) == ()


def test_native_jobs_and_jobs_named_by_their_pods_are_not_read() -> None:
    states = {job.id: job.state for job in (NATIVE, JOB)}
    assert list(unclear([bound()], states, RULES)) == []
    assert list(unclear([], states, RULES)) == [JOB.id]
    assert list(unclear([], states, RULES, known={JOB.id})) == []


# Jobs


@pytest.mark.parametrize("order", [1, -1])
def test_job_of_a_group_is_no_orphan_while_one_pod_of_the_group_lives(order: int) -> None:
    group = PLAIN.workload._replace(size=2)
    alive = bound()._replace(group=group)
    ended = changed(alive, uid="other", name="other", finished=True)
    assert audited([alive, ended][::order], JOB) == ()
    found = the_one(*audited([ended], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)


def test_job_of_an_incomplete_waiting_group_is_an_orphan() -> None:
    group = PLAIN.workload._replace(size=2)
    waiting = changed(gated(), group=group, told_to_wait=True)
    found = the_one(*audited([waiting], JOB))
    assert (found.kind, found.job_id) == (FindingKind.ORPHAN_JOB, JOB.id)
    other = waiting._replace(uid="other", name="other")
    assert FindingKind.ORPHAN_JOB not in {each.kind for each in audited([waiting, other], JOB)}


def test_waiting_job_of_a_bound_group_waits_for_all_of_its_nodes() -> None:
    group = PLAIN.workload._replace(size=2)
    first = bound()._replace(group=group)
    second = bound(node="n2", says="n2")._replace(group=group, uid="other", name="other")
    job = replace(WAITS, required_nodes=("n1", "n2"))
    found = audited([first, second], job)
    assert [(each.kind, each.node) for each in found] == [
        (FindingKind.JOB_WAITS, "n1"),
        (FindingKind.JOB_WAITS, "n2"),
    ]


def test_running_second_job_is_kept_while_the_first_job_is_pending() -> None:
    second = placeholder_job(PLAIN, attempt_try=2, node="n1")
    waits = replace(JOB, state=JobState("PENDING"))
    found = {finding.kind: finding for finding in audited([bound()], waits, second)}
    assert (found[FindingKind.TWO_JOBS].job_id, found[FindingKind.TWO_JOBS].mended) == (second.id, False)


def test_placeholder_of_another_cluster_is_reported_as_no_difference() -> None:
    elsewhere = str(PlaceholderKey("elsewhere", "default", "p", "u1", 1))
    found = the_one(*audited([], replace(JOB, admin_comment=elsewhere), over=[JOB]))
    assert (found.kind, found.kind.differs, found.mended) == (FindingKind.OTHER_CLUSTER, False, False)
    words = str(shared_ids([found], JobIdRange(end=50_000_000)))
    assert "other Kubernetes clusters have ids in this cluster's range (33554432 to 49999999)" in words


def test_pod_with_a_job_id_outside_the_range_is_reported() -> None:
    rules = replace(RULES, ids=JobIdRange(end=JOB.id))
    reading = Snapshot(NOW, (bound(),), {JOB.id: JOB.state}, {}, frozenset(), view(*NODES))
    found = the_one(*compare(reading, rules))
    assert (found.kind, found.job_id) == (FindingKind.FOREIGN_KEY, JOB.id)


def test_job_ids_of_one_cluster_are_no_problem() -> None:
    assert shared_ids(audited([], JOB, over=[JOB]), JobIdRange()) is None


# Pods


@pytest.mark.parametrize("job", [WAITS, replace(WAITS, id=placeholder_job(PLAIN, attempt_try=1).id)])
def test_job_that_waits_for_the_node_of_its_running_pod_is_reported(job: Job) -> None:
    """After a loss of Slurm's state, the extender does not delete the Pod. The waiting job may be the
    first try of the attempt, or the next try."""
    found = the_one(*audited([bound()], job))
    assert (found.kind, found.job_id, found.node) == (FindingKind.JOB_WAITS, job.id, "n1")
    assert not found.mended
    assert "Resources" in sentence(found.cause)
    assert "squeue -w n1" in found.fix


def test_number_of_waiting_jobs_to_read_is_limited() -> None:
    of = [pod(name=f"p{n}", uid=f"u{n}") for n in range(1000)]
    jobs = [placeholder_job(each, "PENDING", required_nodes=("n1",)) for each in of]
    bounds = [
        bound(job)._replace(uid=each.uid, name=each.name) for each, job in zip(of, jobs, strict=True)
    ]
    assert len(list(unclear(bounds, {job.id: job.state for job in jobs}, RULES))) == 100
    found = audited(bounds, *jobs)
    assert (len(found), {finding.kind for finding in found}) == (1000, {FindingKind.JOB_WAITS})


def test_only_the_pod_that_names_a_foreign_job_is_reported() -> None:
    victim = bound()
    forger = pod(name="forger", gates=(), node="n1", annotations={JOB_ID: str(JOB.id), NODE: "n1"})
    for listed in ([victim, forger], [forger, victim]):
        found = the_one(*audited(listed, JOB))
        assert (found.kind, found.pod) == (FindingKind.FOREIGN_KEY, "default/forger")


# Nodes


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
def test_foreign_and_justified_drains_are_not_stuck(node: Node, slurm: SlurmNode) -> None:
    assert audited([], nodes=[node], slurm=[slurm]) == ()


def test_nodes_that_name_the_same_slurm_node_are_a_difference() -> None:
    nodes = (kube_node("n1", {"slurm": "gpu"}), kube_node("n2", {"slurm": "gpu"}))
    job = replace(JOB, nodes=("gpu",))
    found = the_one(*audited([bound(job)], job, nodes=nodes))  # the Pod is on the node of the job
    assert (found.kind, found.node, found.mended) == (FindingKind.CONTESTED_NODE, "gpu", False)
    words = "Nodes n1, n2 name Slurm's node gpu: none stands for it, and it gets no Pods"
    assert sentence(found.cause) == words


def test_differences_with_other_causes_are_equal() -> None:
    first = audited([bound()], replace(JOB, state=JobState("CANCELLED")))
    assert first == audited([bound()])
