"""Builds the manifest of the Node's slurmd Pod. This module calls no other system.

The manifest is the pool's template, with additions for every slurmd Pod. The template overrides most
additions. A few additions override the template, for example the name of the Node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import orjson

from kubernetes_client.protocol import Manifest
from node_agent.machine.devices import Device
from wellknown import resources
from wellknown.names import POOL, REVISION
from wellknown.slurmd_pod import AGENTS_FOLDER, CONTAINER, MARK, Assignment, pod_name

_SCRIPTS: Final = "/slurm-extender/scripts"
_POD: Final = "/slurm-extender/pod"
"""Folder in the container that outlives the container, but not the Pod."""
_PATIENCE_S: Final = 7 * 86_400
"""Time for jobs to end after a deletion of the Pod. The time is longer than the time limits of most
partitions."""
_TOLERATES_ALL: Final = {"operator": "Exists"}


@dataclass(frozen=True, slots=True)
class Found:
    """The data that the agent has found on its Node."""

    node: Manifest
    slurm_name: str
    gres: str = ""
    """GRES in the form of slurmd's Gres=, for example "gpu:nvidia_h100:8". Without devices, the text is
    ""."""
    threads_per_core: int = 1
    daemons: Sequence[Manifest] = ()
    """Specs of the DaemonSets' Pods on the Node."""


def manifest(assignment: Assignment, data: Mapping[str, Any], found: Found, namespace: str) -> Manifest:
    """Returns the manifest of the Pod. Parameter `data` has the content of the revision
    (extender.pools.file)."""
    template: dict[str, Any] = orjson.loads(orjson.dumps(data["template"]))  # a copy
    metadata, spec = template.get("metadata") or {}, template["spec"]
    node = found.node["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(node["name"]),
            "namespace": namespace,
            "labels": {
                **(metadata.get("labels") or {}),
                "app.kubernetes.io/name": "slurmd",
                POOL: assignment.pool,
                REVISION: assignment.revision,
            },
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner_of(node)],
        },
        "spec": _spec(spec, assignment, data, found),
    }


def owner_of(node: Manifest) -> Manifest:
    """Returns the reference to a Node as the owner of a Pod. Parameter `node` has the metadata of the
    Node. kubectl drain assumes that such an owner recreates a deleted Pod, and so needs no `--force` for
    the Pod. If the Node is deleted, Kubernetes also deletes the Pod."""
    named = {"apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"]}
    return named | {"controller": True}


def _spec(
    spec: dict[str, Any], assignment: Assignment, data: Mapping[str, Any], found: Found
) -> dict[str, Any]:
    folder = {"path": AGENTS_FOLDER, "type": "DirectoryOrCreate"}
    own: list[tuple[str, str, dict[str, Any]]] = [
        ("slurm-extender", AGENTS_FOLDER, {"hostPath": folder}),
        ("slurm-extender-pod", _POD, {"emptyDir": {}}),
    ]
    if sources := [{"configMap": {"name": name}} for name in data.get("scripts") or ()]:
        scripts = {"projected": {"sources": sources, "defaultMode": 0o755}}
        own.append(("slurm-extender-scripts", _SCRIPTS, scripts))
    mounts = [{"name": name, "mountPath": path} for name, path, _ in own]
    containers = [
        _slurmd(each, mounts, assignment, data, found) if each.get("name") == CONTAINER else each
        for each in spec["containers"]
    ]
    dns = {"dnsPolicy": "ClusterFirstWithHostNet"} if spec.get("hostNetwork") else {}
    return {
        "terminationGracePeriodSeconds": _PATIENCE_S,
        "enableServiceLinks": False,
        **dns,
        **spec,
        "nodeName": found.node["metadata"]["name"],
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "restartPolicy": "Always",
        "tolerations": [*(spec.get("tolerations") or ()), _TOLERATES_ALL],
        "containers": containers,
        "volumes": [*(spec.get("volumes") or ()), *({"name": name} | source for name, _, source in own)],
    }


def _slurmd(
    container: dict[str, Any],
    mounts: Sequence[Manifest],
    assignment: Assignment,
    data: Mapping[str, Any],
    found: Found,
) -> dict[str, Any]:
    """Returns slurmd's container. If the template has its own command, the command gets the template's
    arguments, and then slurmd's options."""
    boots = [{"name": "SLURM_EXTENDER_BOOTS", "value": "yes"}] if assignment.boots else []
    stop = ["/bin/sh", "-c", _script("stop.sh"), "stop", found.slurm_name, assignment.pool]
    return {
        "command": ["/bin/sh", "-c", _script("start.sh"), "start"],
        "securityContext": {"privileged": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": {"exec": {"command": stop}}},
        **container,
        "args": [*(container.get("args") or ()), *_options(assignment, data, found)],
        "env": [*(container.get("env") or ()), *boots],
        "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts],
    }


def _options(assignment: Assignment, data: Mapping[str, Any], found: Found) -> list[str]:
    servers, kind = ",".join(data["controllers"]), f"{MARK}{assignment.pool}"
    fixed = ["-D", "-Z", "-N", found.slurm_name, "--conf-server", servers, "--instance-type", kind]
    conf = " ".join(filter(None, _conf(data.get("slurm") or {}, found)))
    return [*fixed, "--conf", conf] if conf else fixed


def _conf(slurm: Mapping[str, Any], found: Found) -> Iterable[str]:
    """Yields parts of the node's description that slurmd sends to slurmctld. Each part is a parameter of
    NodeName in slurm.conf(5), or ""."""
    yield f"Feature={','.join(slurm['features'])}" if slurm.get("features") else ""
    yield f"Weight={slurm['weight']}" if slurm.get("weight") else ""
    gres = slurm.get("gres", found.gres)
    yield f"Gres={gres}" if gres else ""
    label = (found.node["metadata"].get("labels") or {}).get(slurm.get("topologyLabel", ""))
    yield f"Topology={slurm.get('topologyPrefix', '')}{label}" if label else ""
    cores, memory = reserved(found)
    yield f"CoreSpecCount={cores}" if cores else ""
    yield f"MemSpecLimit={memory}" if memory else ""
    yield slurm.get("conf", "")


def finds_gres(data: Mapping[str, Any]) -> bool:
    """Returns True if Slurm gets the devices that the agent finds, because the pool names no GRES."""
    return "gres" not in (data.get("slurm") or {})


def gres_of(devices: Iterable[Device]) -> str:
    """Returns devices in the form of slurmd's Gres=, for example "gpu:h100:8"."""
    tally = Counter(":".join(filter(None, (each.name, each.type))) for each in devices)
    return ",".join(f"{name}:{count}" for name, count in sorted(tally.items()))


def reserved(found: Found) -> tuple[int, int]:
    """Returns the numbers of cores and MiB that Slurm must leave unused. Each number is the sum of the
    kubelet's reserve and the requests of DaemonSets' Pods."""
    status = found.node.get("status") or {}
    capacity, allocatable = (status.get(kind) or {} for kind in ("capacity", "allocatable"))
    requests = [resources.effective_requests(spec) for spec in found.daemons]
    cpus, memory = (
        resources.parse_quantity(capacity.get(name, "0"))
        - resources.parse_quantity(allocatable.get(name, "0"))
        + sum(each.get(name, 0) for each in requests)
        for name in ("cpu", "memory")
    )
    return resources.whole(cpus / found.threads_per_core), resources.mebibytes(memory)


def _script(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
