"""/mutate: a Pod that asks for Slurm gets our scheduler, our gate and its first attempt's number. Where
its Namespace says so, every Pod does that names no scheduler (/mutate/every-pod).

What can never run is refused here, at `kubectl apply`, with every problem at once; what another webhook
makes of a Pod afterwards is seen again (reinvocationPolicy: IfNeeded), and what is missed all the same
is told by the Pod's condition. Nothing is looked up: admission works while Slurm or the rest of the
extender is down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extender.admission.review import (
    AdmissionReview,
    PodRequest,
    allowed,
    asked_of,
    cannot_run,
    is_mirror,
    is_taken,
    parsed,
)
from extender.policy.rules import Policy
from extender.request.translation import TranslationConfig
from kubernetes_client.protocol import Manifest
from service.http_server import Verb
from wellknown.names import ATTEMPT, DOMAIN, GATE

_Patch = list[dict[str, Any]]


def review(
    request: PodRequest, translation: TranslationConfig, policy: Policy, *, every_pod: bool = False
) -> dict[str, Any]:
    """Returns the AdmissionReview of a Pod's creation."""
    pod = request.object
    if not is_taken(pod, translation, every_pod=every_pod):
        return allowed(request, patch=_unmarked(pod))
    if is_mirror(pod):
        return allowed(request, patch=_unmarked(pod))
    asked = asked_of(_with_grace(pod, translation), translation, policy)
    problems = (*_bound_already(pod, translation), *asked.problems)
    if problems:
        return cannot_run(request, problems, asked.warnings)
    lowered = translation.see("grace", translation.grace.warning(pod["spec"]))
    return allowed(request, warnings=(*asked.warnings, *lowered), patch=patch_of(pod, translation))


def _bound_already(pod: Manifest, translation: TranslationConfig) -> tuple[str, ...]:
    node = pod["spec"].get("nodeName")
    if not node:
        return ()
    told = f"spec.nodeName is {node}: Slurm chooses the node, and required-nodes narrows its choice"
    return translation.see("required-nodes", told)


def _with_grace(pod: Manifest, translation: TranslationConfig) -> Manifest:
    """Returns a Pod with the grace that it will have."""
    lowered = translation.grace.lowered(pod["spec"])
    if lowered is None:
        return pod
    return {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": lowered}}


def patch_of(pod: Manifest, translation: TranslationConfig) -> _Patch:
    """Returns the JSON Patch that makes a Pod wait for Slurm."""
    names = (gate["name"] for gate in pod["spec"].get("schedulingGates") or ())
    gates = [{"name": name} for name in (*(name for name in names if name != GATE), GATE)]
    lowered = translation.grace.lowered(pod["spec"])
    grace = [] if lowered is None else [_add("/spec/terminationGracePeriodSeconds", lowered)]
    return [
        _add("/spec/schedulerName", translation.scheduler_name),
        _add("/spec/schedulingGates", gates),
        _add("/metadata/annotations", _without_ours(pod) | {ATTEMPT: "1"}),
        *grace,
    ]


def _unmarked(pod: Manifest) -> _Patch:
    """Takes away what would make a Pod that is not ours look as if it were."""
    kept = _without_ours(pod)
    if kept == (pod["metadata"].get("annotations") or {}):
        return []
    return [_add("/metadata/annotations", kept)]


def _without_ours(pod: Manifest) -> dict[str, str]:
    """Annotations under our own domain are the extender's to write: those a user brought are dropped."""
    annotations = pod["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if not name.startswith(DOMAIN)}


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def verb(
    translation: Callable[[], TranslationConfig],
    policy: Callable[[], Policy],
    *,
    every_pod: bool = False,
) -> Verb:
    """Returns the verb. Both give what counts at this moment."""

    async def mutate(body: bytes) -> dict[str, Any]:
        asked = AdmissionReview[PodRequest].model_validate(parsed(body))
        return review(asked.request, translation(), policy(), every_pod=every_pod)

    return mutate
