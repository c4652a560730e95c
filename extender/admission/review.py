"""The requests of kube-apiserver to admission webhooks, and the replies: admission.k8s.io/v1
AdmissionReview.

Of a Pod only the shape of the fields that are read is checked. kube-apiserver has decoded a Pod into
its own types before it calls; a request that it would not take is answered with HTTP 400, as a defect
of the caller.
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

from extender.policy.rules import Policy, judged
from extender.request import limits
from extender.request.job_request import Request
from extender.request.pod import parse_pod
from extender.request.translation import DEFAULT_SCHEDULER, TranslationConfig, scheduler_of
from extender.routing import Items, Texts, errors_of, fields_in_words
from extender.unmanaged.capacity import exempt
from kubernetes_client.protocol import Manifest

# What kube-apiserver passes on to kubectl: what is longer, or beyond all, it cuts or drops.
_LONGEST_WARNING = 256
_ALL_WARNINGS = 4096
_MOST_PROBLEMS = 50
_LONGEST_PROBLEM = 1024
_MOST_READ = max(limits.MOST_TERMS, limits.MOST_TOLERATIONS, limits.MOST_CONTAINERS) + 1
# Of a body: JSON's values are made in the event loop, at up to 1 us each, of which 4 MiB may have two
# million. An ordinary Pod has some hundred, one of 500 containers and the Pod it is changed from some
# 200,000, `managedFields` included; and annotations (256 KiB) may have a text of nothing else. So one
# body may take 0.3 s, and 140 of them may come at once: those of more than _ORDINARY_SEPARATORS take
# turns (`is_large`). Below that, as many as a listener has connections are parsed within a second.
_MOST_SEPARATORS = 300_000
_ORDINARY_SEPARATORS = 2_000
_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")


def _first(values: Any) -> Any:
    """The items that are read of a list beyond the limits: enough to tell that it is beyond them."""
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


class _PodSpec(_Part):
    scheduler_name: str | None = None
    scheduling_gates: Items[_Gate] | None = None
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
"""A Pod's manifest as it came; the fields that are read have been checked for their types."""


class GroupKind(_Part):
    """The group and kind of an object, in any version."""

    group: str = ""
    kind: str


class AdmissionRequest(_Part):
    """The fields of every request."""

    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    namespace: str = ""


class PodRequest(AdmissionRequest):
    """About a Pod that is created, or changed from its `old_object`."""

    object: Pod
    old_object: Pod | None = None

    def model_post_init(self, _: Any) -> None:
        """A Pod that is about to be created need not name its namespace."""
        for pod in filter(None, (self.object, self.old_object)):
            pod["metadata"]["namespace"] = self.namespace


class ObjectRequest(AdmissionRequest):
    """About an object of another kind; `object` is null where it is deleted."""

    object: dict[str, Any] | None = None


Asked = TypeVar("Asked", bound=AdmissionRequest)


class AdmissionReview(_Part, Generic[Asked]):
    request: Asked


def _more_than(most: int, body: bytes) -> int:
    """Returns how many separators a body has if it has more than so many, else 0. Each value comes after
    one of them."""
    if len(body) <= most:
        return 0
    separators = sum(map(body.count, (b"[", b"{", b",")))
    return separators if separators > most else 0


def is_large(body: bytes) -> bool:
    """Tells whether a review holds up the event loop, if many come at once."""
    return _more_than(_ORDINARY_SEPARATORS, body) > 0


def _few_values(body: bytes) -> bytes:
    if separators := _more_than(_MOST_SEPARATORS, body):
        raise ValueError(limits.beyond("brackets and commas", separators, _MOST_SEPARATORS))
    return body


_JSON = TypeAdapter[dict[str, Any]](Annotated[Json[dict[str, Any]], BeforeValidator(_few_values)])


def parsed(body: bytes) -> dict[str, Any]:
    """Returns the JSON of a review, which is parsed once. Raises pydantic's ValidationError."""
    return _JSON.validate_python(body)


def allowed(
    request: AdmissionRequest, *, warnings: Iterable[str] = (), patch: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Returns the review that lets an object pass, changed by a JSON Patch (RFC 6902) where there is
    one."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
    return _review(response, warnings)


def is_taken(pod: Manifest, translation: TranslationConfig, *, every_pod: bool) -> bool:
    """Tells whether a Pod that is created becomes managed. The extender's marks on it do not count,
    since its author wrote them. With `every_pod` it need not ask for Slurm; it may name another
    scheduler, and Pods that must run without Slurm's consent are left out."""
    if translation.scope.problem(pod) is not None:
        return False
    if translation.asks(pod):
        return True
    # A Pod template has a class, and no number yet.
    critical = (pod["spec"].get("priorityClassName") or "").startswith("system-")
    named = scheduler_of(pod)
    return every_pod and named == DEFAULT_SCHEDULER and not critical and not exempt(pod)


def is_mirror(pod: Manifest) -> bool:
    """Tells whether a Pod is a mirror of one that a kubelet runs already, by itself."""
    return "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})


def asked_of(pod: Manifest, translation: TranslationConfig, policy: Policy) -> Request:
    """Returns a Pod's request after the policy. The Pod's status does not matter for that."""
    wish = {"metadata": pod["metadata"], "spec": pod["spec"]}
    return judged(parse_pod(wish, translation), policy, translation).request


def cannot_run(
    request: AdmissionRequest, problems: Sequence[str], warnings: Iterable[str] = ()
) -> dict[str, Any]:
    """Returns the review that rejects a Pod, with all problems, one a line."""
    told = (_line(problem, _LONGEST_PROBLEM) for problem in problems[:_MOST_PROBLEMS])
    lines = ["Slurm cannot run this Pod:", *(f"- {problem}" for problem in told)]
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


def _line(told: str, longest: int) -> str:
    """Returns a warning without control characters, for any text of a Pod's author: kube-apiserver
    drops a warning that has one."""
    return told[:longest].translate(_CONTROL)
