"""What Slurm refuses of what a Pod asks for, as its author is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.equipment import equipment
from extender.placement.asked import rejected_values
from extender.policy.rules import Choice, Policy, Rule, judged
from extender.record.config import Context, PlacementConfig
from extender.record.events import Failure, Outcome, Remedy, Submit
from extender.request.job_request import Request
from slurm_client.model import Node, Partition
from tests.builders import PREFIX, TRANSLATION, pod, view
from tests.placement.ledger_world import REQUEST, World

PARTITIONS = (
    Partition("main", ("n1",), default=True, max_time_minutes=60),
    Partition("gpu", ("n1",)),
)
NODES = (
    Node(
        "n1",
        frozenset(),
        32,
        256_000,
        "gpu:h100:4(S:0-1)",
        features=("h100",),
        partitions=("main", "gpu"),
    ),
    Node("n2", frozenset(), 16, 524_288, features=("a100", "ib"), partitions=("main",)),
    Node("n3", frozenset(), 99, 999_000, partitions=("spare",)),
)
AT = Context(0.0, PlacementConfig(), view(partitions=PARTITIONS), equipment(NODES))


def told(number: int | None, request: Request | None = None, at: Context = AT, **asked: Any) -> str:
    request = request or replace(REQUEST, job=replace(REQUEST.job, **asked))
    return rejected_values(Failure(Remedy.CHANGE, "no", number=number), request, at)


@pytest.mark.parametrize(
    ("number", "asked", "words"),
    [
        (2000, {"partition": "gpus"}, f"; annotation {PREFIX}partition: 'gpus'; Slurm has main, gpu"),
        (2045, {"account": "new", "user_id": 7}, f"; annotation {PREFIX}account: 'new', for user 7"),
        (2045, {"user_id": 7}, f"; no annotation {PREFIX}account: Slurm's default, for user 7"),
        (2066, {"qos": "fast"}, f"; annotation {PREFIX}qos: 'fast'"),
        (
            2029,
            {"constraints": "h200"},
            (
                f"; annotation {PREFIX}constraints: 'h200';"
                " the nodes of partition main have the features a100, h100, ib"
            ),
        ),
        (
            2133,
            {"prefer": "h200", "partition": "spare"},
            f"; annotation {PREFIX}prefer: 'h200'; the nodes of partition spare have no features",
        ),
        (
            2029,
            {"constraints": "h200", "partition": "unknown,main"},
            f"; annotation {PREFIX}constraints: 'h200'",
        ),
        (2053, {"reservation": "r"}, f"; annotation {PREFIX}reservation: 'r'"),
        (2018, {"required_nodes": ("n8", "n9")}, f"; annotation {PREFIX}required-nodes: 'n8,n9'"),
        (
            2051,
            {"time_limit_minutes": 90},
            (
                f"; annotation {PREFIX}timeout, or activeDeadlineSeconds: 90 minutes;"
                " partition main allows 60 minutes"
            ),
        ),
        (2014, {"account": "new"}, ""),
        (None, {"account": "new"}, ""),
    ],
)
def test_a_value_is_named_with_the_annotation_that_says_so(
    number: int | None, asked: dict[str, Any], words: str
) -> None:
    assert told(number, **asked) == words


def test_a_priority_class_is_named_where_it_says_so() -> None:
    job = replace(REQUEST.job, qos="fast")
    request = replace(REQUEST, job=job, by_class={"qos": "urgent"})
    assert told(2066, request) == "; priorityClassName urgent, for the qos: 'fast'"


def test_the_policy_is_named_where_it_says_so() -> None:
    rule = Rule("all", ("*",), user=Choice(7), fields={"account": Choice("new")})
    request = judged(pod(), Policy((rule,)), TRANSLATION).request
    assert told(2045, request) == "; the policy of slurm-extender, for the account: 'new', for user 7"


def test_of_very_many_partitions_the_first_are_named() -> None:
    many = view(partitions=tuple(Partition(f"p{n}", ()) for n in range(30)))
    assert told(2000, at=replace(AT, view=many)).endswith("p8, p9 and 20 more")


def test_of_very_many_features_the_first_are_named() -> None:
    many = Node(
        "n1", frozenset(), 1, 1, features=tuple(f"f{n}" for n in range(30)), partitions=("main",)
    )
    words = told(2029, at=replace(AT, equipment=equipment([many])), constraints="h200")
    assert words.endswith("the features f0, f1, f10, f11, f12, f13, f14, f15, f16, f17 and 20 more")


def test_what_no_node_has_is_told_beside_the_most_that_one_has() -> None:
    large: dict[str, Any] = {"cpus": 64, "memory_mb": 1024, "gres": (("gpu", 8),)}
    assert told(2014, **large) == (
        "; it asks for 64 CPUs, 1 GiB, 8 GPUs; no node of partition main has more than 32 CPUs, 4 GPUs"
    )
    assert told(2014, partition="main,spare", **large).endswith(
        "; no node of partition main,spare has more than 4 GPUs"
    )
    assert told(2014, **large | {"cpus": 1, "gres": ()}) == ""
    assert told(2014, at=replace(AT, equipment={}), **large) == ""


@pytest.mark.parametrize(
    ("asked", "number", "words"),
    [
        ({"partition": "nowhere"}, 2000, f"annotation {PREFIX}partition: 'nowhere'; Slurm has main"),
        (
            {"cpus": 64, "memory_mb": 1024},
            2014,
            "it asks for 64 CPUs, 1 GiB; no node of partition main has more than 32 CPUs",
        ),
    ],
)
def test_a_pods_author_is_told_the_value_that_slurm_refuses(
    asked: dict[str, Any], number: int, words: str
) -> None:
    world = World()
    uid = world.create_pod(request=replace(REQUEST, job=replace(REQUEST.job, **asked)))
    world.hear()
    (submit,) = world.effects
    assert isinstance(submit, Submit)
    world.effects.clear()
    world.tell(Outcome(submit, Failure(Remedy.CHANGE, "no", number=number), AT.equipment))
    (record,) = (each for each in world.ledger.placeholders if each.uid == uid)
    assert record.cause is not None
    assert record.cause.message == f"Slurm refuses the job: no; {words}"
