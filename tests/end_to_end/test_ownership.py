"""Tests of jobs whose key, name or size changes by scontrol, and of steps in the jobs of Pods."""

from __future__ import annotations

import pytest

from deploy.local.errors import ClusterError
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

ALICES = {"user-id": "2001"}


def number_of(actors: Actors, name: str) -> int:
    job = actors.job_of(name)
    assert job is not None
    return job.id


def as_alice(actors: Actors, job_id: int, change: str) -> None:
    actors.cluster.run_slurm("scontrol", "update", f"JobId={job_id}", change, user="alice")


def filled(actors: Actors) -> list[str]:
    """Fills all nodes with Pods. Returns the names."""
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        actors.create(name, cpu="8")
    for name in names:
        actors.bound(name)
    return names


def test_a_job_whose_key_an_administrator_overwrote_ends_with_its_pod(actors: Actors) -> None:
    """The extender starts again before the Pod is deleted."""
    actors.create("p", annotations=ALICES)
    actors.bound("p")
    job_id = number_of(actors, "p")
    actors.cluster.run_slurm("scontrol", "update", f"JobId={job_id}", "AdminComment=ours")
    actors.cluster.stop("extender")
    actors.cluster.start("extender")
    actors.delete("p")
    actors.gone("p", 45)
    eventually(lambda: actors.job_of("p") is None, "its job cancelled")


def test_a_job_that_its_owner_renamed_ends_with_its_pod(actors: Actors) -> None:
    actors.create("p", annotations=ALICES)
    actors.bound("p")
    job_id = number_of(actors, "p")
    as_alice(actors, job_id, "JobName=mine")
    actors.delete("p")
    actors.gone("p", 45)
    eventually(lambda: not any(job.id == job_id for job in actors.squeue().values()), "it cancelled")


@pytest.mark.parametrize(
    ("change", "field"), [("NumCPUs=1", "NumCPUs"), ("TresPerNode=gres/gpu:1", "TresPerNode")]
)
def test_a_job_that_its_owner_shrank_is_replaced(actors: Actors, change: str, field: str) -> None:
    big = filled(actors)
    actors.create("p", cpu="6", gpus=2, annotations=ALICES)
    job_id = actors.queued("p").id
    whole = actors.scontrol("p")[field]
    as_alice(actors, job_id, change)
    eventually(lambda: (job := actors.job_of("p")) and job.id != job_id, "another job", 30)
    told = eventually(lambda: actors.events("p").get("SlurmJobChanged"), "its author told")
    assert "instead of" in str(told)
    actors.delete(big[0])
    actors.bound("p", 60)
    assert actors.scontrol("p")[field] == whole


def test_owner_starts_a_step_in_the_job_of_a_pod_on_24_11_alone(actors: Actors) -> None:
    """No node agent runs here: an agent would end such a step. Slurm 26.05 has no steps in an
    EXTERNAL_JOB."""
    actors.create("p", annotations=ALICES)
    actors.bound("p")
    job_id = number_of(actors, "p")
    step = ("srun", f"--jobid={job_id}", "--overlap", "echo", "well")
    if actors.cluster.spec.release == "24.11":
        assert actors.cluster.run_slurm(*step, user="alice").stdout == "well\n"
    else:
        with pytest.raises(ClusterError, match="Requested operation not supported"):
            actors.cluster.run_slurm(*step, user="alice")
    assert number_of(actors, "p") == job_id
