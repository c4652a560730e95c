"""What the Node tells the Prolog's gate."""

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
        ([OTHER], {}, [cgroup(B)], ()),  # of no job
        ([STAYS], {}, [cgroup(A)], ()),
        ([LEAVES], {}, [cgroup(A)], ()),  # the job may run: the extender knows
        ([ENDED], {}, [cgroup(A)], ("ml/a",)),
        ([ENDED], {}, [cgroup(A, populated=False)], ()),
        ([ENDED], {}, [], ()),
        ([], {A: "ml/a"}, [cgroup(A)], ("ml/a",)),  # by force
        ([], {A: "ml/a"}, [cgroup(A, populated=False)], ()),
        ([], {}, [cgroup(A)], ()),  # of a job, or not: nobody knows any more
        ([STAYS._replace(uid=B, pod="ml/b"), ENDED], {}, [cgroup(A), cgroup(B)], ("ml/a",)),
    ],
)
def test_pods_that_are_gone_linger_while_they_have_processes(
    claims: list[Claim], removed: dict[str, str], cgroups: list[PodCgroup], expected: tuple[str, ...]
) -> None:
    assert lingering({each.uid: each for each in claims}, removed, cgroups) == expected
