"""Tests of a workload of three Pods, with Slurm and kube-apiserver in memory: a single job places all
Pods, even if the leader dies at any effect."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.bind.job_as_read import JobAsRead, NotBound
from extender.execution.dispatcher import Dispatcher
from extender.execution.startup import recover
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod, parse_pod
from extender.pod_request.workload import Workload
from extender.record.config import PlacementConfig
from extender.record.events import (
    ClusterObserved,
    Effect,
    Event,
    JobsPolled,
    PodObserved,
    PodVanished,
    Tick,
)
from extender.record.states import State
from kubernetes_client.errors import Conflict
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import Job
from tests.builders import TRANSLATION, changed, kube_node, pod_manifest, view
from wellknown.job_key import PlaceholderKey

NODES = ("n1", "n2", "n3")
GROUP = Workload("uid-g", "default", "g", "2026-11-21T08:00:00Z", 3)
FATES = ("done", "reply lost", "lost")


class Silent:
    """Ignores all reports about effects."""

    def done(self, *_: Any) -> None: ...
    def failed(self, *_: Any) -> None: ...
    def event_failed(self, *_: Any) -> None: ...


class Died(Exception):
    """The leader has died at an effect."""


class Cluster:
    """Both systems, a kube-scheduler, and a leader that carries out effects one by one."""

    def __init__(self, dies_at: int | None = None, fate: str = "done") -> None:
        """Makes the leader die at the effect with the number `dies_at`. `fate` is the result of the
        effect."""
        names = [node(name, cpus=8, memory_mb=16_000, gres="gpu:2") for name in NODES]
        self.slurm = InMemorySlurm(names, [partition("main", NODES, default=True)], tick_s=0.01)
        self.kubernetes = InMemoryKubernetes()
        self.view = replace(view(*(kube_node(name) for name in NODES)), cluster="a")
        self.rules = PlacementConfig(
            cluster="a", report_after=0.01, shortest_read_pause=0.01, recancel=0.05
        )
        self.dies_at, self.fate = dies_at, fate
        self.carried_out = 0
        for number in range(GROUP.size):
            manifest = pod_manifest(f"p{number}", cpu="4", gpus=2)
            self.kubernetes.put("pods", manifest)
        self._begin()

    def _begin(self) -> None:
        self.ledger = Ledger(self.rules)
        self._dispatcher = Dispatcher(self.ledger, self.slurm, self.kubernetes, Silent())
        self._effects: list[Effect] = []
        self._seen: dict[str, Pod] = {}
        self.feed(ClusterObserved(self.view))

    def feed(self, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        self._effects.extend(self.ledger.apply(event, now))

    async def feed_all(self, events: Iterator[Event]) -> None:
        for event in events:
            self.feed(event)

    async def pods(self) -> list[Pod]:
        listed = await self.kubernetes.list("pods", None)
        parsed = [parse_pod(each, TRANSLATION) for each in listed["items"]]
        return [each._replace(group=GROUP) for each in parsed]

    async def recover(self) -> None:
        """Starts the next leader. The leader reads both systems."""
        self._begin()
        pods = await self.pods()
        await recover(
            pods,
            self.slurm,
            self.kubernetes,
            self.ledger.rules,
            cast(Dispatcher, self),
            adoptable=lambda _: False,
        )
        self.feed(ClusterObserved(self.view))
        self._seen = {each.uid: each for each in pods}

    async def run_until(self, state: State) -> None:
        """Runs rounds until the group reaches the state. If the leader dies, the next leader
        continues."""
        async with asyncio.timeout(20):
            while (record := self.ledger.record_of(GROUP.uid)) is None or record.state is not state:
                try:
                    await self.round()
                except Died:
                    await self.recover()

    async def round(self) -> None:
        await self._hear()
        while self._effects:
            await self._carry_out(self._effects.pop(0))
            await self._hear()
        await self._bind()
        await asyncio.sleep(0.01)

    async def _hear(self) -> None:
        pods = {each.uid: each for each in await self.pods()}
        for uid, gone in self._seen.items():
            if uid not in pods:
                self.feed(PodVanished(uid, last=changed(gone, finished=True)))
        for each in pods.values():
            if each != self._seen.get(each.uid):
                self.feed(PodObserved(each))
        self._seen = pods
        asked, asked_at = self.ledger.watched_jobs(), asyncio.get_running_loop().time()
        self.feed(JobsPolled(asked, await self.slurm.states(asked), asked_at))
        self.feed(Tick())

    async def _carry_out(self, effect: Effect) -> None:
        self.carried_out += 1
        dies = self.carried_out == self.dies_at
        if not (dies and self.fate == "lost"):
            outcome = await self._dispatcher.outcome_of(effect)
            if not (dies and self.fate == "reply lost"):
                self.feed(outcome)
        if dies:
            raise Died

    async def _bind(self) -> None:
        """Plays kube-scheduler: binds each granted Pod after the checks of /bind."""
        for each in await self.pods():
            if each.scheduling.gates or each.life.node or each.scheduling.allocation is None:
                continue
            job = await self.slurm.job(each.scheduling.allocation.job_id)
            try:
                slot = JobAsRead(job).slot(each, each.scheduling.allocation.node, self.view, self.rules)
                version = {"uid": each.uid, "resourceVersion": each.resource_version}
                metadata = version | {"annotations": slot.annotations()}
                await self.kubernetes.bind_pod(each.namespace, each.name, slot.node, metadata)
            except (NotBound, Conflict):
                continue

    async def jobs(self) -> list[Job]:
        """Returns the live jobs of the group."""
        states = await self.slurm.all_states()
        read = [await self.slurm.job(job_id) for job_id, state in states.items() if not state.ended]
        keys = [(job, PlaceholderKey.parse(job.admin_comment)) for job in read if job is not None]
        return [job for job, key in keys if key is not None and key.uid == GROUP.uid]


async def is_whole(cluster: Cluster) -> None:
    """Asserts that one job runs for the group, and that each Pod is bound to a node of the job with
    devices."""
    (job,) = await cluster.jobs()
    pods = await cluster.pods()
    assert job.state.running
    assert {each.life.node for each in pods} == set(job.nodes) == set(NODES)
    assert {each.scheduling.job_id for each in pods} == {job.id}
    assert all(
        each.scheduling.allocation and each.scheduling.allocation.gres.startswith("gpu") for each in pods
    )


async def effects_of_a_life() -> int:
    cluster = Cluster()
    await cluster.run_until(State.BOUND)
    return cluster.carried_out


async def test_one_job_places_three_pods_and_ends_with_the_last_pod() -> None:
    cluster = Cluster()
    await cluster.run_until(State.BOUND)
    await is_whole(cluster)
    for number in range(GROUP.size):
        assert await cluster.jobs()
        cluster.kubernetes.remove("pods", f"p{number}")
        await cluster.round()
    await cluster.run_until(State.DONE)
    assert not await cluster.jobs()


async def test_pods_of_a_group_wait_until_all_fit() -> None:
    cluster = Cluster()
    cluster.slurm.drain("n3")
    async with asyncio.timeout(20):
        while not await cluster.jobs():
            await cluster.round()
    await cluster.round()
    assert [job.state.pending for job in await cluster.jobs()] == [True]
    assert not any(each.life.node for each in await cluster.pods())
    await cluster.slurm.undrain_node("n3")
    await cluster.run_until(State.BOUND)
    await is_whole(cluster)


@pytest.mark.parametrize("fate", FATES)
async def test_group_is_placed_whole_after_a_crash_at_any_effect(fate: str) -> None:
    number = await effects_of_a_life()
    assert number >= 4  # a submission and three writes, at least
    for dies_at in range(1, number + 1):
        cluster = Cluster(dies_at, fate)
        await cluster.run_until(State.BOUND)
        await is_whole(cluster)
