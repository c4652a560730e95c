"""Tests of Nodes that Slurm chooses and Kubernetes refuses: both systems agree after at most two
attempts.

The extender reports to Slurm in advance the limits that follow from the Pod and the Node alone. The
first attempt is then right. Limits from other Pods and from volumes appear when kube-scheduler refuses
the Node. kube-scheduler then offers other Nodes, and the second attempt is right.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually, eventually_not
from wellknown.names import NODE_NAME_LABEL

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
HOSTNAME = "kubernetes.io/hostname"


def requires(operator: str, *values: str) -> Manifest:
    """Returns a required node affinity to Nodes by name."""
    expression = {"key": HOSTNAME, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def apart(group: str) -> Manifest:
    """Returns an anti-affinity: no other Pod of the group on the same Node."""
    rule = {"labelSelector": {"matchLabels": {"group": group}}, "topologyKey": HOSTNAME}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}


def spread(group: str) -> list[Manifest]:
    """Returns a spread constraint: the numbers of the group's Pods on two Nodes differ by at most 1."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"group": group}},
        }
    ]


@contextmanager
def changed(actors: Actors, change: list[str], back: list[str]) -> Iterator[None]:
    actors.cluster.kubectl(*change)
    try:
        yield
    finally:
        actors.cluster.kubectl(*back)


def occupy_all(actors: Actors, name: str = "holder", **given: Any) -> None:
    """Places a Pod on each Node, `holder-0` to `holder-3`, with all GPUs of the Node."""
    names = [f"{name}-{number}" for number in range(len(NODES))]
    for each in names:
        actors.create(each, gpus=4, **given)
    for each in names:
        actors.bound(each)


# Limits that Slurm knows in advance


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {HOSTNAME: "node-3"}},
        {"affinity": requires("In", "node-3")},
        {"affinity": requires("NotIn", "node-1", "node-2", "node-4")},
    ],
)
def test_selectors_and_affinity_are_met_at_the_first_attempt(actors: Actors, spec: Any) -> None:
    actors.create("choosy", **spec)
    assert actors.bound("choosy") == "node-3"
    assert actors.attempt("choosy") == 1


def test_only_tolerant_pods_get_tainted_nodes(actors: Actors) -> None:
    taints = [f"{node}=dedicated=ml:NoSchedule" for node in NODES[:3]]
    for taint in taints:
        actors.cluster.kubectl("taint", "node", *taint.split("=", 1))
    try:
        actors.create("kept-away", gpus=4)
        assert actors.bound("kept-away") == "node-4"
        tolerations = [{"key": "dedicated", "operator": "Exists"}]
        actors.create("tolerant", gpus=4, tolerations=tolerations)
        assert actors.bound("tolerant") in NODES[:3]
        assert {actors.attempt("kept-away"), actors.attempt("tolerant")} == {1}
    finally:
        actors.cluster.kubectl("taint", "node", *NODES[:3], "dedicated-")


# Limits that Slurm learns from the first attempt


def test_pod_anti_affinity_is_met_within_two_attempts(actors: Actors) -> None:
    for name in ("left", "right", "third"):
        actors.create(name, labels={"group": "apart"}, affinity=apart("apart"))
        actors.bound(name)
    assert len({actors.node_of(name) for name in ("left", "right", "third")}) == 3
    assert all(actors.attempt(name) <= 2 for name in ("left", "right", "third"))


def test_topology_spread_is_met_within_two_attempts(actors: Actors) -> None:
    names = [f"spread-{number}" for number in range(4)]
    for name in names:
        actors.create(name, labels={"group": "spread"}, topologySpreadConstraints=spread("spread"))
        actors.bound(name)
    assert {actors.node_of(name) for name in names} == set(NODES)
    assert all(actors.attempt(name) <= 2 for name in names)


def test_a_host_port_that_is_taken_costs_one_attempt(actors: Actors) -> None:
    for name in ("web-1", "web-2"):
        actors.create(name, host_port=8080)
        actors.bound(name)
    assert actors.node_of("web-1") != actors.node_of("web-2")
    assert actors.attempt("web-2") <= 2


def test_pod_reaches_the_node_of_its_volume_within_two_attempts(actors: Actors) -> None:
    volume = actors.full("data")
    with local_volume(actors, volume, "node-3"):
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": volume}}
        actors.create("stateful", volumes=[claim])
        assert actors.bound("stateful") == "node-3"
        assert actors.attempt("stateful") <= 2
        actors.delete("stateful")
        actors.gone("stateful")


_AMOUNT = {"storage": "1Gi"}
_VOLUME = {"accessModes": ["ReadWriteOnce"]}


def claim_of(name: str, storage_class: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**_VOLUME, "storageClassName": storage_class, "resources": {"requests": _AMOUNT}},
    }


@contextmanager
def local_volume(
    actors: Actors, name: str, node: str, *, storage_class: str = "local"
) -> Iterator[None]:
    """Creates a claim and a volume on a Node, bound to each other. The claim may exist already."""
    affinity = requires("In", node)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    claim = claim_of(name, storage_class)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **_VOLUME,
            "storageClassName": storage_class,
            "capacity": _AMOUNT,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": affinity},
            "claimRef": {"namespace": "default", "name": name},
        },
    }
    actors.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([claim, volume]))
    actors.cluster.kubectl("wait", "pvc", name, "--for=jsonpath={.status.phase}=Bound", "--timeout=40s")
    try:
        yield
    finally:
        actors.cluster.kubectl("delete", "pvc,pv", name, "--wait=false")


def test_slow_volume_provisioning_keeps_the_allocation(quiet: Actors) -> None:
    """The test plays the provisioner, and creates the volume later than the deadline for the Pod's
    Binding."""
    actors = quiet
    actors.cluster.start("extender", env={"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "3"})
    claimed = actors.full("data")
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "example.com/slow",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = claim_of(claimed, "late")
    actors.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([late, claim]))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    try:
        actors.create("slow", volumes=[volume])
        node = eventually(lambda: selected_node(actors, claimed), "a volume is asked for")
        job = actors.job_of("slow")
        assert job is not None
        eventually_not(lambda: actors.attempt("slow") != 1, "the allocation is given back", within_s=8)
        with local_volume(actors, claimed, node, storage_class="late"):
            assert actors.bound("slow") == node
            still = actors.job_of("slow")
            assert still is not None
            assert (actors.attempt("slow"), still.id) == (1, job.id)
            actors.delete("slow")
            actors.gone("slow")
    finally:
        actors.cluster.kubectl("delete", "storageclass", "late")
        actors.cluster.stop("extender")


def selected_node(actors: Actors, claimed: str) -> str:
    template = r"{.metadata.annotations.volume\.kubernetes\.io/selected-node}"
    return actors.cluster.kubectl("get", "pvc", claimed, "-o", f"jsonpath={template}").stdout


def test_pod_rejected_by_every_node_is_bound_when_a_node_is_free(brief: Actors) -> None:
    actors = brief
    names = [f"holder-{number}" for number in range(len(NODES))]
    for name in names:
        actors.create(name, labels={"group": "full"}, affinity=apart("full"))
        actors.bound(name)
    actors.create("fifth", labels={"group": "full"}, affinity=apart("full"))
    eventually(lambda: actors.condition("fifth").get("reason") == "NoEligibleNode", "told")
    assert actors.job_of("fifth") is None
    left = actors.node_of(names[2])
    actors.delete(names[2])
    assert actors.bound("fifth", within=60) == left


def test_pod_shows_a_missing_resource_and_is_bound_when_it_appears(actors: Actors) -> None:
    """Slurm does not count the resource, so only kube-scheduler's rejection shows that the Node lacks
    the resource."""
    amounts = {"cpu": "1", "memory": "100Mi", "rdma/ib": "1"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    actors.create("wide", containers=[container], nodeSelector={HOSTNAME: "node-2"})
    eventually(lambda: actors.condition("wide").get("reason") == "NotBindable", "told")
    words = actors.condition("wide")["message"]
    assert "1 Insufficient rdma/ib" in words
    assert "allocated another Node" not in words
    assert re.search(r"; not before \d\d:\d\d:\d\d UTC; node-2 is excluded until", words)
    assert actors.job_of("wide") is None
    refused = time.monotonic()
    for amount in ("1", None):
        has = {"capacity": {"rdma/ib": amount}, "allocatable": {"rdma/ib": amount}}
        patch = ["patch", "node", "node-2", "--subresource=status", "-p", json.dumps({"status": has})]
        actors.cluster.kubectl(*patch)
        if amount is not None:
            assert actors.bound("wide") == "node-2"
    assert time.monotonic() - refused < 20  # without a change of the Node, the Pod waits at least 30 s
    assert actors.condition("wide")["reason"] == "Allocated"


def test_pod_waits_for_the_leaving_pod_on_its_node(actors: Actors) -> None:
    """Slurm gives the GPUs of a cancelled job to the next job at once. Kubernetes counts the GPUs for
    the leaving Pod until the Pod is gone."""
    slow = {"local.slurm-extender.io/stop-after": "7"}
    occupy_all(actors, "leaver", own_annotations=slow)
    actors.create("heir", gpus=4)
    actors.queued("heir")
    began = time.monotonic()
    actors.scancel("leaver-2")
    left = actors.node_of("leaver-2")
    assert actors.bound("heir") == left
    assert time.monotonic() - began > 5.0
    assert actors.attempt("heir") == 1


# New, deleted and closed Nodes


def test_waiting_job_does_not_start_on_a_tainted_or_cordoned_node(actors: Actors) -> None:
    """node-1 is tainted, and node-2 is cordoned."""
    occupy_all(actors)
    holders = {actors.node_of(f"holder-{number}"): f"holder-{number}" for number in range(len(NODES))}
    actors.create("waiting", gpus=4)
    actors.queued("waiting")
    taint = ["taint", "node", "node-1"]
    key = "node.kubernetes.io/not-ready"
    with (
        changed(actors, [*taint, f"{key}=:NoSchedule"], [*taint, f"{key}-"]),
        changed(actors, ["cordon", "node-2"], ["uncordon", "node-2"]),
    ):
        excluded = {"ExcNodeList": "node-[1-2]"}.items()
        eventually(lambda: excluded <= actors.scontrol("waiting").items(), "told")
        for node in ("node-1", "node-2"):
            actors.delete(holders[node])
            actors.gone(holders[node])
        assert actors.queued("waiting")
        actors.delete(holders["node-4"])
        assert actors.bound("waiting") == "node-4"
    assert actors.attempt("waiting") == 1


def test_recreated_node_is_used_again(actors: Actors) -> None:
    node = actors.cluster.kubectl("get", "node", "node-2", "-o", "yaml").stdout
    pinned = {"required-nodes": "node-2"}
    with changed(actors, ["delete", "node", "node-2"], ["version"]):
        actors.create("homesick", annotations=pinned)
        eventually(lambda: actors.condition("homesick").get("reason") == "NoEligibleNode", "told")
        manifest = yaml.safe_load(node)
        for field in ("resourceVersion", "uid", "creationTimestamp"):
            manifest["metadata"].pop(field, None)
        actors.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert actors.bound("homesick") == "node-2"


def test_a_node_stands_for_the_slurm_node_that_its_label_names(actors: Actors) -> None:
    actors.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}=node-2")
    actors.cluster.kubectl("label", "node", "node-2", f"{NODE_NAME_LABEL}=node-1")
    try:
        actors.create("crossed", annotations={"required-nodes": "node-1"})
        assert actors.bound("crossed") == "node-2"
        job = actors.job_of("crossed")
        assert job is not None
        assert job.node == "node-1"
        actors.create("selected", nodeSelector={HOSTNAME: "node-1"})
        assert actors.bound("selected") == "node-1"
        chosen = actors.job_of("selected")
        assert chosen is not None
        assert chosen.node == "node-2"
        assert actors.attempt("selected") == 1
    finally:
        actors.cluster.kubectl("label", "node", "node-1", "node-2", f"{NODE_NAME_LABEL}-")


def test_labelled_node_gets_a_contested_slurm_node(actors: Actors) -> None:
    """The label on node-1 names Slurm's node-2, so both Nodes name node-2. The running Pod stays on
    node-2. The Node node-2 gets no more Pods, and the administrator gets a message."""
    actors.create("runs", annotations={"required-nodes": "node-2"})
    assert actors.bound("runs") == "node-2"
    actors.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}=node-2")
    try:
        told = eventually(lambda: actors.problem("Node names"), "it is told")
        assert "Nodes node-1, node-2 name Slurm's node node-2: node-1 alone stands for it" in told
        actors.create("there", annotations={"required-nodes": "node-2"})
        assert actors.bound("there") == "node-1"
        actors.create("nowhere", nodeSelector={HOSTNAME: "node-2"})
        eventually(lambda: actors.condition("nowhere").get("reason") == "NoEligibleNode", "no node")
        assert actors.node_of("runs") == "node-2"
    finally:
        actors.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}-")
    eventually(lambda: not actors.problem("Node names"), "it is over")
    assert actors.bound("nowhere") == "node-2"


# Pods from other sources


@contextmanager
def without_webhook(actors: Actors) -> Iterator[None]:
    """Removes the webhooks during the block, as before the installation of the extender."""
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    found = [
        actors.cluster.kubectl("get", kind, "slurm-extender", "-o", "yaml").stdout for kind in kinds
    ]
    for kind in kinds:
        actors.cluster.kubectl("delete", kind, "slurm-extender")
    try:
        yield
    finally:
        for webhook in map(yaml.safe_load, found):
            for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
                webhook["metadata"].pop(field, None)
            actors.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(webhook))


def create_without_webhook(actors: Actors, name: str, **given: Any) -> None:
    """Creates a Pod without a gate. Tries again while kube-apiserver still calls the removed webhook."""
    with without_webhook(actors):

        def ungated() -> bool:
            actors.create(name, **given)
            created = actors.see(name)
            assert created is not None
            if not created["spec"].get("schedulingGates"):
                return True
            actors.delete(name)
            actors.gone(name)
            return False

        eventually(ungated, "created without a gate")


def test_pod_without_a_gate_is_placed(actors: Actors) -> None:
    create_without_webhook(actors, "filter-first", gpus=1)
    node = actors.bound("filter-first")
    job = actors.job_of("filter-first")
    assert job is not None
    assert (job.node, actors.attempt("filter-first")) == (node, 1)


def test_pod_without_a_gate_waits_until_a_node_is_eligible(
    actors: Actors,
) -> None:
    occupy_all(actors, labels={"group": "mixed"})
    create_without_webhook(actors, "patient", gpus=1, affinity=apart("mixed"))
    eventually(lambda: actors.condition("patient").get("reason") == "NoEligibleNode", "told")
    actors.delete("holder-1")
    left = actors.node_of("holder-1")
    assert actors.bound("patient", within=60) == left


def test_a_pod_that_was_ungated_by_hand_still_waits_for_slurm(actors: Actors) -> None:
    occupy_all(actors)
    actors.create("impatient", gpus=4)
    before = actors.queued("impatient")
    ungate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    actors.cluster.kubectl("patch", "pod", actors.full("impatient"), "--type=json", "-p", ungate)
    eventually(
        lambda: actors.condition("impatient", "PodScheduled").get("reason") == "Unschedulable",
        "kube-scheduler has looked",
    )
    actors.delete("holder-1")
    assert actors.bound("impatient")
    after = actors.job_of("impatient")
    assert after is not None
    assert after.id == before.id


def test_edited_waiting_pod_gets_a_new_job(actors: Actors) -> None:
    occupy_all(actors)
    actors.create("undecided", gpus=4, annotations={"comment": "first"})
    assert actors.queued("undecided").comment == "first"
    comment = "sunk.coreweave.com/comment=second"
    actors.cluster.kubectl("annotate", "pod", actors.full("undecided"), "--overwrite", comment)

    def changed_job() -> bool:
        job = actors.job_of("undecided")
        return job is not None and job.comment == "second"

    eventually(changed_job, "another job")
    actors.delete("holder-1")
    assert actors.bound("undecided")


def test_waiting_pod_with_a_new_node_selector_keeps_its_job(actors: Actors) -> None:
    """Kubernetes allows additions to the node selector of a gated Pod."""
    occupy_all(actors)
    actors.create("narrowed", gpus=4)
    before = actors.queued("narrowed")
    patch = yaml.safe_dump({"spec": {"nodeSelector": {HOSTNAME: "node-3"}}})
    actors.cluster.kubectl("patch", "pod", actors.full("narrowed"), "--type=merge", "-p", patch)
    excluded = {"ExcNodeList": "node-[1-2,4]"}.items()
    eventually(lambda: excluded <= actors.scontrol("narrowed").items(), "Slurm told")
    after = actors.job_of("narrowed")
    assert after is not None
    assert after.id == before.id
