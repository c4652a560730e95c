"""The leader's notes reach the Nodes, and other replicas read the notes from the Nodes."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from extender.jobs.tracked_job import TrackedJob
from extender.node_sync.lingering_writer import LingeringWriter
from extender.node_view.lingering_notes import LingeringNotes
from extender.record.placeholder import LingeringContainers, Placeholder
from extender.record.states import State
from kubernetes_client.errors import Unavailable
from kubernetes_client.in_memory import InMemoryKubernetes
from kubernetes_client.protocol import Manifest
from service.health import Health
from tests.builders import node_manifest, placeholder_of, pod
from tests.eventually import until
from wellknown.allocation import Allocation
from wellknown.lingering import lingering_on

GONE = (4711, "default/gone")


class SlowKubernetes(InMemoryKubernetes):
    """Answers a PATCH of n1 only after `answers` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.patched: list[str] = []

    async def patch_node_status(self, name: str, patch: Manifest) -> None:
        self.patched.append(name)
        if name == "n1":
            await self.answers.wait()
        await super().patch_node_status(name, patch)


class Leader:
    def __init__(self) -> None:
        self.kubernetes = SlowKubernetes()
        self.kubernetes.put("nodes", node_manifest("n1"), node_manifest("n2"))
        self.notes, self.health = LingeringNotes(), Health()
        self.writer = LingeringWriter(self.kubernetes, self.notes, self._allowed, self.health)

    async def _allowed(self) -> None:
        pass

    def noted(self, node: str) -> list[tuple[int, str]]:
        annotations = self.kubernetes.read("nodes", node)["metadata"].get("annotations") or {}
        return [(each.job_id, each.pod) for each in lingering_on(annotations).notes]

    @contextmanager
    def runs(self) -> Iterator[None]:
        task = asyncio.ensure_future(self.writer.run())
        try:
            yield
        finally:
            task.cancel()


def gone(seconds: float, *nodes: str, name: str = "gone") -> Placeholder:
    until_s = asyncio.get_running_loop().time() + seconds
    slots = (Allocation(4711, node, "gpu:1(IDX:0)", "0-3") for node in nodes)
    lingering = tuple(LingeringContainers(slot, until_s) for slot in slots)
    job = TrackedJob(id=4711)
    return placeholder_of(pod(name=name, uid=name), State.RELEASING, lingering=lingering, job=job)


async def test_note_is_written_at_once_and_removed_after_its_time() -> None:
    leader = Leader()
    with leader.runs():
        await asyncio.sleep(0.1)  # nothing to do
        leader.writer.lingers(gone(1.0, "n1", "n2"))
        await until(lambda: leader.noted("n2") == [GONE], within_s=0.5)
        assert leader.noted("n1") == [GONE]
        assert leader.notes.on("n1")[0].slot("n1").cores == "0-3"
        await until(lambda: not leader.noted("n1") + leader.noted("n2"), within_s=5.0)
    assert Counter(leader.kubernetes.patched) == {"n1": 2, "n2": 2}


async def test_slow_patch_of_a_node_delays_no_note_on_another_node() -> None:
    leader = Leader()
    leader.kubernetes.answers.clear()
    with leader.runs():
        leader.writer.lingers(gone(30.0, "n1"))
        await until(lambda: leader.kubernetes.patched == ["n1"])
        leader.writer.lingers(gone(30.0, "n2"))
        await until(lambda: leader.noted("n2") == [GONE], within_s=1.0)
        assert leader.noted("n1") == []


async def test_note_added_during_a_patch_is_written_after_the_patch() -> None:
    leader = Leader()
    leader.kubernetes.answers.clear()
    with leader.runs():
        leader.writer.lingers(gone(30.0, "n1"))
        await until(lambda: leader.kubernetes.patched == ["n1"])
        leader.writer.lingers(gone(30.0, "n1", name="next"))
        await asyncio.sleep(0.05)
        assert leader.kubernetes.patched == ["n1"]
        leader.kubernetes.answers.set()
        await until(lambda: leader.noted("n1") == [GONE, (4711, "default/next")], within_s=1.0)
        assert leader.kubernetes.patched == ["n1", "n1"]


async def test_note_of_a_deleted_node_is_no_problem_and_an_outage_is_reported() -> None:
    leader = Leader()
    leader.kubernetes.outage(Unavailable(0, "no answer"), "patch_node_status")
    with leader.runs():
        leader.writer.lingers(gone(30.0, "n1", "n3"))
        await until(lambda: leader.health.problems() == {"Kubernetes": "no answer"})
        leader.kubernetes.outage(None)
        await until(lambda: leader.noted("n1") == [GONE])
        await until(lambda: not leader.health.problems())
        await until(lambda: not leader.notes.outdated())
