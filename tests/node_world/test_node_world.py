"""No core and no device in two hands, whatever owners do and whatever fails."""

from __future__ import annotations

from random import Random

import pytest

from extender.bind import node_reservation
from extender.unmanaged import free_capacity
from tests.node_world.actors import Actor, Failures, Owner
from tests.node_world.virtual_time import run
from tests.node_world.world import NodeWorld

ACTS_S = 60.0
SETTLE_S = 90.0


async def walk(seed: int, *, fails: bool) -> tuple[NodeWorld, list[Actor]]:
    """Actors act for a minute, and then everybody comes to rest."""
    world = NodeWorld(Random(seed), external_jobs=seed % 2 == 0)
    actors: list[Actor] = [Owner(world, world.now + ACTS_S)]
    if fails:
        actors.append(Failures(world, world.now + ACTS_S))
    await world.run(ACTS_S + SETTLE_S, *(actor.act for actor in actors))
    return world, actors


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_pods_share_no_core_and_no_device(seed: int, fails: bool) -> None:
    """Not tested: suspensions of a job of the token's user within 5 s of its start, and Pods that are
    deleted by force while no extender runs (`actors`)."""
    world, actors = run(lambda: walk(seed, fails=fails), node_reservation, free_capacity)
    did = [each.did for each in actors]
    assert world.ran.keys() == {"containers", "processes"}
    assert world.lasting_overlaps() == [], did
    assert world.left == [], did
