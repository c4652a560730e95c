"""Contract tests of drained, resumed and failed nodes."""

from collections.abc import AsyncIterator

import pytest

from slurm_client.errors import InvalidRequest
from slurm_client.model import Node
from tests.eventually import until
from tests.slurm_client.bench import CPUS, Bench

REASON = "slurm-extender: the Node is cordoned"


@pytest.fixture
async def healed(bench: Bench) -> AsyncIterator[Bench]:
    yield bench
    for node in await bench.slurm.nodes():
        await bench.slurm.undrain_node(node.name)
        await in_service(bench, node.name)


async def in_service(bench: Bench, name: str) -> None:
    """Waits until the node is schedulable. Before that, slurmctld checks whether slurmd answers."""

    async def answers() -> bool:
        return (await see(bench, name)).schedulable

    await until(answers, within_s=15)


async def see(bench: Bench, name: str = "node-1") -> Node:
    node = await bench.slurm.node(name)
    assert node is not None
    return node


async def test_a_node_that_is_read_alone_equals_its_entry_in_the_list(healed: Bench) -> None:
    await healed.slurm.drain_node("node-1", REASON)
    for listed in await healed.slurm.nodes():
        alone = await healed.slurm.node(listed.name)
        assert alone == listed
        assert (alone.reason, "DRAIN" in alone.states) == (
            (REASON, True) if alone.name == "node-1" else ("", False)
        )


async def test_a_node_that_is_read_alone_shows_current_allocations_at_once(healed: Bench) -> None:
    for cpus in (3, 5):
        job = await healed.allocate(
            cpus=cpus, memory_mb=1000, gres=(("gpu", 1),), required_nodes=("node-1",)
        )
        node = await see(healed)
        assert (node.cpus_allocated, node.memory_allocated_mb) == (cpus, 1000)
        assert node.gres_used.startswith("gpu:h100:1")
        assert "MIXED" in node.states
        await healed.slurm.cancel(job.id)

        async def freed() -> bool:
            node = await see(healed)  # 24.11 starts no immediate job on an IDLE+COMPLETING node
            nothing = (node.cpus_allocated, node.memory_allocated_mb) == (0, 0)
            return nothing and "COMPLETING" not in node.states

        await until(freed, within_s=15)


async def test_a_node_that_slurm_does_not_know_is_none(healed: Bench) -> None:
    assert await healed.slurm.node("nowhere") is None


async def test_a_drained_node_keeps_its_jobs_and_gets_no_new_jobs(healed: Bench) -> None:
    running = await healed.allocate(required_nodes=("node-1",))
    await healed.slurm.drain_node("node-1", REASON)
    node = await see(healed)
    assert "DRAIN" in node.states
    assert node.reason == REASON
    assert (await healed.read(running.id)).state.running
    job_id = await healed.submit(cpus=CPUS)
    assert (await healed.until_running(job_id)).nodes == ("node-2",)


async def test_an_undrained_node_takes_jobs_again(healed: Bench) -> None:
    await healed.slurm.drain_node("node-1", REASON)
    waiting = await healed.submit(required_nodes=("node-1",))
    for _ in range(2):  # the second call changes nothing
        await healed.slurm.undrain_node("node-1")
        node = await see(healed)
        assert "DRAIN" not in node.states
        assert node.reason == ""
    assert (await healed.until_running(waiting)).nodes == ("node-1",)


async def test_undraining_does_not_bring_back_a_node_that_is_down(healed: Bench) -> None:
    await healed.slurm.drain_node("node-2", REASON)
    await healed.fail("node-2")
    await healed.slurm.undrain_node("node-2")
    node = await see(healed, "node-2")
    assert "DOWN" in node.states
    assert "DRAIN" not in node.states
    await healed.resume("node-2")
    await in_service(healed, "node-2")


async def test_a_later_reason_replaces_the_first(healed: Bench) -> None:
    for reason in ("by hand", REASON):
        await healed.slurm.drain_node("node-1", reason)
    assert (await see(healed)).reason == REASON


async def test_draining_an_unknown_node_is_an_invalid_request(healed: Bench) -> None:
    for name in ("nowhere", "node-1/../node-2", "a b", ""):
        with pytest.raises(InvalidRequest):
            await healed.slurm.drain_node(name, REASON)
        with pytest.raises(InvalidRequest):
            await healed.slurm.undrain_node(name)
    assert not any("DRAIN" in node.states for node in await healed.slurm.nodes())
