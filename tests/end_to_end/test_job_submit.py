"""Tests of a site's job_submit.lua that rejects jobs: the extender refuses the Pods, and the authors get
the reason."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import PREFIX, Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

SCRIPT = """
function slurm_job_submit(job, partitions, uid)
    if job.comment == "no project" then
        slurm.log_user("the comment must name a project")
        return slurm.ERROR
    end
    if job.comment == "no account" then return 2045 end
    if job.comment == "no key" then job.admin_comment = "the site's" end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def site(slurm_release: str) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=2, release=slurm_release, job_submit_lua=SCRIPT)
    with (
        tempfile.TemporaryDirectory(prefix="site-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        yield running


@pytest.fixture
def actors(site: Cluster) -> Iterator[Actors]:
    there = Actors(site)
    yield there
    there.clean_up()
    there.close()


def refused(actors: Actors, name: str) -> str:
    """Waits until the condition and an Event report the refusal of a Pod. Returns the message of the
    condition, because the Event does not have the time of the next request."""
    eventually(lambda: actors.condition(name).get("reason") == "Invalid", f"{name} refused", 30)
    eventually(lambda: "Invalid" in actors.events(name), "event")
    words = actors.condition(name)["message"]
    cause, *codes = re.split(r"(?= \((?:Slurm error|HTTP) \d)", actors.events(name)["Invalid"])
    assert words.startswith(cause)
    assert all(words.endswith(each) for each in codes)
    assert actors.job_of(name) is None
    return words


@pytest.mark.parametrize("nodes_are_busy", [False, True], ids=["job/allocate", "job/submit"])
def test_pod_rejected_by_job_submit_lua_retries_after_a_change(
    actors: Actors, nodes_are_busy: bool
) -> None:
    for number in range(3 if nodes_are_busy else 0):
        actors.create(f"busy-{number}", cpu="8")
    if nodes_are_busy:
        eventually(lambda: len(actors.squeue()) == 3, "one waits")
    actors.create("p", annotations={"comment": "no project"})
    words = refused(actors, "p")
    assert "Slurm refuses the job" in words
    assert re.search(
        r"; the extender asks Slurm again after a change of the annotations, or at \d\d:\d\d:\d\d UTC"
        r" \(HTTP \d+\)$",
        words,
    )
    assert "Unspecified error: perhaps a plugin of Slurm's refuses it (job_submit.lua)" in words
    # The message of the script is only in slurmrestd's log.
    log = (actors.cluster.logs / "slurmrestd.log").read_text()
    assert "error: the comment must name a project" in log
    asked = log.count("the comment must name a project")
    actors.create("other")  # the extender still places other Pods
    eventually(lambda: actors.job_of("other"), "the other one has a job")
    assert (actors.cluster.logs / "slurmrestd.log").read_text().count(
        "the comment must name a project"
    ) == asked
    told = f"{PREFIX}comment=of the project x"
    actors.cluster.kubectl("annotate", "pod", actors.full("p"), told, "--overwrite")
    eventually(lambda: actors.job_of("p"), "asked for again")
    if not nodes_are_busy:
        actors.bound("p")


def test_error_number_of_job_submit_lua_is_reported_as_slurms_message(actors: Actors) -> None:
    actors.create("p", annotations={"comment": "no account"})
    assert "Invalid account or account/partition combination specified" in refused(actors, "p")


def test_overwritten_admin_comment_is_reported_and_leaves_no_job(actors: Actors) -> None:
    """The AdminComment is the job's key. Without the key, the extender could not find the Pod of the job
    later. A job with a priority waits in Slurm's queue, so the extender reads the job and notices the
    AdminComment."""
    actors.create("p", annotations={"comment": "no key", "user-id": "2001", "priority": "100"})
    words = refused(actors, "p")
    assert "AdminComment" in words
    assert "job_submit plugin" in words
    assert "The extender cancels the job" in words
    assert re.search(r"; the extender requests another job at \d\d:\d\d:\d\d UTC$", words)
    eventually(lambda: "AdminComment" in actors.ready()[1]["problems"], "/readyz tells")
    actors.create("other")  # the extender still places other Pods
    actors.bound("other")
    actors.delete("p")
    eventually(lambda: "AdminComment" not in actors.ready()[1]["problems"], "problem ended")
