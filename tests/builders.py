"""Builds Pods, Nodes and jobs in the form in which Kubernetes and Slurm send them, with only the fields
that a test needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from extender.explain.cause import Cause, Kind
from extender.jobs.phase import Phase
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import Node
from extender.pod_request.pod import Life, Pod, Scheduling, parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.record.config import Context, PlacementConfig
from extender.record.members import Members
from extender.record.placeholder import Placeholder
from extender.record.states import State, phase_in
from slurm_client.job_state import JobState
from slurm_client.model import Job, Partition
from wellknown.job_key import PlaceholderKey, job_name
from wellknown.names import GATE, Reason

Manifest = dict[str, Any]

TRANSLATION = TranslationConfig()
RULES = PlacementConfig()
PREFIX = TRANSLATION.annotation_prefix


def pod_manifest(
    name: str = "p",
    *,
    cpu: str | None = "1",
    memory: str | None = "1Gi",
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    gates: Sequence[str] = (GATE,),
    node: str | None = None,
    uid: str | None = None,
    namespace: str = "default",
    version: str = "100",
    phase: str = "Pending",
    deleting: bool = False,
    **spec: Any,
) -> Manifest:
    """Returns the manifest of a Pod, as the extender's webhook has changed it. Other keywords set fields
    of the spec."""
    asked = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus) if gpus else None}
    metadata: Manifest = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "creationTimestamp": "2026-11-21T08:00:00Z",
    }
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if deleting:
        metadata |= {"deletionTimestamp": "2026-11-21T09:00:00Z", "deletionGracePeriodSeconds": 30}
    body: Manifest = {
        "schedulerName": TRANSLATION.scheduler_name,
        "containers": [container({resource: text for resource, text in asked.items() if text})],
    }
    if gates:
        body["schedulingGates"] = [{"name": gate} for gate in gates]
    if node is not None:
        body["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": body | spec,
        "status": {"phase": phase},
    }


def container(
    requests: Mapping[str, str] | None = None,
    *,
    limits: Mapping[str, str] | None = None,
    sidecar: bool = False,
) -> Manifest:
    """Returns a container. Put a sidecar into `initContainers`."""
    resources = {"requests": requests, "limits": limits}
    built: Manifest = {
        "name": "c",
        "image": "registry.example/app",
        "resources": {kind: dict(amounts) for kind, amounts in resources.items() if amounts},
    }
    return built | {"restartPolicy": "Always"} if sidecar else built


def cause_of(reason: str, said: str = "because", outlook: str = "") -> Cause:
    """Returns a cause with this reason, this text, and this outlook."""
    soon = Cause.of(Kind.POD_ENDED, end=outlook) if outlook else None
    return replace(Cause.of(Kind.POD_ENDED, end=said), reason=reason, outlook=soon)


def pod(*name: str, **given: Any) -> Pod:
    """Returns the parsed Pod of `pod_manifest(...)`."""
    return parse_pod(pod_manifest(*name, **given), TRANSLATION)


def changed(pod: Pod, *, told_to_wait: bool = False, doomed: bool = False, **fields: Any) -> Pod:
    """Returns the Pod with changed fields. The fields may also be fields of `life` and `scheduling`.
    `told_to_wait` adds a condition that the Pod waits. `doomed` adds the condition that the Pod's
    eviction is delayed."""
    if told_to_wait or doomed:
        fields["waiting"] = Reason.EVICTION_THROTTLED if doomed else ""
    life, scheduling = (
        {name: fields.pop(name) for name in each._fields if name in fields}
        for each in (Life, Scheduling)
    )
    return pod._replace(
        life=pod.life._replace(**life), scheduling=pod.scheduling._replace(**scheduling), **fields
    )


def unmanaged(name: str = "u", **given: Any) -> Manifest:
    """Returns the manifest of a Pod of default-scheduler. `given` are further keywords of
    `pod_manifest`."""
    defaults: Manifest = {"gates": (), "schedulerName": "default-scheduler"}
    return pod_manifest(name, **defaults | given)


def node_manifest(
    name: str = "n1",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    *,
    unschedulable: bool = False,
) -> Manifest:
    """Returns the manifest of a Node, in the form in which kube-apiserver sends Nodes."""
    spec: Manifest = {"taints": [dict(taint) for taint in taints]} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    every = {"kubernetes.io/hostname": name} | dict(labels or {})
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": every}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def kube_node(name: str = "n1", labels: Mapping[str, str] | None = None, **given: Any) -> Node:
    """Returns the parsed Node of `node_manifest(...)`. The label `slurm` names the Slurm node that
    belongs to the Node."""
    return Node.parse(node_manifest(name, labels, **given), "slurm")


def view(*nodes: Node, partitions: Sequence[Partition] = (), preemption: bool = True) -> ClusterView:
    """Returns the view of a cluster with these Nodes. Without `partitions`, the cluster has one default
    partition with all Nodes."""
    whole = Partition("main", tuple(node.slurm_name for node in nodes), default=True)
    listed = partitions or (whole,)
    return ClusterView(
        {n.name: n for n in nodes}, {p.name: p for p in listed}, preemption, cluster=RULES.cluster
    )


def moment(*nodes: Node, now: float = 1000.0) -> Context:
    """Returns the context of a decision: the time `now`, RULES, and the view of a cluster with these
    Nodes."""
    return Context(now, RULES, view(*nodes))


def placeholder_job(
    of: Pod,
    state: str = "RUNNING",
    *,
    attempt: int = 1,
    attempt_try: int = 0,
    node: str | None = None,
    **given: Any,
) -> Job:
    """Returns the job that Slurm has for this attempt and try of a Pod. The id and the key of the job
    belong to this try."""
    key = PlaceholderKey(RULES.cluster, of.namespace, of.name, of.uid, attempt, attempt_try)
    fields: Manifest = {
        "name": job_name(of.namespace, of.name),
        "admin_comment": str(key),
        "nodes": (node,) if node else (),
    }
    return Job(key.job_id(RULES.ids), JobState.parse(state), **(fields | given))


def placeholder_of(of: Pod, state: State = State.SEEN, **fields: Any) -> Placeholder:
    """Returns a Placeholder (the extender's record of one Pod) in this state. Unless `fields` give the
    job a phase, the job gets the phase that fits the state."""
    if "members" in fields:
        fields["members"] = Members(fields["members"])
    record = Placeholder.of(of)._replace(state=state, **fields)
    job = record.job
    if job.phase is not Phase.UNASKED:
        return record
    return record._replace(job=job._replace(phase=phase_in(state, job.phase)))
