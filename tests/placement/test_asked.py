"""Tests of the messages about requests that Slurm refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.explain.message import text
from extender.explain.sentences import sentence
from extender.node_view.node_hardware import hardware
from extender.placement.transitions.asked import refused
from extender.pod_request.job_request import Request
from extender.policy.rules import Choice, Policy, Rule, judged
from extender.record.config import Context, PlacementConfig
from extender.record.events import Failure, Outcome, Remedy
from slurm_client.model import Node, Partition
from tests.builders import PREFIX, TRANSLATION, pod, view
from tests.placement.ledger_world import REQUEST, World

PARTITIONS = (Partition("main", ("n1",), default=True, max_time_minutes=60), Partition("gpu", ("n1",)))
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
AT = Context(0.0, PlacementConfig(), view(partitions=PARTITIONS), hardware(NODES))


def told(number: int | None, request: Request | None = None, at: Context = AT, **asked: Any) -> str:
    request = request or replace(REQUEST, job=replace(REQUEST.job, **asked))
    why = refused(Failure(Remedy.CHANGE, "no", number=number), request, at)
    return sentence(why.cause).removesuffix("Slurm refuses the job: no").removesuffix("; ")


@pytest.mark.parametrize(
    ("number", "asked", "words"),
    [
        (2000, {"partition": "gpus"}, f'annotation {PREFIX}partition: "gpus"; Slurm has main, gpu'),
        (2045, {"account": "new", "user_id": 7}, f'annotation {PREFIX}account: "new", for user 7'),
        (2045, {"user_id": 7}, f"no annotation {PREFIX}account: Slurm's default, for user 7"),
        (2066, {"qos": "fast"}, f'annotation {PREFIX}qos: "fast"'),
        (
            2029,
            {"constraints": "h200"},
            (
                f'annotation {PREFIX}constraints: "h200";'
                " the nodes of partition main have the features a100, h100, ib"
            ),
        ),
        (
            2133,
            {"prefer": "h200", "partition": "spare"},
            f'annotation {PREFIX}prefer: "h200"; the nodes of partition spare have no features',
        ),
        (
            2029,
            {"constraints": "h200", "partition": "unknown,main"},
            f'annotation {PREFIX}constraints: "h200"',
        ),
        (2053, {"reservation": "r"}, f'annotation {PREFIX}reservation: "r"'),
        (2018, {"required_nodes": ("n8", "n9")}, f'annotation {PREFIX}required-nodes: "n8,n9"'),
        (
            2051,
            {"time_limit_minutes": 90},
            (
                f"annotation {PREFIX}timeout, or activeDeadlineSeconds: 90 minutes;"
                " partition main allows 60 minutes"
            ),
        ),
        (2014, {"account": "new"}, ""),
        (None, {"account": "new"}, ""),
    ],
)
def test_message_names_the_annotation_of_the_refused_value(
    number: int | None, asked: dict[str, Any], words: str
) -> None:
    assert told(number, **asked) == words


def test_message_names_the_priority_class_that_set_the_value() -> None:
    job = replace(REQUEST.job, qos="fast")
    request = replace(REQUEST, job=job, by_class={"qos": "urgent"})
    assert told(2066, request) == 'priorityClassName urgent, for the qos: "fast"'


def test_message_names_the_policy_that_set_the_value() -> None:
    rule = Rule("all", ("*",), user=Choice(7), fields={"account": Choice("new")})
    request = judged(pod(), Policy((rule,)), TRANSLATION).request
    assert told(2045, request) == 'the policy of slurm-extender, for the account: "new", for user 7'


def test_message_names_only_the_first_of_many_partitions() -> None:
    many = view(partitions=tuple(Partition(f"p{n}", ()) for n in range(30)))
    assert told(2000, at=replace(AT, view=many)).endswith("p8, p9 and 20 more")


def test_message_names_only_the_first_of_many_features() -> None:
    many = Node(
        "n1", frozenset(), 1, 1, features=tuple(f"f{n}" for n in range(30)), partitions=("main",)
    )
    words = told(2029, at=replace(AT, hardware=hardware([many])), constraints="h200")
    assert words.endswith("the features f0, f1, f10, f11, f12, f13, f14, f15, f16, f17 and 20 more")


def large(at: Context = AT, number: int = 2014, **asked: Any) -> tuple[str, str]:
    """Returns the reason and the message of a refusal."""
    request = replace(REQUEST, job=replace(REQUEST.job, **asked))
    failure = Failure(Remedy.CHANGE, "no", codes="Slurm error 2014, HTTP 422", number=number)
    why = refused(failure, request, at)
    return why.cause.reason, text(why.shown("TooLarge"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"cpus": 64},
            (
                "no node of partition main has more than 32 CPUs; the Pod requests 64."
                " Other partitions: spare (99)"
            ),
        ),
        (
            {"memory_mb": 700 * 1024},
            (
                "no node of partition main has more than 512 GiB; the Pod requests 700 GiB."
                " Other partitions: spare (999000 MiB)"
            ),
        ),
        ({"gres": (("gpu", 8),)}, "no node of partition main has more than 4 GPUs; the Pod requests 8"),
        (
            {"cpus": 64, "gres": (("gpu:h100", 8),)},
            (
                "no node of partition main has more than 32 CPUs, 4 GPUs (h100);"
                " the Pod requests 64 CPUs, 8 GPUs (h100)"
            ),
        ),
        (
            {"cpus": 128, "partition": "main,spare"},
            "no node of partition main,spare has more than 99 CPUs; the Pod requests 128",
        ),
        ({"nodes": 2, "partition": "gpu"}, "partition gpu has 1 node; the Pod requests 2"),
    ],
    ids=["CPUs", "memory", "GPUs", "CPUs and GPUs", "list of partitions", "nodes"],
)
def test_message_of_a_too_large_pod_states_what_nodes_have(asked: dict[str, Any], words: str) -> None:
    assert large(**asked) == ("TooLarge", f"{words} (Slurm error 2014, HTTP 422)")


def test_cause_keeps_ten_of_many_partitions() -> None:
    """The extender keeps a cause for each of thousands of rejected Pods, so each cause must be short."""
    names = tuple([f"p{number}" for number in range(300)])
    main = Node("n1", frozenset(), 8, 9999, partitions=("main",))
    nodes = [main, Node("n2", frozenset(), 99, 9999, partitions=names)]
    at = Context(0.0, PlacementConfig(), view(partitions=PARTITIONS), hardware(nodes))
    request = replace(REQUEST, job=replace(REQUEST.job, cpus=64))
    cause = refused(Failure(Remedy.CHANGE, "no", number=2014), request, at).cause
    assert len(dict(cause.facts)["others"]) == 10  # type: ignore[arg-type]
    assert large(at, cpus=64)[1].endswith("p9 (99) and 290 more (Slurm error 2014, HTTP 422)")


@pytest.mark.parametrize(
    ("asked", "reason", "words"),
    [
        (
            {"cpus": 4, "partition": "small"},
            "TooLarge",
            (
                "partition small allows a job 2 CPUs on a node; the Pod requests 4."
                " Other partitions: main (8)"
            ),
        ),
        (
            {"memory_mb": 4096, "partition": "small"},
            "TooLarge",
            (
                "partition small allows a job 2000 MiB on a node; the Pod requests 4 GiB."
                " Other partitions: main (16 GiB)"
            ),
        ),
        (
            {"cpus": 16, "partition": "small"},
            "TooLarge",
            "no node of partition small has more than 8 CPUs; the Pod requests 16",
        ),
        (
            {"partition": "pairs"},
            "Invalid",
            (
                "each job of partition pairs has at least 2 nodes; the Pod requests 1."
                " Other partitions: main, small"
            ),
        ),
    ],
    ids=["CPUs", "memory", "nodes are smaller still", "fewest nodes"],
)
def test_message_states_a_limit_of_the_partition(asked: dict[str, Any], reason: str, words: str) -> None:
    small = Partition("small", ("n1",), max_cpus_per_node=2, max_memory_mb=2000)
    partitions = (Partition("main", ("n1",)), small, Partition("pairs", ("n1", "n2"), min_nodes=2))
    nodes = [
        Node(name, frozenset(), 8, 16_384, partitions=tuple([each.name for each in partitions]))
        for name in ("n1", "n2")
    ]
    at = Context(0.0, PlacementConfig(), view(partitions=partitions), hardware(nodes))
    assert large(at, 2006, **asked) == (reason, f"{words} (Slurm error 2014, HTTP 422)")


def test_reason_is_too_large_only_if_known_nodes_are_too_small() -> None:
    assert large(cpus=1)[0] == "Invalid"
    assert large(replace(AT, hardware={}), cpus=64)[0] == "Invalid"
    assert large(number=2000, cpus=64)[0] == "Invalid"


@pytest.mark.parametrize(
    ("asked", "number", "words"),
    [
        (
            {"partition": "nowhere"},
            2000,
            f'annotation {PREFIX}partition: "nowhere"; Slurm has main; Slurm refuses the job: no',
        ),
        (
            {"cpus": 64, "memory_mb": 1024},
            2014,
            (
                "no node of partition main has more than 32 CPUs; the Pod requests 64."
                " Other partitions: spare (99)"
            ),
        ),
    ],
)
def test_recorded_cause_names_the_refused_value(asked: dict[str, Any], number: int, words: str) -> None:
    world = World()
    uid, submit = world.pod_and_submission(request=replace(REQUEST, job=replace(REQUEST.job, **asked)))
    world.tell(Outcome(submit, Failure(Remedy.CHANGE, "no", number=number), AT.hardware))
    record = world.record(uid)
    assert record.cause is not None
    assert sentence(record.cause) == words
