"""Tests of the facts about a Pod that placement reads from the manifest."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.explain.sentences import sentence
from extender.pod_request.grace_period import GraceRule
from extender.pod_request.job_request import Request, read_request
from extender.pod_request.pod import Pod, parse_pod
from extender.pod_request.translation import TranslationConfig
from slurm_client.model import JobSpec, Sharing
from tests.builders import PREFIX, TRANSLATION, container, pod, pod_manifest
from wellknown.allocation import Allocation
from wellknown.names import ATTEMPT, GATE, GRANTED, JOB_ID, NODE, WAITING

FILTER_CALL = Path(__file__).parent.parent / "verbs" / "bodies" / "filter.json"
HUGE = "1" * 5000


def test_pod_with_the_gate_of_the_extender_is_read() -> None:
    snapshot = pod(name="train", namespace="ml", uid="u1", version="7", priority=1000)
    assert (snapshot.uid, snapshot.namespace, snapshot.name) == ("u1", "ml", "train")
    assert (snapshot.resource_version, snapshot.created) == ("7", "2026-11-21T08:00:00Z")
    assert (snapshot.priority, snapshot.gated, snapshot.life.node) == (1000, True, None)
    scheduling = snapshot.scheduling
    assert (scheduling.attempt, scheduling.job_id, scheduling.allocation) == (1, None, None)
    assert (snapshot.life.deleting, snapshot.life.finished) == (False, False)


def test_touch_depends_on_annotations_except_those_of_the_extender() -> None:
    touch = parse_pod(pod_manifest(annotations={"a": "1", ATTEMPT: "1"}), TRANSLATION).touch
    assert parse_pod(pod_manifest(annotations={ATTEMPT: "2", "a": "1"}), TRANSLATION).touch == touch
    for others in ({"a": "2"}, {}, {"a": "1", PREFIX + "comment": "x"}, {"a": "1", "b": ""}):
        assert parse_pod(pod_manifest(annotations=others), TRANSLATION).touch != touch


def test_pod_sent_by_kube_scheduler_is_read() -> None:
    manifest = json.loads(FILTER_CALL.read_text())["Pod"]
    snapshot = parse_pod(manifest, TRANSLATION)
    assert snapshot.uid == "4bdf6d45-03c1-446f-97f1-6397df445d62"
    assert snapshot.request.job.cpus == 1
    assert not snapshot.gated


def test_a_pod_at_admission_has_no_uid_nor_name_yet() -> None:
    manifest = {
        "metadata": {"generateName": "job-", "creationTimestamp": None, "annotations": None},
        "spec": {"containers": [{"name": "c", "resources": {}}], "schedulingGates": None},
    }
    snapshot = parse_pod(manifest, TRANSLATION)
    assert (snapshot.uid, snapshot.namespace, snapshot.name) == ("", "default", "job-")
    assert (snapshot.created, snapshot.scheduling.gates) == ("", ())


def test_other_gates_are_distinguished_from_the_gate_of_the_extender() -> None:
    snapshot = pod(gates=("example.com/a", GATE, "example.com/b"))
    assert snapshot.gated
    assert snapshot.other_gates == ("example.com/a", "example.com/b")
    assert not pod(gates=("example.com/a",)).gated


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_finished_when_its_phase_is_final(phase: str, finished: bool) -> None:
    assert pod(phase=phase).life.finished is finished


def test_phase_of_a_pod_that_the_garbage_collector_ended_is_not_final() -> None:
    """The Node does not exist any more, but the containers may still run."""
    by_gc = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    seen = pod_manifest(node="n1", phase="Failed")
    seen["status"]["conditions"] = [by_gc]
    snapshot = parse_pod(seen, TRANSLATION)
    assert not snapshot.life.finished
    assert snapshot.lingers_s == 35.0


def test_bound_pod_that_is_being_deleted_is_read() -> None:
    snapshot = pod(node="n1", deleting=True)
    assert (snapshot.life.node, snapshot.life.deleting) == ("n1", True)


def test_annotations_of_the_extender_are_read_back() -> None:
    written = {
        ATTEMPT: "3",
        JOB_ID: "40000000",
        NODE: "n1",
        GRANTED: '{"v":1,"gres":"gpu:h100:2(IDX:0-1)"}',
    }
    snapshot = pod(annotations=written)
    assert (snapshot.scheduling.attempt, snapshot.scheduling.job_id) == (3, 40_000_000)
    assert snapshot.scheduling.allocation == Allocation(40_000_000, "n1", "gpu:h100:2(IDX:0-1)")


@pytest.mark.parametrize("attempt", ["", "0", "-1", "x", "1.5", "9999999999", HUGE])
def test_a_forged_attempt_counts_as_the_first(attempt: str) -> None:
    """The attempts after a very large number would not fit into a job's key."""
    assert pod(annotations={ATTEMPT: attempt}).scheduling.attempt == 1


@pytest.mark.parametrize("job_id", ["", "-1", "x", "1.5", "0x10", HUGE])
def test_forged_job_id_is_ignored(job_id: str) -> None:
    scheduling = pod(annotations={JOB_ID: job_id, NODE: "n1"}).scheduling
    assert (scheduling.job_id, scheduling.allocation) == (None, None)


@given(st.dictionaries(st.sampled_from([ATTEMPT, JOB_ID, NODE, GRANTED]), st.text()))
def test_any_text_in_annotations_of_the_extender_can_be_read(annotations: dict[str, str]) -> None:
    snapshot = pod(annotations=annotations)
    assert snapshot.scheduling.attempt > 0
    assert snapshot.scheduling.allocation is None or snapshot.scheduling.allocation.node


def test_requests_and_annotations_become_the_job() -> None:
    asked = {PREFIX + "partition": "gpu", PREFIX + "timeout": "90", PREFIX + "exclusive": "user"}
    request = pod(namespace="ml", cpu="1500m", memory="2Gi", gpus=2, annotations=asked).request
    assert request.problems == ()
    assert request.job == JobSpec(
        name="p@ml",
        cpus=2,
        memory_mb=2048,
        gres=(("gpu", 2),),
        partition="gpu",
        time_limit_minutes=2,
        shared=Sharing.USER,
        comment="Kubernetes Pod ml/p; scancel evicts it",
    )


NAMED = "Kubernetes Pod default/chat of cluster prod; scancel evicts it"


@pytest.mark.parametrize(
    ("asked", "comment"), [({}, NAMED), ({PREFIX + "comment": "nightly"}, "nightly")]
)
def test_comment_names_the_pod_unless_the_author_wrote_one(asked: dict[str, str], comment: str) -> None:
    manifest = pod_manifest("chat", annotations=asked)
    job = read_request(manifest, TranslationConfig(cluster_name="prod")).job
    assert job.comment == comment


def with_devices(gres: dict[str, str] | None = None, **amounts: str) -> Request:
    """Returns the request of a Pod with these resources and with CPU and memory. `gres` is the
    mapping."""
    manifest = pod_manifest(containers=[container({"cpu": "1", "memory": "1Gi"} | amounts)])
    return read_request(manifest, TRANSLATION if gres is None else TranslationConfig(gres=gres))


TYPED = {"example.com/a100": "gpu:a100", "example.com/fpga": "fpga"}


@pytest.mark.parametrize(
    ("mapped", "amounts", "gres"),
    [
        (None, {"rdma/ib": "1", "ephemeral-storage": "1Gi"}, ()),  # only kube-scheduler counts these
        (None, {"nvidia.com/gpu": "0"}, ()),
        (None, {"nvidia.com/gpu": "1", "amd.com/gpu": "2"}, (("gpu", 3),)),
        (TYPED, {"example.com/fpga": "1", "example.com/a100": "4"}, (("fpga", 1), ("gpu:a100", 4))),
    ],
)
def test_mapped_resources_become_gres(
    mapped: dict[str, str] | None, amounts: dict[str, str], gres: tuple[tuple[str, int], ...]
) -> None:
    assert with_devices(mapped, **amounts).job.gres == gres


def test_a_pod_needs_nodes_with_allocatable_devices_of_mapped_resources() -> None:
    """On other Nodes, kube-scheduler may choose other devices than Slurm."""
    asked = {"nvidia.com/gpu": "1", "amd.com/gpu": "0", "rdma/ib": "1"}
    assert with_devices(None, **asked).constraints.demands.devices == ["nvidia.com/gpu"]
    fpga = {"example.com/fpga": "1", "example.com/a100": "4"}
    both = ["example.com/a100", "example.com/fpga"]
    assert with_devices(TYPED, **fpga).constraints.demands.devices == both
    assert pod().request.constraints.demands.devices == ()


MIG = {"nvidia.com/mig-1g.10gb": "gpu:1g.10gb", "nvidia.com/mig-2g.20gb": "gpu:2g.20gb"}
SLICED = MIG | {"nvidia.com/gpu": "gpu", "example.com/fpga": "fpga:v2"}
SHARED = {"nvidia.com/gpu": "gpu:h100", "example.com/shard": "shard", "example.com/mps": "mps"}
BOTH_TYPED_AND_NOT, WHOLE_AND_PARTS = (
    "the GRES gpu both with and without a type",
    "whole (gpu) and in parts (shard)",
)


@pytest.mark.parametrize(
    ("mapped", "amounts", "words"),
    [
        (SLICED, {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}, BOTH_TYPED_AND_NOT),
        (SLICED, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "1"}, None),
        (SLICED, {"nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-1g.10gb": "1"}, None),
        (SLICED, {"nvidia.com/gpu": "1", "example.com/fpga": "1"}, None),
        (SHARED, {"nvidia.com/gpu": "1", "example.com/shard": "2"}, WHOLE_AND_PARTS),
        (SHARED, {"nvidia.com/gpu": "0", "example.com/shard": "2"}, None),
        (SHARED, {"example.com/mps": "50", "example.com/shard": "2"}, None),
    ],
)
def test_gres_that_slurm_does_not_grant_together_are_a_problem(
    mapped: dict[str, str], amounts: dict[str, str], words: str | None
) -> None:
    problems = with_devices(mapped, **amounts).problems
    assert [(words or "") in told for told in problems] == [True] * (words is not None)


@pytest.mark.parametrize(
    ("cpu", "memory", "missing"),
    [
        (None, "1Gi", ["cpu"]),
        ("1", None, ["memory"]),
        (None, None, ["cpu", "memory"]),
        ("0", "1Gi", ["cpu"]),
        ("-1", "1Gi", ["cpu"]),
    ],
)
def test_missing_request_is_named(cpu: str | None, memory: str | None, missing: list[str]) -> None:
    problems = pod(cpu=cpu, memory=memory).request.problems
    assert len(problems) == len(missing)
    for name, problem in zip(missing, problems, strict=True):
        assert f"requests no {name}" in problem
        assert f"resources.requests.{name}" in problem


def test_limit_counts_as_the_request_if_no_request_is_given() -> None:
    limited = container(limits={"cpu": "2", "memory": "1Gi"})
    request = pod(containers=[limited]).request
    assert request.problems == ()
    assert (request.job.cpus, request.job.memory_mb) == (2, 1024)


def asked_in(unit: str, cpu: str) -> Request:
    return read_request(pod_manifest(cpu=cpu), TranslationConfig(cpu_unit=Decimal(unit)))


IN_UNITS = [("1", "100m", 1), ("1", "1001m", 2), ("0.1", "250m", 3), ("0.1", "2", 20), ("2", "3", 2)]


@pytest.mark.parametrize(("unit", "cpu", "cpus"), IN_UNITS)
def test_job_requests_cpus_in_the_unit_of_slurm(unit: str, cpu: str, cpus: int) -> None:
    assert asked_in(unit, cpu).job.cpus == cpus


@pytest.mark.parametrize(
    ("unit", "cpu", "note"),
    [
        ("1", "100m", "the Pod requests 100m CPU and takes 1: Slurm counts whole CPUs"),
        ("1", "2500m", "the Pod requests 2500m CPU and takes 3: Slurm counts whole CPUs"),
        ("0.1", "250m", "the Pod requests 250m CPU and takes 300m: Slurm counts CPUs by 100m"),
        ("2", "3", "the Pod requests 3 CPU and takes 4: Slurm counts CPUs by 2"),
    ],
)
def test_rounding_up_of_cpus_causes_a_warning(unit: str, cpu: str, note: str) -> None:
    (warning,) = asked_in(unit, cpu).warnings
    assert warning == f"{note} ({TRANSLATION.page}#requests)"


@pytest.mark.parametrize(("unit", "cpu"), [("1", "2"), ("0.1", "300m"), ("2", "4"), ("1", "1")])
def test_request_that_slurm_can_count_causes_no_warning(unit: str, cpu: str) -> None:
    assert asked_in(unit, cpu).warnings == ()


def memory(requests: str | None, limits: str | None, **spec: Any) -> Request:
    """Returns the request of a Pod with one container."""
    asked = {"cpu": "1"} | ({"memory": requests} if requests else {})
    limited = {"memory": limits} if limits else None
    return pod(containers=[container(asked, limits=limited)], **spec).request


def test_memory_limit_above_the_request_causes_a_warning() -> None:
    (warning,) = memory("4Gi", "8Gi").warnings
    assert warning == (
        "the Pod requests 4096 MiB of memory, and its limits allow 8192 MiB: Slurm counts the request,"
        f" and gives the rest to other jobs ({TRANSLATION.page}#requests)"
    )


@pytest.mark.parametrize(
    ("requests", "limits", "whole"),
    [
        ("4Gi", "4096Mi", None),
        ("4Gi", None, None),
        (None, "4Gi", None),
        ("4Gi", "8Gi", {"limits": {"memory": "4Gi"}}),
        ("4Gi", "8Gi", {"requests": {"memory": "8Gi"}}),
        ("4095.5Mi", "4Gi", None),  # Slurm counts whole MiB
    ],
)
def test_limits_not_above_the_request_cause_no_warning(
    requests: str | None, limits: str | None, whole: dict[str, Any] | None
) -> None:
    assert memory(requests, limits, resources=whole).warnings == ()


CLAIMS = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]


@pytest.mark.parametrize("exclusive", [None, "ok", "user"])
def test_devices_that_slurm_does_not_count_are_refused(exclusive: str | None) -> None:
    annotations = {} if exclusive is None else {PREFIX + "exclusive": exclusive}
    (problem,) = pod(annotations=annotations, resourceClaims=CLAIMS).request.problems
    assert problem == (
        "spec.resourceClaims: Slurm does not count devices of ResourceClaims: request a"
        " resource that counts in Slurm (amd.com/gpu, nvidia.com/gpu), or set the annotation"
        " sunk.coreweave.com/exclusive to none, for a whole node (docs/reference/annotations.md#devices)"
    )


def test_pod_with_an_exclusive_node_may_claim_devices() -> None:
    assert pod(annotations={PREFIX + "exclusive": "none"}, resourceClaims=CLAIMS).request.problems == ()
    assert pod(resourceClaims=[]).request.problems == ()


def test_invalid_quantity_is_a_problem() -> None:
    assert any('"lots" is not a quantity' in problem for problem in pod(cpu="lots").request.problems)


LIMITS = [(61, None, 2), (120, "600", 10), (120, "6", 1), (31_536_000, None, 525_600)]
NO_LIMIT = [(seconds, None, None) for seconds in (None, 0, -1, 10**400, 31_536_001)]


@pytest.mark.parametrize(("deadline", "timeout", "minutes"), [*LIMITS, *NO_LIMIT])
def test_time_limit_is_the_timeout_or_else_the_deadline(
    deadline: int | None, timeout: str | None, minutes: int | None
) -> None:
    """A deadline gives no time limit if kube-apiserver rejects the deadline, or if the deadline is
    beyond Slurm's longest limit."""
    asked = {} if timeout is None else {PREFIX + "timeout": timeout}
    job = pod(activeDeadlineSeconds=deadline, annotations=asked).request.job
    assert job.time_limit_minutes == minutes
    assert pod().request.job.time_limit_minutes is None


@pytest.mark.parametrize(
    ("kill_wait", "own", "evicted"),
    [(30, 10, 10), (30, 24, 24), (30, None, 24), (30, 600, 24), (60, 30, 30), (30, 0, 1), (5, 3, 1)],
)
def test_eviction_grace_is_below_kill_wait(kill_wait: int, own: int | None, evicted: int) -> None:
    translation = TranslationConfig(grace=GraceRule(kill_wait))
    manifest = pod_manifest(node="n1", gates=(), terminationGracePeriodSeconds=own)
    assert parse_pod(manifest, translation).life.eviction_grace == evicted


@pytest.mark.parametrize(("grace", "leaves"), [(None, True), (24, True), (25, False), (86_400, False)])
def test_deleted_pod_leaves_within_the_eviction_grace(grace: int | None, leaves: bool) -> None:
    manifest = pod_manifest(node="n1", gates=(), deleting=True)
    manifest["metadata"]["deletionGracePeriodSeconds"] = grace
    assert parse_pod(manifest, TranslationConfig()).leaving is leaves


@given(st.integers(6, 10**5), st.none() | st.integers(-1, 10**5))
def test_pod_is_refused_if_its_grace_does_not_fit_kill_wait(kill_wait: int, grace: int | None) -> None:
    """The extender accepts a Pod only if the grace, after lowering, is below KillWait - 5 s."""
    translation = TranslationConfig(grace=GraceRule(kill_wait))
    manifest = pod_manifest(terminationGracePeriodSeconds=grace)
    left = translation.grace.lowered(manifest["spec"])
    if left is None:
        left = 30 if grace is None else grace
    assert bool(read_request(manifest, translation).problems) == (left >= kill_wait - 5)


def test_all_problems_are_reported_together() -> None:
    wrong = {PREFIX + "timeout": "soon", PREFIX + "exclusive": "maybe"}
    problems = pod(cpu=None, annotations=wrong).request.problems
    assert len(problems) == 3


QUANTITY = st.from_regex(
    r"[0-9]{1,4}(\.[0-9]{1,3})?(e[0-9]{1,9}|[munkMGTPE]|[KMGTPE]i)?", fullmatch=True
)


@given(QUANTITY | st.text(max_size=8), QUANTITY | st.text(max_size=8))
def test_any_request_is_a_valid_job_or_a_problem(cpu: str, memory: str) -> None:
    request = pod(cpu=cpu, memory=memory).request
    assert request.problems or 0 < request.job.cpus < 2**63 > request.job.memory_mb > 0


def test_huge_quantity_is_a_problem_or_fits_64_bits() -> None:
    for cpu in ("1e30", "1e999999", "1e9999999"):
        request = pod(cpu=cpu).request
        assert request.problems or request.job.cpus < 2**63


@pytest.mark.parametrize(("unit", "cpu", "most"), [("1", "65534", "65533"), ("0.001", "66", "65533m")])
def test_more_cpus_than_slurm_can_count_are_refused(unit: str, cpu: str, most: str) -> None:
    """Slurm would misread a larger number as a smaller number."""
    (problem,) = asked_in(unit, cpu).problems
    assert problem.startswith(f"the Pod requests {cpu} CPU: Slurm counts up to {most} (")
    assert asked_in(unit, most).problems == ()


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeAffinity": {REQUIRED: {}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}},
        {"nodeAffinity": None},
        None,
    ],
)
def test_incomplete_spec_before_validation_can_be_read(affinity: Any) -> None:
    assert pod(affinity=affinity).request.job.cpus == 1


def test_pod_asks_for_slurm_by_its_scheduler_or_an_annotation() -> None:
    """At admission, the annotation alone is enough. /mutate then writes the name of the extender's
    scheduler."""
    assert TRANSLATION.asks(pod_manifest())
    assert TRANSLATION.manages(pod_manifest())
    for named in ("default-scheduler", "", None):
        annotated = pod_manifest(schedulerName=named, annotations={PREFIX + "qos": "x"})
        assert TRANSLATION.asks(annotated)
        assert not TRANSLATION.manages(annotated)


@pytest.mark.parametrize("annotations", [{PREFIX + "qos": "x"}, {}], ids=["annotated", "without"])
def test_pod_of_another_scheduler_asks_if_taken_over(annotations: dict[str, str]) -> None:
    """An existing Pod keeps its scheduler, and does not become managed."""
    foreign = pod_manifest(schedulerName="volcano", annotations=annotations)
    takes = replace(TRANSLATION, take_schedulers=("volcano",))
    assert not TRANSLATION.asks(foreign)
    assert takes.asks(foreign)
    assert not takes.manages(foreign)


@pytest.mark.parametrize("annotations", [None, {}, {"kubectl.kubernetes.io/x": "1"}, {JOB_ID: "7"}])
def test_pod_of_another_scheduler_is_not_managed(annotations: dict[str, str] | None) -> None:
    foreign = pod_manifest(schedulerName="default-scheduler", annotations=annotations)
    assert not TRANSLATION.manages(foreign)
    foreign["metadata"]["annotations"] = None
    assert not TRANSLATION.manages(foreign)


def test_requests_are_compared_by_value() -> None:
    """A changed request is news for the ledger. A changed label is no news."""
    assert pod(version="1").request == pod(version="2").request
    assert pod(cpu="1").request == pod(cpu=str(Decimal(1))).request
    assert pod(cpu="1").request != pod(cpu="2").request


def test_priority_class_sets_job_fields_unless_an_annotation_does() -> None:
    classes = {"high": {"partition": "urgent", "qos": "fast"}}
    translation = TranslationConfig(priority_classes=classes)

    def asked(name: str | None, annotations: dict[str, str]) -> tuple[str | None, str | None]:
        spec: dict[str, Any] = {} if name is None else {"priorityClassName": name}
        named = {PREFIX + key: value for key, value in annotations.items()}
        job = read_request(pod_manifest(annotations=named, **spec), translation).job
        return job.partition, job.qos

    assert asked("high", {}) == ("urgent", "fast")
    assert asked("high", {"partition": "main"}) == ("main", "fast")
    assert asked("low", {}) == asked(None, {}) == (None, None)


def unschedulable(message: str) -> Pod:
    """Returns a Pod that kube-scheduler has rejected with this message."""
    manifest = pod_manifest()
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    manifest["status"]["conditions"] = [said]
    return parse_pod(manifest, TRANSLATION)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("0/4 nodes are available: 4 Insufficient cpu.", "0/4 nodes are available: 4 Insufficient cpu."),
        (f"0/4 nodes are available: 4 {WAITING}.", ""),
        ("", "kube-scheduler finds no Node"),
        ("x" * 5000, "x" * 400),
    ],
)
def test_rejection_by_kube_scheduler_keeps_its_message(message: str, refusal: str) -> None:
    read = unschedulable(message)
    assert (read.scheduling.node_rejection, read.unschedulable) == (refusal, bool(refusal))
    assert read.scheduling.looked_at


@pytest.mark.parametrize(
    ("reason", "room"),
    [
        ("4 Insufficient cpu", True),
        ("1 Insufficient example.com/fpga, 3 Insufficient memory", True),
        ("4 Insufficient nvidia.com/gpu", True),
        ("4 Too many pods", True),
        ("x" * 5000 + ", 4 Insufficient cpu", True),
        ("4 Insufficient example.com/fpga", False),
        ("4 Insufficient cpus.example.com/fast", False),
        ("4 Insufficient ephemeral-storage", False),
        ("4 node(s) didn't match pod affinity rules", False),
    ],
)
def test_pod_lacks_room_only_for_resources_that_slurm_counts(reason: str, room: bool) -> None:
    message = f"0/4 nodes are available: {reason}. preemption: 0/4 nodes are available: 4 no victims."
    assert unschedulable(message).scheduling.lacks_room is room


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("qos", "priorityClassName urgent, for the qos"),
        ("user_id", "the policy of slurm-extender, for the user-id"),
        ("partition", f"annotation {PREFIX}partition"),
        ("time_limit_minutes", f"annotation {PREFIX}timeout, or activeDeadlineSeconds"),
    ],
)
def test_asker_names_the_source_of_a_job_field(field: str, words: str) -> None:
    request = replace(pod().request, by_class={"qos": "urgent"}, by_policy=frozenset({"user_id"}))
    assert sentence(request.asker(field, PREFIX)) == words
