"""Tests that Pods and native jobs share no core and no device, despite actions of owners and
failures."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from extender.bind import node_reservation
from extender.unmanaged import free_capacity
from slurm_client.errors import Unreachable
from tests.eventually import until
from tests.node_world.actors import USER, Actor, Failures, Owner, RollOuts, SlowWrites
from tests.node_world.virtual_time import run
from tests.node_world.world import CPUS, NODES, NodeWorld

ACTS_S = 60.0
SETTLE_S = 90.0


async def walk(seed: int, *, fails: bool) -> tuple[NodeWorld, list[Actor]]:
    """Lets actors act for a minute, and then gives the world time to come to rest."""
    world = NodeWorld(Random(seed), external_jobs=seed % 2 == 0, agents_answer=seed % 3 != 0)
    kinds = [Owner, SlowWrites, *([RollOuts] if world.agents_answer else [])]
    kinds += [Failures] if fails else []
    actors: list[Actor] = [kind(world, world.now + ACTS_S) for kind in kinds]
    await world.run(ACTS_S + SETTLE_S, *(actor.act for actor in actors))
    return world, actors


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_pods_share_no_core_and_no_device(seed: int, fails: bool) -> None:
    """Not tested: suspensions of a job of the token's user within 5 s of the job's start, and deletions
    of Pods by force while no extender runs (`actors`)."""
    world, actors = run(lambda: walk(seed, fails=fails), node_reservation, free_capacity)
    did = [each.did for each in actors]
    assert world.ran.keys() == {"containers", "processes"}
    assert world.lasting_overlaps() == [], did
    assert world.left == [], did


async def end_job_during_binding() -> NodeWorld:
    """Ends the job of the only Pod while kube-apiserver works on the Binding. A native job gets the node
    before the extender learns of the end."""
    world = NodeWorld(Random(0))

    async def owner() -> None:
        world.kubernetes.hold("bind_pod")
        world.create_pod(CPUS, 0, grace_s=5, user=None)
        await world.kubernetes.until(lambda: "bind_pod" in world.kubernetes.calls)
        (placeholder,) = world.placeholders()
        for _ in NODES:
            await world.create_native_job(CPUS, 0, seconds=10.0)
        await world.slurm.cancel(placeholder.id)
        world.slurm.outage(Unreachable("slurmctld was not reached"))
        await asyncio.sleep(1.0)  # slurmd starts the native job
        world.kubernetes.release()
        await asyncio.sleep(3.0)
        world.slurm.outage(None)

    await world.run(SETTLE_S, owner)
    return world


async def delete_slowly(*, agents_answer: bool) -> NodeWorld:
    """Deletes a Pod with a long grace period, so that the Pod's job runs on. A native job gets other
    cores."""
    world = NodeWorld(Random(0), agents_answer=agents_answer)

    async def owner() -> None:
        world.slurm.drain("n2")
        world.create_pod(1, 0, grace_s=5, user=None)
        await until(lambda: world.containers)
        (container,) = world.containers.values()
        container.grace_s = 600.0
        await world.kubernetes.delete_pod("default", container.name, {}, 600)
        await world.create_native_job(CPUS // 2, 0, seconds=5.0)

    await world.run(SETTLE_S, owner)
    return world


@pytest.mark.parametrize("agents_answer", [False, True])
def test_native_job_starts_beside_a_pod_in_deletion_with_a_job(agents_answer: bool) -> None:
    world = run(lambda: delete_slowly(agents_answer=agents_answer), node_reservation, free_capacity)
    assert world.containers
    assert world.ran["processes"] == 1
    assert world.lasting_overlaps() == []


async def move_pod_during_roll_out() -> NodeWorld:
    """Makes a killed slurmctld forget the job of a Pod. A native job gets the cores before the extender
    requests the Pod's job again. The node agents are away for 20 s."""
    world = NodeWorld(Random(0))

    async def owner() -> None:
        await until(lambda: world.is_led)
        world.slurm.drain("n2")
        begin = world.now
        await asyncio.sleep(0.1)
        world.create_pod(CPUS // 2, 0, grace_s=5, user=USER)
        await until(lambda: world.containers)
        (container,) = world.containers.values()
        before = container.slot
        world.agents_away = True
        world.slurm.forget_since(begin)
        await world.create_native_job(CPUS // 2, 0, seconds=20.0)
        await asyncio.sleep(20.0)
        assert container.slot == before
        world.agents_away = False
        await until(lambda: container.slot.cores not in ("", before.cores))

    await world.run(SETTLE_S, owner)
    return world


def test_native_job_waits_until_the_agent_has_moved_the_pod() -> None:
    world = run(move_pod_during_roll_out, node_reservation, free_capacity)
    assert world.ran["processes"] == 1
    assert world.lasting_overlaps() == []


def test_native_job_does_not_start_during_a_binding_to_its_node() -> None:
    world = run(end_job_during_binding, node_reservation, free_capacity)
    assert world.ran["processes"] == len(NODES)
    assert world.lasting_overlaps() == []
    assert world.left == []
