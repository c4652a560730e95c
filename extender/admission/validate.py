"""/validate: what cannot run is told where its author looks, with every problem at once.

The author of an object that Pods are made from is warned of what its Pods will meet; such an object is
never refused. A Pod is, when a change makes it wrong while our gate still holds it, and at its creation.
/mutate has seen it then: to ask about Pods here as well costs a sixth of a Pod's whole way, and is for
clusters whose other webhooks change Pods after ours. Nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from extender.admission.pod_templates import pod_templates
from extender.admission.review import (
    AdmissionRequest,
    AdmissionReview,
    Manifest,
    ObjectRequest,
    Pod,
    PodRequest,
    allowed,
    asked_of,
    cannot_run,
)
from extender.placement.policy import Policy
from extender.placement.workload import GATE, Dialect, Request
from extender.wire import Verb

_POD = TypeAdapter(Pod)


def review_pod(request: PodRequest, dialect: Dialect, policy: Policy) -> dict[str, Any]:
    """Returns the AdmissionReview of a Pod. What was wrong before a change does not forbid the change:
    it may mend something else, or be a controller's."""
    pod, before = request.object, request.old_object
    if not _waits(pod, before, dialect):
        return allowed(request)
    asked = asked_of(pod, request.namespace, dialect, policy)
    problems, warnings = asked.problems, asked.warnings
    if before is not None:
        known = asked_of(before, request.namespace, dialect, policy)
        problems = tuple(told for told in problems if told not in known.problems)
        warnings = tuple(told for told in warnings if told not in known.warnings)
    if problems:
        return cannot_run(request, problems, warnings)
    return allowed(request, warnings=warnings)


def _waits(pod: Manifest, before: Manifest | None, dialect: Dialect) -> bool:
    """Tells whether Slurm has yet to be asked for the Pod, or may be asked anew: what it has granted is
    not affected by a change."""
    spec = pod["spec"]
    if before is None:
        return dialect.manages(pod) and not spec.get("nodeName")
    gates = (gate["name"] for gate in spec.get("schedulingGates") or ())
    return dialect.manages(pod) and GATE in gates


def review_object(request: ObjectRequest, dialect: Dialect, policy: Policy) -> dict[str, Any]:
    """Returns the AdmissionReview of anything but a Pod."""
    kind = request.kind
    templates = pod_templates(kind.group, kind.kind, request.object)

    def asked(pod: Manifest) -> Request:
        return asked_of(pod, request.namespace, dialect, policy)

    told = (told for place, pod in templates for told in _told_of(place, pod, dialect, asked))
    return allowed(request, warnings=told)


def _told_of(
    place: str, template: Any, dialect: Dialect, read: Callable[[Manifest], Request]
) -> Iterator[str]:
    """Gives what is to be said of a Pod template; nothing of one that kube-apiserver refuses itself."""
    try:
        pod = _POD.validate_python({"metadata": {}} | template)
    except (TypeError, ValidationError):
        return
    if dialect.manages(pod):
        asked = read(pod)
        yield from (f"{place}: Pods would be refused: {problem}" for problem in asked.problems)
        lowered = dialect.see("grace", dialect.grace.warning(pod["spec"]))  # by /mutate, of each Pod
        yield from (f"{place}: {warning}" for warning in (*asked.warnings, *lowered))


def verb(dialect: Callable[[], Dialect], policy: Callable[[], Policy]) -> Verb:
    """Returns the verb. Both give what counts at this moment."""

    async def validate(body: bytes) -> dict[str, Any]:
        asked = AdmissionReview[AdmissionRequest].model_validate_json(body).request
        if (asked.kind.group, asked.kind.kind) == ("", "Pod") and asked.operation != "DELETE":
            pods = AdmissionReview[PodRequest].model_validate_json(body)
            return review_pod(pods.request, dialect(), policy())
        others = AdmissionReview[ObjectRequest].model_validate_json(body)
        return review_object(others.request, dialect(), policy())

    return validate
