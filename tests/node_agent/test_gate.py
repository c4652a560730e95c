"""What the Node answers the Prolog's gate."""

from __future__ import annotations

import pytest

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim
from node_agent.pods.gate import Answer, answer

A, B, STATIC = "a-1", "b-2", "0f5cbb089b1c4f33a4a70c8e3f1f5d1a"
STAYS, LEAVES = Claim(A, "ml/a", job=7), Claim(A, "ml/a", job=7, leaves=True)
OTHER = Claim(B, "ml/b")


def cgroup(uid: str, *, populated: bool = True) -> PodCgroup:
    return PodCgroup(uid, 1, populated)


@pytest.mark.parametrize(
    ("claims", "removed", "cgroups", "expected"),
    [
        ([], {}, [], Answer("clear")),
        ([OTHER], {}, [cgroup(B), cgroup(STATIC)], Answer("clear")),
        ([STAYS], {}, [cgroup(A)], Answer("ask")),
        ([STAYS], {}, [], Answer("ask")),  # it begins
        ([LEAVES], {}, [cgroup(A)], Answer("there", ("ml/a",))),
        ([LEAVES], {}, [cgroup(A, populated=False)], Answer("clear")),
        ([LEAVES], {}, [], Answer("clear")),
        ([], {A: "ml/a"}, [cgroup(A)], Answer("there", ("ml/a",))),  # by force
        ([], {A: "ml/a"}, [cgroup(A, populated=False)], Answer("clear")),
        ([], {}, [cgroup(A)], Answer("ask")),  # of a job, or not: nobody knows any more
        ([STAYS._replace(uid=B, pod="ml/b"), LEAVES], {}, [cgroup(A)], Answer("there", ("ml/a",))),
    ],
)
def test_the_node_answers_by_what_is_here(
    claims: list[Claim], removed: dict[str, str], cgroups: list[PodCgroup], expected: Answer
) -> None:
    assert answer({each.uid: each for each in claims}, removed, cgroups, heard=True) == expected


def test_without_word_of_kube_apiserver_only_who_is_there_is_known() -> None:
    assert answer({}, {}, [], heard=False) == Answer("ask")
    assert answer({A: LEAVES}, {}, [cgroup(A)], heard=False) == Answer("there", ("ml/a",))
