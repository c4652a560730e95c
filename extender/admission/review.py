"""What kube-apiserver asks of admission, and how it is answered: admission.k8s.io/v1 AdmissionReview.

Of a Pod only the shape of what is read here is checked. kube-apiserver has decoded a Pod into its own
types before it asks; what it would not take is answered with HTTP 400, as a defect of the caller.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, StrictInt, ValidationError
from pydantic.alias_generators import to_camel

from extender.placement.policy import Policy, judged
from extender.placement.workload import Dialect, Request, parse_pod
from extender.wire import fields_in_words

Manifest = Mapping[str, Any]

# What kube-apiserver passes on to kubectl: what is longer, or beyond all, it cuts or drops.
_LONGEST_WARNING = 256
_ALL_WARNINGS = 4096
_MOST_PROBLEMS = 50


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)


_Amounts = dict[str, str | int | float] | None


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
    node_selector_terms: list[dict[str, Any]] | None = None


class _NodeAffinity(_Part):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _Affinity(_Part):
    node_affinity: _NodeAffinity | None = None


class _Metadata(_Part):
    name: str | None = None
    namespace: str | None = None
    annotations: dict[str, str] | None = None


class _PodSpec(_Part):
    scheduler_name: str | None = None
    scheduling_gates: list[_Gate] | None = None
    node_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    overhead: _Amounts = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[dict[str, Any]] | None = None
    termination_grace_period_seconds: StrictInt | None = None
    active_deadline_seconds: StrictInt | None = None


class _Pod(_Part):
    metadata: _Metadata
    spec: _PodSpec


def _shaped(manifest: dict[str, Any]) -> dict[str, Any]:
    try:
        _Pod.model_validate(manifest)
    except ValidationError as error:
        raise ValueError(fields_in_words(error.errors())) from None
    return manifest


Pod = Annotated[dict[str, Any], AfterValidator(_shaped)]
"""A Pod's manifest as it came; whatever is read of it has its type."""


class GroupKind(_Part):
    """What an object is, whichever version of it was sent."""

    group: str = ""
    kind: str


class AdmissionRequest(_Part):
    """What every request has."""

    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    namespace: str = ""


class PodRequest(AdmissionRequest):
    """About a Pod that is created, or changed from its `old_object`."""

    object: Pod
    old_object: Pod | None = None


class ObjectRequest(AdmissionRequest):
    """About an object of another kind; `object` is null where it is deleted."""

    object: dict[str, Any] | None = None


Asked = TypeVar("Asked", bound=AdmissionRequest)


class AdmissionReview(_Part, Generic[Asked]):
    request: Asked


def allowed(
    request: AdmissionRequest,
    *,
    warnings: Iterable[str] = (),
    patch: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the review that lets an object pass, changed by a JSON Patch (RFC 6902) where there is
    one."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
    return _review(response, warnings)


def asked_of(pod: Manifest, namespace: str, dialect: Dialect, policy: Policy) -> Request:
    """Returns what a Pod asks for in a namespace, as the policy has it. Only the request says for
    certain where a Pod is."""
    placed = {"metadata": {**pod["metadata"], "namespace": namespace}, "spec": pod["spec"]}
    return judged(parse_pod(placed, dialect), policy, dialect).request


def cannot_run(
    request: AdmissionRequest, problems: Sequence[str], warnings: Iterable[str] = ()
) -> dict[str, Any]:
    """Returns the review that refuses a Pod, with all that is wrong, one problem a line."""
    lines = ["Slurm cannot run this Pod:", *(f"- {problem}" for problem in problems[:_MOST_PROBLEMS])]
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
        short = warning[:_LONGEST_WARNING]
        room -= len(short)
        if room < 0:
            return
        yield short
