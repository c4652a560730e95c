"""Tests of docs/concepts/endings.md: the accounting entries of waiting and refused Pods, and the user in
the Event about a cancelled job."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.local.accounting import Account, User, declare
from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

ALICE = {"user-id": "2001"}
SACCT = "sacct --allusers --allocations"
WITHOUT_REFUSALS = f"{SACCT} --nnodes=1-100000"


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    """Starts a cluster with accounting and a single node. A Pod can fill the node."""
    spec = ClusterSpec(nodes=1, release=slurm_release, accounting=True)
    with (
        tempfile.TemporaryDirectory(prefix="books-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        declare(running, Account("ml"), User("alice", ("ml",)))
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


class Entry(NamedTuple):
    """A row of sacct."""

    state: str
    exit_code: str
    elapsed: str
    nodes: str
    key: str
    """AdminComment of an ended job."""

    @property
    def refused(self) -> bool:
        """Returns True if the row has the values that the page gives for a refused request."""
        what = ("FAILED", "1:0", "00:00:00", "None assigned")
        return self[:4] == what and self.key[-2:] in ("", ".0")


def entries(actors: Actors, name: str, command: str = SACCT) -> list[Entry]:
    """Returns the rows of all jobs of a Pod in the output of a command."""
    fields = "--format=jobname,state,exitcode,elapsed,nodelist,admincomment"
    late = ("--starttime=now-1hour", "--noheader", "--parsable2")
    shown = actors.cluster.run_slurm(*command.split(), *late, fields).stdout.splitlines()
    rows = (line.split("|") for line in shown)
    return [Entry(*entry) for job, *entry in rows if job == actors.job_name(name)]


def states(actors: Actors, name: str) -> list[str]:
    """Returns the states of a Pod's jobs in alphabetical order, because a later job may have a lower
    id."""
    return sorted(entry.state for entry in entries(actors, name))


def test_accounting_query_excludes_refusals_of_a_waiting_pod(actors: Actors) -> None:
    actors.create("first", cpu="8")
    actors.bound("first")
    assert states(actors, "first") == ["RUNNING"]
    actors.create("next", cpu="8")
    eventually(lambda: states(actors, "next") == ["FAILED", "PENDING"], "both in the books")
    assert [entry.refused for entry in entries(actors, "next") if entry.state == "FAILED"] == [True]
    actors.delete("first")
    actors.bound("next")
    actors.delete("next")
    eventually(lambda: states(actors, "next") == ["CANCELLED by 0", "FAILED"], "the end in the books")
    (ended,) = entries(actors, "next", WITHOUT_REFUSALS)
    assert (ended.state, ended.nodes) == ("CANCELLED by 0", "node-1")
    assert ended.key.endswith(".1")


def test_only_a_too_large_request_leaves_an_accounting_entry(actors: Actors) -> None:
    actors.create("large", gpus=5, annotations=ALICE)
    actors.create("unknown", annotations=ALICE | {"constraints": "h200"})
    for name, reason in (("large", "TooLarge"), ("unknown", "Invalid")):
        actors.event(name, reason)
    eventually(lambda: [entry.refused for entry in entries(actors, "large")] == [True], "in the books")
    assert entries(actors, "unknown") == []
    assert entries(actors, "large", WITHOUT_REFUSALS) == []


@pytest.mark.parametrize("who", ["alice", "root"])
def test_eviction_event_names_the_user_that_cancelled_the_job(actors: Actors, who: str) -> None:
    """The Pod's condition does not name the user, because the extender writes the condition before
    accounting learns of the cancellation. After a slow answer of accounting, the extender makes no query
    for half a minute, so the test may need several Pods."""
    names = (f"p{number}" for number in itertools.count())
    eventually(lambda: is_told(actors, next(names), who), f"an Event that says {who}", 60)


def is_told(actors: Actors, name: str, who: str) -> bool:
    """Cancels a Pod's job as a user. Returns False if the Event names no user. Fails if the Event names
    another user."""
    actors.create(name, annotations=ALICE)
    actors.bound(name)
    job = actors.job_of(name)
    assert job is not None
    actors.cluster.run_slurm("scancel", str(job.id), user=who)
    words, told = f"Slurm job {job.id} was cancelled in Slurm (CANCELLED)", f", by {who}"
    event = actors.event(name, "SlurmJobCancelled")
    assert event in (words, words + told)
    return event == words + told


def test_eviction_is_reported_while_slurmdbd_is_down(actors: Actors) -> None:
    actors.create("p", annotations=ALICE)
    actors.bound("p")
    actors.cluster.stop("slurmdbd")
    try:
        actors.scancel("p")
        assert actors.event("p", "SlurmJobCancelled").endswith("was cancelled in Slurm (CANCELLED)")
    finally:
        actors.cluster.start("slurmdbd")
