"""Tests of the Pod watch: the watch reads a request again only after a relevant change, and applies the
policy to each version of a Pod."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from extender.execution.dispatcher import Dispatcher
from extender.execution.pod_watch import PodWatch
from extender.pod_request.grace_period import GraceRule
from extender.pod_request.scope import Scope
from extender.pod_request.translation import TranslationConfig
from extender.policy.current import CurrentPolicy
from extender.record.events import Event, PodObserved
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import PREFIX, Manifest, pod_manifest


def version(generation: int | None, **given: Any) -> Manifest:
    manifest = pod_manifest(uid="u1", **given)
    if generation is not None:
        manifest["metadata"]["generation"] = generation
    return manifest


def watch_of(
    *pods: Manifest, translation: Callable[[], TranslationConfig] = TranslationConfig
) -> PodWatch:
    return PodWatch(InMemoryKubernetes(*pods), translation, Health(), CurrentPolicy(None, "open"))


def test_changed_spec_is_read_for_any_generation() -> None:
    """Before 1.33, kube-apiserver does not set the generation of a Pod, and keeps the author's value."""
    watch = watch_of()
    versions = version(None, cpu="1"), version(None, cpu="2"), version(7, cpu="3"), version(7, cpu="4")
    assert [watch.parse(one).request.job.cpus for one in versions] == [1, 2, 3, 4]


def test_request_is_not_read_again_after_a_change_of_phase_gates_or_node() -> None:
    watch = watch_of()
    first = watch.parse(version(1))
    assert (first.gated, first.life.node) == (True, None)
    assert watch.parse(version(2, phase="Running")).request is first.request
    for node in (None, "node-1"):
        placed = watch.parse(version(2, gates=(), node=node))
        assert (placed.gated, placed.life.node) == (False, node)
        assert placed.request is first.request


def test_a_changed_annotation_is_read() -> None:
    watch = watch_of()
    for comment in ("first", "second"):
        annotated = version(1, annotations={PREFIX + "comment": comment})
        assert watch.parse(annotated).request.job.comment == comment


def test_pod_is_read_again_after_a_change_of_kill_wait() -> None:
    before, after = TranslationConfig(), TranslationConfig(grace=GraceRule(60))
    translations = iter((before, before, after, after))
    watch = watch_of(translation=lambda: next(translations))
    slow = version(1, terminationGracePeriodSeconds=40)
    assert [bool(watch.parse(slow).request.problems) for _ in range(3)] == [True, False, False]


async def test_pods_out_of_scope_are_not_listed() -> None:
    near, far = version(1, gates=(), name="near"), version(1, gates=(), name="far")
    near["metadata"] |= {"uid": "near", "labels": {"slurm": "yes"}}
    far["metadata"]["uid"] = "far"
    watch = watch_of(near, far, translation=labelled)
    assert [pod.name for pod in await watch.list()] == ["near"]


async def test_managed_pod_that_leaves_the_scope_gets_a_problem() -> None:
    inside, outside = version(1, gates=()), version(1, gates=())
    inside["metadata"]["labels"] = {"slurm": "yes"}
    kubernetes = InMemoryKubernetes()
    watch = PodWatch(kubernetes, labelled, Health(), CurrentPolicy(None, "open"))
    problems = []
    for manifest in (inside, outside, inside):
        kubernetes.put("pods", manifest)
        (pod,) = await watch.list()
        problems.append(len(pod.request.problems))
    assert problems == [0, 1, 0]


SCOPE = TranslationConfig(scope=Scope.of(selector="slurm=yes"))


def labelled() -> TranslationConfig:
    return SCOPE


# The policy

ALICE = "rules: [{namespaces: [default], default: {user: 2001}}]"
BOB = ALICE.replace("2001", "2002")
NOBODY = "rules: []"


class Heard:
    """Records events, in place of the dispatcher."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def feed(self, event: Event) -> None:
        self.events.append(event)

    @property
    def owners(self) -> dict[str, int | None]:
        """Returns the users of the observed Pods, by name; None for a refused Pod. Forgets the
        events."""
        pods = [event.pod for event in self.events if isinstance(event, PodObserved)]
        self.events.clear()
        return {pod.name: None if pod.request.problems else pod.request.job.user_id for pod in pods}


class Watched:
    """A watch of Pods under a policy in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_text(ALICE)
        self.policy = CurrentPolicy(file)
        self.watch = PodWatch(InMemoryKubernetes(), TranslationConfig, Health(), self.policy)
        self.heard = Heard()

    def see(self, **given: Any) -> tuple[str, ...]:
        """Reads a version of a Pod, always with the same generation, and returns the problems."""
        manifest = pod_manifest(**given)
        manifest["metadata"]["generation"] = 1
        return self.watch.parse(manifest).request.problems

    def write(self, text: str) -> None:
        self._file.write_text(text)
        for _ in range(2):
            self.policy.look(self._file)

    async def change(self, text: str) -> dict[str, int | None]:
        """Changes the policy, and returns the users of the Pods that the dispatcher observes."""
        await self.watch.list()
        following = asyncio.ensure_future(self.watch.run(cast(Dispatcher, self.heard)))
        await asyncio.sleep(0.01)
        self.write(text)
        await asyncio.sleep(0.01)
        following.cancel()
        return self.heard.owners


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "policy.yaml")


def test_policy_is_applied_to_every_version_of_a_pod(watched: Watched) -> None:
    foreign = {PREFIX + "user-id": "2002"}
    assert watched.see(uid="u") == ()
    (told,) = watched.see(uid="u", annotations=foreign)
    assert 'user-id: "2002" is not allowed' in told
    assert watched.see(uid="u", phase="Running", annotations=foreign) == (told,)
    assert watched.see(uid="u") == ()


async def test_policy_change_is_applied_to_waiting_pods(watched: Watched) -> None:
    watched.see(name="a")
    watched.see(name="b", annotations={PREFIX + "user-id": "2002"})
    watched.see(name="bound", node="n1")
    assert await watched.change(BOB) == {"a": 2002, "b": 2002}
    assert await watched.change(NOBODY) == {"a": None, "b": None}
    assert await watched.change(ALICE) == {"a": 2001, "b": None}


async def test_running_invalid_pod_is_reported_once_allowed(watched: Watched) -> None:
    """Perhaps the extender does not know the policy under which the Pod started."""
    watched.see(name="bound", node="n1", annotations={PREFIX + "user-id": "2002"})
    assert await watched.change(BOB) == {"bound": 2002}


async def test_policy_change_without_effect_reports_no_pods(watched: Watched) -> None:
    watched.see(name="a")
    assert await watched.change("preset: open\n" + ALICE) == {}


async def test_policy_change_between_a_list_and_its_watch_is_applied(watched: Watched) -> None:
    watched.see(name="a")
    watched.write(BOB)
    assert await watched.change(BOB + " ") == {"a": 2002}


def test_new_version_of_a_pod_uses_the_changed_policy(watched: Watched) -> None:
    assert watched.see(uid="u") == ()
    watched.write(NOBODY)
    assert watched.see(uid="u") != ()
