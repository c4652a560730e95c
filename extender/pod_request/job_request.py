"""Reads the job that a Pod requests, and finds every problem that makes the job impossible."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from extender.explain.cause import Cause, Kind
from extender.pod_request.annotations import (
    FIELD_NAMES,
    LONGEST_MINUTES,
    ParsedAnnotations,
    minutes,
    read_annotations,
)
from extender.pod_request.constraints.node_constraints import ANYWHERE, NodeConstraints
from extender.pod_request.gang import Gang, native_group
from extender.pod_request.limits import too_much_asked, too_much_kept
from extender.pod_request.pod_end import is_own_comment, own_comment, pod_in_words
from extender.pod_request.slurm_bridge import read_slurm_bridge
from extender.pod_request.translation import TranslationConfig
from kubernetes_client.protocol import Manifest
from slurm_client.gres import SHARED
from slurm_client.model import MOST_CPUS, JobSpec, Sharing
from wellknown.job_key import job_name
from wellknown.resources import (
    effective_limits,
    effective_requests,
    in_millis,
    mebibytes,
    whole,
    wrong_quantities,
)

MANDATORY = ("cpu", "memory")
_TEXTS = (  # the fields of a job that may be long, besides the lists of nodes
    *("account", "comment", "constraints", "current_working_directory"),
    *("partition", "prefer", "qos", "reservation"),
)
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Request:
    """The job that a Pod requests. A Pod with problems is invalid: the extender cannot place the Pod."""

    job: JobSpec
    constraints: NodeConstraints
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    by_class: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Fields of the job with a value from the Pod's PriorityClass, each with the name of the
    PriorityClass."""
    uncounted_gpus: tuple[str, ...] = ()
    """GPU resources that the Pod requests and that have no GRES. Slurm does not count these GPUs."""
    by_policy: frozenset[str] = field(default=frozenset(), compare=False)
    """The fields with values from the policy."""
    gang: Gang | None = None

    def asker(self, of: str, prefix: str) -> Cause:
        """Returns the source of the value of a field, for a message: a PriorityClass, the policy, or an
        annotation. `prefix` is the prefix of the annotation."""
        name = FIELD_NAMES[of]
        if of in self.by_class:
            return Cause.of(Kind.BY_PRIORITY_CLASS, name=self.by_class[of], field=name)
        if of in self.by_policy:
            return Cause.of(Kind.BY_POLICY, field=name)
        beside = ", or activeDeadlineSeconds" if of == "time_limit_minutes" else ""
        return Cause.of(Kind.BY_ANNOTATION, names=f"{prefix}{name}{beside}")


def without_pod(job: JobSpec) -> JobSpec:
    """Returns a job without the name of the Pod, so that equal requests have equal jobs. A comment of
    the Pod's author stays, because job_submit plugins may read the comment."""
    own = job.comment is not None and is_own_comment(job.comment)
    return replace(job, name="", comment=None if own else job.comment)


def read_request(manifest: Manifest, translation: TranslationConfig) -> Request:
    """Returns a Pod's request, with every problem and warning."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    annotations = metadata.get("annotations") or {}
    asked = _asked(annotations, translation)
    too_much = too_much_asked(spec)
    amounts, wrong = ({}, ()) if too_much else _amounts(spec)
    gres, devices = gres_of(amounts, translation), devices_of(amounts, translation)
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
    cpu = amounts.get("cpu", Decimal(0))
    by_class = translation.priority_classes.get(spec.get("priorityClassName") or "", {})
    comment = own_comment(pod_in_words(namespace, name, translation.cluster_name))
    gang, fields = Gang.taken_from(asked.fields, manifest)
    job = JobSpec(
        name=job_name(namespace, name),
        cpus=whole(cpu, translation.cpu_unit),
        memory_mb=mebibytes(amounts.get("memory", Decimal(0))),
        gres=gres,
        **{"comment": comment, **_deadline(spec), **by_class, **fields},
    )
    prefix = translation.annotation_prefix
    gang_problems = _of_no_gang(fields, prefix) if gang is None else gang.problems(job, prefix)
    request = Request(
        job,
        ANYWHERE if too_much else NodeConstraints.parse(spec).with_devices(devices),
        (
            *translation.see("limits", *too_much),
            *translation.see("scope", translation.scope.problem(manifest)),
            *asked.problems,
            *translation.see("requests", *wrong, *_too_many(cpu, translation.cpu_unit)),
            *translation.see("devices", *_mixed(gres), _claimed(spec, job, translation)),
            *translation.see("grace", translation.grace.problem(spec)),
            *translation.see("gangs", *gang_problems, _unknown_group(spec, asked, translation)),
        ),
        (
            *asked.warnings,
            *translation.see(
                "requests", rounding(cpu, translation.cpu_unit), _unreserved(spec, amounts)
            ),
        ),
        {name: spec["priorityClassName"] for name in by_class if name not in asked.fields},
        translation.uncounted_gpus(amounts),
        gang=gang,
    )
    return _small(request, translation)


def _asked(annotations: Mapping[str, str], translation: TranslationConfig) -> ParsedAnnotations:
    own = read_annotations(annotations, translation.annotation_prefix, translation.page)
    if not translation.slurm_bridge:
        return own
    return own.over(read_slurm_bridge(annotations, translation.page))


def _small(request: Request, translation: TranslationConfig) -> Request:
    """Returns the request if the request is small enough to keep in memory. Otherwise returns an invalid
    request without the long texts."""
    job, messages = request.job, (*request.problems, *request.warnings)
    asked = [text for name in _TEXTS if (text := getattr(job, name))]
    texts = (*asked, *job.excluded_nodes, *job.required_nodes, request.constraints.packed)
    if too_much_kept((*texts, *messages)) is None:
        return request
    too_much = too_much_kept(texts if request.problems else (*texts, *messages))
    without: dict[str, Any] = dict.fromkeys(_TEXTS)
    job = replace(job, **without, excluded_nodes=(), required_nodes=())
    problems = (*translation.see("limits", too_much), *request.problems)
    return replace(request, job=job, constraints=ANYWHERE, problems=problems)


def _of_no_gang(fields: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yields the problems of a Pod in no gang, about annotations that only a gang may have."""
    for name in ("segment", "switches"):
        if name in fields:
            yield f"annotation {prefix}{name}: only a gang has several nodes: add {prefix}gang"


def _unknown_group(
    spec: Manifest, asked: ParsedAnnotations, translation: TranslationConfig
) -> str | None:
    """Returns the problem of a Pod whose PodGroup /mutate has not read."""
    if native_group(spec) is None or "gang" in asked.fields:
        return None
    return (
        f"spec.schedulingGroup: the Pod has no annotation {translation.annotation_prefix}gang, which the"
        " extender's webhook adds to a new Pod: create the Pod again"
    )


def _claimed(spec: Manifest, job: JobSpec, translation: TranslationConfig) -> str | None:
    """Returns the problem of a Pod with ResourceClaims. Unless the Pod's job has a whole node, Slurm may
    also give the allocated devices to other jobs."""
    if not spec.get("resourceClaims") or job.shared is Sharing.NONE:
        return None
    counted = ", ".join(sorted(translation.gres)[:_MOST_NAMED]) or "there is none"
    return (
        "spec.resourceClaims: Slurm does not count devices of ResourceClaims: request a"
        f" resource that counts in Slurm ({counted}), or set the annotation"
        f" {translation.annotation_prefix}exclusive to none, for a whole node"
    )


def _amounts(spec: Manifest) -> tuple[Mapping[str, Decimal], tuple[str, ...]]:
    """Returns the resources that a Pod requests, and the problems of these requests."""
    try:
        amounts = effective_requests(spec)
    except ValueError:
        return {}, wrong_quantities(spec)
    return amounts, _missing(amounts)


def _deadline(spec: Manifest) -> dict[str, int]:
    """Returns the time limit of the job from the Pod's activeDeadlineSeconds. If the deadline is beyond
    the longest limit, the job gets no limit, because the longest limit would end the Pod too early."""
    limit = minutes(spec.get("activeDeadlineSeconds") or 0)
    return {"time_limit_minutes": limit} if 0 < limit <= LONGEST_MINUTES else {}


def _too_many(cpu: Decimal, unit: Decimal) -> tuple[str, ...]:
    if whole(cpu, unit) <= MOST_CPUS:
        return ()
    return (f"the Pod requests {in_millis(cpu)} CPU: Slurm counts up to {in_millis(MOST_CPUS * unit)}",)


def rounding(cpu: Decimal, unit: Decimal) -> str | None:
    """Returns a warning if Slurm rounds the requested CPUs up, because no other job gets the
    difference."""
    taken = whole(cpu, unit) * unit
    if taken <= cpu:
        return None
    counted = "whole CPUs" if unit == 1 else f"CPUs by {in_millis(unit)}"
    return f"the Pod requests {in_millis(cpu)} CPU and takes {in_millis(taken)}: Slurm counts {counted}"


def _unreserved(spec: Manifest, amounts: Mapping[str, Decimal]) -> str | None:
    """Returns a warning if the Pod's memory limits are above the memory request."""
    if not amounts:
        return None
    most = mebibytes(effective_limits(spec).get("memory", Decimal(0)))
    requested = mebibytes(amounts.get("memory", Decimal(0)))
    if most <= requested:
        return None
    return (
        f"the Pod requests {requested} MiB of memory, and its limits allow {most} MiB: Slurm counts the"
        " request, and gives the rest to other jobs"
    )


def gres_of(
    amounts: Mapping[str, Decimal], translation: TranslationConfig
) -> tuple[tuple[str, int], ...]:
    """Returns the requested GRES, each with the number of devices, sorted by name. A resource without an
    entry in the translation is no GRES."""
    asked: Counter[str] = Counter()
    for name, amount in amounts.items():
        if name in translation.gres:
            asked[translation.gres[name]] += whole(amount)
    return tuple(sorted((name, count) for name, count in asked.items() if count > 0))


def devices_of(amounts: Mapping[str, Decimal], translation: TranslationConfig) -> tuple[str, ...]:
    """Returns the names of the requested resources that are GRES, sorted. Slurm chooses the devices of
    these resources."""
    return tuple(sorted(name for name, amount in amounts.items() if name in translation.gres and amount))


def _mixed(asked: tuple[tuple[str, int], ...]) -> Iterator[str]:
    """Yields a problem for each combination of GRES that Slurm never grants to one job (26.05 and
    24.11)."""
    names = {name for name, _ in asked}
    for name in sorted(names & {name.partition(":")[0] for name in names if ":" in name}):
        words = "both with and without a type: choose one kind"
        yield f"the Pod requests the GRES {name} {words}"
    bare = {name.partition(":")[0] for name in names}
    for name in sorted(bare & SHARED if "gpu" in bare else ()):
        yield f"the Pod requests GPUs both whole (gpu) and in parts ({name}): choose one kind"


def _missing(amounts: Mapping[str, Decimal]) -> tuple[str, ...]:
    """Returns the problems of a Pod that requests no CPUs or no memory, because Slurm places jobs by
    both."""
    return tuple(
        f"the Pod requests no {name}: set resources.requests.{name} on its containers"
        for name in MANDATORY
        if amounts.get(name, Decimal(0)) <= 0
    )
