"""Tests of /validate: the errors for authors of Pods, and the warnings for authors of Pod templates."""

import asyncio
import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.admission.review import ObjectRequest, PodRequest
from extender.admission.validate import review_object, review_pod
from extender.pod_request.annotations import ANNOTATIONS, PUBLISHED
from extender.policy.rules import OPEN
from tests.builders import PREFIX, TRANSLATION, Manifest, container, pod_manifest
from tests.verbs.callers import Listeners, body
from wellknown.names import ATTEMPT, GATE

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
POD = ("", "Pod")
NO_REQUESTS = [{"name": "c", "resources": {}}]


def call(new: Any, old: Any = None, kind: tuple[str, str] = POD) -> Manifest:
    """Returns kube-apiserver's call for a new object; with `old`, for a changed object."""
    group, name = kind
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": group, "version": "v1", "kind": name},
            "namespace": "ml",
            "operation": "CREATE" if old is None else "UPDATE",
            "object": new,
            "oldObject": old,
        },
    }


async def respond(sent: Manifest, verb: str = "validate", **given: Any) -> Manifest:
    answer = await Listeners(**given).ask(verb, sent)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Manifest = answer["response"]
    assert response["uid"] == UID
    assert "patch" not in response
    return response


async def refusal(new: Manifest, old: Manifest | None = None, **given: Any) -> str:
    response = await respond(call(new, old), **given)
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    return str(response["status"]["message"])


async def warnings(new: Manifest, old: Manifest | None = None, kind: tuple[str, str] = POD) -> list[str]:
    """Returns the warnings for an allowed object."""
    response = await respond(call(new, old, kind))
    assert response["allowed"] is True, response["status"]
    return list(response.get("warnings", ()))


def annotated(**values: str) -> dict[str, str]:
    return {PREFIX + name.replace("_", "-"): value for name, value in values.items()} | {ATTEMPT: "1"}


async def test_one_message_lists_all_problems_of_a_pod_with_their_pages() -> None:
    wrong = annotated(exclusive="maybe", timeout="soon", partiton="main")
    new = pod_manifest(annotations=wrong, containers=NO_REQUESTS, terminationGracePeriodSeconds=60)
    told = [
        f'annotation {PREFIX}exclusive: "maybe" is not one of none, ok, user, mcs, topo, true, false',
        f'annotation {PREFIX}timeout: "soon" is not a whole number from 1 to 31536000, 365 days',
        f"annotation {PREFIX}partiton is unknown: did you mean {PREFIX}partition?",
        "the Pod requests no cpu: set resources.requests.cpu on its containers",
        "the Pod requests no memory: set resources.requests.memory on its containers",
        "terminationGracePeriodSeconds: 60 is not below 25, which is Slurm's KillWait less 5 s",
    ]
    pages = ["exclusive", "timeout", "partition", "requests", "requests", "grace"]
    first, *lines = (await refusal(new)).splitlines()
    assert first == "Slurm cannot run this Pod:"
    for line, problem, page in zip(lines, told, pages, strict=True):
        assert line.startswith(f"- {problem}")
        assert line.endswith(f" ({PUBLISHED}docs/reference/annotations.md#{page})")


async def test_setting_changes_the_address_of_the_page() -> None:
    wrong = pod_manifest(annotations=annotated(timeout="soon"))
    told = await refusal(wrong, docs_url="https://wiki.example/slurm")
    assert "(https://wiki.example/slurm#timeout)" in told


async def test_every_invalid_quantity_is_reported_and_none_as_missing() -> None:
    asked = [container({"cpu": "1e30", "memory": "1Gi"}), container(limits={"memory": "9e90"})]
    told = await refusal(pod_manifest(containers=asked, overhead={"cpu": "lots"}))
    for part in (
        'c.resources.requests.cpu: "1e30"',
        'c.resources.limits.memory: "9e90"',
        "overhead.cpu",
    ):
        assert part in told
    assert "requests no" not in told


async def test_pod_with_requests_only_on_a_sidecar_is_allowed() -> None:
    helper = container({"cpu": "1", "memory": "1Gi"}, sidecar=True)
    assert not await warnings(pod_manifest(containers=NO_REQUESTS, initContainers=[helper]))


async def test_required_nodes_and_unknown_annotation_cause_warnings() -> None:
    new = pod_manifest(annotations=annotated(required_nodes="n1", lock="x"))
    required, unknown = await warnings(new)
    assert f"{PREFIX}required-nodes" in required
    assert "fails the job" in required
    assert f"{PREFIX}lock is unknown here" in unknown


async def test_length_of_a_message_is_limited() -> None:
    holders = [container({f"example.com/{n}": "lots"}) for n in range(400)]
    message = await refusal(pod_manifest(containers=holders))
    assert len(message) < 10_000
    assert message.endswith("- and 350 more")


@pytest.mark.parametrize(
    "new",
    [
        pod_manifest(containers=NO_REQUESTS, schedulerName="default-scheduler"),
        pod_manifest(containers=NO_REQUESTS, node="n1"),  # bound by the author
        pod_manifest(annotations=annotated(qos="high")),
    ],
)
async def test_valid_or_unmanaged_pod_is_allowed_without_a_word(new: Manifest) -> None:
    assert await respond(call(new)) == {"uid": UID, "allowed": True}


async def test_mutated_pod_is_allowed() -> None:
    sent = body("mutate")
    assert (await Listeners().ask("validate", sent))["response"]["allowed"] is True


@pytest.mark.parametrize(
    ("kill_wait", "grace", "fits"),
    [(30, 24, True), (30, 25, False), (66, 60, True), (65, 60, False), (30, 0, True), (30, -1, True)],
)
async def test_grace_must_end_before_kill_wait(kill_wait: int, grace: int, fits: bool) -> None:
    new = pod_manifest(terminationGracePeriodSeconds=grace)
    assert (await respond(call(new), kill_wait_s=kill_wait))["allowed"] is fits


@pytest.mark.parametrize(("default", "fits"), [("lower", True), ("refuse", False)])
async def test_setting_allows_or_rejects_the_default_grace(default: str, fits: bool) -> None:
    for new in (pod_manifest(terminationGracePeriodSeconds=30), pod_manifest()):
        assert (await respond(call(new), default_grace=default))["allowed"] is fits


async def test_too_short_kill_wait_of_slurm_is_reported() -> None:
    listeners = Listeners()
    listeners.slurm_tells_kill_wait(3)
    response = (await listeners.ask("validate", call(pod_manifest())))["response"]
    assert "KillWait" in response["status"]["message"]


async def test_gated_pod_accepts_corrections() -> None:
    wrong = pod_manifest(annotations=annotated(timeout="soon", priority="high"))
    half = pod_manifest(annotations=annotated(timeout="soon", priority="5"))
    right = pod_manifest(annotations=annotated(timeout="60", priority="5"))
    assert not await warnings(half, wrong)
    assert not await warnings(right, half)


async def test_invalid_change_of_a_gated_pod_is_rejected_with_the_new_problems() -> None:
    wrong = pod_manifest(annotations=annotated(timeout="soon"), containers=NO_REQUESTS)
    message = await refusal(wrong, pod_manifest())
    for part in ('"soon"', "no cpu", "no memory"):
        assert part in message
    after = pod_manifest(annotations=annotated(timeout="never"), containers=NO_REQUESTS)
    message = await refusal(after, wrong)
    assert '"never"' in message
    assert "no cpu" not in message


async def test_changes_of_ungated_and_unmanaged_pods_are_not_checked() -> None:
    wrong = pod_manifest(annotations=annotated(timeout="soon"), gates=())
    for before in (pod_manifest(gates=()), pod_manifest()):
        assert not await warnings(wrong, before)
    foreign = pod_manifest(schedulerName="default-scheduler")
    assert not await warnings(foreign | {"spec": foreign["spec"] | {"containers": NO_REQUESTS}}, foreign)


async def test_a_warning_is_given_once() -> None:
    pinned = annotated(required_nodes="n1")
    old = pod_manifest(annotations=pinned)
    assert not await warnings(pod_manifest(annotations=pinned | {"example.com/x": "1"}), old)
    assert len(await warnings(old, pod_manifest())) == 1


async def test_deletion_of_a_pod_is_allowed() -> None:
    sent = call(None, pod_manifest(containers=NO_REQUESTS))
    sent["request"]["operation"] = "DELETE"
    assert (await respond(sent))["allowed"] is True


# Pod templates

WRONG: Manifest = {
    "metadata": {"annotations": {PREFIX + "timeout": "soon"}},
    "spec": {"schedulerName": "slurm-scheduler", "containers": NO_REQUESTS},
}
JOB = {"spec": {"template": WRONG}}
APPS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")


@pytest.mark.parametrize(
    ("kind", "spec", "place"),
    [
        *((("apps", kind), {"template": WRONG}, "spec.template") for kind in APPS),
        (("batch", "Job"), {"template": WRONG}, "spec.template"),
        (("batch", "CronJob"), {"jobTemplate": JOB}, "spec.jobTemplate.spec.template"),
        (
            ("jobset.x-k8s.io", "JobSet"),
            {"replicatedJobs": [{"name": "a", "template": {}}, {"name": "b", "template": JOB}]},
            "spec.replicatedJobs[1].template.spec.template",
        ),
        (
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
            {"leaderWorkerTemplate": {"workerTemplate": WRONG}},
            "spec.leaderWorkerTemplate.workerTemplate",
        ),
        (
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
            {"leaderWorkerTemplate": {"leaderTemplate": WRONG, "workerTemplate": {"spec": {}}}},
            "spec.leaderWorkerTemplate.leaderTemplate",
        ),
    ],
)
async def test_template_gets_warnings(kind: tuple[str, str], spec: Manifest, place: str) -> None:
    told = await warnings({"metadata": {"name": "x"}, "spec": spec}, kind=kind)
    refused = [
        f'annotation {PREFIX}timeout: "soon" is not a whole number from 1 to 31536000, 365 days',
        "the Pod requests no cpu: set resources.requests.cpu on its containers",
        "the Pod requests no memory: set resources.requests.memory on its containers",
    ]
    lowered = "terminationGracePeriodSeconds: the default of 30 becomes 24, for Slurm's KillWait of 30 s"
    assert [text.removeprefix(f"{place}: ").split(" (")[0] for text in told] == [
        *(f"Pods would be refused: {problem}" for problem in refused),
        lowered,
    ]


async def test_warnings_fit_what_kube_apiserver_passes_on() -> None:
    names = "".join(f"unheard-of-{n}" for n in range(20))
    many = {f"{PREFIX}{n}-{names}": "" for n in range(100)}
    template = {"metadata": {"annotations": many}, "spec": {}}
    told = await warnings({"spec": {"template": template}}, kind=("apps", "Deployment"))
    assert told
    assert max(map(len, told)) <= 256
    assert sum(map(len, told)) <= 4096


UNASKED = {"spec": {"containers": NO_REQUESTS}}
REJECTED_BY_KUBERNETES: tuple[Any, ...] = (None, 7, [], {}, {"spec": 7}, {"spec": {"containers": "c"}})
DEPLOYMENT, DAEMON_SET = ("apps", "Deployment"), ("apps", "DaemonSet")


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        *((kind, WRONG) for kind in (("", "Service"), ("example.com", "Deployment"), ("apps", "Pod"))),
        *((DEPLOYMENT, template) for template in (UNASKED, *REJECTED_BY_KUBERNETES)),
    ],
)
async def test_other_kinds_and_templates_get_no_warning(kind: tuple[str, str], template: Any) -> None:
    assert not await warnings({"spec": {"template": template}}, kind=kind)


async def told_of(
    verb: str, template: Manifest, kind: tuple[str, str] = DEPLOYMENT, **given: Any
) -> list[str]:
    response = await respond(call({"spec": {"template": template}}, kind=kind), verb, **given)
    return list(response.get("warnings", ()))


async def test_scope_of_a_template_uses_its_labels_and_its_objects_namespace() -> None:
    placed = {**WRONG, "metadata": {**WRONG["metadata"], "namespace": "elsewhere"}}
    assert await told_of("validate", placed, scope="ml")
    assert not await told_of("validate", placed, scope="elsewhere")
    labelled = {**WRONG, "metadata": {**WRONG["metadata"], "labels": {"slurm": "yes"}}}
    assert await told_of("validate", labelled, pod_selector="slurm=yes")
    assert not await told_of("validate", WRONG, pod_selector="slurm=yes")


async def test_every_template_is_checked_in_an_every_pod_namespace() -> None:
    assert await told_of("validate/every-pod", UNASKED)
    assert not await told_of("validate/every-pod", UNASKED, DAEMON_SET)
    assert await told_of("validate/every-pod", WRONG, DAEMON_SET)
    for left_alone in ({"schedulerName": "other"}, {"priorityClassName": "system-node-critical"}):
        assert not await told_of("validate/every-pod", {"spec": left_alone})


async def test_template_of_another_scheduler_is_left_alone_unless_taken_over() -> None:
    other = {**WRONG, "spec": {**WRONG["spec"], "schedulerName": "volcano"}}
    for verb in ("validate", "validate/every-pod"):
        assert not await told_of(verb, other)
        taken, refused, *_ = await told_of(verb, other, take_schedulers="volcano")
        assert taken.startswith("spec.template: schedulerName: volcano becomes slurm-scheduler")
        assert refused.startswith("spec.template: Pods would be refused: ")


async def test_gated_pod_may_not_leave_the_scope() -> None:
    before = pod_manifest(annotations=annotated())
    before["metadata"]["labels"] = {"slurm": "yes"}
    after = pod_manifest(annotations=annotated())
    told = await refusal(after, before, pod_selector="slurm=yes")
    assert "the Pod's labels are out of scope: slurm=yes" in told


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.integers().map(str)
    | st.sampled_from(["slurm-scheduler", GATE, PREFIX + "qos", "1Gi", "spec"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from([PREFIX + row.name for row in ANNOTATIONS]) | st.text(max_size=20)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Returns the path of each value in a document."""
    inner: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def replaced(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    document[path[0]] = replaced(document[path[0]], path[1:], value)
    return document


FULL = pod_manifest(
    annotations=annotated(timeout="60"),
    initContainers=[container({"cpu": "1"}, limits={"memory": "1Gi"}, sidecar=True)],
    resources={"requests": {"cpu": "1"}},
    overhead={"cpu": "1"},
    nodeSelector={"a": "b"},
    tolerations=[{"key": "a", "operator": "Exists"}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    },
    terminationGracePeriodSeconds=30,
    activeDeadlineSeconds=60,
)
LISTENERS = Listeners()
WELL_FORMED = [
    call(FULL),
    call(FULL, FULL),
    call({"spec": {"template": FULL}}, kind=("apps", "Deployment")),
    call(
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": FULL}}}]}},
        kind=("jobset.x-k8s.io", "JobSet"),
    ),
]


@settings(max_examples=300)
@given(st.data())
def test_review_with_any_value_in_any_field_is_answered(data: st.DataObject) -> None:
    document = deepcopy(data.draw(st.sampled_from(WELL_FORMED)))
    place = data.draw(st.sampled_from(places(document)))
    sent = replaced(document, place, data.draw(JSON))
    for verb in ("validate", "mutate"):
        content = json.dumps(sent).encode()
        status, answer = asyncio.run(answered(verb, content))
        assert status in (200, 400), answer
        assert status == 400 or isinstance(answer["response"]["allowed"], bool)


async def answered(verb: str, content: bytes) -> tuple[int, Any]:
    response = await LISTENERS.post(verb, content)
    return response.status_code, response.json()


@given(st.binary())
def test_any_bytes_are_answered(content: bytes) -> None:
    assert asyncio.run(answered("validate", content))[0] == 400


@given(st.dictionaries(NAMES, st.text()))
def test_any_annotations_are_allowed_or_rejected_with_a_message(annotations: dict[str, str]) -> None:
    new = pod_manifest(annotations=annotations)
    response = review_pod(PodRequest.model_validate(call(new)["request"]), TRANSLATION, OPEN)["response"]
    assert response["allowed"] or response["status"]["message"]
    owner = call({"spec": {"template": new}}, kind=("apps", "Deployment"))["request"]
    assert review_object(ObjectRequest.model_validate(owner), TRANSLATION, OPEN)["response"]["allowed"]
