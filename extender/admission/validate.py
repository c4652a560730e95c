"""/validate: if a Pod cannot run, the author of the Pod, or of the Pod's template, gets all problems at
once.

For an object with a Pod template, the author gets the problems as warnings, because the webhook never
rejects such an object. The webhook rejects an invalid Pod, and an invalid change of a Pod with the
extender's gate. /mutate has already checked a new Pod. /validate checks the Pod again, because another
webhook may have changed the Pod after /mutate.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import APIRouter

from extender.admission import gangs
from extender.admission.pod_templates import pod_templates
from extender.admission.review import (
    AdmissionRequest,
    AdmissionReview,
    ObjectRequest,
    PodRequest,
    allowed,
    asked_of,
    cannot_run,
    is_about_a_pod,
    is_taken,
    parsed,
    pod_of,
)
from extender.admission.routes import routes_of
from extender.pod_request.translation import TranslationConfig
from extender.policy.rules import Policy
from kubernetes_client.protocol import Manifest
from wellknown.names import GATE


def review_pod(request: PodRequest, translation: TranslationConfig, policy: Policy) -> dict[str, Any]:
    """Returns the AdmissionReview of a Pod. The webhook rejects a change only for new problems. If the
    old Pod has the same problem, the webhook accepts the change, because the change may correct another
    problem, or come from a controller."""
    pod, before = request.object, request.old_object
    if not _waits(pod, before, translation):
        return allowed(request)
    asked = asked_of(pod, translation, policy)
    problems, warnings = asked.problems, asked.warnings
    if before is not None:
        known = asked_of(before, translation, policy)
        problems = tuple(problem for problem in problems if problem not in known.problems)
        warnings = tuple(warning for warning in warnings if warning not in known.warnings)
    if problems:
        return cannot_run(request, problems, warnings)
    return allowed(request, warnings=warnings)


def _waits(pod: Manifest, before: Manifest | None, translation: TranslationConfig) -> bool:
    """Returns True for a new managed Pod, and for a changed managed Pod that still has the extender's
    gate. After the extender has removed the gate, Slurm has granted the job, and a change has no effect
    on the grant."""
    spec = pod["spec"]
    gates = (gate["name"] for gate in spec.get("schedulingGates") or ())
    waits = GATE in gates if before is not None else not spec.get("nodeName")
    return waits and translation.manages(pod)


def review_object(
    request: ObjectRequest, translation: TranslationConfig, policy: Policy, *, every_pod: bool = False
) -> dict[str, Any]:
    """Returns the AdmissionReview of an object that is not a Pod, with warnings about its Pod
    templates."""
    kind = request.kind
    # /mutate recognizes a DaemonSet's Pods by their owner. A Pod template has no owner yet.
    every_pod = every_pod and kind.kind != "DaemonSet"
    warnings: list[str] = []
    for place, template in pod_templates(kind.group, kind.kind, request.object):
        pod = pod_of(template, request.namespace)
        if pod is not None and is_taken(pod, translation, every_pod=every_pod):
            member = gangs.as_member(request, place, pod, translation)
            warnings.extend(f"{place}: {each}" for each in _warnings_of(member, translation, policy))
            waits = gangs.warnings(request, place, member, translation.annotation_prefix)
            warnings.extend(translation.see("gangs", *waits))
    return allowed(request, warnings=warnings)


def _warnings_of(pod: Manifest, translation: TranslationConfig, policy: Policy) -> Iterator[str]:
    asked = asked_of(pod, translation, policy)
    yield from translation.taken_over(pod)
    yield from (f"Pods would be refused: {problem}" for problem in asked.problems)
    yield from asked.warnings
    # A warning in advance: /mutate will lower the grace period of each Pod of the template.
    yield from translation.see("grace", translation.grace.warning(pod["spec"]))


def router(translation: Callable[[], TranslationConfig], policy: Callable[[], Policy]) -> APIRouter:
    """Returns the routes. `translation` and `policy` return the current configuration."""

    async def validate(body: bytes, every_pod: bool) -> Manifest:
        given = parsed(body)
        asked = AdmissionReview[AdmissionRequest].model_validate(given).request
        if is_about_a_pod(given) and asked.operation != "DELETE":
            pods = AdmissionReview[PodRequest].model_validate(given)
            return review_pod(pods.request, translation(), policy())
        others = AdmissionReview[ObjectRequest].model_validate(given)
        return review_object(others.request, translation(), policy(), every_pod=every_pod)

    return routes_of("/validate", validate)
