"""Jobs that lose their key, their name or their size: somebody changes them by scontrol."""

from __future__ import annotations

import pytest

from tests.end_to_end.people import People, eventually

pytestmark = pytest.mark.real

ALICES = {"user-id": "2001"}


def number_of(people: People, name: str) -> int:
    job = people.job_of(name)
    assert job is not None
    return job.id


def as_alice(people: People, job_id: int, change: str) -> None:
    people.cluster.run_slurm("scontrol", "update", f"JobId={job_id}", change, user="alice")


def filled(people: People) -> list[str]:
    """All nodes are taken by these Pods."""
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        people.create(name, cpu="8")
    for name in names:
        people.bound(name)
    return names


def test_a_job_whose_key_an_administrator_overwrote_ends_with_its_pod(people: People) -> None:
    """Whoever leads when the Pod goes."""
    people.create("p", annotations=ALICES)
    people.bound("p")
    job_id = number_of(people, "p")
    people.cluster.run_slurm("scontrol", "update", f"JobId={job_id}", "AdminComment=ours")
    people.cluster.stop("extender")
    people.cluster.start("extender")
    people.delete("p")
    people.gone("p", 45)
    eventually(lambda: people.job_of("p") is None, "its job cancelled")


def test_a_job_that_its_owner_renamed_ends_with_its_pod(people: People) -> None:
    people.create("p", annotations=ALICES)
    people.bound("p")
    job_id = number_of(people, "p")
    as_alice(people, job_id, "JobName=mine")
    people.delete("p")
    people.gone("p", 45)
    eventually(lambda: not any(job.id == job_id for job in people.squeue().values()), "it cancelled")


@pytest.mark.parametrize(
    ("change", "field"), [("NumCPUs=1", "NumCPUs"), ("TresPerNode=gres/gpu:1", "TresPerNode")]
)
def test_a_job_that_its_owner_shrank_is_replaced(people: People, change: str, field: str) -> None:
    big = filled(people)
    people.create("p", cpu="6", gpus=2, annotations=ALICES)
    job_id = people.queued("p").id
    whole = people.scontrol("p")[field]
    as_alice(people, job_id, change)
    eventually(lambda: (job := people.job_of("p")) and job.id != job_id, "another job", 30)
    told = eventually(lambda: people.events("p").get("SlurmJobChanged"), "its author told")
    assert "instead of" in str(told)
    people.delete(big[0])
    people.bound("p", 60)
    assert people.scontrol("p")[field] == whole
