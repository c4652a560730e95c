"""Tests of /mutate: the changes of a Pod at creation, and the rejected Pods."""

import json
from base64 import b64decode
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.admission.mutate import review
from extender.admission.review import PodRequest
from extender.pod_request.annotations import ANNOTATIONS
from extender.pod_request.grace_period import DefaultGrace
from extender.pod_request.pod import parse_pod
from extender.policy.rules import OPEN
from tests.builders import PREFIX, TRANSLATION, Manifest, container
from tests.verbs.callers import Listeners, body
from wellknown.names import ATTEMPT, DOMAIN, GATE, JOB_ID, NODE

UID = body("mutate")["request"]["uid"]


def call(annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """Returns kube-apiserver's call for a Pod, with other annotations and other fields in the spec."""
    sent = body("mutate")
    pod = sent["request"]["object"]
    if annotations is not None:
        pod["metadata"]["annotations"] = annotations
    pod["spec"] |= spec
    return sent


def patched(pod: Manifest, patch: list[Manifest]) -> Manifest:
    """Applies a JSON Patch with `add` operations to members of objects (RFC 6902)."""
    result = deepcopy(pod)
    for operation in patch:
        assert set(operation) == {"op", "path", "value"}
        assert operation["op"] == "add"
        *parents, last = operation["path"].removeprefix("/").split("/")
        target = result
        for name in parents:
            target = target[name]
        target[last] = operation["value"]
    return result


async def respond(sent: Manifest, verb: str = "mutate", **settings: Any) -> Manifest:
    answer = await Listeners(**settings).ask(verb, sent)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Manifest = answer["response"]
    assert response["uid"] == UID
    return response


def stored(sent: Manifest, response: Manifest) -> Manifest:
    """Returns the Pod after the admission."""
    assert response["allowed"] is True, response["status"]
    if "patch" not in response:
        return deepcopy(dict(sent["request"]["object"]))
    assert response["patchType"] == "JSONPatch"
    return patched(sent["request"]["object"], json.loads(b64decode(response["patch"])))


async def admitted(sent: Manifest, **settings: Any) -> Manifest:
    return stored(sent, await respond(sent, **settings))


async def test_managed_pod_gets_only_scheduler_name_gate_and_attempt() -> None:
    sent = call(terminationGracePeriodSeconds=20)
    expected = deepcopy(sent["request"]["object"])
    expected["spec"] |= {"schedulerName": "slurm-scheduler", "schedulingGates": [{"name": GATE}]}
    expected["metadata"]["annotations"][ATTEMPT] = "1"
    assert await admitted(sent) == expected


async def test_mutated_pod_waits_for_its_first_placement() -> None:
    pod = parse_pod(await admitted(call()), TRANSLATION)
    assert (pod.gated, pod.scheduling.attempt, pod.scheduling.job_id, pod.scheduling.allocation) == (
        True,
        1,
        None,
        None,
    )
    assert pod.request.job.partition == "gpu"
    assert pod.request.problems == ()


async def test_pod_that_names_slurm_scheduler_needs_no_annotation() -> None:
    sent = call(schedulerName="slurm-scheduler")
    del sent["request"]["object"]["metadata"]["annotations"]
    pod = await admitted(sent)
    assert pod["metadata"]["annotations"] == {ATTEMPT: "1"}
    assert pod["spec"]["schedulingGates"] == [{"name": GATE}]


@pytest.mark.parametrize(
    ("gates", "kept"),
    [
        (["example.com/quota", "example.com/review"], ["example.com/quota", "example.com/review", GATE]),
        ([GATE, "example.com/quota", GATE], ["example.com/quota", GATE]),
    ],
)
async def test_gates_of_others_stay_in_order_before_one_gate(gates: list[str], kept: list[str]) -> None:
    pod = await admitted(call(schedulingGates=[{"name": name} for name in gates]))
    assert pod["spec"]["schedulingGates"] == [{"name": name} for name in kept]


async def test_second_mutation_changes_nothing() -> None:
    """kube-apiserver may call /mutate twice, because of `reinvocationPolicy: IfNeeded`."""
    sent = call()
    once = await admitted(sent)
    sent["request"]["object"] = once
    assert await admitted(sent) == once


FORGED = {ATTEMPT: "7", JOB_ID: "4711", NODE: "n1", DOMAIN + "anything": "x"}


async def test_extender_annotations_from_a_user_are_dropped() -> None:
    kept = {PREFIX + "qos": "high", "example.com/owner": "ana"}
    assert (await admitted(call(kept | FORGED)))["metadata"]["annotations"] == kept | {ATTEMPT: "1"}


async def test_copy_of_an_unmanaged_pod_loses_extender_annotations() -> None:
    noted = {DOMAIN + "adopted-as": "40000000", DOMAIN + "capacity-freed": "2026-11-24T12:00:00Z"}
    sent = call({"example.com/owner": "ana"} | noted, containers=[{"name": "c"}])
    expected = deepcopy(sent["request"]["object"])
    expected["metadata"]["annotations"] = {"example.com/owner": "ana"}
    assert await admitted(sent) == expected


@pytest.mark.parametrize("asked", [{}, {PREFIX + "qos": "high"}])
async def test_a_copy_has_no_label_with_the_job_of_the_first_pod(asked: dict[str, str]) -> None:
    sent = call(asked)
    sent["request"]["object"]["metadata"]["labels"] = {"app": "chat", JOB_ID: "4711"}
    assert (await admitted(sent))["metadata"]["labels"] == {"app": "chat"}


async def test_a_pod_that_chooses_its_node_itself_is_refused() -> None:
    """Such a Pod would run without a job, regardless of the policy."""
    response = await respond(call({PREFIX + "timeout": "soon"}, nodeName="n1"))
    assert response["allowed"] is False
    told = response["status"]["message"]
    assert "spec.nodeName is n1: Slurm chooses the node, and required-nodes narrows its choice" in told
    assert '"soon" is not' in told


async def test_mirror_pod_is_allowed_without_forged_annotations() -> None:
    """If the forged annotations stayed, a restarted extender would believe that job 4711 belongs to the
    Pod."""
    mirror = {"kubernetes.io/config.mirror": "x", PREFIX + "qos": "high"}
    sent = call(mirror | FORGED, nodeName="n1", schedulerName="slurm-scheduler")
    pod = await admitted(sent)
    assert pod["metadata"]["annotations"] == mirror
    assert pod["spec"] == sent["request"]["object"]["spec"]


async def test_unmanaged_pod_is_allowed_untouched() -> None:
    sent = call({"example.com/owner": "ana"}, containers=[{"name": "c"}])
    assert await respond(sent) == {"uid": UID, "allowed": True}


WISHES = [{PREFIX + "qos": "high"}, {PREFIX + "timeout": "soon"}, {}]


@pytest.mark.parametrize("annotations", WISHES, ids=["annotated", "wrong", "without"])
@pytest.mark.parametrize("taken", ["", "other,another"])
async def test_pod_of_another_scheduler_is_left_alone(annotations: dict[str, str], taken: str) -> None:
    sent = call(annotations, schedulerName="volcano")
    for verb in ("mutate", "mutate/every-pod"):
        assert await respond(sent, verb, take_schedulers=taken) == {"uid": UID, "allowed": True}


@pytest.mark.parametrize("annotations", [{PREFIX + "qos": "high"}, {}], ids=["annotated", "without"])
async def test_pod_taken_from_another_scheduler_gets_a_warning(annotations: dict[str, str]) -> None:
    sent = call(annotations, schedulerName="volcano")
    response = await respond(sent, take_schedulers="x, volcano")
    spec = stored(sent, response)["spec"]
    assert (spec["schedulerName"], spec["schedulingGates"]) == ("slurm-scheduler", [{"name": GATE}])
    taken, *others = response["warnings"]
    assert taken.startswith("schedulerName: volcano becomes slurm-scheduler, by SLURM_EXTENDER_TAKE_")
    assert not any("volcano" in each for each in others)


async def test_pod_of_slurm_or_default_scheduler_gets_no_takeover_warning() -> None:
    for named in ("slurm-scheduler", "default-scheduler", None):
        sent = call({PREFIX + "qos": "high"}, schedulerName=named, terminationGracePeriodSeconds=5)
        response = await respond(sent, take_schedulers="slurm-scheduler,volcano")
        assert "patch" in response
        assert "warnings" not in response


async def test_rejection_of_a_pod_taken_over_names_its_scheduler() -> None:
    sent = call({PREFIX + "timeout": "soon"}, schedulerName="volcano")
    response = await respond(sent, take_schedulers="volcano")
    assert not response["allowed"]
    assert "schedulerName: volcano becomes slurm-scheduler" in response["warnings"][0]


async def test_pod_of_another_scheduler_loses_only_extender_annotations() -> None:
    """The Pod may belong to another release of the extender. The webhook of the other release then
    writes the annotations again."""
    sent = call({ATTEMPT: "1", PREFIX + "qos": "high"}, schedulerName="another-release")
    expected = deepcopy(sent["request"]["object"])
    del expected["metadata"]["annotations"][ATTEMPT]
    assert await admitted(sent) == expected


@pytest.mark.parametrize("cpu", [None, "1e30", "1e999999", "9" * 5000])
async def test_all_problems_of_a_pod_are_reported_in_one_message(cpu: str | None) -> None:
    asked = {"memory": "1Gi"} | ({"cpu": cpu} if cpu else {})
    response = await respond(call({PREFIX + "timeout": "soon"}, containers=[container(asked)]))
    assert not response["allowed"]
    message = response["status"]["message"]
    assert '"soon"' in message
    assert "cpu" in message or "quantity" in message
    assert len(message) < 1000


@pytest.mark.parametrize("selector", [{}, {"nodeSelectorTerms": None}])
async def test_invalid_affinity_is_left_to_kube_apiserver(selector: Any) -> None:
    """Validation comes after mutation, so the webhook also gets incomplete objects."""
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    assert (await admitted(call(affinity=affinity)))["spec"]["affinity"] == affinity


GPU = container({"cpu": "1", "memory": "1Gi"}, limits={"nvidia.com/gpu": "1"})


async def test_a_pod_whose_gpus_a_native_job_may_use_is_refused_with_the_fixes() -> None:
    response = await respond(call(containers=[GPU]))
    assert not response["allowed"]
    message = response["status"]["message"]
    assert f"annotation {PREFIX}exclusive to none, for a whole node, or to user" in message
    await admitted(call({PREFIX + "exclusive": "none"}, containers=[GPU]))


async def test_pod_whose_gpus_a_native_job_may_use_gets_a_warning_if_allowed() -> None:
    response = await respond(call(containers=[GPU]), shared_gpus="allow")
    assert response["allowed"]
    assert response["warnings"][0].startswith("a native job may use the GPUs of this Pod")


@pytest.mark.parametrize(("seconds", "lowered"), [(30, 24), (35, 29), (7, 1)])
async def test_kubernetes_default_grace_is_lowered_with_a_warning(seconds: int, lowered: int) -> None:
    sent = call(terminationGracePeriodSeconds=30)
    response = await respond(sent, kill_wait_s=seconds)
    assert stored(sent, response)["spec"]["terminationGracePeriodSeconds"] == lowered
    (warning,) = response["warnings"]
    assert f"default of 30 becomes {lowered}" in warning
    assert "docs/reference/annotations.md#grace" in warning


@pytest.mark.parametrize(
    ("seconds", "default", "grace", "allowed"),
    [
        (36, "lower", 30, True),  # short enough
        (30, "lower", 10, True),
        (30, "lower", 60, False),  # not the default, so the user chose the value
        (30, "refuse", 30, False),
        (6, "lower", 30, False),  # no lower grace is possible
    ],
)
async def test_any_other_grace_stays_or_is_refused(
    seconds: int, default: DefaultGrace, grace: int, allowed: bool
) -> None:
    sent = call(terminationGracePeriodSeconds=grace)
    listeners = Listeners(kill_wait_s=30, default_grace=default)
    listeners.slurm_tells_kill_wait(seconds)
    response = (await listeners.ask("mutate", sent))["response"]
    assert response["allowed"] is allowed
    assert "warnings" not in response
    if allowed:
        assert stored(sent, response)["spec"]["terminationGracePeriodSeconds"] == grace
    else:
        assert f"terminationGracePeriodSeconds: {grace} is not" in response["status"]["message"]


async def test_kill_wait_of_slurm_overrides_the_setting() -> None:
    listeners = Listeners(kill_wait_s=300)
    listeners.slurm_tells_kill_wait(20)
    response = (await listeners.ask("mutate", call(terminationGracePeriodSeconds=30)))["response"]
    assert "becomes 14" in response["warnings"][0]


NAMES = st.sampled_from([PREFIX + row.name for row in ANNOTATIONS]) | st.text(max_size=20)


@given(st.dictionaries(NAMES, st.text()))
def test_any_annotations_are_admitted_or_rejected_with_a_message(annotations: dict[str, str]) -> None:
    sent = call(annotations | {PREFIX + "comment": "ours"})["request"]
    response = review(PodRequest.model_validate(sent), TRANSLATION, OPEN)["response"]
    assert response["patch"] if response["allowed"] else response["status"]["message"]


@pytest.mark.parametrize("given", [{"scope": "web"}, {"pod_selector": "slurm=yes"}], ids=str)
async def test_a_pod_out_of_scope_is_allowed_untouched(given: dict[str, Any]) -> None:
    wrong = call({PREFIX + "timeout": "soon"})
    assert await respond(wrong, **given) == {"uid": UID, "allowed": True}


async def test_pod_in_scope_becomes_managed() -> None:
    sent = call()
    sent["request"]["object"]["metadata"]["labels"] = {"slurm": "yes"}
    assert GATE in json.dumps(await admitted(sent, scope="ml", pod_selector="slurm=yes"))


async def test_scope_uses_the_namespace_of_the_request() -> None:
    sent = call()
    sent["request"]["object"]["metadata"]["namespace"] = "web"
    assert await respond(sent, scope="web") == {"uid": UID, "allowed": True}


async def test_extender_annotations_are_dropped_from_a_pod_out_of_scope() -> None:
    sent = call({ATTEMPT: "3", "kept": "so"})
    pod = await admitted(sent, scope="web")
    assert pod["metadata"]["annotations"] == {"kept": "so"}
    assert pod["spec"] == sent["request"]["object"]["spec"]


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, True),
        ({"schedulerName": None}, True),
        ({"schedulerName": "other"}, False),
        ({"priority": 2_000_000_000}, False),
    ],
    ids=str,
)
async def test_every_pod_is_taken_if_the_namespace_has_the_label(
    change: dict[str, Any], taken: bool
) -> None:
    sent = call({}, **({"schedulerName": "default-scheduler"} | change))
    assert ("patch" in await respond(sent, "mutate/every-pod")) is taken
    assert "patch" not in await respond(sent)
    assert "patch" not in await respond(sent, "mutate/every-pod", scope="web")


async def test_daemonset_pod_is_not_taken_over() -> None:
    """A Pod of a DaemonSet has the DaemonSet, of Kubernetes' own API group, as its controller. No other
    owner counts: a user may invent such an owner, because the garbage collector does not remove the
    Pod."""
    owner = {"kind": "DaemonSet", "controller": True, "name": "d", "apiVersion": "apps/v1", "uid": "u"}
    for change, taken in (
        ({}, False),
        ({"apiVersion": "example.com/v1"}, True),
        ({"controller": None}, True),
    ):
        sent = call({}, schedulerName="default-scheduler")
        sent["request"]["object"]["metadata"]["ownerReferences"] = [owner | change]
        assert ("patch" in await respond(sent, "mutate/every-pod")) is taken
