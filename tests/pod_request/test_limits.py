"""Tests of the limits of a Pod's request: the messages about larger requests, and the memory for a
request."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from sys import getsizeof
from typing import Any

import pytest

from extender.node_view.node_index import Nodes
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import ANYWHERE
from extender.pod_request.devices.claims import needs_of
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.pod_request.limits import (
    MOST_AMOUNTS,
    MOST_CLAIMS,
    MOST_CONTAINERS,
    MOST_DEMAND_BYTES,
    MOST_EXPRESSIONS,
    MOST_NAMES,
    MOST_TERMS,
    MOST_TOLERATIONS,
)
from extender.pod_request.pod import Pod, parse_pod
from extender.policy.rules import Choice, Policy, Rule, judged
from extender.record.events import ClusterObserved, PodObserved, Recovered, Tick
from extender.record.placeholder import Placeholder
from extender.record.rejections import NO_OFFER
from slurm_client.model import Partition
from tests.builders import PREFIX, TRANSLATION, Manifest, container, kube_node, pod_manifest
from tests.hostile import (
    ANNOTATED,
    DEMANDS,
    EXCESSES,
    OFFERS,
    WORDS,
    affinity,
    annotated,
    expression,
    names,
    noise,
)
from tests.placement.test_hostile_ledger import Driver
from wellknown.names import GATE

MOST_BYTES_OF_A_POD = 20_000
TEAM = Policy((Rule("team", ("*",), user=Choice(2001), fields={"qos": Choice(allowed=("low",))}),))


def problems(pod: Manifest) -> tuple[str, ...]:
    return parse_pod(pod, TRANSLATION).request.problems


def size(item: Any, seen: set[int]) -> int:
    """Returns the memory of an object, with all referenced objects. Each object counts once."""
    if id(item) in seen or isinstance(item, type) or item is None:
        return 0
    seen.add(id(item))
    parts: list[Any] = []
    if is_dataclass(item):
        parts = [getattr(item, each.name) for each in fields(item)]
    elif isinstance(item, Mapping):
        parts = [*item, *item.values()]
    elif isinstance(item, tuple | list | set | frozenset):
        parts = [*item]
    return getsizeof(item) + sum(size(part, seen) for part in parts)


def weight(item: Pod | Placeholder) -> int:
    return size(item, set())


@pytest.mark.parametrize("excess", EXCESSES)
def test_problem_of_a_pod_beyond_a_limit_names_the_limit(excess: str) -> None:
    told = problems(pod_manifest(**EXCESSES[excess]()))
    assert any(WORDS[excess] in each for each in told), told
    assert all(each.endswith("(docs/reference/annotations.md#limits)") for each in told)


def test_claims_of_a_refused_pod_are_read_only_up_to_the_limit() -> None:
    assert len(needs_of(pod_manifest(**EXCESSES["claims"]()))) == MOST_CLAIMS


def test_constraints_of_a_refused_pod_are_not_kept() -> None:
    for excess in EXCESSES.values():
        assert parse_pod(pod_manifest(**excess()), TRANSLATION).request.constraints == ANYWHERE


EXISTS, NAMED = expression("a", "Exists"), expression("metadata.name", "In", "a")
CONTAINER = container({"cpu": "1", "memory": "1Gi"})
BYTES_AROUND = len(b'[{"a":""},null,[]]')
LIMITS: Mapping[str, tuple[int, Callable[[int], Manifest]]] = {
    "terms": (MOST_TERMS, lambda n: affinity(*[{"matchExpressions": [EXISTS]}] * n)),
    "expressions": (MOST_EXPRESSIONS, lambda n: affinity({"matchExpressions": [EXISTS] * n})),
    "fields": (MOST_EXPRESSIONS, lambda n: affinity({"matchFields": [NAMED] * n})),
    "labels": (MOST_EXPRESSIONS, lambda n: {"nodeSelector": {f"label-{i}": "a" for i in range(n)}}),
    "labels and expressions": (
        MOST_EXPRESSIONS,
        lambda n: affinity({"matchExpressions": [EXISTS] * (n - 1)}) | {"nodeSelector": {"a": "b"}},
    ),
    "tolerations": (MOST_TOLERATIONS, lambda n: {"tolerations": [{"operator": "Exists"}] * n}),
    "bytes": (MOST_DEMAND_BYTES, lambda n: {"nodeSelector": {"a": "x" * (n - BYTES_AROUND)}}),
    "containers": (MOST_CONTAINERS, lambda n: {"containers": [CONTAINER] * n}),
    "claims": (
        MOST_CLAIMS,
        lambda n: {
            "volumes": [
                {"name": "a", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "b", "emptyDir": {}},
                *({"name": f"v{i}", "persistentVolumeClaim": {"claimName": "c"}} for i in range(n - 2)),
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        },
    ),
    "amounts": (
        MOST_AMOUNTS,
        lambda n: {
            "containers": [CONTAINER],
            "overhead": {f"example.com/{i}": "1" for i in range(n - 2)},
        },
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_amount_at_a_limit_is_accepted_and_one_more_is_refused(limit: str) -> None:
    most, spec = LIMITS[limit]
    alone = {PREFIX + "exclusive": "none"}  # device claims need a whole node
    assert problems(pod_manifest(annotations=alone, **spec(most))) == ()
    (told,) = problems(pod_manifest(annotations=alone, **spec(most + 1)))
    assert f"{most + 1} " in told
    assert f"at most {most} are taken" in told


def test_pod_beyond_several_limits_has_a_problem_for_each() -> None:
    both = EXCESSES["tolerations"]() | EXCESSES["expressions"]()
    assert len(problems(pod_manifest(**both))) == 3  # the third: too many bytes


CLOUD = [
    f"gke-prod-pool-{n % 7}-{noise(n % 7, 8)}-{noise(n, 4)}.c.project.internal" for n in range(1000)
]


@pytest.mark.parametrize(
    "spec",
    [
        affinity({"matchExpressions": [expression("kubernetes.io/hostname", "NotIn", *names(1000))]}),
        affinity({"matchExpressions": [expression("kubernetes.io/hostname", "In", *CLOUD)]}),
        {"tolerations": [{"key": f"team-{n}", "operator": "Exists"} for n in range(100)]},
        {"initContainers": [container({"cpu": "1"})] * 100},
    ],
)
def test_a_reasonable_pod_is_not_refused(spec: Manifest) -> None:
    listed = {PREFIX + "excluded-nodes": "gpu[0001-1000]", PREFIX + "comment": "nightly run"}
    assert problems(pod_manifest(annotations=listed, **spec)) == ()


def test_pod_anti_affinity_has_no_limit() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "x" * 1000}}}
    others = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * 500}}
    assert problems(pod_manifest(affinity=others)) == ()


def test_required_nodes_above_the_limit_are_a_problem() -> None:
    listed = {PREFIX + "required-nodes": f"n[1-{MOST_NAMES + 1}]"}
    (told,) = problems(pod_manifest(annotations=listed))
    assert f"required-nodes: {MOST_NAMES + 1} node names, and at most {MOST_NAMES} are taken" in told


def test_pod_refused_for_its_size_keeps_its_user_and_cpus() -> None:
    asked = dict(ANNOTATED["wide texts"]) | {"user-id": "2001"}
    request = parse_pod(annotated(asked), TRANSLATION).request
    assert (request.job.user_id, request.job.cpus, request.job.comment) == (2001, 1, None)


HEAVY_ANNOTATIONS = ("unknown names", "wrong values")
HEAVY_SPECS = ("all names that there are", "noise", "numbers")
"""A Pod uses the most memory with an item of HEAVY_ANNOTATIONS or HEAVY_SPECS."""


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        (annotations, spec)
        for annotations in ANNOTATED
        for spec in (*EXCESSES, *DEMANDS)
        if annotations in HEAVY_ANNOTATIONS or spec in HEAVY_SPECS
    ],
)
def test_no_pod_takes_more_than_20_kb_of_memory(annotations: str, spec: str) -> None:
    demanded = EXCESSES[spec]() if spec in EXCESSES else DEMANDS[spec](1)
    manifest = annotated(ANNOTATED[annotations], **demanded)
    manifest["status"] = {"phase": "Failed", "reason": "\U0001f600" * 10_000}
    pod = parse_pod(manifest, TRANSLATION)
    assert weight(pod) <= MOST_BYTES_OF_A_POD
    assert weight(judged(pod, TEAM, TRANSLATION)) <= MOST_BYTES_OF_A_POD


@pytest.mark.parametrize("offer", OFFERS)
def test_the_record_of_a_retried_pod_takes_no_more_than_20_kb(offer: str) -> None:
    """kube-scheduler has found a thousand Nodes for the Pod."""
    driver = Driver()
    pod = parse_pod(pod_manifest(gates=(), annotations=OFFERS[offer]), TRANSLATION)
    named = Nodes({f"n{n}": kube_node(f"n{n}") for n in range(1_000)})
    main = Partition("main", tuple(named), default=True)
    driver.tell(ClusterObserved(ClusterView(named, {"main": main}, cluster=driver.ledger.rules.cluster)))
    driver.tell(Recovered((pod,), ()), Tick())
    (record,) = driver.ledger.placeholders
    assert record.rejections.offered[1] > driver.now
    assert weight(record) <= MOST_BYTES_OF_A_POD
    driver.now += driver.ledger.rules.offer_validity + 1
    driver.tell(PodObserved(pod._replace(resource_version="101")))
    (record,) = driver.ledger.placeholders
    assert record.rejections.offered == NO_OFFER


def test_ordinary_pod_takes_less_than_3_kb_of_memory() -> None:
    ordinary = pod_manifest(annotations={PREFIX + "partition": "main"})
    assert weight(parse_pod(ordinary, TRANSLATION)) < 3_000


def test_gate_of_the_extender_is_found_after_a_thousand_other_gates() -> None:
    gates = [*(f"example.com/{n}" for n in range(1000)), GATE]
    pod = parse_pod(pod_manifest(gates=gates), TRANSLATION)
    assert pod.gated
    assert pod.other_gates == tuple(gates[:4])


def test_feasible_nodes_are_stored_compressed() -> None:
    offer = FeasibleNodes(7, tuple(names(1000)))
    assert {*offer.names} == {*names(1000)}
    assert getsizeof(offer.nodes[0]) < 200
    assert FeasibleNodes.parse(offer.annotations()) == offer


def test_feasible_nodes_are_dropped_if_the_names_are_too_long() -> None:
    assert FeasibleNodes(7, tuple(noise(n, 60) for n in range(1000))) == FeasibleNodes(7)


@pytest.mark.parametrize("text", ["7 n[1-999999999]", "7 n[", "7 [9-1]"])
def test_malformed_feasible_nodes_annotation_names_no_node(text: str) -> None:
    offer = FeasibleNodes.parse({"slurm-extender.io/feasible-nodes": text})
    assert offer is not None
    assert offer.names == ()


def test_equal_constraints_have_the_same_signature() -> None:
    for demand in DEMANDS.values():
        first, again, other = (parse_pod(pod_manifest(**demand(n)), TRANSLATION) for n in (1, 1, 2))
        assert first.request.constraints == again.request.constraints
        assert first.request.constraints.signature == again.request.constraints.signature
        assert first.request.constraints.signature != other.request.constraints.signature
