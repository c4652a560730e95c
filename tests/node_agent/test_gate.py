"""Tests of the Node's answers to the gate in the Prolog."""

from __future__ import annotations

import pytest

from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim, Stage
from node_agent.pods.gate import lingering

A, B = "a-1", "b-2"
STAYS = Claim(A, "ml/a", job=7)
ENDED, LEAVES = (STAYS._replace(stage=stage) for stage in (Stage.ENDED, Stage.LEAVES))
OTHER = Claim(B, "ml/b", stage=Stage.ENDED)


def cgroup(uid: str, *, populated: bool = True) -> PodCgroup:
    return PodCgroup(uid, 1, populated)


@pytest.mark.parametrize(
    ("claims", "removed", "cgroups", "expected"),
    [
        ([], {}, [], ()),
        ([OTHER], {}, [cgroup(B)], ()),  # a Pod without a job
        ([STAYS], {}, [cgroup(A)], ()),
        ([LEAVES], {}, [cgroup(A)], ()),  # the extender knows the Pod, and decides
        ([ENDED], {}, [cgroup(A)], ("ml/a",)),
        ([ENDED], {}, [cgroup(A, populated=False)], ()),
        ([ENDED], {}, [], ()),
        ([], {A: "ml/a"}, [cgroup(A)], ("ml/a",)),  # a Pod deleted by force
        ([], {A: "ml/a"}, [cgroup(A, populated=False)], ()),
        ([], {}, [cgroup(A)], ()),  # the agent does not know whether the Pod had a job
        ([STAYS._replace(uid=B, pod="ml/b"), ENDED], {}, [cgroup(A), cgroup(B)], ("ml/a",)),
    ],
)
def test_pods_that_are_gone_linger_while_they_have_processes(
    claims: list[Claim], removed: dict[str, str], cgroups: list[PodCgroup], expected: tuple[str, ...]
) -> None:
    assert lingering({each.uid: each for each in claims}, removed, cgroups) == expected
