"""Tests of the patches of a Pod, and of the Pod after each patch."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from extender.execution import pod_patches
from extender.explain.cause import Cause, Due, Kind, Step
from extender.explain.message import next_steps, text
from extender.explain.sentences import sentence
from extender.pod_request.pod import Pod, parse_pod
from tests.builders import TRANSLATION, Manifest, cause_of, pod, pod_manifest
from wellknown.allocation import Allocation
from wellknown.names import ADOPTED, ATTEMPT, CAPACITY_FREED, CONDITION, GATE, GRANTED, JOB_ID, NODE

NOW = datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC)
CAUSE = Cause.of(Kind.JOB_CANCELLED, job=7, state="CANCELLED")
OUTLOOK = f" It starts soon. Slurm says: {'y' * 300}."
LONG = cause_of("Resources", "x" * 5000)
ALLOCATION = Allocation(40_000_000, "n1", "gpu:2(IDX:0-1)")
POD = pod(uid="u1", version="7")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def merged(target: Any, patch: Any) -> Any:
    """Applies a strategic merge patch, as far as the extender uses such patches. Lists merge by the name
    or the type of the items, and null removes a field."""
    if isinstance(patch, list):
        return merged_list(target or [], patch)
    if not isinstance(patch, dict):
        return patch
    kept = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept


def merged_list(target: list[Any], patch: list[Any]) -> list[Any]:
    key = "type" if "type" in patch[0] else "name"
    new = {item[key]: item for item in patch}
    kept = [item for item in target if item[key] not in new]
    return kept + [item for item in patch if item.get("$patch") != "delete"]


def after(manifest: Manifest, patch: Manifest) -> Pod:
    return parse_pod(merged(manifest, patch), TRANSLATION)


def conditions(patch: Manifest) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in patch["status"]["conditions"]}


def test_grant_removes_the_gate_and_writes_the_allocation() -> None:
    granted = after(pod_manifest(annotations={ATTEMPT: "2"}), pod_patches.grant(POD, ALLOCATION, "8"))
    assert (granted.scheduling.gates, granted.scheduling.allocation, granted.scheduling.attempt) == (
        (),
        ALLOCATION,
        2,
    )


def test_grant_keeps_the_gates_of_other_programs() -> None:
    manifest = pod_manifest(gates=("example.com/a", GATE, "example.com/b"))
    granted = after(manifest, pod_patches.grant(parse_pod(manifest, TRANSLATION), ALLOCATION, "8"))
    assert granted.scheduling.gates == ("example.com/a", "example.com/b")


def test_grant_to_a_pod_without_the_gate_leaves_its_spec_alone() -> None:
    assert "spec" not in pod_patches.grant(pod(gates=()), ALLOCATION, "8")


def test_next_attempt_removes_the_whole_allocation() -> None:
    annotations = {ATTEMPT: "1", "x": "y"} | ALLOCATION.annotations()
    patch = pod_patches.next_attempt(POD, 2)
    manifest = merged(pod_manifest(annotations=annotations), patch)
    assert manifest["metadata"]["annotations"] == {ATTEMPT: "2", "x": "y"}


def test_label_follows_the_id_of_the_job() -> None:
    """The same write changes the annotation and the label, so that `kubectl get pods -l
    slurm-extender.io/job-id=40000000` finds the Pod."""
    writes = [
        (pod_patches.waiting(POD, CAUSE, 40_000_000, NOW), "40000000"),
        (pod_patches.waiting(POD, CAUSE, None, NOW), "40000000"),
        (pod_patches.next_attempt(POD, 2), None),
        (pod_patches.grant(POD, ALLOCATION, "8"), "40000000"),
        (pod_patches.annotated("u1", {JOB_ID: "40000001", ATTEMPT: "3"}), "40000001"),
        (pod_patches.annotated("u1", {CAPACITY_FREED: "now"}), "40000001"),
        (pod_patches.annotated("u1", {ADOPTED: "40000002"}), "40000002"),
        (pod_patches.annotated("u1", {ADOPTED: None}), None),
    ]
    manifest = merged(pod_manifest(), {"metadata": {"labels": {"app": "chat"}}})
    for patch, job in writes:
        manifest = merged(manifest, patch)
        labels = manifest["metadata"]["labels"]
        assert labels == ({"app": "chat"} | ({JOB_ID: job} if job else {}))


def test_a_job_that_waits_is_named_without_an_allocation() -> None:
    manifest = merged(pod_manifest(), pod_patches.waiting(POD, CAUSE, 40_000_000, NOW))
    assert manifest["metadata"]["annotations"] == {JOB_ID: "40000000"}
    assert parse_pod(manifest, TRANSLATION).scheduling.allocation is None


def test_every_patch_has_the_uid_and_the_version_of_the_pod() -> None:
    held = {
        "nomination": pod_patches.nomination(POD, ALLOCATION, NOW),
        "grant": pod_patches.grant(POD, ALLOCATION, "7"),
        "next attempt": pod_patches.next_attempt(POD, 2),
        "waiting": pod_patches.waiting(POD, CAUSE, None, NOW),
        "disruption": pod_patches.disruption(POD, CAUSE, NOW),
    }
    for name, patch in held.items():
        metadata = patch["metadata"]
        assert (metadata.get("uid"), metadata.get("resourceVersion")) == ("u1", "7"), name


def test_removal_of_a_nomination_names_the_uid_and_no_version() -> None:
    taken_back = pod_patches.no_nomination(POD, CAUSE, NOW)
    assert taken_back["metadata"] == {"uid": "u1"}
    assert conditions(taken_back) == {CONDITION: ("False", CAUSE.reason)}
    assert pod_patches.no_nomination(POD, None, NOW)["status"] == {"nominatedNodeName": None}


def test_conditions_show_the_state_of_the_placeholder() -> None:
    ours = CONDITION
    nominated = pod_patches.nomination(POD, ALLOCATION, NOW)
    assert conditions(nominated) == {ours: ("True", "Allocated")}
    assert nominated["status"]["nominatedNodeName"] == "n1"
    assert conditions(pod_patches.waiting(POD, CAUSE, None, NOW)) == {ours: ("False", CAUSE.reason)}
    ended = conditions(pod_patches.disruption(POD, CAUSE, NOW))
    assert ended == {ours: ("False", CAUSE.reason), "DisruptionTarget": ("True", CAUSE.reason)}


def test_condition_has_a_valid_time_and_length() -> None:
    for patch in (pod_patches.waiting(POD, LONG, None, NOW), pod_patches.disruption(POD, LONG, NOW)):
        for condition in patch["status"]["conditions"]:
            assert condition["lastTransitionTime"] == "2026-11-21T08:00:00Z"
            assert len(condition["message"]) <= 1024


def test_message_of_a_cause_has_the_time_of_the_next_step() -> None:
    due = Due(Step.ANOTHER_JOB, 1_090.0)
    dated = replace(CAUSE, dues=(due,))
    times = next_steps(dated, NOW, 1_000.0)
    assert text(dated, times) == f"{sentence(CAUSE)}; the extender requests another job at 08:01:30 UTC"
    assert next_steps(CAUSE, NOW, 1_000.0) == ""
    sentences = cause_of("Resources", "It waits.", outlook=" It starts soon.")
    words = "It waits; the extender requests another job at 08:01:30 UTC. It starts soon."
    assert text(sentences, times) == words
    (condition,) = pod_patches.waiting(POD, LONG, None, NOW, times)["status"]["conditions"]
    assert condition["message"].endswith("; the extender requests another job at 08:01:30 UTC")


def test_too_long_message_loses_its_least_important_part() -> None:
    waits = cause_of("Resources", f"It waits, and asks for {'much ' * 60}.", outlook=OUTLOOK)
    refused = cause_of("", f"kube-scheduler refused n1: {'x' * 400}")
    waits = replace(waits, aside=refused, dues=(Due(Step.NODE_ALLOWED, 1_090.0, "n1"),))
    told = text(waits, next_steps(waits, NOW, 1_000.0))
    asks, _, rest = told.partition(". ")
    assert asks == sentence(waits).removesuffix(".")
    assert rest.startswith("kube-scheduler refused n1: xxx")
    times = "x...; n1 is excluded until 08:01:30 UTC."
    assert rest.endswith(times + OUTLOOK)
    assert len(told) == 1024


def test_event_has_the_cause_and_the_pod() -> None:
    event = pod_patches.event(POD, CAUSE, NOW, action="Evicting")
    assert (event["type"], event["reason"], event["message"]) == ("Warning", *astuple(CAUSE))
    assert event["involvedObject"]["uid"] == "u1"
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "default"
    assert (event["action"], event["eventTime"]) == ("Evicting", "2026-11-21T08:00:00.123456Z")


def test_event_about_an_expected_wait_is_no_warning() -> None:
    soon = cause_of("", " It starts soon.")
    told = replace(Cause.of(Kind.PODS_MISSING, exist=1, size=3, gang="train"), outlook=soon)
    event = pod_patches.event(POD, told, NOW, action="Placing")
    words = "1 of 3 Pods of the gang train exist It starts soon."
    assert (event["type"], event["message"]) == ("Normal", words)
    (condition,) = pod_patches.waiting(POD, told, 7, NOW)["status"]["conditions"]
    assert condition["message"] == words


def test_same_message_about_a_pod_is_one_event_in_half_an_hour() -> None:
    def name(of: Pod, cause: Cause, now: datetime = NOW) -> str:
        return str(pod_patches.event(of, cause, now, action="x")["metadata"]["name"])

    assert name(POD, CAUSE) == name(POD, CAUSE, NOW + timedelta(minutes=29))
    assert name(POD, CAUSE) != name(POD, CAUSE, NOW + timedelta(minutes=30))
    assert len({name(POD, CAUSE), name(POD, LONG), name(pod(uid="u2"), CAUSE)}) == 3


def test_event_about_a_pod_with_the_longest_name_is_valid() -> None:
    """Names of Pods and of Events may have up to 253 characters."""
    for name in ("p" * 253, "a" * 199 + "-" + "b" * 53, "a" * 199 + "." + "b" * 53, "ab." * 84 + "c"):
        event = pod_patches.event(pod(name=name), LONG, NOW, action="x")
        assert len(event["metadata"]["name"]) <= 253
        assert SUBDOMAIN.fullmatch(event["metadata"]["name"])
        assert event["involvedObject"]["name"] == name
        assert len(event["message"]) <= 1024


def astuple(cause: Cause) -> tuple[str, str]:
    return cause.reason, sentence(cause)


def test_allocation_writes_the_annotations_that_are_read() -> None:
    assert set(ALLOCATION.annotations()) == {JOB_ID, NODE, GRANTED}
