"""Tests of /mutate and /validate by HTTP, with arbitrary Pods. The extender answers soon, with a valid
review, and the message names each wrong field."""

import asyncio
import json
import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.execution.pod_watch import PodWatch
from extender.pod_request.annotations import JOB_ANNOTATIONS
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import DEFAULT_SCHEDULER, TranslationConfig
from extender.policy.current import CurrentPolicy
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from slurm_client.model import MOST_CPUS
from tests.builders import PREFIX, TRANSLATION, Manifest, container, pod_manifest
from tests.hostile import ANNOTATED, DEMANDS, EXCESSES, WORDS, least
from tests.hostile import annotated as annotated_pod
from tests.verbs.callers import Listeners

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
VERBS = ("mutate", "validate")
NAMES = [row.name for row in JOB_ANNOTATIONS]
ALL_ANNOTATIONS = 256 * 1024
"""kube-apiserver's limit on the annotations of an object, in bytes."""
SOON_S = 0.05
"""Longest time for a call. The calls of kube-scheduler wait meanwhile, because all calls share the event
loop."""
LISTENERS = Listeners()


def call(pod: Manifest) -> bytes:
    """Returns kube-apiserver's call for a new Pod. JSON escapes special characters."""
    request = {"uid": UID, "kind": {"kind": "Pod"}, "operation": "CREATE", "namespace": "ml"}
    kinds = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps(kinds | {"request": request | {"object": pod}}).encode()


def annotated(annotations: Mapping[str, str]) -> bytes:
    """Returns a call for a Pod with these annotations and no other problems."""
    named = {PREFIX + name: value for name, value in annotations.items()}
    return call(pod_manifest(annotations=named, terminationGracePeriodSeconds=20))


def names_another_scheduler(sent: bytes) -> bool:
    """Returns True for a Pod of another scheduler. /mutate does not change such a Pod."""
    named = json.loads(sent)["request"]["object"]["spec"].get("schedulerName")
    return bool(named) and named not in (DEFAULT_SCHEDULER, TRANSLATION.scheduler_name)


def answered(verb: str, sent: bytes, listeners: Listeners = LISTENERS) -> Manifest:
    """Returns the response of a review, and checks the response as kube-apiserver does."""
    status, answer = asyncio.run(_post(verb, sent, listeners))
    assert status == 200, answer
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Manifest = answer["response"]
    assert response["uid"] == UID
    assert set(response) <= {"uid", "allowed", "status", "patch", "patchType", "warnings"}
    passed_on(response.get("warnings", []))
    if response["allowed"]:
        assert "status" not in response
        changed = verb == "mutate" and not names_another_scheduler(sent)
        assert ("patch" in response) == ("patchType" in response) == changed
    else:
        assert "patch" not in response
        assert response["status"]["code"] == 422
        assert 0 < len(response["status"]["message"]) < 100_000
    return response


async def _post(verb: str, sent: bytes, listeners: Listeners) -> tuple[int, Any]:
    response = await listeners.post(verb, sent)
    return response.status_code, response.json()


def passed_on(warnings: list[str]) -> None:
    """Checks the limits of kube-apiserver for warnings. kube-apiserver cuts longer warnings, and drops
    warnings with control characters (apimachinery's NewWarningHeader)."""
    assert max(map(len, warnings), default=0) <= 256
    assert sum(map(len, warnings)) <= 4096
    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in "".join(warnings))


def problems(response: Manifest) -> list[str]:
    """Returns the problems in a message. Each line has one problem."""
    if response["allowed"]:
        return []
    first, *lines = response["status"]["message"].split("\n")
    assert first == "Slurm cannot run this Pod:"
    assert all(line.startswith("- ") for line in lines)
    return [line.removeprefix("- ") for line in lines]


PIECES = st.sampled_from(
    [
        *"[]{}(),-&|*=%#'\"\\/\0\n\r\t\x0b\x1b\x7f\x85 \u00a0\u2028\u200b\ufeff\ufffe",
        *("n[1-999999999]", "[[", "]]", "[0-", "-9]", "01-10", "n", "1", "0", "é", "😀", ".."),
        *("1e3", "0x10", "1_000", "+1", "-0", "inf", "null", "none", "NONE", "true", "9" * 400),
        *"\u0663\uff11\u2167\u00bd\u4e09",
    ]
)
VALUES = st.text(max_size=50) | st.lists(PIECES, max_size=8).map("".join) | st.integers().map(str)


@settings(max_examples=300)
@given(st.sampled_from(NAMES), VALUES, st.sampled_from(VERBS))
def test_any_value_is_kept_or_rejected_by_annotation(name: str, value: str, verb: str) -> None:
    sent = annotated({name: value})
    response = answered(verb, sent)
    wrong = problems(response)
    assert response["allowed"] or len(wrong) == 1
    for told in (*wrong, *response.get("warnings", ())):
        assert told.startswith(f"annotation {PREFIX}{name}: ")
    if response["allowed"] and verb == "mutate":
        patch = json.loads(b64decode(response["patch"]))
        kept = next(one["value"] for one in patch if one["path"] == "/metadata/annotations")
        assert kept[PREFIX + name] == value


@given(st.dictionaries(st.sampled_from(NAMES), VALUES), st.sampled_from(VERBS))
def test_every_wrong_annotation_is_named(annotations: dict[str, str], verb: str) -> None:
    alone = {n for n, v in annotations.items() if problems(answered(verb, annotated({n: v})))}
    together = problems(answered(verb, annotated(annotations)))
    assert {told.split(": ")[0].removeprefix("annotation " + PREFIX) for told in together} == alone


@given(st.dictionaries(VALUES, VALUES, max_size=5), st.sampled_from(VERBS))
def test_unknown_names_under_the_prefix_are_reported(annotations: dict[str, str], verb: str) -> None:
    response = answered(verb, annotated(annotations))
    told = [*problems(response), *response.get("warnings", ())]
    assert len(told) >= min(len(annotations.keys() - set(NAMES)), 15)
    assert all(one.startswith(f"annotation {PREFIX}") for one in told)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("half", ["\ud800", "n1\udfff", "\udc00\ud800"])
def test_lone_surrogate_is_rejected(verb: str, half: str) -> None:
    """The JSON of kube-apiserver has no lone surrogates."""
    for name, value in (("comment", half), (half, "x")):
        status, answer = asyncio.run(_post(verb, annotated({name: value}), LISTENERS))
        assert status == 400
        assert answer["Error"]


_DIGITS = st.text("0123456789", min_size=1, max_size=25)
_NUMBERS = _DIGITS | st.builds("{}.{}".format, _DIGITS, _DIGITS) | _DIGITS.map(".".__add__)
_SUFFIXES = st.sampled_from(["", *"numkMGTPE", *(f"{one}i" for one in "KMGTPE")]) | st.builds(
    "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 99)
)
QUANTITIES = st.builds("{}{}{}".format, st.sampled_from(["", "+"]), _NUMBERS, _SUFFIXES)
"""Quantities that apimachinery's ParseQuantity accepts."""
AMOUNTS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["cpu", "memory", "nvidia.com/gpu"], QUANTITIES)
)


@settings(max_examples=300)
@given(AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from(VERBS))
def test_any_requests_become_a_job_or_are_refused_by_name(
    requests: dict[str, str], limits: dict[str, str], first: dict[str, str], verb: str
) -> None:
    pod = pod_manifest(
        containers=[container(requests, limits=limits)], initContainers=[container(first)]
    )
    response = answered(verb, call(pod))
    assert all(re.search("(?i)cpu|memory|gpu", told) for told in problems(response))
    if response["allowed"]:
        job = parse_pod(pod, TRANSLATION).request.job
        assert 0 < job.cpus <= MOST_CPUS
        assert 0 < job.memory_mb < 2**44
        assert all(0 < count < 2**65 for _, count in job.gres)


def test_number_of_problems_in_a_message_is_limited() -> None:
    """Mutation runs before validation, so kube-apiserver has checked no name yet."""
    wrong = container({f"{n}" + "x" * 1000: "lots" for n in range(100)}) | {"name": "c\n" * 100_000}
    for verb in VERBS:
        assert len(problems(answered(verb, call(pod_manifest(containers=[wrong]))))) == 51


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
READ = [
    *("metadata.name", "metadata.namespace", "metadata.generateName", "metadata.uid", "metadata.labels"),
    *("metadata.annotations", "metadata.ownerReferences", "metadata.creationTimestamp"),
    *("spec.schedulerName", "spec.schedulingGates", "spec.nodeName", "spec.serviceAccountName"),
    *("spec.priority", "spec.priorityClassName", "spec.overhead", "spec.resources", "spec.containers"),
    *("spec.initContainers", "spec.nodeSelector", "spec.tolerations", "spec.affinity"),
    *("spec.terminationGracePeriodSeconds", "spec.activeDeadlineSeconds", "spec.resourceClaims"),
    "status.conditions",
]
RULES = """\
rules:
- name: ours
  namespaces: [m*]
  serviceAccounts: [d*]
  default: {user: 2001}
  allow: {maxPriority: 10, qos: ["*"]}
"""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Listeners:
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(RULES)
    return Listeners(policy_file=Path(file))


@settings(max_examples=300)
@given(st.sampled_from(READ), JSON, st.sampled_from(VERBS))
def test_field_of_any_shape_is_answered(ruled: Listeners, field: str, value: Any, verb: str) -> None:
    part, name = field.split(".")
    pod = pod_manifest(annotations={PREFIX + "qos": "high"})
    pod[part][name] = value
    sent = call(pod)
    status, answer = asyncio.run(_post(verb, sent, ruled))
    assert status in (200, 400), answer
    if status == 200:
        answered(verb, sent, ruled)


@pytest.mark.parametrize("verb", VERBS)
def test_gates_keep_only_their_names(verb: str) -> None:
    """A gate of kube-apiserver has no other fields. An unknown field may have an integer of more than 64
    bits, which orjson does not write."""
    answered(verb, call(pod_manifest(gates=(), schedulingGates=[{"name": "a", "b": 10**30}])))


BOMBS = {
    "blanks": " ",
    "blanks in it": ("a", " ", "b"),
    "commas": ",",
    "names": "a,",
    "longer names": "gpu-node-1,",
    "blanks and commas": " ,",
    "open brackets": "[",
    "close brackets": "]",
    "nested brackets": ("n", "[", "]"),
    "brackets in sequence": ("n", "[1]", ""),
    "numbers": ("n[", "1,", "1]"),
    "numbers without an end": ("n[", "1,", ""),
    "commas in brackets": ("n[", ",", "]"),
    "open lists": "a[,",
    "one long number": ("n[", "9", "]"),
    "leading zeros": ("n[", "0", "1-9]"),
    "all nodes": "n[1-10000],",
    "far too many nodes": "n[1-999999999],",
    "many dimensions": ("n", "[1-9]", ""),
    "a long name often": ("n[1-10000]", "x", ""),
    "digits": "9",
    "other numerals": "\u0663",
    "dots": "a.",
    "NUL": "\0",
    "letters": "é",
    "quotes": "'\"",
    "parentheses": "(",
    "ands": "h100&",
    "near misses": "partitio",
    "slashes": "/",
}


def bomb(shape: str | tuple[str, str, str]) -> str:
    begin, piece, end = shape if isinstance(shape, tuple) else ("", shape, "")
    times = (ALL_ANNOTATIONS - len(begin) - len(end)) // len(piece.encode())
    return begin + piece * times + end


@pytest.mark.alone
@pytest.mark.parametrize("shape", BOMBS.values(), ids=BOMBS)
def test_long_values_and_names_are_answered_soon(shape: str | tuple[str, str, str]) -> None:
    value = bomb(shape)
    for verb in VERBS:
        for name in NAMES:
            soon(verb, annotated({name: value}), name)
        soon(verb, annotated({value: ""}), "a name")


@pytest.mark.alone
@pytest.mark.parametrize("name", ["{}", "partition{}", "{}partition", "user_i{}"])
def test_many_annotation_names_are_answered_soon(name: str) -> None:
    many = {name.format(n): "" for n in range(ALL_ANNOTATIONS // (len(PREFIX) + len(name) + 3))}
    for verb in VERBS:
        soon(verb, annotated(many), "many")


@pytest.mark.alone
@pytest.mark.parametrize("excess", EXCESSES)
def test_spec_beyond_the_limits_is_rejected_soon(excess: str) -> None:
    sent = call(pod_manifest(**EXCESSES[excess]()))
    for verb in VERBS:
        soon(verb, sent, excess)
        told = problems(answered(verb, sent))
        assert any(WORDS[excess] in each for each in told)


@pytest.mark.alone
@pytest.mark.parametrize("demand", DEMANDS)
def test_large_spec_within_the_limits_is_allowed_soon(demand: str) -> None:
    sent = call(pod_manifest(**DEMANDS[demand](1)))
    for verb in VERBS:
        soon(verb, sent, demand)
        assert answered(verb, sent)["allowed"]


SPECS = {name: make() for name, make in EXCESSES.items()} | {
    name: make(1) for name, make in DEMANDS.items()
}


@pytest.mark.alone
@pytest.mark.parametrize(
    ("annotations", "spec"),
    [*((name, "noise") for name in ANNOTATED), *(("lists of names", spec) for spec in SPECS)],
)
def test_watch_parses_large_pods_soon(annotations: str, spec: str) -> None:
    line = json.dumps(annotated_pod(ANNOTATED[annotations], **SPECS[spec])).encode()

    def read() -> None:
        watch = PodWatch(InMemoryKubernetes(), TranslationConfig, Health(), CurrentPolicy(None, "open"))
        watch.parse(orjson.loads(line))

    assert least(read, SOON_S) < SOON_S


def soon(verb: str, sent: bytes, about: str) -> None:
    took = least(lambda: answered(verb, sent), SOON_S)
    assert took < SOON_S, f"/{verb}: {about} took {took:.3f} s"
