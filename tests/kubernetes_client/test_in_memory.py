"""Tests of the functions by which other tests control the in-memory kube-apiserver. The contract tests
cover its replies."""

import asyncio
from typing import Any

import orjson
import pytest

from kubernetes_client.errors import Conflict, Rejected, Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.watch import ResourceWatch
from tests.builders import Manifest, node_manifest, pod_manifest
from wellknown.pauses import Pauses

DOWN = Unavailable(0, "kube-apiserver does not answer")
ANNOTATED: Manifest = {"metadata": {"annotations": {"x": "y"}}}


async def annotate(kubernetes: InMemoryKubernetes) -> Any:
    return await kubernetes.patch_pod("default", "p", ANNOTATED)


def annotated(kubernetes: InMemoryKubernetes) -> bool:
    return "annotations" in kubernetes.read("pods", "p")["metadata"]


async def first_of(watch: ResourceWatch) -> Manifest:
    async for change in watch.changes():
        return dict(change.manifest)
    raise AssertionError


async def test_calls_during_an_outage_fail_without_effect() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest())
    kubernetes.outage(DOWN)
    with pytest.raises(Unavailable):
        await annotate(kubernetes)
    assert not annotated(kubernetes)
    kubernetes.outage(None)
    await annotate(kubernetes)
    assert kubernetes.calls == ["patch_pod"] * 2


async def test_outage_can_be_limited_to_some_calls_and_kinds() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest())
    kubernetes.outage(Rejected(403, "forbidden"), "patch_pod", "list nodes")
    with pytest.raises(Rejected):
        await annotate(kubernetes)
    with pytest.raises(Rejected):
        await kubernetes.list("nodes", None)
    assert len((await kubernetes.list("pods", None))["items"]) == 1
    kubernetes.outage(None, "patch_pod")
    await annotate(kubernetes)
    with pytest.raises(Rejected):
        await kubernetes.list("nodes", None)


async def test_an_outage_breaks_open_watches() -> None:
    kubernetes = InMemoryKubernetes()
    async with kubernetes.watch("pods", None, "0", 60) as pieces:
        kubernetes.outage(DOWN)
        with pytest.raises(Unavailable):
            await anext(aiter(pieces))


async def test_held_call_takes_effect_when_released() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest())
    kubernetes.hold("patch_pod")
    call = asyncio.ensure_future(annotate(kubernetes))
    assert await kubernetes.read_pod("default", "p")
    assert not annotated(kubernetes)
    kubernetes.release()
    await call
    assert annotated(kubernetes)


async def test_call_with_a_lost_reply_has_taken_effect() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest())
    kubernetes.lose_reply_of_next("patch_pod")
    with pytest.raises(Unavailable):
        await annotate(kubernetes)
    assert annotated(kubernetes)
    await annotate(kubernetes)


async def test_caller_can_wait_for_a_write() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest())
    waiting = asyncio.ensure_future(kubernetes.until(lambda: annotated(kubernetes)))
    await annotate(kubernetes)
    await asyncio.wait_for(waiting, 1)


async def test_caller_can_wait_until_a_watch_has_reported_all_changes() -> None:
    kubernetes, told = InMemoryKubernetes(), list[str]()
    watch = ResourceWatch(kubernetes, "pods")
    await watch.list()

    async def follow() -> None:
        async for change in watch.changes():
            told.append(change.manifest["metadata"]["name"])

    following = asyncio.ensure_future(follow())
    for name in "abc":
        kubernetes.put("pods", pod_manifest(name))
        await asyncio.wait_for(kubernetes.all_sent(), 1)
        assert told[-1] == name
    following.cancel()


async def test_change_can_be_made_just_before_the_next_call() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest(version="7"))

    async def meanwhile() -> None:
        kubernetes.edit("pods", "p", ANNOTATED)

    kubernetes.before_next("patch_pod", meanwhile)
    with pytest.raises(Conflict):
        await kubernetes.patch_pod("default", "p", {"metadata": {"resourceVersion": "7"}})
    await annotate(kubernetes)


async def test_objects_keep_their_given_uid_and_version() -> None:
    kubernetes = InMemoryKubernetes(pod_manifest(uid="u1", version="7"))
    assert kubernetes.read("pods", "p") == pod_manifest(uid="u1", version="7")
    kubernetes.put("nodes", node_manifest("n1"))
    assert kubernetes.read("nodes", "n1")["metadata"]["resourceVersion"] == "8"
    kubernetes.put("pods", pod_manifest(uid="u2", version="7"))
    replaced = kubernetes.read("pods", "p")["metadata"]
    assert (replaced["uid"], int(replaced["resourceVersion"]) > 8) == ("u2", True)


async def test_after_a_compaction_a_watch_lists_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes_client.watch._PAUSES", Pauses(0.0, 0.0))
    kubernetes = InMemoryKubernetes()
    watch = ResourceWatch(kubernetes, "pods")
    await watch.list()
    kubernetes.put("pods", pod_manifest())
    kubernetes.compact()
    assert (await first_of(watch))["metadata"]["name"] == "p"
    assert kubernetes.calls == ["pages pods", "watch pods", "pages pods"]


async def test_open_watch_can_get_a_bookmark_and_be_ended() -> None:
    kubernetes = InMemoryKubernetes()
    async with kubernetes.watch("pods", "spec.nodeName=n1", "1", 60) as pieces:
        kubernetes.put("pods", pod_manifest("elsewhere", node="n2"))
        kubernetes.bookmark()
        told = orjson.loads(await anext(aiter(pieces)))
        assert (told["type"], told["object"]) == ("BOOKMARK", {"metadata": {"resourceVersion": "100"}})
        kubernetes.end_watches()
        assert [piece async for piece in pieces] == []


async def test_selector_of_an_unknown_field_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"spec\.unschedulable"):
        await InMemoryKubernetes().list("pods", "spec.unschedulable=true")
