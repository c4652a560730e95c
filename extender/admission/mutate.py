"""/mutate: a Pod with annotations for Slurm gets the extender's scheduler, scheduling gate and attempt
number. A Pod of another scheduler keeps the scheduler, unless the setting TAKE_SCHEDULERS names the
scheduler. In Namespaces with the label slurm-extender.io/every-pod, /mutate/every-pod treats every Pod
without a scheduler name like a Pod with annotations.

/mutate also adds the size of the gang to new Jobs and JobSets (`gangs`), and to the Pods of PodGroups
(`pod_groups`).

The webhook rejects a Pod that can never run. The reply lists all problems. kube-apiserver calls /mutate
again after another webhook has changed a Pod (reinvocationPolicy: IfNeeded). The webhook calls no
program except kube-apiserver, so the webhook works while Slurm is down, or no replica leads.
"""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from extender.admission import gangs
from extender.admission.pod_groups import Joined, PodGroups
from extender.admission.review import (
    AdmissionReview,
    ObjectRequest,
    PodRequest,
    allowed,
    asked_of,
    cannot_run,
    is_about_a_pod,
    is_taken,
    parsed,
)
from extender.admission.routes import routes_of
from extender.pod_request.translation import TranslationConfig
from extender.policy.rules import Policy
from extender.unmanaged.capacity import is_mirror
from kubernetes_client.protocol import Manifest
from wellknown.names import ATTEMPT, DOMAIN, GATE, JOB_ID

_Patch = list[dict[str, Any]]


def review(
    request: PodRequest,
    translation: TranslationConfig,
    policy: Policy,
    joined: Joined | None = None,
    *,
    every_pod: bool = False,
) -> dict[str, Any]:
    """Returns the AdmissionReview for the creation of a Pod. `joined` is the Pod after a look at its
    PodGroup."""
    pod: Manifest = request.object
    if is_mirror(pod) or not is_taken(pod, translation, every_pod=every_pod):
        return allowed(request, patch=_unmarked(pod))
    pod, *of_group = joined or Joined(pod)
    wrong, noted = (translation.see("gangs", *messages) for messages in of_group)
    asked = asked_of(_with_grace(pod, translation), translation, policy)
    problems = (*_bound_already(pod, translation), *(wrong or asked.problems))
    warnings = (*translation.taken_over(pod), *noted, *asked.warnings)
    if problems:
        return cannot_run(request, problems, warnings)
    lowered = translation.see("grace", translation.grace.warning(pod["spec"]))
    return allowed(request, warnings=(*warnings, *lowered), patch=patch_of(pod, translation))


def _bound_already(pod: Manifest, translation: TranslationConfig) -> tuple[str, ...]:
    node = pod["spec"].get("nodeName")
    if not node:
        return ()
    message = f"spec.nodeName is {node}: Slurm chooses the node, and required-nodes narrows its choice"
    return translation.see("required-nodes", message)


def _with_grace(pod: Manifest, translation: TranslationConfig) -> Manifest:
    """Returns the Pod with the grace period that /mutate gives the Pod."""
    lowered = translation.grace.lowered(pod["spec"])
    grace = {} if lowered is None else {"terminationGracePeriodSeconds": lowered}
    return {**pod, "spec": {**pod["spec"], **grace}}


def patch_of(pod: Manifest, translation: TranslationConfig) -> _Patch:
    """Returns the JSON Patch that makes a Pod a managed Pod, which Slurm places."""
    names = (gate["name"] for gate in pod["spec"].get("schedulingGates") or ())
    gates = [{"name": name} for name in (*(name for name in names if name != GATE), GATE)]
    lowered = translation.grace.lowered(pod["spec"])
    grace = [] if lowered is None else [_add("/spec/terminationGracePeriodSeconds", lowered)]
    return [
        _add("/spec/schedulerName", translation.scheduler_name),
        _add("/spec/schedulingGates", gates),
        _add("/metadata/annotations", _without_ours(pod) | {ATTEMPT: "1"}),
        *_without_label(pod),
        *grace,
    ]


def _unmarked(pod: Manifest) -> _Patch:
    """Returns the JSON Patch that removes the extender's annotations and job label from an unmanaged
    Pod."""
    kept = _without_ours(pod)
    changed = kept != (pod["metadata"].get("annotations") or {})
    return [*([_add("/metadata/annotations", kept)] if changed else ()), *_without_label(pod)]


def _without_ours(pod: Manifest) -> dict[str, str]:
    """Returns the Pod's annotations, except annotations in the extender's domain. Only the extender may
    write annotations in this domain."""
    annotations = pod["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if not name.startswith(DOMAIN)}


def _without_label(pod: Manifest) -> _Patch:
    """Returns the JSON Patch that removes the job label. If the author has copied the manifest of
    another Pod, the label names the job of the other Pod."""
    labels = pod["metadata"].get("labels") or {}
    kept = {key: each for key, each in labels.items() if key != JOB_ID}
    return [] if kept == labels else [_add("/metadata/labels", kept)]


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def router(
    translation: Callable[[], TranslationConfig],
    policy: Callable[[], Policy],
    pod_groups: PodGroups,
) -> APIRouter:
    """Returns the routes. `translation` and `policy` return the current configuration."""

    async def mutate(body: bytes, every_pod: bool) -> Manifest:
        given = parsed(body)
        if not is_about_a_pod(given):
            others = AdmissionReview[ObjectRequest].model_validate(given)
            return gangs.review(others.request, translation(), every_pod=every_pod)
        asked = AdmissionReview[PodRequest].model_validate(given)
        pod, current = asked.request.object, translation()
        joined = Joined(pod)
        if not is_mirror(pod) and is_taken(pod, current, every_pod=every_pod):
            joined = await pod_groups.join(pod, current.annotation_prefix)
        return review(asked.request, current, policy(), joined, every_pod=every_pod)

    return routes_of("/mutate", mutate)
