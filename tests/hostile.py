"""Pods whose requests are as many or as large as kube-apiserver accepts.

Some of these Pods are within the extender's limits, but as expensive for the extender as possible. Other
Pods are far beyond the limits.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from time import process_time
from typing import Any

from tests.builders import PREFIX, Manifest, container, pod_manifest
from tests.clock import CpuClock
from wellknown.names import ATTEMPT, DOMAIN, FEASIBLE_NODES, GRANTED, JOB_ID, NODE

WIDE = "\U0001f600"
"""A character of four bytes. Python stores a text with such a character in four bytes per character."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def least(measured: Callable[[], object], enough: float) -> float:
    """Returns the smallest CPU time of a call, in seconds, in up to six measurements. Other work of this
    process only adds time, so the smallest measurement is the best. Stops at the first result below
    `enough`. The garbage collector is off.

    The first measurement does not consider how slow the machine is, because `CpuClock` can only lower a
    result.
    """
    gc.disable()
    try:
        began = process_time()
        measured()
        took = process_time() - began
        for _ in range(5):
            if took < enough:
                break
            clock = CpuClock()
            measured()
            took = min(took, clock.read())
    finally:
        gc.enable()
    return took


def noise(about: object, length: int) -> str:
    """Returns a text that hardly compresses. Each value of `about` gives another text."""
    text = "".join(sha256(f"{about}.{n}".encode()).hexdigest() for n in range(length // 64 + 1))
    return text[:length]


def names(number: int) -> list[str]:
    """Returns names of Nodes. Nodes of these names may be missing in the cluster of the test."""
    return [f"node-{n}" for n in range(number)]


def expression(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def affinity(*terms: Manifest) -> Manifest:
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def _in_terms(expressions: Iterable[Manifest], terms: int = 100) -> Manifest:
    every = list(expressions)
    return affinity(*({"matchExpressions": every[n::terms]} for n in range(terms)))


def _selector(labels: int, seed: int) -> Manifest:
    return {"nodeSelector": {f"label-{n}": f"{seed}" for n in range(labels)}}


def _tolerations(number: int, seed: int) -> Manifest:
    each = ({"key": "team", "value": f"{seed}.{n}", "effect": "NoSchedule"} for n in range(number))
    return {"tolerations": list(each)}


DEMANDS: Mapping[str, Callable[[int], Manifest]] = {
    "terms, as many as may be": lambda seed: _in_terms(
        expression(f"label-{n % 40}", "NotIn", f"{seed}", f"v{n % 7}") for n in range(500)
    ),
    "labels that every Node has": lambda seed: _in_terms(
        [expression("kubernetes.io/hostname", "Exists"), expression("x", "NotIn", f"{seed}")] * 250
    ),
    "labels that no Node has": lambda seed: _in_terms(
        expression(f"unheard-of-{seed}-{n}", "DoesNotExist") for n in range(500)
    ),
    "numbers": lambda seed: _in_terms(
        expression("rank", "Gt" if n % 2 else "Lt", f"{seed + 11 * n}") for n in range(500)
    ),
    "names that are no numbers": lambda seed: _in_terms(
        expression("kubernetes.io/hostname", "Gt", f"{seed + n}") for n in range(500)
    ),
    "all names that there are": lambda seed: _in_terms(
        (expression("kubernetes.io/hostname", "NotIn", *names(5000)[seed::5]) for _ in range(5)), 1
    ),
    "the same names again and again": lambda seed: _in_terms(
        expression("kubernetes.io/hostname", "In", f"node-{seed}", *names(5)) for _ in range(500)
    ),
    "every other Node": lambda seed: affinity(
        *({"matchExpressions": [expression("parity", "In", f"{(seed + n) % 2}")]} for n in range(2))
    ),
    "fields": lambda seed: affinity(
        *({"matchFields": [expression("metadata.name", "In", f"node-{seed + n}")]} for n in range(100))
    ),
    "a selector": lambda seed: _selector(500, seed),
    "tolerations": lambda seed: _tolerations(200, seed),
    "noise": lambda seed: affinity(
        {"matchExpressions": [expression("x", "NotIn", *(noise(seed + n, 60) for n in range(100)))]}
    ),
}
"""By name: a function that makes the spec of a Pod within the limits. Each argument of the function
gives another spec."""


def _containers(
    number: int, requests: Callable[[int], Mapping[str, str]], *, sidecar: bool = False
) -> Manifest:
    return {"initContainers": [container(requests(n), sidecar=sidecar) for n in range(number)]}


EXCESSES: Mapping[str, Callable[[], Manifest]] = {
    "terms": lambda: _in_terms((expression(f"k{n}", "Exists") for n in range(20_000)), 20_000),
    "expressions": lambda: _in_terms((expression(f"k{n}", "Exists") for n in range(35_000)), 1),
    "values": lambda: _in_terms([expression("k", "In", *(f"value-{n}" for n in range(90_000)))], 1),
    "fields": lambda: affinity(
        {"matchFields": [expression("metadata.name", "In", "a")] * 20_000},
    ),
    "selector": lambda: _selector(50_000, 1),
    "tolerations": lambda: _tolerations(25_000, 1),
    "values that are noise": lambda: affinity(
        {"matchExpressions": [expression("x", "NotIn", *(noise(n, 60) for n in range(1_000)))]}
    ),
    "containers": lambda: _containers(12_000, lambda _: {"cpu": "1", "memory": "1Gi"}),
    "sidecars": lambda: _containers(10_000, lambda n: {f"example.com/{n}": "1"}, sidecar=True),
    "claims": lambda: {
        "volumes": [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"claim-{n}"}}
            for n in range(15_000)
        ]
    },
    "amounts": lambda: _containers(1, lambda _: {f"example.com/{n}": f"{n}" for n in range(50_000)}),
}
"""By name: the spec of a Pod far beyond the limits. Each spec has a megabyte or more, and etcd accepts
one and a half megabytes."""
WORDS: Mapping[str, str] = {
    "terms": "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: 20000 terms, and at most 100",
    "expressions": "35000 expressions, and at most 500 are taken",
    "values": "bytes, and at most 65536 are taken",
    "fields": "20000 expressions, and at most 500 are taken",
    "selector": "spec.nodeSelector and spec.affinity.nodeAffinity.",
    "tolerations": "spec.tolerations: 25000 tolerations, and at most 200 are taken",
    "values that are noise": "bytes of memory, and at most 9216 are taken",
    "containers": "containers and spec.initContainers: 12001 containers, and at most 500 are taken",
    "sidecars": "10001 containers, and at most 500 are taken",
    "claims": "spec.volumes and spec.resourceClaims: 15000 claims, and at most 64 are taken",
    "amounts": "amounts, and at most 2000 are taken",
}
"""For each spec of EXCESSES: a part of the message with which the extender rejects the Pod."""

_TEXTS = ("account", "comment", "constraints", "partition", "prefer", "qos", "reservation")
_OTHERS = ("excluded-nodes", "required-nodes", "exclusive", "group-id", "user-id", "priority", "timeout")
ANNOTATED: Mapping[str, Mapping[str, str]] = {
    "long texts": dict.fromkeys(_TEXTS, "x" * 1024),
    "as many wide texts as are taken": dict.fromkeys(_TEXTS[:2], "x" * 1000 + WIDE),
    "wide texts": dict.fromkeys(_TEXTS, "x" * 1020 + WIDE),
    "a wide path": {"current-working-dir": "/" + "x" * 4090 + WIDE},
    "wrong values": dict.fromkeys((*_TEXTS, *_OTHERS), (WIDE + "é中\0") * 1000),
    "lists of nodes": dict.fromkeys(_OTHERS[:2], "n[1-1000]"),
    "lists of names": dict.fromkeys(_OTHERS[:2], ",".join(noise(n, 120) for n in range(1000))),
    "far too many nodes": dict.fromkeys(_OTHERS[:2], "n[1-10000]"),
    "many dimensions": dict.fromkeys(_OTHERS[:2], "a[1-9]" * 3 + "x" * 200),
    "unknown names": {f"unknown-{n}-" + "x" * 200: "" for n in range(1000)},
    "near misses": {f"partitio{n}": "" for n in range(10_000)},
}
"""By name: annotations that are as expensive or as misleading as possible, without the prefix of their
keys."""


def annotated(annotations: Mapping[str, str], **spec: Any) -> Manifest:
    """Returns a Pod with these annotations, with the forged annotations FORGED, and with the fields
    BESIDES."""
    return pod_manifest(
        name="p" * 253,
        annotations={PREFIX + name: value for name, value in annotations.items()} | FORGED,
        **(BESIDES | spec),
    )


FORGED = {
    FEASIBLE_NODES: "7 " + " ".join(noise(n, 240) for n in range(12)),
    JOB_ID: "7",
    NODE: "n" * 100_000,
    GRANTED: "g" * 100_000,
    DOMAIN + "x": "x" * 100_000,
}
OFFERS: Mapping[str, Mapping[str, str]] = {
    "many": {ATTEMPT: "2", FEASIBLE_NODES: "0 n[0-999]"},
    "long names": {ATTEMPT: "2", FEASIBLE_NODES: "0 " + "n" * 200 + "[0-999]"},
    "as many other names as are kept": {
        ATTEMPT: "2",
        FEASIBLE_NODES: "0 " + ",".join(noise(n, 24) for n in range(120)),
    },
    "malformed": {ATTEMPT: "2", FEASIBLE_NODES: "0 n[1-999999999]"},
}
"""By name: annotations of a Pod after a first attempt without success, with the Pod's feasible Nodes."""
BESIDES = {
    "schedulingGates": [{"name": f"example.com/{n}-" + "g" * 200} for n in range(1000)],
    "serviceAccountName": "s" * 253,
    "priorityClassName": "c" * 253,
}
