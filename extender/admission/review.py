"""Requests of kube-apiserver to admission webhooks, and the replies (admission.k8s.io/v1
AdmissionReview).

The models check only the fields of a Pod that the extender reads, because kube-apiserver has decoded the
Pod before the call. A malformed request is a defect of the caller (HTTP 400).
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Json,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from extender.pod_request import limits
from extender.pod_request.job_request import Request
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import DEFAULT_SCHEDULER, TranslationConfig, scheduler_of
from extender.policy.rules import Policy, judged
from extender.routing import Items, Texts, errors_of, fields_in_words
from extender.unmanaged.capacity import exempt
from kubernetes_client.protocol import Manifest

# Limits of kube-apiserver, in characters, for one warning and for all warnings of a reply together:
# kube-apiserver cuts or drops longer texts.
_LONGEST_WARNING = 256
_ALL_WARNINGS = 4096
_MOST_PROBLEMS = 50
_LONGEST_PROBLEM = 1024
_MOST_READ = max(limits.MOST_TERMS, limits.MOST_TOLERATIONS, limits.MOST_CONTAINERS) + 1
# Limits of a body, as numbers of separators: brackets and commas. The event loop parses a value of JSON
# in up to 1 us, and 4 MiB may have two million values. An ordinary Pod has some hundred values. A Pod of
# 500 containers, with the old Pod and `managedFields`, has some 200,000 values. Separators inside of
# texts also count, and the texts of a Pod's annotations (256 KiB) may consist of separators alone. One
# body with _MOST_SEPARATORS may hold up the event loop for 0.3 s, and 140 such bodies may arrive at
# once. So bodies above _ORDINARY_SEPARATORS are answered one by one (`is_large`). All smaller bodies on
# the connections of a listener together take less than a second.
_MOST_SEPARATORS = 300_000
_ORDINARY_SEPARATORS = 2_000
_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")


def _first(values: Any) -> Any:
    """Returns the first _MOST_READ items of a list. So many items already exceed the limits of
    `pod_request.limits`, so the later check of these limits rejects every longer list."""
    return values[:_MOST_READ] if isinstance(values, list) else values


Item = TypeVar("Item")
_First = Annotated[Items[Item], BeforeValidator(_first)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)


def _all_amounts(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, str | int | float):
            raise ValueError(f"{name[:_LONGEST_PROBLEM]} is not an amount")  # noqa: TRY004
    return given


_Amounts = Annotated[dict[str, Any], AfterValidator(_all_amounts)] | None


class _Resources(_Part):
    requests: _Amounts = None
    limits: _Amounts = None


class _Container(_Part):
    name: str | None = None
    restart_policy: str | None = None
    resources: _Resources | None = None


class _Gate(_Part):
    name: str


class _NodeSelector(_Part):
    node_selector_terms: _First[dict[str, Any]] | None = None


class _NodeAffinity(_Part):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _Affinity(_Part):
    node_affinity: _NodeAffinity | None = None


class _Owner(_Part):
    api_version: str | None = None
    kind: str | None = None
    controller: bool | None = None


class _Metadata(_Part):
    name: str | None = None
    namespace: str | None = None
    annotations: Texts | None = None
    labels: Texts | None = None
    owner_references: Items[_Owner] | None = None


class _SchedulingGroup(_Part):
    pod_group_name: str | None = None


class _PodSpec(_Part):
    scheduler_name: str | None = None
    scheduling_gates: Items[_Gate] | None = None
    scheduling_group: _SchedulingGroup | None = None
    node_name: str | None = None
    service_account_name: str | None = None
    containers: _First[_Container] | None = None
    init_containers: _First[_Container] | None = None
    resources: _Resources | None = None
    overhead: _Amounts = None
    node_selector: Texts | None = None
    affinity: _Affinity | None = None
    tolerations: _First[dict[str, Any]] | None = None
    termination_grace_period_seconds: StrictInt | None = None
    active_deadline_seconds: StrictInt | None = None
    priority: StrictInt | None = None
    priority_class_name: str | None = None


class _Pod(_Part):
    metadata: _Metadata
    spec: _PodSpec


def _shaped(manifest: dict[str, Any]) -> dict[str, Any]:
    try:
        _Pod.model_validate(manifest)
    except ValidationError as error:
        raise ValueError(fields_in_words(errors_of(error))) from None
    return manifest


Pod = Annotated[dict[str, Any], AfterValidator(_shaped)]
"""A Pod's manifest, in which the fields that the extender reads have the right types."""
_POD = TypeAdapter(Pod)


class GroupKind(_Part):
    group: str = ""
    kind: str


class AdmissionRequest(_Part):
    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    namespace: str = ""


class PodRequest(AdmissionRequest):
    """A request to create the Pod `object`, or to change the Pod `old_object` into `object`."""

    object: Pod
    old_object: Pod | None = None

    def model_post_init(self, _: Any) -> None:
        """Adds the namespace of the request to the Pods, because a Pod may lack its namespace before the
        creation."""
        for pod in filter(None, (self.object, self.old_object)):
            pod["metadata"]["namespace"] = self.namespace


class ObjectRequest(AdmissionRequest):
    """A request about an object that is not a Pod; `object` is null for a deletion."""

    object: dict[str, Any] | None = None


Asked = TypeVar("Asked", bound=AdmissionRequest)


class AdmissionReview(_Part, Generic[Asked]):
    request: Asked


def _more_than(most: int, body: bytes) -> int:
    """Returns the number of separators of a body if the number is above `most`, else 0. The number of
    separators stands for the number of values, because each value follows a separator."""
    if len(body) <= most:
        return 0
    separators = sum(map(body.count, (b"[", b"{", b",")))
    return separators if separators > most else 0


def is_large(body: bytes) -> bool:
    """Returns True if the body of a review is large: many such bodies at once would hold up the event
    loop."""
    return _more_than(_ORDINARY_SEPARATORS, body) > 0


def _few_values(body: bytes) -> bytes:
    if separators := _more_than(_MOST_SEPARATORS, body):
        raise ValueError(limits.beyond("brackets and commas", separators, _MOST_SEPARATORS))
    return body


_JSON = TypeAdapter[dict[str, Any]](Annotated[Json[dict[str, Any]], BeforeValidator(_few_values)])


def parsed(body: bytes) -> dict[str, Any]:
    """Returns the JSON of a review. Raises pydantic's ValidationError."""
    return _JSON.validate_python(body)


def is_about_a_pod(given: Mapping[str, Any]) -> bool:
    """Returns True if a review is about a Pod. A review without a kind also counts: the check of a Pod's
    review then names what is missing."""
    request = given.get("request")
    kind = request.get("kind") if isinstance(request, dict) else None
    return not isinstance(kind, dict) or (kind.get("group", ""), kind.get("kind", "Pod")) == ("", "Pod")


def allowed(
    request: AdmissionRequest, *, warnings: Iterable[str] = (), patch: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Returns the review for an accepted object, with the JSON Patch (RFC 6902), if any."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
    return _review(response, warnings)


def pod_of(template: Any, namespace: str) -> Manifest | None:
    """Returns the Pod of a template. Returns None if the template is malformed, because kube-apiserver
    itself rejects such a Pod."""
    try:
        pod = _POD.validate_python({"metadata": {}} | template)
    except (TypeError, ValidationError):
        return None
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def is_taken(pod: Manifest, translation: TranslationConfig, *, every_pod: bool) -> bool:
    """Returns True if a new Pod becomes managed. Annotations and gates of the extender on the Pod do not
    count, because the Pod's author wrote these. With `every_pod`, Pods without annotations for Slurm
    also become managed. The exceptions are Pods of another scheduler, and Pods that must run without
    Slurm's consent, such as Pods of DaemonSets."""
    if translation.scope.problem(pod) is not None:
        return False
    # A Pod template has the name of a PriorityClass, and no priority number yet.
    critical = (pod["spec"].get("priorityClassName") or "").startswith("system-") or exempt(pod)
    return translation.asks(pod) or (
        every_pod and scheduler_of(pod) == DEFAULT_SCHEDULER and not critical
    )


def asked_of(pod: Manifest, translation: TranslationConfig, policy: Policy) -> Request:
    """Returns a Pod's request to Slurm, with the policy's changes and the problems that the policy
    finds. Ignores the Pod's status."""
    wish = {"metadata": pod["metadata"], "spec": pod["spec"]}
    return judged(parse_pod(wish, translation), policy, translation).request


def cannot_run(
    request: AdmissionRequest, problems: Sequence[str], warnings: Iterable[str] = ()
) -> dict[str, Any]:
    """Returns the review that rejects a Pod. The message has a line for each problem."""
    texts = (_line(problem, _LONGEST_PROBLEM) for problem in problems[:_MOST_PROBLEMS])
    lines = ["Slurm cannot run this Pod:", *(f"- {problem}" for problem in texts)]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - _MOST_PROBLEMS} more")
    status = {"code": 422, "reason": "Invalid", "message": "\n".join(lines)}
    return _review({"uid": request.uid, "allowed": False, "status": status}, warnings)


def _review(response: dict[str, Any], warnings: Iterable[str]) -> dict[str, Any]:
    passed_on = list(_passed_on(warnings))
    if passed_on:
        response["warnings"] = passed_on
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _passed_on(warnings: Iterable[str]) -> Iterator[str]:
    room = _ALL_WARNINGS
    for warning in warnings:
        short = _line(warning, _LONGEST_WARNING)
        room -= len(short)
        if room < 0:
            return
        yield short


def _line(text: str, longest: int) -> str:
    """Returns the first `longest` characters of a text, as one line. Replaces control characters by
    spaces, because kube-apiserver drops warnings with control characters."""
    return text[:longest].translate(_CONTROL)
