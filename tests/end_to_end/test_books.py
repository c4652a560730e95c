"""What Slurm's books have of Pods that waited or were refused, and who they say cancelled one:
docs/endings.md."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.local.accounting import Account, User, declare
from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.people import People, eventually

pytestmark = pytest.mark.real

ALICE = {"user-id": "2001"}
SACCT = "sacct --allusers --allocations"
WITHOUT_REFUSALS = f"{SACCT} --nnodes=1-100000"


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    """One node, which a Pod can fill."""
    spec = ClusterSpec(nodes=1, release=slurm_release, accounting=True)
    with (
        tempfile.TemporaryDirectory(prefix="books-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        declare(running, Account("ml"), User("alice", ("ml",)))
        yield running


@pytest.fixture(scope="module")
def everybody(cluster: Cluster) -> Iterator[People]:
    people = People(cluster)
    yield people
    people.close()


class Entry(NamedTuple):
    """A row of sacct."""

    state: str
    exit_code: str
    elapsed: str
    nodes: str
    key: str
    """AdminComment, of an entry that is over."""

    @property
    def refused(self) -> bool:
        """Whether it is as the page tells of a request that was refused."""
        what = ("FAILED", "1:0", "00:00:00", "None assigned")
        return self[:4] == what and self.key.endswith(".0")


def entries(people: People, name: str, command: str = SACCT) -> list[Entry]:
    """What a command shows of the jobs that there were for a Pod."""
    fields = "--format=state,exitcode,elapsed,nodelist,admincomment"
    of_it = (f"--name={people.job_name(name)}", "--starttime=now-1hour", "--noheader", "--parsable2")
    shown = people.cluster.run_slurm(*command.split(), *of_it, fields).stdout.splitlines()
    return [Entry(*line.split("|")) for line in shown]


def states(people: People, name: str) -> list[str]:
    """Of entries in no order: ids are not."""
    return sorted(entry.state for entry in entries(people, name))


def test_a_pod_that_waits_leaves_an_entry_that_is_told_apart_and_left_out(people: People) -> None:
    people.create("first", cpu="8")
    people.bound("first")
    assert states(people, "first") == ["RUNNING"]
    people.create("next", cpu="8")
    eventually(lambda: states(people, "next") == ["FAILED", "PENDING"], "both in the books")
    assert [entry.refused for entry in entries(people, "next") if entry.state == "FAILED"] == [True]
    people.delete("first")
    people.bound("next")
    people.delete("next")
    eventually(lambda: states(people, "next") == ["CANCELLED by 0", "FAILED"], "the end in the books")
    (ended,) = entries(people, "next", WITHOUT_REFUSALS)
    assert (ended.state, ended.nodes) == ("CANCELLED by 0", "node-1")
    assert ended.key.endswith(".1")


def test_a_users_pod_that_waits_leaves_none(people: People) -> None:
    people.create("first", cpu="8", annotations=ALICE)
    people.bound("first")
    people.create("next", cpu="8", annotations=ALICE)
    eventually(lambda: states(people, "next") == ["PENDING"], "in the books")
    people.delete("first")
    people.bound("next")
    assert states(people, "next") == ["RUNNING"]


def test_a_size_that_no_node_has_leaves_an_entry_and_an_unknown_value_none(people: People) -> None:
    people.create("large", gpus=5, annotations=ALICE)
    people.create("unknown", annotations=ALICE | {"constraints": "h200"})
    for name in ("large", "unknown"):
        people.event(name, "Invalid")
    eventually(lambda: [entry.refused for entry in entries(people, "large")] == [True], "in the books")
    assert entries(people, "unknown") == []
    assert entries(people, "large", WITHOUT_REFUSALS) == []


@pytest.mark.parametrize("who", ["alice", "root"])
def test_the_event_of_an_eviction_says_who_cancelled_the_job(people: People, who: str) -> None:
    """The condition does not: it is written before the books have heard of it."""
    people.create("p", annotations=ALICE)
    people.bound("p")
    job = people.job_of("p")
    assert job is not None
    people.cluster.run_slurm("scancel", str(job.id), user=who)
    words = f"Slurm job {job.id} was cancelled in Slurm (CANCELLED)"
    assert people.event("p", "SlurmJobCancelled") == f"{words}, by {who}"


def test_books_that_are_closed_keep_nobody_from_being_told(people: People) -> None:
    people.create("p", annotations=ALICE)
    people.bound("p")
    people.cluster.stop("slurmdbd")
    try:
        people.scancel("p")
        assert people.event("p", "SlurmJobCancelled").endswith("was cancelled in Slurm (CANCELLED)")
    finally:
        people.cluster.start("slurmdbd")
