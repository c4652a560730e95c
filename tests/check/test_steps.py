"""Tests of the ways in which each step of `slurm-extender check` fails. Both systems are in memory, and
no kube-scheduler runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extender.check import steps as module
from extender.check.pods import Wish
from extender.check.steps import Steps
from extender.preflight.result import Result
from extender.settings import Settings
from kubernetes_client.errors import Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Manifest
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import JobSpec
from wellknown.job_key import job_name
from wellknown.names import CONDITION, GATE, JOB_ID, NODE_NAME_LABEL

SETTINGS = Settings(slurm_token_file=Path("token"))
JOB = 40_000_000


class Webhook(InMemoryKubernetes):
    """A kube-apiserver whose webhook adds a gate to Pods, and refuses Pods without requests."""

    async def create_pod(self, namespace: str, pod: Manifest) -> Manifest:
        if not pod["spec"]["containers"][0]["resources"]:
            raise Rejected(403, 'admission webhook "pods.slurm-extender.io" denied the request: no cpu')
        gated = {**pod["spec"], "schedulingGates": [{"name": GATE}]}
        return await super().create_pod(namespace, {**pod, "spec": gated})


class World:
    """Both systems and the check. A test can let events happen after the check has created its Pod."""

    def __init__(self, kubernetes: InMemoryKubernetes | None = None, timeout_s: float = 10) -> None:
        self.kubernetes = kubernetes or Webhook()
        self.slurm = InMemorySlurm([node("n1")], [partition("main", ["n1"], default=True)])
        self.now = 0.0
        self.results: dict[str, Result] = {}
        wish = Wish(annotations={"partition": "main"}, timeout_s=timeout_s)
        self.steps = Steps(self.kubernetes, self.slurm, SETTINGS, wish, self._clock)

    def _clock(self) -> float:
        self.now += 0.01
        return self.now

    async def job(self, name: str = "") -> None:
        """Allocates a job in Slurm, and writes the job's id on the Pod."""
        called = name or job_name("default", self.steps.name)
        await self.slurm.allocate(JobSpec(called, 1, 10), JOB)
        self.kubernetes.edit("pods", self.steps.name, {"metadata": {"annotations": {JOB_ID: str(JOB)}}})

    def bind(self, to: str) -> None:
        self.kubernetes.edit(
            "pods", self.steps.name, {"spec": {"nodeName": to, "schedulingGates": None}}
        )

    async def check(self, happens: Callable[[], Any] = lambda: None) -> bool:
        """Runs the check, and calls `happens` just before the check first reads its Pod. Returns True if
        the check passed."""
        self.kubernetes.before_next("read_pod", happens)
        return await self.steps.run(lambda result: self.results.setdefault(result.check, result))

    def found(self, step: str) -> str:
        result = self.results[step]
        assert (result.verdict, bool(result.fix)) == ("FAIL", True)
        return result.words

    def left(self) -> list[Manifest]:
        pods = self.kubernetes.objects("pods")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)


def ends_the_job(world: World) -> None:
    """When the check deletes its Pod, cancels the job, as the extender would do."""
    world.kubernetes.before_next("delete_pod", lambda: world.slurm.cancel(JOB))


@pytest.mark.parametrize("name", ["n1", "ip-10-0-0-7"])
async def test_placed_pod_passes_on_a_node_of_any_name(name: str) -> None:
    world = World()
    labels = {} if name == "n1" else {NODE_NAME_LABEL: "n1"}
    world.kubernetes.put("nodes", {"metadata": {"name": name, "labels": labels}})
    ends_the_job(world)

    async def placed() -> None:
        await world.job()
        world.bind(name)

    assert await world.check(placed), world.results
    assert [result.verdict for result in world.results.values()] == ["PASS"] * 6
    assert ("read_node" in world.kubernetes.calls) is (name != "n1")
    assert world.left() == []


async def test_pod_on_another_node_than_its_job_fails() -> None:
    world = World()
    world.kubernetes.put("nodes", {"metadata": {"name": "n2"}})

    async def placed() -> None:
        await world.job()
        world.bind("n2")

    assert not await world.check(placed)
    assert "the Pod is bound to n2, but job 40000000 has ('n1',)" in world.found("bound")
    assert world.left() == []


async def test_unbound_pod_fails_with_its_conditions() -> None:
    world = World()

    async def granted() -> None:
        await world.job()
        said = [
            {"type": CONDITION, "message": "waits for Resources"},
            {"type": "PodScheduled", "message": "0/2 nodes are available"},
        ]
        world.kubernetes.edit("pods", world.steps.name, {"status": {"conditions": said}})

    assert not await world.check(granted)
    words = world.found("bound")
    assert "not within 10 s: the Pod is not bound: job 40000000 is RUNNING" in words
    assert "slurm-extender says: waits for Resources; kube-scheduler says: 0/2 nodes" in words
    assert world.results["running"].verdict == "SKIPPED"
    assert world.results["refused"].verdict == "PASS"


async def test_a_pod_without_a_job_fails() -> None:
    world = World()
    assert not await world.check()
    assert "no job in Slurm; the Pod has no condition yet" in world.found("placeholder")


async def test_job_with_another_name_belongs_to_another_pod() -> None:
    world = World()
    assert not await world.check(lambda: world.job("other@default"))
    assert "but this job is other@default" in world.found("placeholder")


async def test_pod_deleted_by_another_user_fails() -> None:
    world = World()
    assert not await world.check(lambda: world.kubernetes.remove("pods", world.steps.name))
    assert "another user has deleted the Pod" in world.found("placeholder")


async def test_a_job_that_outlives_its_pod_fails() -> None:
    world = World()
    world.kubernetes.put("nodes", {"metadata": {"name": "n1"}})

    async def placed() -> None:
        await world.job()
        world.bind("n1")

    assert not await world.check(placed)
    assert "the Pod is deleted, but job 40000000 is RUNNING" in world.found("ended")


async def test_pods_without_webhooks_fail_both_steps_and_are_deleted() -> None:
    world = World(InMemoryKubernetes())
    assert not await world.check()
    assert "without the extender's gate" in world.found("gated")
    assert "should have been refused" in world.found("refused")
    assert world.left() == []


async def test_refusal_by_kube_apiserver_is_no_refusal_by_the_extender() -> None:
    world = World(InMemoryKubernetes())
    world.kubernetes.outage(Rejected(403, 'pods is forbidden: User "x" cannot create'), "create_pod")
    assert not await world.check()
    assert "is forbidden" in world.found("gated")
    assert "is forbidden" in world.found("refused")


async def test_pod_with_a_lost_reply_of_its_creation_is_deleted() -> None:
    world = World()
    world.kubernetes.lose_reply_of_next("create_pod")
    assert not await world.check()
    assert "broke off" in world.found("gated")
    assert world.left() == []


async def test_outage_of_kube_apiserver_ends_the_check_in_time() -> None:
    world = World()
    gone = Unavailable(0, "refused")
    assert not await world.check(lambda: world.kubernetes.outage(gone))
    assert "refused" in world.found("placeholder")


async def test_a_check_that_is_cancelled_deletes_its_pods() -> None:
    world = World(timeout_s=1_000_000)
    running = asyncio.ensure_future(world.check())
    await world.kubernetes.until(lambda: world.kubernetes.objects("pods"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.left() == []
