"""Where Slurm chooses a Node that Kubernetes will not have, both agree in the end; here is how soon.

What follows from a Pod and a Node alone is told to Slurm beforehand: the first attempt is right. What
depends on other Pods and on volumes is seen when kube-scheduler refuses the Node: it offers others, and
the second attempt is right.
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

from tests.end_to_end.people import Manifest, People, eventually, eventually_not
from wellknown.names import NODE_NAME_LABEL

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
HOSTNAME = "kubernetes.io/hostname"


def requires(operator: str, *values: str) -> Manifest:
    """Required node affinity to Nodes by name."""
    expression = {"key": HOSTNAME, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def apart(group: str) -> Manifest:
    """No other Pod of the group on the same Node."""
    rule = {"labelSelector": {"matchLabels": {"group": group}}, "topologyKey": HOSTNAME}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}


def spread(group: str) -> list[Manifest]:
    """As many Pods of the group on each Node, give or take one."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"group": group}},
        }
    ]


@contextmanager
def changed(people: People, change: list[str], back: list[str]) -> Iterator[None]:
    people.cluster.kubectl(*change)
    try:
        yield
    finally:
        people.cluster.kubectl(*back)


# Told beforehand


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {HOSTNAME: "node-3"}},
        {"affinity": requires("In", "node-3")},
        {"affinity": requires("NotIn", "node-1", "node-2", "node-4")},
    ],
)
def test_selectors_and_affinity_are_met_at_the_first_attempt(people: People, spec: Any) -> None:
    people.create("choosy", **spec)
    assert people.bound("choosy") == "node-3"
    assert people.attempt("choosy") == 1


def test_a_taint_is_kept_away_from_but_by_those_that_tolerate_it(people: People) -> None:
    taints = [f"{node}=dedicated=ml:NoSchedule" for node in NODES[:3]]
    for taint in taints:
        people.cluster.kubectl("taint", "node", *taint.split("=", 1))
    try:
        people.create("kept-away", gpus=4)
        assert people.bound("kept-away") == "node-4"
        tolerations = [{"key": "dedicated", "operator": "Exists"}]
        people.create("tolerant", gpus=4, tolerations=tolerations)
        assert people.bound("tolerant") in NODES[:3]
        assert {people.attempt("kept-away"), people.attempt("tolerant")} == {1}
    finally:
        people.cluster.kubectl("taint", "node", *NODES[:3], "dedicated-")


# Refused, and met at the second attempt


def test_pods_that_must_be_apart_are_after_two_attempts(people: People) -> None:
    for name in ("left", "right", "third"):
        people.create(name, labels={"group": "apart"}, affinity=apart("apart"))
        people.bound(name)
    assert len({people.node_of(name) for name in ("left", "right", "third")}) == 3
    assert all(people.attempt(name) <= 2 for name in ("left", "right", "third"))


def test_pods_that_must_be_spread_are_after_two_attempts(people: People) -> None:
    names = [f"spread-{number}" for number in range(4)]
    for name in names:
        people.create(name, labels={"group": "spread"}, topologySpreadConstraints=spread("spread"))
        people.bound(name)
    assert {people.node_of(name) for name in names} == set(NODES)
    assert all(people.attempt(name) <= 2 for name in names)


def test_a_host_port_that_is_taken_costs_one_attempt(people: People) -> None:
    for name in ("web-1", "web-2"):
        people.create(name, host_port=8080)
        people.bound(name)
    assert people.node_of("web-1") != people.node_of("web-2")
    assert people.attempt("web-2") <= 2


def test_a_pod_goes_where_its_volume_is_after_two_attempts(people: People) -> None:
    volume = people.full("data")
    with local_volume(people, volume, "node-3"):
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": volume}}
        people.create("stateful", volumes=[claim])
        assert people.bound("stateful") == "node-3"
        assert people.attempt("stateful") <= 2
        people.delete("stateful")
        people.gone("stateful")


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
    people: People, name: str, node: str, *, storage_class: str = "local"
) -> Iterator[None]:
    """A claim that is bound to a volume on a Node; it may be there already."""
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
    people.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([claim, volume]))
    people.cluster.kubectl("wait", "pvc", name, "--for=jsonpath={.status.phase}=Bound", "--timeout=40s")
    try:
        yield
    finally:
        people.cluster.kubectl("delete", "pvc,pv", name, "--wait=false")


def test_a_volume_that_takes_long_to_be_made_loses_no_allocation(quiet: People) -> None:
    """Nobody makes one here but we: in more time than a Pod usually has to be bound."""
    people = quiet
    people.cluster.start("extender", env={"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "3"})
    claimed = people.full("data")
    late = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "example.com/slow",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = claim_of(claimed, "late")
    people.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([late, claim]))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    try:
        people.create("slow", volumes=[volume])
        node = eventually(lambda: selected_node(people, claimed), "a volume is asked for")
        job = people.job_of("slow")
        assert job is not None
        eventually_not(lambda: people.attempt("slow") != 1, "the allocation is given back", within=8)
        with local_volume(people, claimed, node, storage_class="late"):
            assert people.bound("slow") == node
            still = people.job_of("slow")
            assert still is not None
            assert (people.attempt("slow"), still.id) == (1, job.id)
            people.delete("slow")
            people.gone("slow")
    finally:
        people.cluster.kubectl("delete", "storageclass", "late")
        people.cluster.stop("extender")


def selected_node(people: People, claimed: str) -> str:
    template = r"{.metadata.annotations.volume\.kubernetes\.io/selected-node}"
    return people.cluster.kubectl("get", "pvc", claimed, "-o", f"jsonpath={template}").stdout


def test_a_pod_that_every_node_refuses_waits_and_is_bound_when_one_is_left(people: People) -> None:
    names = [f"holder-{number}" for number in range(len(NODES))]
    for name in names:
        people.create(name, labels={"group": "full"}, affinity=apart("full"))
        people.bound(name)
    people.create("fifth", labels={"group": "full"}, affinity=apart("full"))
    eventually(lambda: people.attempt("fifth") >= 2, "refused")
    assert people.node_of("fifth") is None
    left = people.node_of(names[2])
    people.delete(names[2])
    assert people.bound("fifth", within=60) == left


def test_a_pod_is_told_what_its_node_lacks_and_is_bound_as_soon_as_it_is_there(people: People) -> None:
    """Of a resource that Slurm does not count nobody could have told it before."""
    amounts = {"cpu": "1", "memory": "100Mi", "rdma/ib": "1"}
    container = {"name": "c", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    people.create("wide", containers=[container], nodeSelector={HOSTNAME: "node-2"})
    eventually(lambda: people.condition("wide").get("reason") == "NotBindable", "told")
    words = people.condition("wide")["message"]
    assert "1 Insufficient rdma/ib" in words
    assert "allocated another Node" not in words
    assert re.search(r"; not before \d\d:\d\d:\d\d UTC; node-2 is excluded until", words)
    assert people.job_of("wide") is None
    refused = time.monotonic()
    for amount in ("1", None):
        has = {"capacity": {"rdma/ib": amount}, "allocatable": {"rdma/ib": amount}}
        patch = ["patch", "node", "node-2", "--subresource=status", "-p", json.dumps({"status": has})]
        people.cluster.kubectl(*patch)
        if amount is not None:
            assert people.bound("wide") == "node-2"
    assert time.monotonic() - refused < 20  # it would rest for 30 s, and the Node be excluded for 60
    assert people.condition("wide")["reason"] == "Allocated"


def test_a_node_that_is_being_vacated_is_waited_for(people: People) -> None:
    """Slurm gives a cancelled job's GPUs away at once; Kubernetes counts them until the Pod is gone."""
    slow = {"local.slurm-extender.io/stop-after": "7"}
    for number in range(len(NODES)):
        people.create(f"leaver-{number}", gpus=4, own_annotations=slow)
        people.bound(f"leaver-{number}")
    people.create("heir", gpus=4)
    people.queued("heir")
    began = time.monotonic()
    people.scancel("leaver-2")
    left = people.node_of("leaver-2")
    assert people.bound("heir") == left
    assert time.monotonic() - began > 5.0
    assert people.attempt("heir") == 1


# Nodes that come, go and close


@pytest.mark.parametrize(
    ("close", "open_again"),
    [
        (["cordon", "node-2"], ["uncordon", "node-2"]),
        (
            ["taint", "node", "node-2", "node.kubernetes.io/not-ready=:NoSchedule"],
            ["taint", "node", "node-2", "node.kubernetes.io/not-ready-"],
        ),
    ],
)
def test_a_job_that_waits_is_not_started_on_a_node_that_closed_meanwhile(
    people: People, close: list[str], open_again: list[str]
) -> None:
    for number in range(len(NODES)):
        people.create(f"holder-{number}", gpus=4)
        people.bound(f"holder-{number}")
    holders = {people.node_of(f"holder-{number}"): f"holder-{number}" for number in range(len(NODES))}
    people.create("waiting", gpus=4)
    people.queued("waiting")
    with changed(people, close, open_again):
        eventually(lambda: "node-2" in people.scontrol("waiting").get("ExcNodeList", ""), "told")
        people.delete(holders["node-2"])
        people.gone(holders["node-2"])
        assert people.queued("waiting")
        people.delete(holders["node-4"])
        assert people.bound("waiting") == "node-4"
    assert people.attempt("waiting") == 1


def test_a_node_that_goes_and_comes_back_is_used_again(people: People) -> None:
    node = people.cluster.kubectl("get", "node", "node-2", "-o", "yaml").stdout
    pinned = {"required-nodes": "node-2"}
    with changed(people, ["delete", "node", "node-2"], ["version"]):
        people.create("homesick", annotations=pinned)
        eventually(lambda: people.condition("homesick").get("reason") == "NoEligibleNode", "told")
        manifest = yaml.safe_load(node)
        for field in ("resourceVersion", "uid", "creationTimestamp"):
            manifest["metadata"].pop(field, None)
        people.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert people.bound("homesick") == "node-2"


def test_a_node_stands_for_the_slurm_node_that_its_label_names(people: People) -> None:
    people.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}=node-2")
    people.cluster.kubectl("label", "node", "node-2", f"{NODE_NAME_LABEL}=node-1")
    try:
        people.create("crossed", annotations={"required-nodes": "node-1"})
        assert people.bound("crossed") == "node-2"
        job = people.job_of("crossed")
        assert job is not None
        assert job.node == "node-1"
        people.create("selected", nodeSelector={HOSTNAME: "node-1"})
        assert people.bound("selected") == "node-1"
        chosen = people.job_of("selected")
        assert chosen is not None
        assert chosen.node == "node-2"
        assert people.attempt("selected") == 1
    finally:
        people.cluster.kubectl("label", "node", "node-1", "node-2", f"{NODE_NAME_LABEL}-")


def test_of_two_nodes_that_name_the_same_slurm_node_the_one_of_that_name_counts(people: People) -> None:
    """What runs goes on; the other Node gets nothing, and an administrator is told."""
    people.create("runs", annotations={"required-nodes": "node-2"})
    assert people.bound("runs") == "node-2"
    people.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}=node-2")
    try:
        told = eventually(lambda: people.trouble("Node names"), "it is told")
        assert "Nodes node-1, node-2 name Slurm's node node-2: node-2 alone stands for it" in told
        people.create("there", annotations={"required-nodes": "node-2"})
        assert people.bound("there") == "node-2"
        people.create("nowhere", nodeSelector={HOSTNAME: "node-1"})
        eventually(lambda: people.condition("nowhere").get("reason") == "NoEligibleNode", "no node")
        assert people.node_of("runs") == "node-2"
    finally:
        people.cluster.kubectl("label", "node", "node-1", f"{NODE_NAME_LABEL}-")
    eventually(lambda: not people.trouble("Node names"), "it is over")
    assert people.bound("nowhere") == "node-1"


# Pods that come another way


@contextmanager
def without_webhook(people: People) -> Iterator[None]:
    """Pods are created as before the extender was installed."""
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    found = [
        people.cluster.kubectl("get", kind, "slurm-extender", "-o", "yaml").stdout for kind in kinds
    ]
    for kind in kinds:
        people.cluster.kubectl("delete", kind, "slurm-extender")
    try:
        yield
    finally:
        for webhook in map(yaml.safe_load, found):
            for field in ("resourceVersion", "uid", "creationTimestamp", "generation"):
                webhook["metadata"].pop(field, None)
            people.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(webhook))


def create_without_webhook(people: People, name: str, **given: Any) -> None:
    """kube-apiserver takes a moment to know that there is no webhook; the Pod must have no gate."""
    with without_webhook(people):

        def ungated() -> bool:
            people.create(name, **given)
            created = people.see(name)
            assert created is not None
            if not created["spec"].get("schedulingGates"):
                return True
            people.delete(name)
            people.gone(name)
            return False

        eventually(ungated, "created without a gate")


def test_a_pod_without_a_gate_is_placed_all_the_same(people: People) -> None:
    create_without_webhook(people, "filter-first", gpus=1)
    node = people.bound("filter-first")
    job = people.job_of("filter-first")
    assert job is not None
    assert (job.node, people.attempt("filter-first")) == (node, 1)


def test_a_pod_without_a_gate_waits_for_slurm_and_is_refused_nodes_like_any_other(
    people: People,
) -> None:
    for number in range(len(NODES)):
        people.create(f"holder-{number}", gpus=4, labels={"group": "mixed"})
        people.bound(f"holder-{number}")
    create_without_webhook(people, "patient", gpus=1, affinity=apart("mixed"))
    people.queued("patient")
    people.delete("holder-1")
    left = people.node_of("holder-1")
    assert people.bound("patient", within=60) == left


def test_a_pod_that_was_ungated_by_hand_still_waits_for_slurm(people: People) -> None:
    for number in range(len(NODES)):
        people.create(f"holder-{number}", gpus=4)
        people.bound(f"holder-{number}")
    people.create("impatient", gpus=4)
    before = people.queued("impatient")
    ungate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    people.cluster.kubectl("patch", "pod", people.full("impatient"), "--type=json", "-p", ungate)
    eventually(
        lambda: people.condition("impatient", "PodScheduled").get("reason") == "Unschedulable",
        "kube-scheduler has looked",
    )
    people.delete("holder-1")
    assert people.bound("impatient")
    after = people.job_of("impatient")
    assert after is not None
    assert after.id == before.id


def test_a_pod_that_is_edited_while_it_waits_gets_the_job_that_it_asks_for(people: People) -> None:
    for number in range(len(NODES)):
        people.create(f"holder-{number}", gpus=4)
        people.bound(f"holder-{number}")
    people.create("undecided", gpus=4, annotations={"comment": "first"})
    assert people.queued("undecided").comment == "first"
    comment = "sunk.coreweave.com/comment=second"
    people.cluster.kubectl("annotate", "pod", people.full("undecided"), "--overwrite", comment)

    def changed_job() -> bool:
        job = people.job_of("undecided")
        return job is not None and job.comment == "second"

    eventually(changed_job, "another job")
    people.delete("holder-1")
    assert people.bound("undecided")


def test_a_pod_that_is_narrowed_while_it_waits_keeps_its_job(people: People) -> None:
    """A gated Pod's node selector may be added to."""
    for number in range(len(NODES)):
        people.create(f"holder-{number}", gpus=4)
        people.bound(f"holder-{number}")
    people.create("narrowed", gpus=4)
    before = people.queued("narrowed")
    patch = yaml.safe_dump({"spec": {"nodeSelector": {HOSTNAME: "node-3"}}})
    people.cluster.kubectl("patch", "pod", people.full("narrowed"), "--type=merge", "-p", patch)
    excluded = {"ExcNodeList": "node-[1-2,4]"}.items()
    eventually(lambda: excluded <= people.scontrol("narrowed").items(), "Slurm told")
    after = people.job_of("narrowed")
    assert after is not None
    assert after.id == before.id
