"""Tests of more Pods than the extender may queue in Slurm: the other Pods wait, and follow by priority
when places are free."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.end_to_end.actors import SIGN, Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

WINDOW = 3
PRIORITIES = {"low": 10, "middle": 20, "high": 30}
PARTITION = {"partition": "main"}


@pytest.fixture
def narrow(quiet: Actors) -> Iterator[Actors]:
    """Actors of a cluster with an extender that queues only few jobs at a time."""
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in PRIORITIES.items()
    ]
    quiet.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(classes))
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_WINDOW": str(WINDOW)})
    yield quiet
    quiet.cluster.stop("extender")


def waiting(actors: Actors) -> set[str]:
    """Returns the Pods with waiting jobs in Slurm. Asserts that the window has room for all of them."""
    names = {job.name.partition(SIGN)[0] for job in actors.squeue().values() if not job.node}
    assert len(names) <= WINDOW, names
    return names


def fill(actors: Actors) -> None:
    """Fills all nodes and the whole window."""
    for number in range(4):
        actors.create(f"big-{number}", cpu="8", annotations=PARTITION)
    for number in range(4):
        actors.bound(f"big-{number}")
    first = [f"first-{number}" for number in range(WINDOW)]
    for name in first:
        actors.create(name, cpu="8", annotations=PARTITION, priorityClassName="low")
    eventually(lambda: waiting(actors) == {actors.full(n) for n in first}, "the window full")


def in_line(actors: Actors, name: str) -> None:
    by = name.removesuffix("-2")
    actors.create(name, cpu="8", annotations=PARTITION, priorityClassName=by)
    eventually(lambda: actors.condition(name).get("reason") == "WaitingForSubmitSlot", f"{name} told")


def refilled(actors: Actors, leaves: str) -> set[str]:
    """Deletes a Pod, and returns the Pod that gets the free place in the window."""
    before = waiting(actors)
    actors.delete(leaves)
    return eventually(lambda: waiting(actors) - before, "a place refilled")


def test_places_in_slurms_queue_are_refilled_by_priority_then_by_age(narrow: Actors) -> None:
    fill(narrow)
    for name in ("low", "middle", "high", "high-2", "middle-2"):
        in_line(narrow, name)  # more than a second apart, because ages are in seconds
    for leaves, follows in {
        "big-0": "high",
        "big-1": "high-2",
        "big-2": "middle",
        "big-3": "middle-2",
        "first-0": "low",
    }.items():
        assert refilled(narrow, leaves) == {narrow.full(follows)}
    for name in ("first-1", "first-2", "high"):
        narrow.delete(name)
    for name in ("high-2", "middle", "middle-2", "low"):
        narrow.bound(name, within=40)


GREEDY, OTHER = {"user-id": "2001", "priority": "0"}, {"user-id": "2002"}
"""Annotations of a user with held jobs, and of another user."""


def test_held_jobs_of_a_user_do_not_block_other_users(narrow: Actors) -> None:
    names = [f"held-{number}" for number in range(10)]
    for name in names:
        narrow.create(name, annotations=PARTITION | GREEDY)
    eventually(lambda: len(waiting(narrow)) == WINDOW, "the window full of held jobs")
    narrow.create("other", annotations=PARTITION | OTHER)
    narrow.bound("other", within=3)

    def why(reason: str) -> list[str]:
        return [name for name in names if narrow.condition(name).get("reason") == reason]

    eventually(lambda: len(why("JobHeldUser")) == WINDOW, "those in Slurm told that they are held")
    eventually(
        lambda: len(why("WaitingForSubmitSlot")) == len(names) - WINDOW,
        "the others told that they are in line",
    )
    (first, *_) = why("WaitingForSubmitSlot")
    assert "no more Pods with the same Slurm user" in narrow.condition(first)["message"]
    for number in range(4):  # more Pods than the window holds; the held jobs leave the nodes idle
        narrow.create(f"all-{number}", cpu="8", annotations=PARTITION | OTHER)
    narrow.delete("other")
    for number in range(4):
        narrow.bound(f"all-{number}")
    assert waiting(narrow) == {narrow.full(name) for name in why("JobHeldUser")}


@pytest.fixture(params=list(DEBIAN_SUITES))
def limited(request: pytest.FixtureRequest) -> Iterator[Actors]:
    """Actors of a cluster with a low limit of jobs in Slurm. Ended jobs count towards the limit while
    Slurm remembers the jobs."""
    limits = ("MaxJobCount=8", "MinJobAge=2")
    spec = ClusterSpec(nodes=2, release=request.param, slurm_conf=limits)
    with (
        tempfile.TemporaryDirectory(prefix="limited-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        actors = Actors(running)
        yield actors
        actors.close()


def test_pods_beyond_max_job_count_show_the_limit_and_are_placed_later(
    limited: Actors,
) -> None:
    names = [f"p-{number}" for number in range(12)]
    for name in names:
        limited.create(name, cpu="8", annotations=PARTITION)

    def told() -> list[str]:
        messages = (limited.condition(name).get("message", "") for name in names)
        return [message for message in messages if "MaxJobCount" in message]

    eventually(told, "somebody told of the limit")
    left = set(names)

    def all_were_bound() -> bool:
        for name in tuple(left):
            if limited.node_of(name):
                job = limited.job_of(name)
                assert job is None or job.node == limited.node_of(name)
                limited.delete(name)
                left.discard(name)
        return not left

    eventually(all_were_bound, "all bound", 240)
