"""What is told of refused Nodes, and of Nodes that are being vacated."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import cast

from extender.kubernetes_api import KubernetesApi, Unavailable
from extender.placement.workload import Allocation, Offer
from extender.refusals import Refusals
from extender.vacating import vacated_in
from tests.builders import Manifest, pod_manifest

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
POD = pod_manifest(name="p", uid="u1")


class FakeKubernetes:
    """Takes patches down; fails the first where a test wants it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.patches: asyncio.Queue[Manifest] = asyncio.Queue()

    async def patch_pod(self, _namespace: str, _name: str, patch: Manifest) -> Manifest:
        if self.fails:
            self.fails = False
            raise Unavailable(503, "down")
        self.patches.put_nowait(patch)
        return {}


async def told(kubernetes: FakeKubernetes, *jobs: int) -> Manifest:
    """The first patch that gets through."""
    refusals = Refusals(cast(KubernetesApi, kubernetes))
    running = asyncio.ensure_future(refusals.run())
    for job_id in jobs:
        refusals.tell(POD, Allocation(job_id, "n1"), ["n2", "n3"])
    patch = await asyncio.wait_for(kubernetes.patches.get(), 10)
    running.cancel()
    return patch


async def test_the_pod_says_which_nodes_were_offered_instead_of_which_jobs() -> None:
    patch = await told(FakeKubernetes(), 7)
    assert patch["metadata"]["uid"] == "u1"
    assert Offer.parse(patch["metadata"]["annotations"]) == Offer(7, ("n2", "n3"))


async def test_what_cannot_be_told_holds_nothing_up() -> None:
    patch = await told(FakeKubernetes(fails=True), 7, 8)
    assert Offer.parse(patch["metadata"]["annotations"]) == Offer(8, ("n2", "n3"))


def test_more_nodes_than_an_annotation_holds_are_not_named() -> None:
    offer = Offer(7, tuple(f"n{number}" for number in range(5000)))
    assert Offer.parse(offer.annotations()) == Offer(7)


WITHIN_S = 35.0


def leaving(stamp: str | None, grace: int = 30) -> Manifest:
    manifest = pod_manifest(name="old")
    if stamp is not None:
        manifest["metadata"]["deletionTimestamp"] = stamp
        manifest["metadata"]["deletionGracePeriodSeconds"] = grace
    return manifest


def test_a_node_is_clear_when_the_last_departing_pod_is_gone() -> None:
    pods = [leaving(None), leaving("2026-01-01T12:00:10Z"), leaving("2026-01-01T12:00:30Z")]
    assert vacated_in(pods, NOW, WITHIN_S) == 35.0


def test_a_clock_that_is_slow_waits_no_longer_than_the_grace() -> None:
    assert vacated_in([leaving("2026-01-01T13:00:00Z")], NOW, WITHIN_S) == 35.0


def test_a_node_that_nobody_leaves_or_only_a_stuck_pod_is_not_waited_for() -> None:
    assert vacated_in([], NOW, WITHIN_S) == 0.0
    assert vacated_in([leaving(None)], NOW, WITHIN_S) == 0.0
    assert vacated_in([leaving("2026-01-01T11:59:00Z")], NOW, WITHIN_S) == 0.0


def test_a_pod_that_leaves_within_a_day_is_not_waited_for_until_little_of_that_is_left() -> None:
    slow = leaving("2026-01-02T12:00:00Z", 86_400)
    assert vacated_in([slow], NOW, WITHIN_S) == 0.0
    assert vacated_in([slow, leaving("2026-01-01T12:00:10Z")], NOW, WITHIN_S) == 15.0
    assert vacated_in([leaving("2026-01-01T12:00:35Z", 86_400)], NOW, WITHIN_S) == 40.0
    assert vacated_in([leaving("2026-01-01T12:00:36Z", 86_400)], NOW, WITHIN_S) == 0.0
