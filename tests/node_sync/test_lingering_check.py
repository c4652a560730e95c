"""Containers may outlive their Pods. The check finds out whether such containers still have their job's
cores and devices."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest

from extender.node_sync.lingering_check import LingeringCheck
from extender.node_view.lingering_notes import LingeringNotes
from slurm_client.job_state import JobState
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from tests.builders import kube_node, view
from wellknown.lingering import LingeringNote


class FakeSlurm:
    """A Slurm with a few jobs. Records the calls."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.asked: list[set[int]] = []
        self.read: list[int] = []
        self.under_way = self.most_under_way = 0

    def has(self, job_id: int, state: str = "RUNNING", **given: Any) -> None:
        slot = {"nodes": ("gpu",), "cores": ("0-3",)}
        self.jobs[job_id] = Job(job_id, JobState.parse(state), **(slot | given))

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        self.asked.append(set(ids))
        await asyncio.sleep(0)
        return {each: self.jobs[each].state for each in self.asked[-1] if each in self.jobs}

    async def job(self, job_id: int) -> Job | None:
        self.read.append(job_id)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return self.jobs.get(job_id)


class Site:
    """A Node with notes about containers. Slurm's name for the Node is "gpu"."""

    def __init__(self) -> None:
        self.slurm, self.notes = FakeSlurm(), LingeringNotes()
        self.view = view(kube_node("n1", {"slurm": "gpu"}))
        self.check = LingeringCheck(cast(Slurm, self.slurm), lambda: self.view, self.notes)

    def note(self, *job_ids: int, seconds: float = 30.0, cores: str = "0-3", gres: str = "") -> None:
        for job_id in job_ids:
            self.notes.add("n1", LingeringNote(job_id, f"default/p{job_id}", seconds, cores, gres))


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    ("job", "in_the_way"),
    [
        ({}, []),
        ({"cores": ("0-7",)}, []),
        ({"cores": ("1-4",)}, ["default/p7"]),
        ({"nodes": ("other",)}, ["default/p7"]),
        ({"suspend_time": 1}, ["default/p7"]),
        ({"restart_count": 1}, ["default/p7"]),
        ({"state": "PENDING"}, ["default/p7"]),
        ({"state": "RUNNING,COMPLETING"}, ["default/p7"]),
        ({"state": "CANCELLED"}, ["default/p7"]),
    ],
    ids=str,
)
async def test_containers_are_in_the_way_unless_their_job_has_kept_the_cores(
    site: Site, job: dict[str, Any], in_the_way: list[str]
) -> None:
    site.note(7)
    site.slurm.has(7, **job)
    assert await site.check.in_the_way("n1") == in_the_way


async def test_containers_of_an_unknown_job_are_in_the_way(site: Site) -> None:
    site.note(7)
    assert await site.check.in_the_way("n1") == ["default/p7"]


async def test_containers_on_parts_of_another_gpu_than_the_jobs_are_in_the_way(site: Site) -> None:
    """A killed slurmctld has started the job again, on parts of the other GPU."""
    site.note(7, gres="shard:2(2/4,0/4)")
    site.slurm.has(7, gres=("shard:2(0/4,2/4)",))
    assert await site.check.in_the_way("n1") == ["default/p7"]


async def test_slurm_is_asked_once_about_all_jobs_on_a_node(site: Site) -> None:
    ended, holding = range(1, 50), range(50, 60)
    site.note(*ended, *holding)
    for job_id in ended:
        site.slurm.has(job_id, "CANCELLED")
    for job_id in holding:
        site.slurm.has(job_id)
    assert await site.check.in_the_way("n1") == [f"default/p{number}" for number in ended]
    assert site.slurm.asked == [{*ended, *holding}]
    assert sorted(site.slurm.read) == list(holding)
    assert site.slurm.most_under_way == len(holding)


async def test_job_that_has_ended_is_not_asked_about_again(site: Site) -> None:
    site.note(7, 8)
    site.slurm.has(7, "CANCELLED")
    site.slurm.has(8, "PENDING")
    for _ in range(2):
        assert await site.check.in_the_way("n1") == ["default/p7", "default/p8"]
    assert site.slurm.asked == [{7, 8}, {8}]


@pytest.mark.parametrize("others", [(), (8,)])
async def test_ended_job_is_forgotten_with_its_last_note(site: Site, others: Sequence[int]) -> None:
    """Slurm may use the id of an ended job again."""
    for other in others:
        site.note(other, cores="4-7")
        site.slurm.has(other, cores=("4-7",))
    site.note(7, seconds=0.05)
    site.slurm.has(7, "CANCELLED")
    assert await site.check.in_the_way("n1") == ["default/p7"]
    await asyncio.sleep(0.06)
    assert await site.check.in_the_way("n1") == []
    site.note(7)
    site.slurm.has(7)
    assert await site.check.in_the_way("n1") == []
    assert site.slurm.read[-1] == 7


async def test_job_of_a_deleted_node_is_found_by_the_name_of_slurms_node(site: Site) -> None:
    site.view = view()
    site.note(7)
    site.slurm.has(7)
    assert await site.check.in_the_way("n1", "gpu") == []
    assert await site.check.in_the_way("n1") == ["default/p7"]


async def test_node_without_notes_asks_nothing(site: Site) -> None:
    site.note(7)
    assert site.check.may_linger("n1")
    assert not site.check.may_linger("n2")
    assert await site.check.in_the_way("n2") == []
    assert site.slurm.asked == []
