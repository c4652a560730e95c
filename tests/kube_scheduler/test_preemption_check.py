"""/readyz reports evictions, and possible evictions, by kube-scheduler for a Pod still waiting for
Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.kube_scheduler.preemption_check import PART, PreemptionCheck
from extender.pod_request.scope import Scope
from extender.pod_request.translation import TranslationConfig
from kubernetes_client.errors import Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import TRANSLATION, Manifest, pod_manifest
from tests.eventually import until
from tests.kube_scheduler.test_configuration import ENTRY, OURS, WITHOUT_VERB

WATCH = "watch of Events"
LOOKS = "Events of evictions"


def told(name: str, message: str, namespace: str = "default", scheduler: str = OURS) -> Manifest:
    """Returns an Event about an evicted Pod, with this message."""
    return {
        "metadata": {"name": f"{name}.1", "namespace": namespace, "uid": f"event-{namespace}-{name}"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "reason": "Preempted",
        "reportingComponent": scheduler,
        "message": message,
    }


def preempted(name: str, preemptor: Manifest, by: str = "pod", **given: str) -> Manifest:
    """Returns kube-scheduler's Event about the eviction of a Pod for a preemptor."""
    return told(name, f"Preempted by {by} {preemptor['metadata']['uid']} on node n1", **given)


def forged(number: int, namespace: str = "tenant") -> Manifest:
    """Returns an Event that any account with the right to create Events may write. Each Event names
    another missing Pod."""
    return told(f"p{number}", f"Preempted by pod nobody-{number} on node n1", namespace)


@pytest.fixture(autouse=True)
def pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the pause between two searches for a preemptor."""
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._PAUSE_S", 0.0)


def nominated(name: str, node: str = "n1", **given: Any) -> Manifest:
    """Returns a Pod for which kube-scheduler makes room on a Node."""
    manifest = pod_manifest(name, gates=(), **given)
    return manifest | {"status": {"phase": "Pending", "nominatedNodeName": node}}


class World:
    """A kube-apiserver with one urgent Pod, and the check."""

    def __init__(self, file: Path | None = None, translation: TranslationConfig = TRANSLATION) -> None:
        self.urgent = nominated("urgent")
        self.kubernetes = InMemoryKubernetes(self.urgent)
        self.health = Health()
        self.counted = 0
        self.now = 0.0
        self.check = PreemptionCheck(
            self.kubernetes, self.health, translation, file, self._count, clock=lambda: self.now
        )

    def _count(self) -> None:
        self.counted += 1

    def problem(self) -> str:
        return self.health.problems().get(PART, "")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.check.run())
        await self.kubernetes.all_sent()
        yield
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    async def happens(self, event: Manifest) -> None:
        self.kubernetes.put("events", event)
        await self.settles()

    async def settles(self) -> None:
        """Waits until the check has handled all Events, unless a call is held."""
        await self.kubernetes.all_sent()
        for _ in range(100):
            await asyncio.sleep(0)

    def lists(self) -> int:
        """Returns the number of requests for a list of Pods."""
        return self.kubernetes.calls.count("list pods")


async def test_eviction_for_a_managed_pod_is_a_problem_for_ten_minutes() -> None:
    world = World()
    async with world.running():
        assert not world.problem()
        for name in ("a", "b"):
            await world.happens(preempted(name, world.urgent))
        assert "has evicted default/a for default/urgent" in world.problem()
        assert "preemptVerb: preempt" in world.problem()
        assert world.counted == 2
        world.now = 599.0
        world.check.look()
        assert world.problem()
        world.now = 600.0
        world.check.look()
        assert not world.problem()


@pytest.mark.parametrize(
    "event",
    [
        preempted("a", nominated("urgent"), scheduler="default-scheduler"),
        preempted("a", nominated("urgent"), by="podgroup"),
        preempted("a", nominated("urgent")) | {"reason": "Evicted"},
        preempted("a", nominated("urgent")) | {"message": "Preempted by a pod on node n1"},
        preempted("a", nominated("urgent")) | {"message": None},
        preempted("a", nominated("urgent"))
        | {"metadata": {"name": "e", "namespace": "tenant", "uid": "e"}},
        preempted("a", nominated("urgent")) | {"involvedObject": {"namespace": "default"}},
        told("a", "Preempted by pod urgent-uid on node n1,metadata.namespace=default"),
    ],
    ids=["scheduler", "group", "reason", "nobody", "silent", "namespace", "nameless", "selector"],
)
async def test_other_evictions_are_ignored(event: Manifest) -> None:
    world = World()
    async with world.running():
        await world.happens(event)
        assert (world.problem(), world.counted) == ("", 0)


@pytest.mark.parametrize("where", [{"node": "elsewhere"}, {"uid": "another"}])
async def test_nominated_pod_is_managed_if_all_pods_are_in_scope(
    where: dict[str, str],
) -> None:
    for scope, counted in ((Scope(), 1), (Scope.of(["default"]), 0)):
        world = World(translation=TranslationConfig(scope=scope))
        world.kubernetes.put("pods", nominated("urgent", **where))
        async with world.running():
            await world.happens(preempted("a", world.urgent))
            assert world.counted == counted


async def test_preemptor_that_is_already_bound_is_found() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["default"])))
    world.kubernetes.put("pods", pod_manifest("urgent", gates=(), node="n1"))
    async with world.running():
        await world.happens(preempted("a", world.urgent))
        assert "for default/urgent" in world.problem()


async def test_a_pod_out_of_scope_may_preempt_in_the_same_profile() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["others"])))
    async with world.running():
        await world.happens(preempted("a", world.urgent))
        assert (world.problem(), world.counted) == ("", 0)


async def test_events_before_the_start_are_ignored() -> None:
    world = World()
    world.kubernetes.put("events", preempted("a", world.urgent))
    async with world.running():
        world.kubernetes.edit("events", "a.1", {"count": 2})
        await world.kubernetes.all_sent()
        assert (world.problem(), world.counted) == ("", 0)


async def test_forbidden_events_are_a_separate_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._RETRY_S", 0.0)
    world = World()
    world.kubernetes.outage(Rejected(403, "events is forbidden"), "pages events")
    running = asyncio.ensure_future(world.check.run())
    await until(lambda: WATCH in world.health.problems())
    world.kubernetes.outage(None)
    await world.kubernetes.all_sent()
    assert WATCH not in world.health.problems()
    running.cancel()


async def test_outage_during_the_search_for_a_preemptor_loses_no_event() -> None:
    world = World()
    async with world.running():
        world.kubernetes.outage(Unavailable(503, "busy"), "list pods")
        for name in ("a", "b"):
            await world.happens(preempted(name, world.urgent))
        assert (world.problem(), world.counted) == ("", 0)
        world.kubernetes.outage(None)
        await world.settles()
        assert world.counted == 2
        assert world.health.problems().keys() == {PART}


async def test_victims_of_one_pod_need_one_list_request() -> None:
    """A wrongly configured kube-scheduler can evict 200 Pods in 3 s."""
    world = World()
    async with world.running():
        world.kubernetes.hold("list pods")
        for number in range(200):
            world.kubernetes.put("events", preempted(f"p{number}", world.urgent))
        await world.settles()
        world.kubernetes.release()
        await world.settles()
        assert world.counted == 200
        assert world.lists() <= 2


async def test_forged_events_of_one_namespace_do_not_delay_other_namespaces() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["default"])))
    async with world.running():
        world.kubernetes.hold("list pods")
        for number in range(300):
            world.kubernetes.put("events", forged(number))
        await world.happens(preempted("a", world.urgent))
        world.kubernetes.release()
        while not world.problem():  # noqa: ASYNC110 -- it tells nobody
            await asyncio.sleep(0)
        assert world.lists() <= 2 * 3  # the held list, at most one list for the tenant, and this list
        assert "has evicted default/a for default/urgent" in world.problem()


async def test_number_of_list_requests_does_not_grow_with_the_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._PAUSE_S", 3600.0)
    world = World()
    async with world.running():
        for number in range(300):
            await world.happens(forged(number))
        assert world.lists() == 2


async def test_namespace_with_too_many_events_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._MOST", 10)
    world = World()
    async with world.running():
        world.kubernetes.hold("list pods")
        for number in range(20):
            await world.happens(forged(number))
        assert "namespace tenant has too many of them to check" in world.health.problems()[LOOKS]
        world.kubernetes.release()
        await world.settles()
        assert LOOKS not in world.health.problems()
        assert world.counted == 10


Write = Callable[[Manifest], None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kube-scheduler.yaml"


def written(file: Path, entry: Manifest) -> None:
    document = {
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": OURS}],
        "extenders": [{**ENTRY, **entry}],
    }
    file.write_text(yaml.safe_dump(document))


def test_unsafe_configuration_is_a_problem_until_it_changes(file: Path) -> None:
    world = World(file)
    for entry, words in ((WITHOUT_VERB, "has no preemptVerb"), ({}, ""), ({"ignorable": True}, "ignor")):
        written(file, entry)
        world.check.look()
        assert words in world.problem()
        assert bool(world.problem()) is bool(words)


def test_unreadable_configuration_is_a_problem_and_no_error(file: Path) -> None:
    world = World(file)
    world.check.look()
    assert "is unknown" in world.problem()
    written(file, {})
    world.check.look()
    assert not world.problem()


def test_unchanged_configuration_is_not_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(file, WITHOUT_VERB)
    world = World(file)
    world.check.look()
    monkeypatch.setattr("extender.kube_scheduler.file.read", lambda _: pytest.fail("read again"))
    world.check.look()
    assert world.problem()
