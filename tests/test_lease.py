"""Who leads: replicas around one Lease, on clocks of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from extender.health import Health
from extender.kubernetes_api import Conflict, KubernetesApi, KubernetesError, Unavailable
from extender.lease import Lease
from tests.builders import Manifest

DURATION = 0.5  # seconds; a real one is a whole number


class FakeKubernetes:
    """Holds one Lease, with compare-and-set as kube-apiserver does it."""

    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.version = 0
        self.error: KubernetesError | None = None
        self.silent = False

    async def _answer(self) -> None:
        if self.silent:
            await asyncio.sleep(3600)
        if self.error is not None:
            raise self.error

    async def read_lease(self, _namespace: str, _name: str) -> Manifest | None:
        await self._answer()
        return self.lease

    async def create_lease(self, _namespace: str, lease: Manifest) -> Manifest:
        await self._answer()
        if self.lease is not None:
            raise Conflict(409, "exists")
        return self._store(lease)

    async def replace_lease(self, _namespace: str, _name: str, lease: Manifest) -> Manifest:
        await self._answer()
        assert self.lease is not None
        if lease["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "changed")
        return self._store(lease)

    def _store(self, lease: Manifest) -> Manifest:
        self.version += 1
        metadata = {**lease["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**lease, "metadata": metadata}
        return self.lease

    @property
    def spec(self) -> Any:
        assert self.lease is not None
        return self.lease["spec"]


class Replica:
    """One extender's part in it, which counts its turns as the leader."""

    def __init__(self, kubernetes: FakeKubernetes, name: str) -> None:
        self.health = Health()
        self.lease = Lease(
            cast(KubernetesApi, kubernetes), "kube-system", name, cast(int, DURATION), self.health
        )
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
def kubernetes() -> FakeKubernetes:
    return FakeKubernetes()


async def test_the_first_replica_leads_and_the_second_follows(kubernetes: FakeKubernetes) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        await first.lease.held()
        async with running(Replica(kubernetes, "b")) as second:
            await soon(second.follows)
            assert first.leads.is_set()
            assert not second.leads.is_set()
            assert kubernetes.spec["holderIdentity"] == "a"


async def test_a_leader_that_ends_gives_the_lease_back(kubernetes: FakeKubernetes) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
    assert kubernetes.spec["holderIdentity"] == ""
    assert not first.leads.is_set()
    async with running(Replica(kubernetes, "b")) as second:
        await soon(second.leads)
        assert kubernetes.spec["leaseTransitions"] == 1


async def test_a_follower_that_ends_leaves_the_lease_alone(kubernetes: FakeKubernetes) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        async with running(Replica(kubernetes, "b")) as second:
            await soon(second.follows)
        assert kubernetes.spec["holderIdentity"] == "a"


async def test_a_lease_that_nobody_renews_passes_on_after_its_duration(
    kubernetes: FakeKubernetes,
) -> None:
    dead = Replica(kubernetes, "dead")
    task = asyncio.ensure_future(dead.run())
    await soon(dead.leads)
    kubernetes.error = Unavailable(0, "unplugged")  # it can neither renew nor give back
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    kubernetes.error = None
    assert kubernetes.spec["holderIdentity"] == "dead"
    began = asyncio.get_running_loop().time()
    async with running(Replica(kubernetes, "b")) as second:
        await soon(second.leads)
    assert asyncio.get_running_loop().time() - began >= DURATION


async def test_a_replica_that_was_killed_leads_at_once_when_it_is_back(
    kubernetes: FakeKubernetes,
) -> None:
    await test_a_lease_that_nobody_renews_passes_on_after_its_duration(kubernetes)
    kubernetes.spec["holderIdentity"] = "a"
    async with running(Replica(kubernetes, "a")) as same:
        await asyncio.wait_for(same.leads.wait(), DURATION / 2)


async def test_a_leader_stops_when_it_sees_another(kubernetes: FakeKubernetes) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        assert kubernetes.lease is not None
        kubernetes._store({**kubernetes.lease, "spec": kubernetes.spec | {"holderIdentity": "b"}})
        await soon(first.follows)
        assert not first.leads.is_set()


async def test_a_leader_that_missed_anothers_term_begins_anew(kubernetes: FakeKubernetes) -> None:
    """It was paused; another led meanwhile, and has given the Lease back."""
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        assert kubernetes.lease is not None
        kubernetes._store({**kubernetes.lease, "spec": kubernetes.spec | {"holderIdentity": ""}})
        await soon(first.follows)
        await soon(first.leads)
        assert first.begun == 2


@pytest.mark.parametrize("silent", [False, True])
async def test_an_outage_deposes_nobody_but_holds_back_what_the_leader_does(
    kubernetes: FakeKubernetes, silent: bool
) -> None:
    async with running(Replica(kubernetes, "a")) as first:
        await soon(first.leads)
        kubernetes.silent, kubernetes.error = silent, Unavailable(0, "kube-apiserver is down")
        while True:
            held = asyncio.ensure_future(first.lease.held())
            await asyncio.wait([held], timeout=DURATION / 10)
            if not held.done():
                break
        assert first.leads.is_set()
        assert "Lease" in cast(Any, first.health.report()["troubles"])
        kubernetes.silent, kubernetes.error = False, None
        await asyncio.wait_for(held, 10)
        assert "Lease" not in cast(Any, first.health.report()["troubles"])


async def test_a_failure_of_the_leaders_work_ends_the_program(kubernetes: FakeKubernetes) -> None:
    replica = Replica(kubernetes, "a")
    replica.fails = RuntimeError("a defect")
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(replica.run(), 10)
