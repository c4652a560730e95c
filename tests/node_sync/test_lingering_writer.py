"""The leader's notes reach the Nodes, and from there another replica."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from extender.jobs.tracked_job import TrackedJob
from extender.node_sync.lingering_writer import LingeringWriter
from extender.node_view.lingering_notes import LingeringNotes
from extender.record.placeholder import Lingering, Placeholder
from extender.record.states import State
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from service.health import Health
from tests.builders import node_manifest, placeholder_of, pod
from tests.eventually import until
from wellknown.allocation import Allocation
from wellknown.lingering import lingering_on


class Leader:
    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", node_manifest("n1"), node_manifest("n2"))
        self.notes, self.health = LingeringNotes(), Health()
        self.writer = LingeringWriter(self.kubernetes, self.notes, self._allowed, self.health)

    async def _allowed(self) -> None:
        pass

    def noted(self, node: str) -> list[tuple[int, str]]:
        annotations = self.kubernetes.read("nodes", node)["metadata"].get("annotations") or {}
        found = lingering_on(annotations)
        self.notes.see(node, found)  # as by the watch
        return [(each.job_id, each.pod) for each in found]

    @contextmanager
    def runs(self) -> Iterator[None]:
        task = asyncio.ensure_future(self.writer.run())
        yield
        task.cancel()


def gone(seconds: float, *nodes: str) -> Placeholder:
    until_s = asyncio.get_running_loop().time() + seconds
    slots = (Allocation(4711, node, "gpu:1(IDX:0)", "0-3") for node in nodes)
    lingering = tuple(Lingering(slot, until_s) for slot in slots)
    job = TrackedJob(id=4711)
    return placeholder_of(pod(name="gone", uid="gone"), State.RELEASING, lingering=lingering, job=job)


async def test_note_is_written_at_once_and_removed_after_its_time() -> None:
    leader = Leader()
    with leader.runs():
        await asyncio.sleep(0.1)  # nothing to do
        leader.writer.lingers(gone(1.0, "n1", "n2"))
        await until(lambda: leader.noted("n2") == [(4711, "default/gone")], within_s=0.5)
        assert leader.noted("n1") == [(4711, "default/gone")]
        assert leader.notes.on("n1")[0].slot("n1").cores == "0-3"
        await until(lambda: not leader.noted("n1") + leader.noted("n2"), within_s=5.0)


async def test_node_that_is_gone_is_no_problem_and_an_outage_is_told() -> None:
    leader = Leader()
    leader.writer.lingers(gone(30.0, "n1", "n3"))
    leader.kubernetes.outage(Unavailable(0, "no answer"), "patch_node_status")
    await leader.writer.turn()
    assert leader.health.troubles() == {"Kubernetes": "no answer"}
    leader.kubernetes.outage(None)
    await leader.writer.turn()
    assert leader.noted("n1") == [(4711, "default/gone")]
    assert leader.health.troubles() == {}
