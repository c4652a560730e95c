"""Tests of causes. A cause is plain data: a kind, and facts. Each caller gives exactly the facts that
the sentence of the kind needs."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from string import Formatter
from typing import Any

import orjson
import pytest

from deploy.local.layout import CHECKOUT
from extender.explain.cause import Cause, Due, Kind, Step, codes
from extender.explain.message import _STEPS, text
from extender.explain.sentences import SENTENCES, sentence
from extender.record.ends import ENDS, OTHER_END
from tests.placement.test_waiting import JOB, told

COPIED = {Kind.HELD: Kind.WAITS, Kind.HELD_TOO_LARGE: Kind.WAITS_TOO_LARGE}
"""Kinds that `waiting.why_held` makes from another cause, with the facts of that cause. The value is the
kind of that cause."""
OF_ENDS = {*ENDS.values(), OTHER_END}
WITHOUT_FACTS = {Kind.POD_DELETED, Kind.POD_BOUND_ELSEWHERE, Kind.POD_MISSED}
"""Kinds without facts, which callers pass to `on_pod.after_end`."""


def makers() -> dict[Kind, set[frozenset[str]]]:
    """Returns, for each kind, the names of the facts in each call that makes a cause of the kind."""
    made: dict[Kind, set[frozenset[str]]] = defaultdict(set)
    for path in sorted((CHECKOUT / "extender").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            kind = _kind(call)
            if isinstance(call, ast.Call) and kind is not None:
                made[kind].add(frozenset(str(each.arg) for each in call.keywords))
    for kind in OF_ENDS:
        made[kind].add(frozenset({"job", "state"}))
    for kind in WITHOUT_FACTS:
        made[kind].add(frozenset())
    for kind, copied in COPIED.items():
        made[kind] |= made[copied]
    return made


def _kind(call: ast.AST) -> Kind | None:
    """Returns the kind in a call like `Cause.of(Kind.WAITS, ...)`."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="Cause"), attr="of"),
            args=[ast.Attribute(value=ast.Name(id="Kind"), attr=name)],
        ):
            return Kind[name]
    return None


def needed(kind: Kind) -> frozenset[str]:
    """Returns the names of the facts in the sentence of a kind."""
    template = SENTENCES[kind]
    if callable(template):
        return frozenset(inspect.signature(template).parameters)
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name)


MAKERS = makers()


@pytest.mark.parametrize("kind", Kind)
def test_callers_give_the_facts_of_the_sentence_of_each_kind(kind: Kind) -> None:
    assert MAKERS[kind] == {needed(kind)}


def test_each_kind_and_step_has_a_sentence() -> None:
    assert list(SENTENCES) == list(Kind)
    assert set(_STEPS) == set(Step)


def values(facts: Any) -> Iterator[Any]:
    if isinstance(facts, Cause):
        for _, fact in facts.facts:
            yield from values(fact)
    elif isinstance(facts, tuple):
        for fact in facts:
            yield from values(fact)
    else:
        yield facts


def read(data: Any) -> Any:
    """Returns a cause, or a fact, from its JSON."""
    if isinstance(data, list):
        return tuple(map(read, data))
    if not isinstance(data, dict):
        return data
    return Cause(
        Kind(data["kind"]),
        data["reason"],
        read(data["facts"]),
        tuple(Due(Step(each["step"]), each["at"], each["node"]) for each in data["dues"]),
        read(data["aside"]),
        read(data["outlook"]),
    )


CAUSES = {
    "a job that waits": told(start_time=JOB.submit_time),
    "a job that is too large": told(reason="PartitionConfig"),
    "next steps": replace(
        Cause.of(Kind.NODE_REFUSED, node="n1", message="1 Insufficient rdma/ib"),
        dues=(Due(Step.NOT_BEFORE, 7.5), Due(Step.NODE_ALLOWED, 9.0, "n1")),
    ),
    "an aside": replace(
        Cause.of(Kind.JOB_CANCELLED, job=7, state="CANCELLED"), aside=Cause.of(Kind.MANY_EVICTIONS)
    ),
    "the numbers of an error": replace(
        Cause.of(Kind.UPDATE_REFUSED, job=7, message="no"), outlook=codes("HTTP 500")
    ),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_causes_are_plain_data(cause: Cause) -> None:
    again = read(orjson.loads(orjson.dumps(cause)))
    assert again == cause
    assert (again.outlook, text(again)) == (cause.outlook, text(cause))
    assert hash(again) == hash(cause)
    assert {type(each) for each in values(cause)} <= {str, int, float, bool, type(None)}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("n1", "n3"), "n1, n3"),
        (tuple(f"gpu{number:02}" for number in range(1, 65)), "gpu[01-64]"),
    ],
)
def test_a_long_list_of_nodes_is_shortened(names: tuple[str, ...], shown: str) -> None:
    for kind, others in ((Kind.NODES_UNKNOWN, {}), (Kind.GRANT_INDIVISIBLE, {"pods": 512})):
        assert sentence(Cause.of(kind, nodes=names, **others)).startswith(f"Slurm chose {shown}, ")
