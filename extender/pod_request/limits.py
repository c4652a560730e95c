"""Limits on the size of a Pod's request, so that one Pod does not delay all other Pods.

The extender's event loop compares each Pod with all Nodes, and keeps a snapshot of each Pod. The
admission webhook checks the limits. The parser also checks the limits, because a Pod may be older than
the webhook. docs/reference/annotations.md has the table of the limits.
"""

from collections.abc import Iterable, Mapping
from sys import getsizeof
from typing import Any

import orjson

from kubernetes_client.protocol import Manifest

MOST_NAMES = 1_000  # node names in one annotation: a few bytes may stand for any number of names
MOST_BRACKETS = 2_000  # lists of numbers in one annotation, each read in 2 us (`n[1][1]` has two)
MOST_TERMS = 100  # terms of the required node affinity
MOST_EXPRESSIONS = 500  # in all terms of the affinity, and in the node selector
MOST_TOLERATIONS = 200
MOST_DEMAND_BYTES = 64 * 1024  # of node selector, required node affinity and tolerations, as JSON
MOST_CONTAINERS = 500  # init containers included
MOST_AMOUNTS = 2_000  # requests and limits of all containers and of the Pod itself
MOST_CLAIMS = 64  # ResourceClaims and PersistentVolumeClaims, also of generic ephemeral volumes
MOST_KEPT_BYTES = 9 * 1024  # of memory for a Pod's job and for the compressed constraints on Nodes

_CLAIMING = frozenset({"persistentVolumeClaim", "ephemeral"})
_REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_DEMANDS = "nodeSelector, required node affinity and tolerations"


class BeyondLimitError(ValueError):
    """Raised if a value is above a limit. An example of the message is "10000 node names, and at most
    1000 are taken"."""


def beyond(things: str, many: int | str, most: int) -> str:
    """Returns the message about a value above a limit."""
    return f"{many} {things}, and at most {most} are taken"


def required_terms(spec: Manifest) -> list[Any] | None:
    """Returns the terms of a Pod's required node affinity; None if the Pod has no required node
    affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else _list(required.get("nodeSelectorTerms"))


def demands(spec: Manifest) -> bytes:
    """Returns a Pod's constraints on Nodes as JSON: the selector, the terms, the tolerations."""
    wanted = spec.get("nodeSelector") or {}, required_terms(spec), spec.get("tolerations") or ()
    try:
        return orjson.dumps(wanted)
    except TypeError:  # an integer is too large for Kubernetes, which will reject the Pod
        return b"[{},[],[]]"


def too_much_asked(spec: Manifest) -> tuple[str, ...]:
    """Returns a message for each limit that a Pod's spec exceeds."""
    return tuple(
        f"{where}: {beyond(things, many, most)}"
        for where, things, many, most in _counted(spec)
        if many > most
    )


def _counted(spec: Manifest) -> tuple[tuple[str, str, int, int], ...]:
    """Returns (place, things, number, limit) for each limit. If a list is above a limit, the items of
    the list are not examined."""
    selector, terms = spec.get("nodeSelector") or {}, required_terms(spec) or []
    few_terms = terms if len(terms) <= MOST_TERMS else ()
    expressions = len(selector) + sum(map(_expressions, few_terms))
    holders = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    few_holders = holders if len(holders) <= MOST_CONTAINERS else ()
    amounts = len(spec.get("overhead") or ()) + sum(map(_amounts, (spec, *few_holders)))
    claimed = sum(map(_is_claim, _list(spec.get("volumes")))) + len(_list(spec.get("resourceClaims")))
    tolerations = len(spec.get("tolerations") or ())
    return (
        (_REQUIRED, "terms", len(terms), MOST_TERMS),
        ("spec.nodeSelector and " + _REQUIRED, "expressions", expressions, MOST_EXPRESSIONS),
        ("spec.tolerations", "tolerations", tolerations, MOST_TOLERATIONS),
        (_DEMANDS, "bytes", len(demands(spec)), MOST_DEMAND_BYTES),
        ("spec.containers and spec.initContainers", "containers", len(holders), MOST_CONTAINERS),
        ("spec.volumes and spec.resourceClaims", "claims", claimed, MOST_CLAIMS),
        ("the Pod's requests and limits", "amounts", amounts, MOST_AMOUNTS),
    )


def _expressions(term: Any) -> int:
    if not isinstance(term, Mapping):
        return 0
    return len(_list(term.get("matchExpressions"))) + len(_list(term.get("matchFields")))


def _is_claim(volume: Any) -> bool:
    return isinstance(volume, Mapping) and not volume.keys().isdisjoint(_CLAIMING)


def _amounts(holder: Manifest) -> int:
    resources = holder.get("resources") or {}
    return len(resources.get("requests") or ()) + len(resources.get("limits") or ())


def _list(value: Any) -> list[Any]:
    """Returns the value if the value is a list, else an empty list. Before validation, a value may be of
    any type."""
    return value if isinstance(value, list) else []


def too_much_kept(texts: Iterable[str | bytes]) -> str | None:
    """Returns the problem with the size of a Pod's snapshot, if any. A character takes up to 4 bytes."""
    weight = sum(map(getsizeof, texts))
    if weight <= MOST_KEPT_BYTES:
        return None
    return f"annotations, {_DEMANDS}: {beyond('bytes of memory', weight, MOST_KEPT_BYTES)}"
