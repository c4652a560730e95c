"""Tests of docs/concepts/waiting.md: the information on a Pod that waits in Slurm, for the author of the
Pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

AN_HOUR = {"timeout": "3600"}
CLOCK = r"\d\d:\d\d UTC"
WAITS = rf"Slurm job \d+ has waited in partition main since \d+ \w+ {CLOCK}: "


def described(actors: Actors, name: str, event: str) -> str:
    """Waits until `kubectl describe` shows a Normal Event with the text, and returns the line."""
    wanted = re.compile(rf"^ +Normal +{event}$", re.MULTILINE)

    def see() -> str:
        found = wanted.search(actors.kubectl("describe", "pod", actors.full(name)).stdout)
        return found[0] if found else ""

    return eventually(see, f"{event} in what is described of {name}", within_s=90)


def fill(actors: Actors, **given: dict[str, str]) -> None:
    """Fills all four nodes."""
    for number in range(4):
        actors.create(f"big-{number}", cpu="8", **given)
    for number in range(4):
        actors.bound(f"big-{number}")


def test_waiting_pod_shows_the_reason_request_and_expected_start(
    actors: Actors,
) -> None:
    fill(actors, annotations=AN_HOUR)
    actors.create("next", cpu="8", memory="8Gi", gpus=2, annotations=AN_HOUR)
    why = r"all fitting nodes are in use \(Resources\); the job requests 8 CPUs, 8 GiB, 2 GPUs\."
    until = rf" Slurm expects the job to start about (\d+ \w+ )?{CLOCK}\."
    described(actors, "next", rf"Resources .* slurm-extender +{WAITS}{why}{until}")
    assert re.search(WAITS + why + until, actors.condition("next")["message"])
    actors.delete("big-2")
    node = actors.bound("next")
    waited = "the Pod waited .*, .* of it for slurm-extender"
    described(actors, "next", rf"Granted .* +Slurm job \d+ runs on Node {node}; {waited}")


def test_pod_behind_jobs_without_a_time_limit_has_no_expected_start(actors: Actors) -> None:
    fill(actors)
    actors.create("next", cpu="8")
    cannot = "Slurm cannot plan the start: earlier jobs have no time limit, or a limit of months."
    described(actors, "next", rf"Resources .* {WAITS}.* {cannot}")


def test_pod_held_by_its_author_shows_the_reason(actors: Actors) -> None:
    actors.create("held", annotations={"priority": "0"})
    by = (
        'the author of the Pod holds the job by the annotation priority: "0", until an administrator of'
        " Slurm releases the job"
    )
    described(actors, "held", rf"JobHeldUser .* {WAITS}{by} \(JobHeldUser\); the job requests .*")


@pytest.fixture
def short(actors: Actors) -> Iterator[str]:
    """Creates a partition with a time limit of an hour."""
    actors.cluster.run_slurm(
        "scontrol", "create", "PartitionName=short", "Nodes=node-[1-4]", "MaxTime=60", "State=UP"
    )
    yield "short"
    actors.clean_up()
    actors.cluster.run_slurm("scontrol", "delete", "PartitionName=short")


def test_too_long_time_limit_is_reported_with_the_allowed_limit(actors: Actors, short: str) -> None:
    actors.create("long", annotations={"partition": short, "timeout": "7200"})
    words = "the job's time limit of 2 h is longer than the 1 h that the partition allows"
    described(actors, "long", rf"PartitionTimeLimit .* {words} \(PartitionTimeLimit\); .*")
