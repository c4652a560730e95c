"""/readyz says where kube-scheduler evicts, or would evict, Pods for one that Slurm has not let in."""

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
    """An Event about a Pod that is evicted, with these words."""
    return {
        "metadata": {"name": f"{name}.1", "namespace": namespace, "uid": f"event-{namespace}-{name}"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "reason": "Preempted",
        "reportingComponent": scheduler,
        "message": message,
    }


def preempted(name: str, preemptor: Manifest, by: str = "pod", **given: str) -> Manifest:
    """The Event of kube-scheduler about a Pod that it has evicted for another."""
    return told(name, f"Preempted by {by} {preemptor['metadata']['uid']} on node n1", **given)


def forged(number: int, namespace: str = "tenant") -> Manifest:
    """What anybody may write who may write Events: each names another Pod, which there is not."""
    return told(f"p{number}", f"Preempted by pod nobody-{number} on node n1", namespace)


@pytest.fixture(autouse=True)
def pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """None between two preemptors that are looked for."""
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._PAUSE_S", 0.0)


def nominated(name: str, node: str = "n1", **given: Any) -> Manifest:
    """A Pod for which kube-scheduler makes room on a Node."""
    manifest = pod_manifest(name, gates=(), **given)
    return manifest | {"status": {"phase": "Pending", "nominatedNodeName": node}}


class World:
    """A kube-apiserver with one urgent Pod, and the check beside it."""

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

    def trouble(self) -> str:
        return self.health.troubles().get(PART, "")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.check.run())
        await self.kubernetes.all_told()
        yield
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    async def happens(self, event: Manifest) -> None:
        self.kubernetes.put("events", event)
        await self.settles()

    async def settles(self) -> None:
        """What was told has been looked at, where nothing holds it up."""
        await self.kubernetes.all_told()
        for _ in range(100):
            await asyncio.sleep(0)

    def lists(self) -> int:
        """How many lists of Pods kube-apiserver was asked for."""
        return self.kubernetes.calls.count("list pods")


async def test_an_eviction_for_a_managed_pod_is_trouble_for_a_while() -> None:
    world = World()
    async with world.running():
        assert not world.trouble()
        for name in ("a", "b"):
            await world.happens(preempted(name, world.urgent))
        assert "has evicted default/a for default/urgent" in world.trouble()
        assert "preemptVerb: preempt" in world.trouble()
        assert world.counted == 2
        world.now = 599.0
        world.check.look()
        assert world.trouble()
        world.now = 600.0
        world.check.look()
        assert not world.trouble()


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
async def test_other_evictions_are_none_of_its_business(event: Manifest) -> None:
    world = World()
    async with world.running():
        await world.happens(event)
        assert (world.trouble(), world.counted) == ("", 0)


@pytest.mark.parametrize("where", [{"node": "elsewhere"}, {"uid": "another"}])
async def test_a_pod_of_the_profile_that_has_gone_on_is_managed_where_all_are(
    where: dict[str, str],
) -> None:
    for scope, counted in ((Scope(), 1), (Scope.of(["default"]), 0)):
        world = World(translation=TranslationConfig(scope=scope))
        world.kubernetes.put("pods", nominated("urgent", **where))
        async with world.running():
            await world.happens(preempted("a", world.urgent))
            assert world.counted == counted


async def test_a_pod_that_is_bound_by_now_is_found() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["default"])))
    world.kubernetes.put("pods", pod_manifest("urgent", gates=(), node="n1"))
    async with world.running():
        await world.happens(preempted("a", world.urgent))
        assert "for default/urgent" in world.trouble()


async def test_a_pod_out_of_scope_may_preempt_in_the_same_profile() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["others"])))
    async with world.running():
        await world.happens(preempted("a", world.urgent))
        assert (world.trouble(), world.counted) == ("", 0)


async def test_what_was_before_its_start_says_nothing_of_now() -> None:
    world = World()
    world.kubernetes.put("events", preempted("a", world.urgent))
    async with world.running():
        world.kubernetes.edit("events", "a.1", {"count": 2})
        await world.kubernetes.all_told()
        assert (world.trouble(), world.counted) == ("", 0)


async def test_events_that_may_not_be_read_are_trouble_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._RETRY_S", 0.0)
    world = World()
    world.kubernetes.outage(Rejected(403, "events is forbidden"), "pages events")
    running = asyncio.ensure_future(world.check.run())
    await until(lambda: WATCH in world.health.troubles())
    world.kubernetes.outage(None)
    await world.kubernetes.all_told()
    assert WATCH not in world.health.troubles()
    running.cancel()


async def test_an_outage_while_a_preemptor_is_looked_for_loses_nothing() -> None:
    world = World()
    async with world.running():
        world.kubernetes.outage(Unavailable(503, "busy"), "list pods")
        for name in ("a", "b"):
            await world.happens(preempted(name, world.urgent))
        assert (world.trouble(), world.counted) == ("", 0)
        world.kubernetes.outage(None)
        await world.settles()
        assert world.counted == 2
        assert world.health.troubles().keys() == {PART}


async def test_the_victims_of_one_pod_take_one_look() -> None:
    """A kube-scheduler that evicts wrongly evicted 200 in 3 s."""
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


async def test_forged_events_of_one_namespace_hold_up_no_other() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["default"])))
    async with world.running():
        world.kubernetes.hold("list pods")
        for number in range(300):
            world.kubernetes.put("events", forged(number))
        await world.happens(preempted("a", world.urgent))
        world.kubernetes.release()
        while not world.trouble():  # noqa: ASYNC110 -- it tells nobody
            await asyncio.sleep(0)
        assert world.lists() <= 2 * 3  # the one that was held, at most one of the tenant's, and this one
        assert "has evicted default/a for default/urgent" in world.trouble()


async def test_how_often_kube_apiserver_is_asked_does_not_grow_with_the_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._PAUSE_S", 3600.0)
    world = World()
    async with world.running():
        for number in range(300):
            await world.happens(forged(number))
        assert world.lists() == 2


async def test_more_events_than_are_looked_at_are_trouble_with_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._MOST", 10)
    world = World()
    async with world.running():
        world.kubernetes.hold("list pods")
        for number in range(20):
            await world.happens(forged(number))
        assert "namespace tenant has too many of them to check" in world.health.troubles()[LOOKS]
        world.kubernetes.release()
        await world.settles()
        assert LOOKS not in world.health.troubles()
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


def test_a_configuration_by_which_it_would_evict_is_trouble_until_it_is_another(file: Path) -> None:
    world = World(file)
    for entry, words in ((WITHOUT_VERB, "has no preemptVerb"), ({}, ""), ({"ignorable": True}, "ignor")):
        written(file, entry)
        world.check.look()
        assert words in world.trouble()
        assert bool(world.trouble()) is bool(words)


def test_a_configuration_that_cannot_be_read_is_trouble_and_ends_nothing(file: Path) -> None:
    world = World(file)
    world.check.look()
    assert "is unknown" in world.trouble()
    written(file, {})
    world.check.look()
    assert not world.trouble()


def test_a_configuration_that_does_not_change_is_not_read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(file, WITHOUT_VERB)
    world = World(file)
    world.check.look()
    monkeypatch.setattr("extender.kube_scheduler.file.read", lambda _: pytest.fail("read again"))
    world.check.look()
    assert world.trouble()
