"""A Pod as placement sees it, and the job that it asks Slurm for.

A `Pod` is a small snapshot of one version of the object: its manifest is not kept. The workload is the
unit that gets a placeholder; today each Pod is a workload of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

from extender.placement.annotations import (
    DEFAULT_PAGE,
    DEFAULT_PREFIX,
    LONGEST_MINUTES,
    minutes,
    read_annotations,
)
from extender.placement.endings import end_in_words
from extender.placement.grace import KUBELET_S, KUBERNETES_DEFAULT_S, GraceRule, own_grace
from extender.placement.identity import whole_number
from extender.placement.limits import too_much_asked, too_much_kept
from extender.placement.node_constraints import ANYWHERE, NodeConstraints
from extender.placement.resources import (
    effective_requests,
    in_millis,
    mebibytes,
    whole,
    wrong_quantities,
)
from extender.placement.scope import Scope
from slurm_client import hostlist
from slurm_client.model import MOST_CPUS, JobSpec

Manifest = Mapping[str, Any]

DOMAIN = "slurm-extender.io/"
GATE = DOMAIN + "placeholder"
ATTEMPT = DOMAIN + "attempt"
JOB_ID = DOMAIN + "job-id"
NODE = DOMAIN + "node"
GRES = DOMAIN + "gres"
ADOPTED = DOMAIN + "adopted-as"
"""On a Pod that another scheduler bound: the job that runs for it, so that nobody counts it twice."""
OFFERED = DOMAIN + "offered"
"""Written by /filter where kube-scheduler refuses the allocated Node: the job, and the Nodes that it
offered instead, as many as go into an annotation. The job is 0 where the Pod has no allocation."""
WAITING = "Slurm has not allocated a Node to this Pod yet"
"""What /filter says of every Node meanwhile; kube-scheduler repeats it in the Pod's condition."""
CONDITION = DOMAIN + "Placeholder"
HELD_BACK = "EvictionHeldBack"
"""The condition's reason while the breaker holds back the deletion of a Pod whose job has ended."""
"""The Pod condition that says where its placeholder stands."""

_MANDATORY = ("cpu", "memory")
_TEXTS = (
    *("account", "comment", "constraints", "current_working_directory"),
    *("partition", "prefer", "qos", "reservation"),
)
"""What may be long of a job, beside its lists of nodes."""
_MOST_OFFERED = 1000
_LONGEST_OFFER = 3072
_LONGEST_NAME = 253  # of an object in Kubernetes
_LONGEST_GRES = 1024
_MOST_GATES = 4  # of others, which are only told
_MOST_ATTEMPTS = 1_000_000
_LONGEST_REFUSAL = 400
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_TOO_MANY_PODS = "Too many pods"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How this installation reads Pods. All of it comes from the settings, but for what Slurm tells of
    its KillWait."""

    annotation_prefix: str = DEFAULT_PREFIX
    scheduler_name: str = "slurm-scheduler"
    gres: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    )
    """Extended resource name -> GRES (name or name:type); others are kube-scheduler's alone."""
    grace: GraceRule = field(default_factory=GraceRule)
    page: str = DEFAULT_PAGE
    """Where Pod authors are told to read on."""
    cpu_unit: Decimal = Decimal(1)
    """How many of the CPUs that Pods ask for (logical ones) one of Slurm's CPUs stands for."""
    scope: Scope = field(default_factory=Scope)
    priority_classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a PriorityClass asks Slurm for: by its name, fields of `JobSpec` (partition, qos)."""
    adopts: bool = False
    """Whether Pods that another scheduler bound to Slurm's nodes get jobs (`adoption`)."""

    def asks(self, manifest: Manifest) -> bool:
        """Tells whether a Pod asks for Slurm: it names our scheduler or has one of our annotations."""
        named = manifest["spec"].get("schedulerName") == self.scheduler_name
        annotations = manifest["metadata"].get("annotations") or {}
        return named or any(key.startswith(self.annotation_prefix) for key in annotations)

    def manages(self, manifest: Manifest) -> bool:
        """Tells whether a Pod is ours to place, or to tell why not: it names our scheduler, as /mutate
        has it of those that ask, and is in scope, or was when it got our gate or a job. What it holds
        is not forgotten when it leaves the scope."""
        if manifest["spec"].get("schedulerName") != self.scheduler_name:
            return False
        return self.scope.everything or self.scope.problem(manifest) is None or _is_marked(manifest)

    def see(self, section: str, *told: str | None) -> tuple[str, ...]:
        """Returns what is told to a Pod's author, if anything is, with where to read more."""
        return tuple(f"{each} ({self.page}#{section})" for each in told if each is not None)


def _is_marked(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    gates = (gate["name"] for gate in manifest["spec"].get("schedulingGates") or ())
    return ATTEMPT in annotations or JOB_ID in annotations or GATE in gates


@dataclass(frozen=True, slots=True)
class Allocation:
    """What Slurm granted: the job, the Kubernetes Node that stands for its node, the device indices."""

    job_id: int
    node: str
    gres: str = ""

    def annotations(self) -> dict[str, str]:
        """Returns the allocation as it stands on the Pod."""
        found = {JOB_ID: str(self.job_id), NODE: self.node}
        return found | {GRES: self.gres} if self.gres else found

    @classmethod
    def parse(cls, annotations: Mapping[str, str]) -> Allocation | None:
        """Returns the allocation that a Pod carries, None where there is none or it is malformed."""
        job_id, node = whole_number(annotations.get(JOB_ID, "")), annotations.get(NODE, "")
        gres = annotations.get(GRES, "")
        if job_id is None or not 0 < len(node) <= _LONGEST_NAME or len(gres) > _LONGEST_GRES:
            return None
        return cls(job_id, node, gres)


@dataclass(frozen=True, slots=True)
class Offer:
    """kube-scheduler refused the Node of a job, and offered others (none: more than can be told)."""

    job_id: int
    """0: it found these Nodes for a Pod that has no allocation."""
    nodes: tuple[str, ...] = ()
    """One hostlist expression, whatever names it is made of: they are kept while the Pod waits."""

    def __post_init__(self) -> None:
        """Of so many names, or so long ones, there are none."""
        text = hostlist.compress(self.nodes) if len(self.nodes) <= _MOST_OFFERED else ""
        object.__setattr__(self, "nodes", (text,) if 0 < len(text) <= _LONGEST_OFFER else ())

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the Nodes; none where they are malformed: anybody may have written them."""
        try:
            return hostlist.expand(",".join(self.nodes), _MOST_OFFERED)
        except ValueError:
            return ()

    @property
    def taken(self) -> tuple[str, ...]:
        """Returns the Nodes compressed, as they are kept; none where they are malformed."""
        return self.nodes if self.names else ()

    def annotations(self) -> dict[str, str]:
        """Returns the offer as it stands on the Pod."""
        return {OFFERED: " ".join((str(self.job_id), *self.nodes))}

    @classmethod
    def parse(cls, annotations: Mapping[str, str]) -> Offer | None:
        """Returns the offer that a Pod carries, None where there is none or it is malformed."""
        job_id, *nodes = annotations.get(OFFERED, "").split() or ("",)
        number = whole_number(job_id)
        return None if number is None else cls(number, tuple(nodes))


@dataclass(frozen=True, slots=True)
class Request:
    """What a Pod asks for. Where `problems` is not empty it cannot be placed, and they say why."""

    job: JobSpec
    constraints: NodeConstraints
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What its author should know, and is placed all the same."""
    by_class: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Those fields of the job that the Pod's PriorityClass asks for, with its name."""


class Pod(NamedTuple):
    """One version of a Pod. A tuple, since each version is made anew, and copied some times."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    request: Request
    created: str = ""
    priority: int = 0
    gates: tuple[str, ...] = ()
    node: str | None = None
    attempt: int = 1
    job_id: int | None = None
    allocation: Allocation | None = None
    deleting: bool = False
    deletion_grace: int = 0
    """With how long a grace it is being deleted, in seconds: whoever deletes it chooses."""
    grace: int = KUBERNETES_DEFAULT_S
    """Its own, in seconds."""
    eviction_grace: int = KUBERNETES_DEFAULT_S
    """The grace that its eviction gives it (`GraceRule.of_eviction`)."""
    finished: bool = False
    end: str = ""
    """How it ended, or why it is being deleted."""
    doomed: bool = False
    """Our condition on it says that its job has ended, and that its deletion is held back."""
    told_to_wait: bool = False
    """Our condition on it says that it waits."""
    offered: Offer | None = None
    """What kube-scheduler offered instead of an allocated Node."""
    looked_at: bool = False
    """kube-scheduler looked for a Node, and found none."""
    refusal: str = ""
    """In its words, where that was by its own rules: not because the allocation was not there yet."""
    lacks_room: bool = False
    """Among its words is that Nodes lack what Slurm may make room for (`lacks_room`)."""
    obstacle: str | None = None
    """What it refers to that is not ready, so that it can be bound nowhere; in words for its author."""
    provisioned_on: str | None = None
    """The Node where a volume is being made for it."""
    service_account: str = "default"

    @property
    def gated(self) -> bool:
        """Tells whether our own scheduling gate holds the Pod back."""
        return GATE in self.gates

    @property
    def leaving(self) -> bool:
        """Tells whether it is being deleted, and as soon as an eviction would have it gone."""
        return self.deleting and self.deletion_grace <= self.eviction_grace

    @property
    def lingers_s(self) -> float:
        """Returns for how many seconds its containers may still run if this was its last version. A
        kubelet has a Pod dropped when they have ended, and says so in its phase first (canBeDeleted,
        since Kubernetes 1.27); a force deletion does not wait for that."""
        there = self.node is not None and not self.finished
        return max(1, self.grace) + KUBELET_S if there else 0.0

    @property
    def unschedulable(self) -> bool:
        """Tells whether kube-scheduler refuses every Node by its own rules."""
        return bool(self.refusal)

    @property
    def other_gates(self) -> tuple[str, ...]:
        """Returns the gates that others put on the Pod, which stay."""
        return tuple(gate for gate in self.gates if gate != GATE)


def parse_pod(manifest: Manifest, dialect: Dialect, request: Request | None = None) -> Pod:
    """Returns the snapshot of a Pod's manifest. Never raises on what a user can write. `request` is what
    it asks for, where that has been read already."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    annotations = metadata.get("annotations") or {}
    false, grace = _false(status), own_grace(spec)
    waiting, scheduled = false.get(CONDITION), false.get("PodScheduled") or {}
    looked_at = scheduled.get("reason") == "Unschedulable"
    refusal = _refusal(scheduled) if looked_at else ""
    return Pod(
        uid=metadata.get("uid") or "",
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or metadata.get("generateName") or "",
        resource_version=metadata.get("resourceVersion") or "",
        request=request or read_request(manifest, dialect),
        service_account=spec.get("serviceAccountName") or "default",
        created=metadata.get("creationTimestamp") or "",
        priority=spec.get("priority") or 0,
        gates=_gates(spec),
        node=spec.get("nodeName") or None,
        attempt=attempt_of(annotations),
        job_id=whole_number(annotations.get(JOB_ID, "")),
        allocation=Allocation.parse(annotations),
        deleting="deletionTimestamp" in metadata,
        deletion_grace=metadata.get("deletionGracePeriodSeconds") or 0,
        grace=grace,
        eviction_grace=dialect.grace.of_eviction(grace),
        finished=status.get("phase") in ("Succeeded", "Failed"),
        end=end_in_words(manifest),
        doomed=waiting is not None and waiting.get("reason") == HELD_BACK,
        told_to_wait=waiting is not None,
        offered=Offer.parse(annotations),
        looked_at=looked_at,
        refusal=refusal[:_LONGEST_REFUSAL],
        lacks_room=lacks_room(refusal, dialect),
    )


def _gates(spec: Manifest) -> tuple[str, ...]:
    """Ours, and the first of the others: as they are lifted more come into sight."""
    names = [gate["name"] for gate in spec.get("schedulingGates") or ()]
    others = [name for name in names if name != GATE][:_MOST_GATES]
    return (GATE, *others) if GATE in names else tuple(others)


def attempt_of(annotations: Mapping[str, str]) -> int:
    """Returns which attempt at placing a Pod its annotations number. One that nobody reaches is forged:
    what follows it must still fit into a job's key."""
    number = whole_number(annotations.get(ATTEMPT, "")) or 1
    return number if number < _MOST_ATTEMPTS else 1


def _false(status: Manifest) -> Mapping[str, Manifest]:
    """Returns the conditions that are False, by type."""
    conditions = status.get("conditions") or ()
    return {each.get("type"): each for each in conditions if each.get("status") == "False"}


def _refusal(unschedulable: Manifest) -> str:
    words = (unschedulable.get("message") or "").strip() or "kube-scheduler finds no Node"
    return "" if WAITING in words else words


def lacks_room(refusal: str, dialect: Dialect) -> bool:
    """Tells whether kube-scheduler says, in NodeResourcesFit's words, that Nodes lack what a job of
    Slurm's may make room for by preempting others: CPUs, memory, GRES, or a place for one more Pod. No
    job makes room for a resource that Slurm does not count."""
    if not refusal:  # as nearly always
        return False
    lacking = {name.rstrip(".,") for name in _INSUFFICIENT.findall(refusal)}
    return _TOO_MANY_PODS in refusal or not lacking.isdisjoint((*_MANDATORY, *dialect.gres))


def is_retried(manifest: Manifest) -> bool:
    """Tells whether a Pod's first attempt is over."""
    return attempt_of(manifest["metadata"].get("annotations") or {}) > 1


def read_request(manifest: Manifest, dialect: Dialect) -> Request:
    """Returns what a Pod asks Slurm for, with every problem that makes it impossible."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    asked = read_annotations(metadata.get("annotations") or {}, dialect.annotation_prefix, dialect.page)
    too_much = too_much_asked(spec)
    amounts, wrong = ({}, ()) if too_much else _amounts(spec)
    gres = gres_of(amounts, dialect)
    namespace, name = metadata.get("namespace") or "default", metadata.get("name") or ""
    cpu = amounts.get("cpu", Decimal(0))
    by_class = dialect.priority_classes.get(spec.get("priorityClassName") or "", {})
    job = JobSpec(
        name=f"{namespace}/{name}",
        cpus=whole(cpu, dialect.cpu_unit),
        memory_mb=mebibytes(amounts.get("memory", Decimal(0))),
        gres=gres,
        **{**_deadline(spec), **by_class, **asked.fields},
    )
    request = Request(
        job,
        ANYWHERE if too_much else NodeConstraints.parse(spec),
        (
            *dialect.see("limits", *too_much),
            *dialect.see("scope", dialect.scope.problem(manifest)),
            *asked.problems,
            *dialect.see("requests", *wrong, *_too_many(cpu, dialect.cpu_unit)),
            *dialect.see("devices", *_mixed(gres)),
            *dialect.see("grace", dialect.grace.problem(spec)),
            *dialect.see("gangs", _gang(spec)),
        ),
        (*asked.warnings, *dialect.see("requests", rounding(cpu, dialect.cpu_unit))),
        {name: spec["priorityClassName"] for name in by_class if name not in asked.fields},
    )
    return _small(request, dialect)


def _small(request: Request, dialect: Dialect) -> Request:
    """Returns a request that is small enough to be kept: any other is refused, and its texts go."""
    job, told = request.job, (*request.problems, *request.warnings)
    asked = [text for name in _TEXTS if (text := getattr(job, name))]
    texts = (*asked, *job.excluded_nodes, *job.required_nodes, request.constraints.packed)
    if too_much_kept((*texts, *told)) is None:
        return request
    too_much = too_much_kept(texts if request.problems else (*texts, *told))
    without: dict[str, Any] = dict.fromkeys(_TEXTS)
    job = replace(job, **without, excluded_nodes=(), required_nodes=())
    problems = (*dialect.see("limits", too_much), *request.problems)
    return replace(request, job=job, constraints=ANYWHERE, problems=problems)


def _gang(spec: Manifest) -> str | None:
    """kube-scheduler places the Pods of a scheduling group together or not at all."""
    if not spec.get("schedulingGroup"):
        return None
    return "spec.schedulingGroup: Slurm is asked for each Pod by itself, not for groups of them"


def _amounts(spec: Manifest) -> tuple[Mapping[str, Decimal], tuple[str, ...]]:
    """What a Pod requests, and what is wrong with it."""
    try:
        amounts = effective_requests(spec)
    except ValueError:
        return {}, wrong_quantities(spec)
    return amounts, _missing(amounts)


def _deadline(spec: Manifest) -> dict[str, int]:
    """A Pod that Kubernetes ends after a while needs its nodes no longer than that. Beyond what Slurm
    plans for its job has no limit: a shorter one would end the Pod too early."""
    limit = minutes(spec.get("activeDeadlineSeconds") or 0)
    return {"time_limit_minutes": limit} if 0 < limit <= LONGEST_MINUTES else {}


def _too_many(cpu: Decimal, unit: Decimal) -> tuple[str, ...]:
    if whole(cpu, unit) <= MOST_CPUS:
        return ()
    return (f"the Pod requests {in_millis(cpu)} CPU: Slurm counts up to {in_millis(MOST_CPUS * unit)}",)


def rounding(cpu: Decimal, unit: Decimal) -> str | None:
    """Returns what to tell of a request that Slurm can only count as more: nobody else gets the rest."""
    taken = whole(cpu, unit) * unit
    if taken <= cpu:
        return None
    counted = "whole CPUs" if unit == 1 else f"CPUs by {in_millis(unit)}"
    return f"the Pod requests {in_millis(cpu)} CPU and takes {in_millis(taken)}: Slurm counts {counted}"


def gres_of(amounts: Mapping[str, Decimal], dialect: Dialect) -> tuple[tuple[str, int], ...]:
    """Returns the GRES that requests ask for, by name; what the dialect does not name is none."""
    asked: Counter[str] = Counter()
    for name, amount in amounts.items():
        if name in dialect.gres:
            asked[dialect.gres[name]] += whole(amount)
    return tuple(sorted((name, count) for name, count in asked.items() if count > 0))


def _mixed(gres: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Slurm takes no job that asks for a GRES both with and without a type (26.05 and 24.11)."""
    names = {name for name, _ in gres}
    both = names & {name.partition(":")[0] for name in names if ":" in name}
    return tuple(
        f"the Pod requests the GRES {name} both with and without a type: Slurm takes one of the two"
        for name in sorted(both)
    )


def _missing(amounts: Mapping[str, Decimal]) -> tuple[str, ...]:
    """Slurm places by CPUs and memory: a Pod that asks for none would be placed on top of others."""
    return tuple(
        f"the Pod requests no {name}: set resources.requests.{name} on its containers"
        for name in _MANDATORY
        if amounts.get(name, Decimal(0)) <= 0
    )
