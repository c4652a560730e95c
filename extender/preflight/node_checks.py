"""Compares the Nodes of Kubernetes with the nodes of Slurm: names, devices, CPUs and memory."""

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from extender.explain.wording import NO_DRA
from extender.node_sync.cpu_counts import disagreements, whole_cores
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import AGENT_SILENT_S, Node
from extender.preflight.facts import Facts, NotKnown, known
from extender.preflight.result import Check, Finding, failed, passed, some, warned
from kubernetes_client.protocol import Manifest
from slurm_client import gres
from slurm_client.model import Node as SlurmNode
from wellknown.conditions import is_stale
from wellknown.names import DEVICE_PROBLEM, NODE_NAME_LABEL
from wellknown.node_mapping import problem
from wellknown.resources import MEBIBYTE, in_millis, parse_quantity

_Pair = tuple[Manifest, Node, SlurmNode]


def _view(facts: Facts) -> ClusterView:
    parsed = (Node.parse(each, facts.settings.node_name_label) for each in known(facts.kubernetes.nodes))
    return ClusterView(nodes={node.name: node for node in parsed})


def _pairs(facts: Facts) -> list[_Pair]:
    """Returns each Node that stands for a Slurm node, with the Node's manifest and the Slurm node.
    Raises NotKnown if there is no such Node."""
    view = _view(facts)
    manifests = {each["metadata"]["name"]: each for each in known(facts.kubernetes.nodes)}
    standing = ((view.node_of(each.name), each) for each in known(facts.slurm.nodes))
    found = [(manifests[node.name], node, slurm) for node, slurm in standing if node is not None]
    if not found:
        raise NotKnown("no Node represents a Slurm node")
    return found


def names(facts: Facts) -> Finding:
    view, slurm = _view(facts), {each.name for each in known(facts.slurm.nodes)}
    contested = problem(view.names, facts.settings.node_name_label)
    if contested is not None:
        lost = [name for name in view.names.contested if view.names.standing_for(name) is None]
        return failed(contested) if lost else warned(contested)
    named = {node.slurm_name: name for name, node in view.nodes.items()}
    shared = slurm & named.keys()
    alone = sorted(named[name] for name in named.keys() - slurm)
    without = sorted(slurm - named.keys())
    if not shared:
        return failed(f"no Node has the name of a Slurm node ({some(without)})")
    differences = [f"Nodes that Slurm does not know: {some(alone)}"] if alone else []
    differences += [f"Slurm nodes without a Node: {some(without)}"] if without else []
    if differences:
        return warned("; ".join(differences))
    return passed(f"{len(shared)} Nodes represent Slurm nodes")


def devices(facts: Facts) -> Finding:
    translation = facts.settings.translation
    asked, wrong, unlike = translation.gres, list[str](), list[str]()
    for manifest, node, slurm in _pairs(facts):
        less, more = _differences(manifest, node, slurm, asked)
        wrong += [f"Node {node.name} has {words}" for words in less]
        unlike += [f"Node {node.name} has {words}" for words in more]
        has = {name: parse_quantity(amount) for name, amount in node.allocatable.items()}
        if uncounted := translation.uncounted_gpus(has):
            unlike.append(f"Node {node.name} has {', '.join(uncounted)}, mapped to no GRES")
    if wrong:
        return failed(some(wrong))
    if unlike:
        return warned(some(unlike))
    return passed("Slurm's GRES and the Nodes' capacity are the same")


def _differences(
    manifest: Manifest, node: Node, slurm: SlurmNode, asked: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Returns two lists of messages about resources. The first list is about resources of which the Node
    has fewer than Slurm. The second list is about resources of which the Node has more."""
    capacity = (manifest.get("status") or {}).get("capacity") or {}
    counted = gres.counts(slurm.gres)
    of: dict[str, list[str]] = {}
    for resource, name in asked.items():
        of.setdefault(name, []).append(resource)
    less, more = list[str](), list[str]()
    for name, resources in of.items():
        has = sum(int(parse_quantity(capacity.get(resource, "0"))) for resource in resources)
        there = next((each for each in resources if each in capacity), resources[0])
        of_slurm = f"{there}, but Slurm node {slurm.name} has {counted[name]} {name}"
        if counted[name] and not any(node.serves([resource]) for resource in resources):
            less.append(f"no allocatable {of_slurm}: no Pod with {there} is placed there ({NO_DRA})")
        elif has != counted[name]:
            (less if has < counted[name] else more).append(f"{has} {of_slurm}")
    return less, more


def cpus(facts: Facts) -> Finding:
    unit, pairs = facts.settings.cpu_unit, _pairs(facts)
    found = disagreements(_view(facts), [slurm for _, _, slurm in pairs], unit)
    if found:
        return failed("; ".join(found))
    short = [words for _, node, slurm in pairs if (words := _short_of_cpus(node, slurm, unit))]
    if short:
        return warned(some(short))
    sentences = whole_cores([slurm for _, _, slurm in pairs], unit)
    return passed("; ".join(sentences) or "Slurm and Kubernetes count the same CPUs")


def _short_of_cpus(node: Node, slurm: SlurmNode, unit: Decimal) -> str | None:
    allocatable = parse_quantity(node.allocatable.get("cpu", "0"))
    gives = (slurm.cpus - slurm.cpus_reserved) * unit
    if gives <= allocatable:
        return None
    words = f"Slurm gives {in_millis(gives)} CPUs of node {slurm.name}"
    return f"{words}, but only {in_millis(allocatable)} are allocatable"


def memory(facts: Facts) -> Finding:
    short = list[str]()
    for _, node, slurm in _pairs(facts):
        allocatable = int(parse_quantity(node.allocatable.get("memory", "0")) / MEBIBYTE)
        gives = slurm.memory_mb - slurm.memory_reserved_mb
        if gives > allocatable:
            words = f"Slurm gives {gives} MiB of node {slurm.name}"
            short.append(f"{words}, but only {allocatable} are allocatable")
    if short:
        return warned(some(short))
    return passed("all memory that Slurm gives is allocatable")


def node_agents(facts: Facts) -> Finding:
    reports = [
        (manifest["metadata"]["name"], condition)
        for manifest in known(facts.kubernetes.nodes)
        for condition in _conditions(manifest)
        if condition.get("type") == DEVICE_PROBLEM
    ]
    if not reports:
        raise NotKnown("no Node has the condition of a node agent")
    now = time.time()
    wrong = [
        f"Node {name}: {'the node agent is silent' if silent else condition.get('message')}"
        for name, condition in reports
        if (silent := is_stale(condition, now, AGENT_SILENT_S)) or condition.get("status") != "False"
    ]
    return failed(some(wrong)) if wrong else passed(f"{len(reports)} node agents report no problem")


def device_plugins(facts: Facts) -> Finding:
    plugins, counted = known(facts.kubernetes.device_plugins), facts.settings.translation.gres
    agents = [node for node in _view(facts).nodes.values() if node.has_agent]
    if not agents:
        raise NotKnown("no Node has the condition of a node agent")
    beside = [
        f"{plugins[node.name]} on Node {node.name}"
        for node in agents
        if node.name in plugins and not counted.keys().isdisjoint(node.served or ())
    ]
    if beside:
        return failed(f"a vendor's device plugin runs beside the node agent: {some(beside)}")
    return passed(f"no vendor's device plugin runs beside {len(agents)} node agents")


def _conditions(manifest: Manifest) -> Iterable[Manifest]:
    return (manifest.get("status") or {}).get("conditions") or ()


NODE_CHECKS: Final = (
    Check(
        "node-names",
        "Each Node for Pods of Slurm has the name of a Slurm node, or names the Slurm node in the label"
        " of SLURM_EXTENDER_NODE_NAME_LABEL.",
        f"Label the Nodes with other names: `kubectl label node NODE {NODE_NAME_LABEL}=NAME`. Nodes for"
        " other Pods, and nodes for native jobs only, may stay unchanged.",
        "`kubectl get nodes` beside `sinfo -N`",
        names,
    ),
    Check(
        "gres",
        "For each node, Slurm's number of GRES equals the Node's number of extended resources"
        " (SLURM_EXTENDER_GRES).",
        "Correct Gres of the node in slurm.conf and gres.conf, or run the Node's device plugin or node"
        " agent. If the resource has another name, map the resource with SLURM_EXTENDER_GRES.",
        "`kubectl get node NODE -o jsonpath={.status.capacity}` beside `scontrol show node NAME`",
        devices,
    ),
    Check(
        "cpus",
        "Slurm and Kubernetes have the same CPUs of a node, and Slurm gives no more CPUs than are"
        " allocatable.",
        "Correct CPUs of the node in slurm.conf, or SLURM_EXTENDER_CPU_UNIT. Set CoreSpecCount to the"
        " kubelet's reservation (docs/concepts/resources.md).",
        "`scontrol show node NAME` beside the Node's status.allocatable",
        cpus,
    ),
    Check(
        "memory",
        "Slurm gives no more memory of a node than is allocatable on the Node.",
        "Set MemSpecLimit of the node in slurm.conf to the kubelet's reservation, or RealMemory to the"
        " allocatable memory. Otherwise Slurm grants Pods memory that kube-scheduler does not have.",
        "`scontrol show node NAME` beside the Node's status.allocatable",
        memory,
    ),
    Check(
        "node-agents",
        "The node agents report no problem with the devices of their Nodes.",
        f"See `kubectl describe node NODE`: the condition {DEVICE_PROBLEM} has the error message."
        " A silent agent has not written the condition for 15 minutes: check the agent's Pod.",
        "`node-agent status` in the agent's Pod of a Node",
        node_agents,
    ),
    Check(
        "device-plugins",
        "No device plugin of NVIDIA, AMD or Intel runs on a Node with a node agent. The kubelet asks"
        " the plugin that registered a resource last, and a vendor's plugin gives Pods other devices"
        " than Slurm granted.",
        "Turn the device plugin off on the Node (docs/tasks/beside-the-gpu-operator.md). GPU Operator:"
        " `kubectl label node NODE nvidia.com/gpu.deploy.device-plugin=false --overwrite`. GKE: the"
        " label `gke-no-default-nvidia-gpu-device-plugin=true`. OKE: the label"
        " `oci.oraclecloud.com/disable-gpu-device-plugin=true`.",
        "`kubectl get pods -A --field-selector spec.nodeName=NODE`",
        device_plugins,
    ),
)
