"""Tests of leader election with one Lease. All replicas in these tests use the event loop's clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from extender.leader.lease import Lease
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from wellknown.names import LEASE

DURATION = 0.5  # seconds; a real duration is a whole number


class OneLease(InMemoryKubernetes):
    """Holds the extender's Lease."""

    @property
    def spec(self) -> Any:
        return self.read("leases", LEASE, "kube-system")["spec"]

    @property
    def annotations(self) -> dict[str, str]:
        return self.read("leases", LEASE, "kube-system")["metadata"].get("annotations") or {}

    def held_by(self, holder: str) -> None:
        """Writes another holder into the Lease."""
        self.edit("leases", LEASE, {"spec": {"holderIdentity": holder}}, "kube-system")


class Replica:
    """A replica in the election. Counts the turns as the leader."""

    def __init__(self, kubernetes: OneLease, name: str) -> None:
        self.health = Health()
        self.lease = Lease(kubernetes, "kube-system", name, cast(int, DURATION), self.health)
        self.leads = asyncio.Event()
        self.follows = asyncio.Event()
        self.fails: Exception | None = None
        self.begun = 0

    async def work(self) -> None:
        self.begun += 1
        self.follows.clear()
        self.leads.set()
        try:
            if self.fails is not None:
                raise self.fails
            await asyncio.Event().wait()
        finally:
            self.leads.clear()

    async def run(self) -> None:
        await self.lease.lead(self.work, self.follows.set)


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[Replica]:
    task = asyncio.ensure_future(replica.run())
    yield replica
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)


@pytest.fixture
def kubernetes() -> OneLease:
    return OneLease()


async def test_the_first_replica_leads_and_the_second_follows(kubernetes: OneLease) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        await first.lease.held()
        async with running(Replica(kubernetes, "b")) as second:
            await soon(second.follows)
            assert first.leads.is_set()
            assert not second.leads.is_set()
            assert kubernetes.spec["holderIdentity"] == "a"


async def test_a_leader_that_ends_gives_the_lease_back(kubernetes: OneLease) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
    assert kubernetes.spec["holderIdentity"] == ""
    assert not first.leads.is_set()
    async with running(Replica(kubernetes, "b")) as second:
        await soon(second.leads)
        assert kubernetes.spec["leaseTransitions"] == 1


async def test_each_replica_counts_the_transitions_of_the_lease(kubernetes: OneLease) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        await first.lease.held()
    async with running(Replica(kubernetes, "b")) as second, running(Replica(kubernetes, "c")) as third:
        await soon(second.leads)
        await soon(third.follows)
        assert (second.lease.transitions, third.lease.transitions) == (1, 1)


async def test_a_follower_that_ends_leaves_the_lease_alone(kubernetes: OneLease) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        async with running(Replica(kubernetes, "b")) as second:
            await soon(second.follows)
        assert kubernetes.spec["holderIdentity"] == "a"


async def test_expired_lease_passes_to_another_replica(kubernetes: OneLease) -> None:
    dead = Replica(kubernetes, "dead")
    task = asyncio.ensure_future(dead.run())
    await soon(dead.leads)
    kubernetes.outage(Unavailable(0, "unplugged"))  # the leader can neither renew nor release the Lease
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    kubernetes.outage(None)
    assert kubernetes.spec["holderIdentity"] == "dead"
    began = asyncio.get_running_loop().time()
    async with running(Replica(kubernetes, "b")) as second:
        await soon(second.leads)
    assert asyncio.get_running_loop().time() - began >= DURATION


async def test_killed_replica_leads_at_once_after_its_restart(kubernetes: OneLease) -> None:
    await test_expired_lease_passes_to_another_replica(kubernetes)
    kubernetes.held_by("a")
    async with running(Replica(kubernetes, "a")) as same:
        await asyncio.wait_for(same.leads.wait(), DURATION / 2)


async def test_leader_stops_after_another_holder_appears(kubernetes: OneLease) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        kubernetes.held_by("b")
        await soon(first.follows)
        assert not first.leads.is_set()


async def test_leader_restarts_after_a_missed_term_of_another_leader(kubernetes: OneLease) -> None:
    """The first leader was paused. During the pause, another replica has led, and has released the
    Lease."""
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        kubernetes.held_by("")
        await soon(first.follows)
        await soon(first.leads)
        assert first.begun == 2


@pytest.mark.parametrize("silent", [False, True])
async def test_outage_delays_the_effects_of_the_leader(kubernetes: OneLease, silent: bool) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        if silent:
            kubernetes.hold()
        kubernetes.outage(Unavailable(0, "kube-apiserver is down"))
        while True:
            held = asyncio.ensure_future(first.lease.held())
            await asyncio.wait([held], timeout=DURATION / 10)
            if not held.done():
                break
        assert first.leads.is_set()
        assert first.health.parts() == {"Kubernetes": True}
        kubernetes.release()
        kubernetes.outage(None)
        await asyncio.wait_for(held, 10)
        assert first.health.parts() == {"Kubernetes": False}


async def test_failure_in_the_work_of_the_leader_ends_the_program(kubernetes: OneLease) -> None:
    replica = Replica(kubernetes, "a")
    replica.fails = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(replica.run(), 10)
