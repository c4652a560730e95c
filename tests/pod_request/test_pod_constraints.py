"""The extender reads the constraints between Pods with the same meaning as Kubernetes."""

from typing import Any

import pytest

from extender.pod_request.constraints.pod_constraints import (
    NO_CONSTRAINTS,
    HostPort,
    PodConstraints,
    Spread,
    names_other_pods,
    parse_pod_constraints,
)
from tests.builders import pod_manifest
from tests.placement.ledger_world import HOSTNAME


def parsed(namespace: str = "default", labels: Any = None, **spec: Any) -> PodConstraints:
    metadata = {"name": "p", "namespace": namespace, "labels": labels}
    return parse_pod_constraints(metadata, pod_manifest(**spec)["spec"])


def anti_affinity(**term: Any) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME} | term
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def expressed(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "app", "operator": operator, "values": list(values)}]}


def spread(**constraint: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "a"}}
    given = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return [given | {"labelSelector": selector} | constraint]


def ports(**port: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80} | port]}]


def test_pods_without_constraints_share_one_object() -> None:
    first, second = parsed(labels={"app": "a"}), parsed(labels={"app": "a"})
    assert first is second
    assert not first.exclusive
    assert not first.excludes(second)


@pytest.mark.parametrize(
    ("selector", "labels", "excluded"),
    [
        ({"matchLabels": {"app": "a"}}, {"app": "a"}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "b"}, False),
        ({}, {"app": "b"}, True),
        (None, {"app": "a"}, False),
        (expressed("In", "a", "c"), {"app": "a"}, True),
        (expressed("NotIn", "a"), {"app": "a"}, False),
        (expressed("NotIn", "a"), {}, True),
        (expressed("Exists"), {}, False),
        (expressed("DoesNotExist"), {}, True),
    ],
)
def test_anti_affinity_excludes_both_ways(selector: Any, labels: dict[str, str], excluded: bool) -> None:
    owner = parsed(labels={"other": "x"}, affinity=anti_affinity(labelSelector=selector))
    other = parsed(labels=labels)
    assert owner.excludes(other) is excluded
    assert other.excludes(owner) is excluded


@pytest.mark.parametrize(
    ("term", "namespace", "excluded"),
    [
        ({}, "default", True),
        ({}, "other", False),
        ({"namespaces": ["other"]}, "other", True),
        ({"namespaces": ["other"]}, "default", False),
        ({"namespaceSelector": {}}, "other", True),
        # The labels of namespaces are unknown here, so kube-scheduler decides.
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, "default", False),
    ],
)
def test_anti_affinity_applies_to_its_namespaces(
    term: dict[str, Any], namespace: str, excluded: bool
) -> None:
    owner = parsed(affinity=anti_affinity(labelSelector={}, **term))
    assert owner.excludes(parsed(namespace)) is excluded


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        ({}, {}, True),
        ({}, {"hostPort": 81}, False),
        ({}, {"protocol": "UDP"}, False),
        ({"hostIP": "10.0.0.1"}, {}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, False),
        ({}, {"hostPort": None}, False),
    ],
)
def test_host_ports_conflict_as_on_a_node(one: Any, other: Any, conflict: bool) -> None:
    first, second = parsed(containers=ports(**one)), parsed(containers=ports(**other))
    assert first.uses_port_of(second) is conflict
    assert second.uses_port_of(first) is conflict


def test_sidecars_use_host_ports_and_init_containers_do_not() -> None:
    (sidecar,) = ports()
    assert parsed(initContainers=[sidecar | {"restartPolicy": "Always"}]).ports == (HostPort("TCP", 80),)
    assert parsed(initContainers=[sidecar]).ports == ()


def test_spread_reads_hard_constraints_only() -> None:
    (hard,) = parsed(topologySpreadConstraints=spread(minDomains=2, nodeTaintsPolicy="Honor")).spread
    assert hard == Spread("zone", 1, hard.selector, 2, honors_affinity=True, honors_taints=True)
    soft = spread(whenUnsatisfiable="ScheduleAnyway")
    assert not parsed(topologySpreadConstraints=soft).exclusive


def test_spread_counts_pods_of_the_same_revision_by_match_label_keys() -> None:
    keys = spread(matchLabelKeys=["pod-template-hash", "missing"])
    new = parsed(labels={"app": "a", "pod-template-hash": "2"}, topologySpreadConstraints=keys)
    (constraint,) = new.spread
    old = parsed(labels={"app": "a", "pod-template-hash": "1"})
    assert new.is_selected(constraint.selector)
    assert not old.is_selected(constraint.selector)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}, 1]}}},
        {"topologySpreadConstraints": spread(maxSkew="many")},
        {"topologySpreadConstraints": spread() * 21},
        {"affinity": anti_affinity(
            labelSelector={"matchExpressions": [
                {"key": "k", "operator": "In", "values": [str(n) for n in range(200)]}
            ]}
        )},
        {"containers": [{"ports": [{"hostPort": n} for n in range(1, 200)]}]},
    ],
)  # fmt: skip
def test_malformed_and_oversized_constraints_are_left_out(spec: dict[str, Any]) -> None:
    assert not parsed(**spec).exclusive


def test_pods_with_very_many_labels_have_no_constraints() -> None:
    assert parsed(labels={f"k{n}": "v" for n in range(65)}) is NO_CONSTRAINTS


@pytest.mark.parametrize(
    "reason",
    [
        "didn't match pod anti-affinity rules",
        "didn't satisfy existing pods anti-affinity rules",
        "didn't match pod topology spread constraints",
        "didn't have free ports for the requested pod ports",
    ],
)
def test_messages_about_other_pods_are_recognised(reason: str) -> None:
    assert names_other_pods(f"0/16 nodes are available: 1 node(s) {reason}, 15 elsewhere.")
    assert not names_other_pods("0/16 nodes are available: 16 Insufficient cpu.")
