"""The writes to a Pod: patches, conditions and Events, as manifests. This module sends nothing.

Strategic merge patches leave the gates and conditions of other programs alone, and cost kube-apiserver a
tenth less than JSON merge patches.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from extender.pod_request.pod import Pod
from extender.record.condition_reason import ConditionReason
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
    Reason,
)

_COMPONENT = "slurm-extender"
_TIME = "%H:%M:%S UTC"
_LONGEST_NAME = 200  # of the 253 that an Event's name may have
_ONCE_IN_S = 1800
_OF_ONE_ATTEMPT = (JOB_ID, NODE, GRANTED, FEASIBLE_NODES)


def nomination(pod: Pod, allocation: Allocation, now: datetime) -> dict[str, Any]:
    """Returns the status patch that makes kube-scheduler look at the allocated Node first. A Pod with
    constraints between Pods is not nominated: kube-scheduler counts nominated Pods as placed, so that
    unbound Pods would close Nodes to each other."""
    node = None if pod.kept_from_pods else allocation.node
    message = f"Slurm job {allocation.job_id} runs on Node {allocation.node}"
    cause = ConditionReason(Reason.ALLOCATED, message)
    conditions = [_condition(CONDITION, cause, now, holds=True)]
    if pod.scheduling.looked_at:  # from now on kube-scheduler's message is about this Node
        conditions.append(_condition("PodScheduled", cause, now, holds=False))
    return {
        "metadata": _as_seen(pod),
        "status": {"nominatedNodeName": node, "conditions": conditions},
    }


def grant(pod: Pod, allocation: Allocation, resource_version: str) -> dict[str, Any]:
    """Returns the patch that writes the allocation and removes the extender's gate: all or nothing."""
    metadata = {"uid": pod.uid, "resourceVersion": resource_version}
    granted: dict[str, str | None] = dict(allocation.annotations())
    if pod.scheduling.feasible_nodes is not None:
        granted[FEASIBLE_NODES] = None
    patch: dict[str, Any] = {"metadata": metadata | _notes(granted)}
    if pod.gated:
        patch["spec"] = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    return patch


def annotated(uid: str, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the patch that annotates any version of a Pod; None removes an annotation."""
    return {"metadata": {"uid": uid, **_notes(annotations)}}


def next_attempt(pod: Pod, attempt: int) -> dict[str, Any]:
    """Returns the patch that numbers the next attempt and removes the allocation."""
    annotations = {ATTEMPT: str(attempt), **dict.fromkeys(_OF_ONE_ATTEMPT)}
    return {"metadata": _as_seen(pod) | _notes(annotations)}


def no_nomination(pod: Pod, cause: ConditionReason | None, now: datetime) -> dict[str, Any]:
    """Returns the status patch that removes the nomination, with the cause, if known."""
    status: dict[str, Any] = {"nominatedNodeName": None}
    if cause is not None:
        status["conditions"] = [_condition(CONDITION, cause, now, holds=False)]
    return {"metadata": {"uid": pod.uid}, "status": status}


def waiting(pod: Pod, cause: ConditionReason, job_id: int | None, now: datetime) -> dict[str, Any]:
    """Returns the status patch with the reason for waiting, and the job's id, if any."""
    metadata = _as_seen(pod)
    if job_id is not None:
        metadata |= _notes({JOB_ID: str(job_id)})
    conditions = [_condition(CONDITION, cause, now, holds=False)]
    return {"metadata": metadata, "status": {"conditions": conditions}}


def dated(cause: ConditionReason, now: datetime, clock: float) -> ConditionReason:
    """Returns a cause whose message has the times of the next steps. `clock` is the ledger's now. Events
    do not have the times: each would be a new Event."""
    dues = ((due.words, now + timedelta(seconds=due.at - clock)) for due in cause.dues)
    times = "".join(f"; {words} {when.astimezone(UTC):{_TIME}}" for words, when in dues)
    return ConditionReason(cause.reason, cause.told(times), normal=cause.normal)


def disruption(
    pod: Pod, cause: ConditionReason, now: datetime, *, in_any_version: bool = False
) -> dict[str, Any]:
    """Returns the status patch with the reason for the coming deletion of a Pod (KEP-3329)."""
    metadata = {"uid": pod.uid} if in_any_version else _as_seen(pod)
    conditions = [
        _condition("DisruptionTarget", cause, now, holds=True),
        _condition(CONDITION, cause, now, holds=False),
    ]
    return {"metadata": metadata, "status": {"conditions": conditions}}


def event(pod: Pod, cause: ConditionReason, now: datetime, *, action: str) -> dict[str, Any]:
    """Returns an Event about a Pod. The same words about the same Pod have the same name within half an
    hour, so that a repetition after a crash makes no second Event."""
    named = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return _event(named, cause, now, action)


def node_event(node: str, cause: ConditionReason, now: datetime, *, action: str) -> dict[str, Any]:
    """Returns an Event about a Node, in the namespace `default`. The uid is the name, as of kubelets."""
    return _event({"kind": "Node", "name": node, "uid": node}, cause, now, action)


def _event(
    named: Mapping[str, str], cause: ConditionReason, now: datetime, action: str
) -> dict[str, Any]:
    half_hour = int(now.timestamp()) // _ONCE_IN_S
    said = f"{named['uid']}{cause.reason}{cause.words}{half_hour}"
    digest = blake2b(said.encode(), digest_size=8).hexdigest()
    stamp = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
    name = f"{named['name'][:_LONGEST_NAME].rstrip('.-')}.{digest}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": named.get("namespace", "default")},
        "involvedObject": {"apiVersion": "v1", **named},
        "type": "Normal" if cause.normal else "Warning",
        "reason": cause.reason,
        "message": cause.words,
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
    """Returns the age of a Pod in seconds; None where it is not known."""
    return (now - datetime.fromisoformat(pod.created)).total_seconds() if pod.created else None


def _notes(annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the metadata that writes annotations. The id of the Pod's job is a label, too."""
    named = [job for name, job in annotations.items() if name in (JOB_ID, ADOPTED)]
    return {"annotations": annotations, **({"labels": {JOB_ID: named[0]}} if named else {})}


def _as_seen(pod: Pod) -> dict[str, Any]:
    return {"uid": pod.uid, "resourceVersion": pod.resource_version}


def _condition(kind: str, cause: ConditionReason, now: datetime, *, holds: bool) -> dict[str, str]:
    return condition(kind, cause.reason, cause.words, now, holds=holds)
