"""/readyz says where kube-scheduler evicts, or would evict, Pods for one that Slurm has not let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from extender.kube_scheduler.preemption_check import PART, PreemptionCheck
from extender.request.scope import Scope
from extender.request.translation import TranslationConfig
from kubernetes_client.errors import Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import TRANSLATION, Manifest, pod_manifest
from tests.kube_scheduler.test_configuration import ENTRY, OURS, WITHOUT_VERB

WATCH = "watch of Events"


def preempted(name: str, preemptor: Manifest, scheduler: str = OURS, kind: str = "Pod") -> Manifest:
    """The Event of kube-scheduler about a Pod that it has evicted for another."""
    metadata = preemptor["metadata"]
    return {
        "metadata": {"name": f"{name}.1", "namespace": "default", "uid": f"event-{name}"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": f"uid-{name}"},
        "related": {
            "kind": kind,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "reason": "Preempted",
        "reportingComponent": scheduler,
    }


class World:
    """A kube-apiserver with one urgent Pod, and the check beside it."""

    def __init__(self, file: Path | None = None, translation: TranslationConfig = TRANSLATION) -> None:
        self.urgent = pod_manifest("urgent", gates=())
        self.kubernetes = InMemoryKubernetes(self.urgent)
        self.health = Health()
        self.counted = 0
        self.now = 0.0
        self.check = PreemptionCheck(
            self.kubernetes, self.health, translation, file, self._count, clock=lambda: self.now
        )

    def _count(self) -> None:
        self.counted += 1

    @property
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
        await self.kubernetes.all_told()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_an_eviction_for_a_managed_pod_is_trouble_for_a_while() -> None:
    world = World()
    async with world.running():
        assert not world.trouble
        for name in ("a", "b"):
            await world.happens(preempted(name, world.urgent))
        assert "has evicted default/a for default/urgent" in world.trouble
        assert "preemptVerb: preempt" in world.trouble
        assert world.counted == 2
        world.now = 599.0
        world.check.look()
        assert world.trouble
        world.now = 600.0
        world.check.look()
        assert not world.trouble


@pytest.mark.parametrize(
    "event",
    [
        preempted("a", pod_manifest("urgent", gates=()), scheduler="default-scheduler"),
        preempted("a", pod_manifest("unmanaged")),
        preempted("a", pod_manifest("gone")),
        preempted("a", pod_manifest("urgent", uid="another")),
        preempted("a", pod_manifest("urgent"), kind="PodGroup"),
        preempted("a", pod_manifest("urgent")) | {"reason": "Evicted"},
        {key: v for key, v in preempted("a", pod_manifest("urgent")).items() if key != "related"},
    ],
    ids=["scheduler", "unmanaged", "gone", "another", "group", "reason", "nobody"],
)
async def test_other_evictions_are_none_of_its_business(event: Manifest) -> None:
    world = World()
    world.kubernetes.put("pods", pod_manifest("unmanaged", schedulerName="default-scheduler"))
    async with world.running():
        await world.happens(event)
        assert (world.trouble, world.counted) == ("", 0)


async def test_a_pod_out_of_scope_may_preempt_in_the_same_profile() -> None:
    world = World(translation=TranslationConfig(scope=Scope.of(["others"])))
    async with world.running():
        await world.happens(preempted("a", world.urgent))
        assert (world.trouble, world.counted) == ("", 0)


async def test_what_was_before_its_start_says_nothing_of_now() -> None:
    world = World()
    world.kubernetes.put("events", preempted("a", world.urgent))
    async with world.running():
        world.kubernetes.edit("events", "a.1", {"count": 2})
        await world.kubernetes.all_told()
        assert (world.trouble, world.counted) == ("", 0)


async def test_events_that_may_not_be_read_are_trouble_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extender.kube_scheduler.preemption_check._RETRY_S", 0.0)
    world = World()
    world.kubernetes.outage(Rejected(403, "events is forbidden"), "pages events")
    running = asyncio.ensure_future(world.check.run())
    while WATCH not in world.health.troubles():  # noqa: ASYNC110 -- it tells nobody
        await asyncio.sleep(0)
    world.kubernetes.outage(None)
    await world.kubernetes.all_told()
    assert WATCH not in world.health.troubles()
    running.cancel()


async def test_an_outage_while_an_eviction_is_looked_at_loses_no_later_one() -> None:
    world = World()
    async with world.running():
        world.kubernetes.outage(Unavailable(503, "busy"), "read_pod")
        await world.happens(preempted("a", world.urgent))
        world.kubernetes.outage(None)
        await world.happens(preempted("b", world.urgent))
        assert "default/b" in world.trouble


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
        assert words in world.trouble
        assert bool(world.trouble) is bool(words)


def test_a_configuration_that_cannot_be_read_is_trouble_and_ends_nothing(file: Path) -> None:
    world = World(file)
    world.check.look()
    assert "is not known" in world.trouble
    written(file, {})
    world.check.look()
    assert not world.trouble


def test_a_configuration_that_does_not_change_is_not_read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(file, WITHOUT_VERB)
    world = World(file)
    world.check.look()
    monkeypatch.setattr("extender.kube_scheduler.file.read", lambda _: pytest.fail("read again"))
    world.check.look()
    assert world.trouble
