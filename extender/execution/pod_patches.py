"""Makes the manifests for writes to a Pod: patches, conditions and Events. This module sends nothing.

Strategic merge patches leave the gates and conditions of other programs alone, and cost kube-apiserver a
tenth less than JSON merge patches.
"""

from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

from extender.explain.cause import Cause, Kind
from extender.explain.message import text
from extender.pod_request.pod import Owner, Pod
from wellknown.allocation import Allocation
from wellknown.conditions import condition, timestamp
from wellknown.names import (
    ADOPTED,
    ATTEMPT,
    CONDITION,
    FEASIBLE_NODES,
    GATE,
    GRANTED,
    JOB_ID,
    NODE,
    RANK,
)

_COMPONENT = "slurm-extender"
_LONGEST_NAME = 200  # of the 253 characters that an Event's name may have
_ONCE_IN_S = 1800
_OF_ONE_ATTEMPT = (JOB_ID, NODE, GRANTED, RANK, FEASIBLE_NODES)


def nomination(pod: Pod, allocation: Allocation, now: datetime) -> dict[str, Any]:
    """Returns the status patch that makes kube-scheduler look at the allocated Node first. For a Pod
    that kube-scheduler may keep from Nodes because of other Pods (`kept_from_pods`), the patch nominates
    no Node. kube-scheduler counts nominated Pods as placed, so such Pods would close Nodes to each other
    before the Bindings."""
    node = None if pod.kept_from_pods else allocation.node
    cause = Cause.of(Kind.ALLOCATED, job=allocation.job_id, node=allocation.node)
    conditions = [_condition(CONDITION, cause, now, holds=True)]
    if pod.scheduling.looked_at:  # replaces the older message, which is not about this Node
        conditions.append(_condition("PodScheduled", cause, now, holds=False))
    return {
        "metadata": _as_seen(pod),
        "status": {"nominatedNodeName": node, "conditions": conditions},
    }


def grant(
    pod: Pod, allocation: Allocation, resource_version: str, attempt: int | None = None
) -> dict[str, Any]:
    """Returns the patch that writes the allocation and removes the extender's gate, both in one write.
    Also writes the number of the attempt, if given."""
    metadata = {"uid": pod.uid, "resourceVersion": resource_version}
    granted: dict[str, str | None] = dict(allocation.annotations())
    if pod.scheduling.feasible_nodes is not None:
        granted[FEASIBLE_NODES] = None
    if attempt is not None:
        granted[ATTEMPT] = str(attempt)
    patch: dict[str, Any] = {"metadata": metadata | _notes(granted)}
    if pod.gated:
        patch["spec"] = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    return patch


def annotated(uid: str, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the patch that annotates any version of a Pod. The value None removes an annotation."""
    return {"metadata": {"uid": uid, **_notes(annotations)}}


def next_attempt(pod: Pod, attempt: int) -> dict[str, Any]:
    """Returns the patch that numbers the next attempt and removes the allocation."""
    annotations = {ATTEMPT: str(attempt), **dict.fromkeys(_OF_ONE_ATTEMPT)}
    return {"metadata": _as_seen(pod) | _notes(annotations)}


def no_nomination(pod: Pod, cause: Cause | None, now: datetime, times: str = "") -> dict[str, Any]:
    """Returns the status patch that removes the nomination. If the cause is known, the patch also writes
    the cause. `times` is a text about the next steps and their times."""
    status: dict[str, Any] = {"nominatedNodeName": None}
    if cause is not None:
        status["conditions"] = [_condition(CONDITION, cause, now, times, holds=False)]
    return {"metadata": {"uid": pod.uid}, "status": status}


def waiting(
    pod: Pod, cause: Cause, job_id: int | None, now: datetime, times: str = ""
) -> dict[str, Any]:
    """Returns the status patch with the reason for waiting, and with the job's id, if any. `times` is a
    text about the next steps and their times. Events do not contain this text, because each new time
    would make a new Event."""
    metadata = _as_seen(pod)
    if job_id is not None:
        metadata |= _notes({JOB_ID: str(job_id)})
    conditions = [_condition(CONDITION, cause, now, times, holds=False)]
    return {"metadata": metadata, "status": {"conditions": conditions}}


def disruption(pod: Pod, cause: Cause, now: datetime, *, in_any_version: bool = False) -> dict[str, Any]:
    """Returns the status patch with the reason for the coming deletion of a Pod (KEP-3329)."""
    metadata = {"uid": pod.uid} if in_any_version else _as_seen(pod)
    conditions = [
        _condition("DisruptionTarget", cause, now, holds=True),
        _condition(CONDITION, cause, now, holds=False),
    ]
    return {"metadata": metadata, "status": {"conditions": conditions}}


def event(pod: Pod, cause: Cause, now: datetime, *, action: str) -> dict[str, Any]:
    """Returns an Event about a Pod. Within half an hour, Events with the same message about the same Pod
    have the same name. So if the extender repeats an Event after a crash, kube-apiserver stores no
    second Event."""
    named = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return _event(named, cause, now, action)


def owner_event(pod: Pod, owner: Owner, cause: Cause, now: datetime, *, action: str) -> dict[str, Any]:
    """Returns an Event about the controller of a gang's Pods. The Events of all members with the same
    message have the same name, as in `event`."""
    kind, version = owner.kind, owner.api_version
    named = {"apiVersion": version, "kind": kind, "namespace": pod.namespace, "name": owner.name}
    return _event({**named, "uid": owner.uid}, cause, now, action)


def node_event(node: str, cause: Cause, now: datetime, *, action: str) -> dict[str, Any]:
    """Returns an Event about a Node. Repeated Events have the same name, as in `event`. As in the
    kubelets' Events, the namespace is `default`, and the Node's name is also the uid."""
    return _event({"kind": "Node", "name": node, "uid": node}, cause, now, action)


def _event(named: Mapping[str, str], cause: Cause, now: datetime, action: str) -> dict[str, Any]:
    half_hour = int(now.timestamp()) // _ONCE_IN_S
    message = text(cause)
    content = f"{named['uid']}{cause.reason}{message}{half_hour}"
    digest = blake2b(content.encode(), digest_size=8).hexdigest()
    stamp = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
    name = f"{named['name'][:_LONGEST_NAME].rstrip('.-')}.{digest}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": named.get("namespace", "default")},
        "involvedObject": {"apiVersion": "v1", **named},
        "type": "Normal" if cause.kind.normal else "Warning",
        "reason": cause.reason,
        "message": message,
        "action": action,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": _COMPONENT,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "eventTime": stamp,
        "count": 1,
    }


def age(pod: Pod, now: datetime) -> float | None:
    """Returns the age of a Pod in seconds; None if not known."""
    return (now - datetime.fromisoformat(pod.created)).total_seconds() if pod.created else None


def _notes(annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the metadata that writes annotations. If the annotations name the Pod's job, the metadata
    also has a label with the job's id."""
    named = [job for name, job in annotations.items() if name in (JOB_ID, ADOPTED)]
    return {"annotations": annotations, **({"labels": {JOB_ID: named[0]}} if named else {})}


def _as_seen(pod: Pod) -> dict[str, Any]:
    return {"uid": pod.uid, "resourceVersion": pod.resource_version}


def _condition(
    kind: str, cause: Cause, now: datetime, times: str = "", *, holds: bool
) -> dict[str, str]:
    return condition(kind, cause.reason, text(cause, times), now, holds=holds)
