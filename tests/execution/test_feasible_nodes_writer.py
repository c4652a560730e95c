"""Tests of the annotation with feasible Nodes after a refused Node, and of the time until departing Pods
are gone."""

import asyncio
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from extender.execution.feasible_nodes_writer import FeasibleNodesWriter
from extender.node_view.pods_on_node import vacated_in
from extender.pod_request.feasible_nodes import FeasibleNodes
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import Manifest, pod_manifest
from wellknown.allocation import Allocation

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
POD = pod_manifest(name="p", uid="u1")


async def told(kubernetes: InMemoryKubernetes, *jobs: int, health: Health | None = None) -> None:
    """Reports feasible Nodes for each job, and waits until the Pod has the annotation for the last
    job."""
    writer = FeasibleNodesWriter(kubernetes, health or Health())
    running = asyncio.ensure_future(writer.run())
    for job_id in jobs:
        writer.tell(POD, Allocation(job_id, "n1"), ["n2", "n3"])

    def says() -> bool:
        annotations = kubernetes.read("pods", "p")["metadata"].get("annotations") or {}
        return FeasibleNodes.parse(annotations) == FeasibleNodes(jobs[-1], ("n2", "n3"))

    await asyncio.wait_for(kubernetes.until(says), 10)
    running.cancel()


async def test_annotation_names_the_feasible_nodes_and_the_job() -> None:
    await told(InMemoryKubernetes(POD), 7)


async def test_failed_write_delays_no_later_write() -> None:
    kubernetes = InMemoryKubernetes(POD)
    kubernetes.lose_reply_of_next("patch_pod")
    await told(kubernetes, 7, 8)


@pytest.mark.parametrize(("known", "level"), [(False, "info"), (True, "debug")])
async def test_failed_write_is_logged_except_in_an_outage(known: bool, level: str) -> None:
    health, kubernetes = Health(), InMemoryKubernetes(POD)
    kubernetes.lose_reply_of_next("patch_pod")
    if known:
        health.says("Lease", Unavailable(503, "down"))
    with capture_logs() as logs:
        await told(kubernetes, 7, 8, health=health)
    line = next(line for line in logs if line["event"] == "feasible Nodes not written")
    assert line["log_level"] == level
    assert (line["pod"], line["uid"], line["job"]) == ("default/p", "u1", 7)


def test_more_nodes_than_an_annotation_holds_are_not_named() -> None:
    offer = FeasibleNodes(7, tuple(f"n{number}" for number in range(5000)))
    assert FeasibleNodes.parse(offer.annotations()) == FeasibleNodes(7)


WITHIN_S = 35.0


def leaving(stamp: str | None, grace: int = 30) -> Manifest:
    manifest = pod_manifest(name="old")
    if stamp is not None:
        manifest["metadata"]["deletionTimestamp"] = stamp
        manifest["metadata"]["deletionGracePeriodSeconds"] = grace
    return manifest


STUCK, SLOW = leaving("2026-01-01T11:59:00Z"), leaving("2026-01-02T12:00:00Z", 86_400)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        ([leaving(None), leaving("2026-01-01T12:00:10Z"), leaving("2026-01-01T12:00:30Z")], 35.0),
        ([leaving("2026-01-01T13:00:00Z")], 35.0),  # clocks differ: the wait is at most the grace period
        *(([], 0.0), ([leaving(None)], 0.0), ([STUCK], 0.0)),
        *(([SLOW], 0.0), ([SLOW, leaving("2026-01-01T12:00:10Z")], 15.0)),
        ([leaving("2026-01-01T12:00:35Z", 86_400)], 40.0),  # little of the grace period is left
        ([leaving("2026-01-01T12:00:36Z", 86_400)], 0.0),
    ],
)
def test_node_is_clear_when_the_last_departing_pod_is_gone(pods: list[Manifest], seconds: float) -> None:
    assert vacated_in(pods, NOW, WITHIN_S) == seconds
