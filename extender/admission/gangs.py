"""The gangs of controllers: Jobs and JobSets get the number of their Pods at their creation.

A Pod of a Job has no number of all Pods of the Job. So /mutate adds the annotation gang-size to the Pod
templates of a new Job (`gang: job`) or JobSet (`gang: jobset`). A gang of a controller may wait forever,
if the controller creates some Pods only after other Pods run. /mutate rejects a Job or a JobSet with
such Pods, and /validate warns the author of a LeaderWorkerSet. With the setting GANGS_BY_DEFAULT, Jobs
are gangs without an annotation.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from extender.admission.pod_groups import assumed
from extender.admission.pod_templates import each_at
from extender.admission.review import ObjectRequest, allowed, cannot_run, is_taken, pod_of
from extender.pod_request.annotations import LARGEST_GANG
from extender.pod_request.gang import (
    CONTROLLERS,
    JOB,
    JOB_SET,
    LEADER,
    LEADER_WORKER_SET,
    LWS_SIZE,
    POD_GROUP,
    Gang,
)
from extender.pod_request.pod import parse_pod
from extender.pod_request.translation import TranslationConfig
from kubernetes_client.protocol import Manifest

_JOBS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("batch", "CronJob"): ("spec.jobTemplate", "spec"),
    ("batch", "Job"): ("spec", ""),
    ("jobset.x-k8s.io", "JobSet"): ("spec.replicatedJobs.*", "template.spec"),
}
"""By API group and kind: the path of the object with `replicas` of a Job, and from there the path of the
Job's spec."""
_CONTROLLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "CronJob": (JOB,),
    "Job": (JOB,),
    "JobSet": (JOB, JOB_SET),
    "LeaderWorkerSet": (LEADER_WORKER_SET,),
}
"""The gangs that the Pods of a kind may have (`gang.CONTROLLERS`)."""
_EXCLUSIVE_TOPOLOGY: Final = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
)


_BACKOFF_LIMIT: Final = 6  # the default of Kubernetes
_LATE: Final = "the {} creates some Pods only after other Pods run, and a gang waits for all Pods"


class _Job(NamedTuple):
    """The spec of a Job in an object."""

    place: str
    spec: Manifest
    gang: str | None
    """The annotation `gang` in the Pod template."""
    size: int
    """Number of Pods in the gang of the Pods."""

    @property
    def template(self) -> Manifest:
        """Returns the Pod template."""
        return _mapping(self.spec.get("template"))


def review(
    request: ObjectRequest, translation: TranslationConfig, *, every_pod: bool = False
) -> dict[str, Any]:
    """Returns the AdmissionReview for the creation of a Job or a JobSet."""
    group, kind, manifest = request.kind.group, request.kind.kind, request.object
    own = JOB if kind == "Job" else JOB_SET
    prefix, patch, problems = translation.annotation_prefix, list[Manifest](), list[str]()
    for job in _jobs(group, kind, manifest, prefix):
        if job.gang == own:
            problems += _not_a_gang(job, prefix)
            patch.append(_size_at(job, prefix))
        elif own == JOB and _is_gang_by_default(job, request, translation, every_pod=every_pod):
            return allowed(request, patch=[_gang_at(job, prefix)])
    problems += _deadlocks(kind, manifest, prefix) if patch else ()
    if problems:
        return cannot_run(request, translation.see("gangs", *problems))
    return allowed(request, patch=patch)


def _is_gang_by_default(
    job: _Job, request: ObjectRequest, translation: TranslationConfig, *, every_pod: bool
) -> bool:
    """Returns True if the Pods of a Job become a gang without an annotation. A Job that runs some Pods
    after other Pods is no gang, nor is a Job whose Pods can run only by themselves: with other
    annotations (`Gang.problems`), or kept from each other by Kubernetes' own rules."""
    if not translation.gangs_by_default or job.gang is not None or job.size == 1:
        return False
    prefix = translation.annotation_prefix
    unfit = (*_not_a_gang(job, prefix), *_deadlocks("Job", request.object, prefix))
    pod = None if unfit else pod_of(job.template, request.namespace)
    if pod is None or not is_taken(pod, translation, every_pod=every_pod):
        return False
    known = parse_pod(pod, translation)
    gang = Gang("unnamed", job.size)
    return not (known.scheduling.constraints.exclusive or any(gang.problems(known.request.job, prefix)))


def as_member(
    request: ObjectRequest, place: str, template: Manifest, translation: TranslationConfig
) -> Manifest:
    """Returns the Pod template at a place with the labels of the controller, and with the size that
    /mutate adds. So the template has the same gang as its Pods."""
    prefix = translation.annotation_prefix
    manifest, metadata = _mapping(request.object), _mapping(template.get("metadata"))
    name = _mapping(manifest.get("metadata")).get("name") or ""
    kinds = [CONTROLLERS[each] for each in (*_CONTROLLERS.get(request.kind.kind, ()), POD_GROUP)]
    labels = {label: name for each in kinds for label in (each.name, *each.identity)}
    added = assumed(template, prefix)
    if request.kind.kind == "LeaderWorkerSet":
        size = _mapping(_mapping(manifest.get("spec")).get("leaderWorkerTemplate")).get("size")
        added |= {LWS_SIZE: str(size or 1), LEADER: f"{name or 'unnamed'}-0"}
    for job in _jobs(request.kind.group, request.kind.kind, manifest, prefix):
        if f"{job.place}.template" == place and job.gang in (JOB, JOB_SET):
            added[f"{prefix}gang-size"] = str(job.size)
    annotations = {**added, **_mapping(metadata.get("annotations"))}
    labels = {**_mapping(metadata.get("labels")), **labels}
    return {**template, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def warnings(request: ObjectRequest, place: str, template: Manifest, prefix: str) -> Iterator[str]:
    """Yields why the gang of a Pod template would wait forever, or would not survive an eviction. The
    template at this place is the result of `as_member`."""
    for job in _jobs(request.kind.group, request.kind.kind, request.object, prefix):
        if f"{job.place}.template" == place and job.gang in (JOB, JOB_SET):
            yield from _ended_by_an_eviction(job)
    kind, gang = request.kind.kind, _annotations(template).get(f"{prefix}gang")
    if gang == LEADER_WORKER_SET:
        yield from _deadlocks(kind, request.object, prefix)
    elif gang == JOB and kind == "JobSet":
        yield from _exclusive_topology(kind, request.object)
    policy = _mapping(_mapping(request.object).get("spec")).get("podManagementPolicy")
    if kind == "StatefulSet" and gang not in (None, "none") and policy != "Parallel":
        yield f"spec.podManagementPolicy: {_LATE.format(kind)}: set Parallel"


def _ended_by_an_eviction(job: _Job) -> Iterator[str]:
    """Yields a warning if an eviction of all Pods ends the Job. An eviction is a failure of each Pod."""
    spec, limit_of_index = job.spec, job.spec.get("backoffLimitPerIndex")
    failures = _number(spec.get("parallelism")) if limit_of_index is None else 1
    limit = spec.get("backoffLimit", _BACKOFF_LIMIT) if limit_of_index is None else limit_of_index
    rules = _items(_mapping(spec.get("podFailurePolicy")).get("rules"))
    ignoring = (_items(each.get("onPodConditions")) for each in rules if each.get("action") == "Ignore")
    ignored = any(each.get("type") == "DisruptionTarget" for rule in ignoring for each in rule)
    if isinstance(limit, int) and failures > limit and not ignored:
        name = "backoffLimit" if limit_of_index is None else "backoffLimitPerIndex"
        yield (
            f"{job.place}.{name}: an eviction of the gang counts as {failures} failures, and the limit"
            f" is {limit}, so the Job would fail: add a podFailurePolicy that ignores DisruptionTarget"
        )


def _jobs(group: str, kind: str, manifest: Any, prefix: str) -> list[_Job]:
    outer, inner = _JOBS.get((group, kind), ("", ""))
    jobs, all_pods = list[_Job](), 0
    for place, owner in each_at(manifest, outer) if outer else ():
        for below, value in each_at(owner, inner) if inner else [("", owner)]:
            spec = _mapping(value)
            gang = _annotations(_mapping(spec.get("template"))).get(f"{prefix}gang")
            at_once = _number(spec.get("parallelism"))
            jobs.append(_Job(f"{place}.{below}".rstrip("."), spec, gang, at_once))
            if (kind, gang) == ("JobSet", JOB_SET):
                all_pods += at_once * _number(_mapping(owner).get("replicas"))
    return [job._replace(size=all_pods) if all_pods and job.gang == JOB_SET else job for job in jobs]


def _not_a_gang(job: _Job, prefix: str) -> Iterator[str]:
    """Yields why the Pods of a Job cannot be a gang."""
    at_once, completions = _number(job.spec.get("parallelism")), job.spec.get("completions")
    if completions is not None and completions != at_once:
        yield (
            f"{job.place}.completions: the Job has {completions} Pods, and runs {at_once} at a time: the"
            " Pods of a gang run together: set parallelism to completions, or remove the annotation"
            f" {prefix}gang"
        )
    if not 1 <= job.size <= LARGEST_GANG:
        yield f"{job.place}.parallelism: a gang has 1 to {LARGEST_GANG} Pods, and this gang {job.size}"
    if job.spec.get("manualSelector"):
        yield f"{job.place}.manualSelector: the Pods have no labels of the Job: remove the field"
    given = _annotations(job.template).get(f"{prefix}gang-size")
    if given is not None and given != str(job.size):
        yield (
            f"annotation {prefix}gang-size: {given} is not the number of Pods, {job.size}: remove the"
            " annotation"
        )


def _deadlocks(kind: str, manifest: Any, prefix: str) -> Iterator[str]:
    """Yields the fields by which a controller creates some Pods only after other Pods run."""
    spec, late = _mapping(_mapping(manifest).get("spec")), _LATE.format(kind)
    yield from _exclusive_topology(kind, manifest)
    if spec.get("startupPolicy") == "LeaderReady":
        yield f"spec.startupPolicy: {late}: set LeaderCreated"
    order = _mapping(spec.get("startupPolicy")).get("startupPolicyOrder")
    if order == "InOrder":
        yield f"spec.startupPolicy.startupPolicyOrder: {late}: set AnyOrder, or gang: {JOB}"
    for place, each in each_at(manifest, "spec.replicatedJobs.*") if kind == "JobSet" else ():
        template = next((template for _, template in each_at(each, "template.spec.template")), None)
        in_gang = _annotations(_mapping(template)).get(f"{prefix}gang") == JOB_SET
        if in_gang and _mapping(each).get("dependsOn"):
            yield f"{place}.dependsOn: {late}: remove dependsOn, or set gang: {JOB}"


def _exclusive_topology(kind: str, manifest: Any) -> Iterator[str]:
    """Yields the annotations for exclusive-topology, also of the Jobs of a JobSet."""
    owners = [("", manifest), *each_at(manifest, "spec.replicatedJobs.*.template")]
    for place, owner in owners:
        for name in _EXCLUSIVE_TOPOLOGY:
            if name in _annotations(_mapping(owner)):
                yield f"{place} annotation {name}: {_LATE.format(kind)}: remove the annotation".lstrip()


def _size_at(job: _Job, prefix: str) -> Manifest:
    """Returns the operation of a JSON Patch that adds the size to a Pod template."""
    place = re.sub(r"[.\[]", "/", job.place.replace("]", ""))
    name = f"{prefix}gang-size".replace("~", "~0").replace("/", "~1")
    path = f"/{place}/template/metadata/annotations/{name}"
    return {"op": "add", "path": path, "value": str(job.size)}


def _gang_at(job: _Job, prefix: str) -> Manifest:
    """Returns the operation of a JSON Patch that makes a gang of a Job without an annotation for
    gangs."""
    annotations = _annotations(job.template)
    annotations = {**annotations, f"{prefix}gang": JOB, f"{prefix}gang-size": str(job.size)}
    metadata = {**_mapping(job.template.get("metadata")), "annotations": annotations}
    return {"op": "add", "path": "/spec/template/metadata", "value": metadata}


def _annotations(template: Manifest) -> Manifest:
    return _mapping(_mapping(template.get("metadata")).get("annotations"))


def _mapping(value: Any) -> Manifest:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Manifest]:
    return [_mapping(each) for each in value] if isinstance(value, list) else []


def _number(value: Any) -> int:
    """Returns a number of Pods or Jobs; the default is 1, as in Kubernetes."""
    return value if isinstance(value, int) else 1
