"""Tests that two members of a gang on one Node, with one job, cannot reach each other's cores, memory
and devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.node.escapes import BY_POD, Escape, all_of, answers, device
from tests.node.test_escapes import MEMORY, judge, unprivileged
from wellknown.job_key import job_name

if TYPE_CHECKING:
    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_GPUS_EACH = 2


@dataclass(frozen=True)
class Members:
    """Two members of a gang on the Node, with the outputs of the first member's attempts to reach the
    resources of the second."""

    jobs: list[str]
    """Names of the gang's jobs."""
    cores: list[str]
    gpus: list[frozenset[int]]
    opened: list[frozenset[int]]
    """Devices that each member can open."""
    tried: dict[str, str]


@pytest.fixture(scope="module")
def members(all_nodes: RealNode) -> Iterator[Members]:
    node, names = all_nodes, ("w0", "w1")
    node.begin()
    gang = node.actors.full("train")
    annotations = {"gang": gang, "gang-size": str(len(names))}
    for name in names:
        node.create_of(name, [unprivileged(_GPUS_EACH)], volumes=[MEMORY], annotations=annotations)
    for name in names:
        node.running(name)
    cores = [node.allocation(name).cores for name in names]
    gpus = [node.granted(name) for name in names]
    tries = all_of(BY_POD, own_cpus=cores[0], cpu=cores[1], **device(gpus[1]))
    yield Members(
        [job for job in node.actors.squeue() if job.startswith(gang)],
        cores,
        gpus,
        [node.opens(name, "/node-dev/fgpu").numbers for name in names],
        answers(node.inside(names[0], tries)),
    )
    node.clean_up()


def test_members_share_a_job_and_have_their_own_cores_and_gpus(
    members: Members, all_nodes: RealNode
) -> None:
    assert members.jobs == [job_name("default", all_nodes.actors.full("train"))]
    assert len(set(members.cores)) == 2
    assert [len(each) for each in members.gpus] == [_GPUS_EACH] * 2
    assert members.gpus[0].isdisjoint(members.gpus[1])
    assert members.opened == members.gpus


@pytest.mark.parametrize("escape", BY_POD, ids=str)
def test_member_does_not_reach_resources_of_another_member(
    members: Members, evidence: Evidence, escape: Escape
) -> None:
    judge(evidence, f"member: {escape.name}", escape.verdict(members.tried[escape.name]))
