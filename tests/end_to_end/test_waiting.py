"""What the author of a Pod that waits in Slurm sees of it: docs/waiting.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.end_to_end.people import People, eventually

pytestmark = pytest.mark.real

AN_HOUR = {"timeout": "3600"}
CLOCK = r"\d\d:\d\d UTC"
WAITS = rf"Slurm job \d+ has waited in partition main since \d+ \w+ {CLOCK}: "


def described(people: People, name: str, event: str) -> str:
    """Waits until `kubectl describe` shows a Normal Event with these words, and returns its line."""
    wanted = re.compile(rf"^ +Normal +{event}$", re.MULTILINE)

    def see() -> str:
        found = wanted.search(people.kubectl("describe", "pod", people.full(name)).stdout)
        return found[0] if found else ""

    return eventually(see, f"{event} in what is described of {name}", within=90)


def fill(people: People, **given: dict[str, str]) -> None:
    """All four nodes are taken."""
    for number in range(4):
        people.create(f"big-{number}", cpu="8", **given)
    for number in range(4):
        people.bound(f"big-{number}")


def test_a_pod_that_waits_is_told_why_for_what_and_until_when_and_then_what_it_got(
    people: People,
) -> None:
    fill(people, annotations=AN_HOUR)
    people.create("next", cpu="8", memory="8Gi", gpus=2, annotations=AN_HOUR)
    why = r"all fitting nodes are in use \(Resources\); it asks for 8 CPUs, 8 GiB, 2 GPUs\."
    until = rf" Slurm expects it to start about (\d+ \w+ )?{CLOCK}\."
    described(people, "next", rf"Resources .* slurm-extender +{WAITS}{why}{until}")
    assert re.search(WAITS + why + until, people.condition("next")["message"])
    people.delete("big-2")
    node = people.bound("next")
    waited = "the Pod waited .*, .* of it for slurm-extender"
    described(people, "next", rf"Granted .* +Slurm job \d+ runs on Node {node}; {waited}")


def test_a_pod_behind_jobs_without_a_time_limit_is_told_so(people: People) -> None:
    fill(people)
    people.create("next", cpu="8")
    cannot = "Slurm cannot plan when it starts: jobs before it have no time limit, or one of months."
    described(people, "next", rf"Resources .* {WAITS}.* {cannot}")


def test_a_pod_that_its_author_holds_is_told_so(people: People) -> None:
    people.create("held", annotations={"priority": "0"})
    by = 'its author holds it by the annotation priority: "0", until an admin of Slurm releases it'
    described(people, "held", rf"JobHeldUser .* {WAITS}{by} \(JobHeldUser\); it asks for .*")


@pytest.fixture
def short(people: People) -> Iterator[str]:
    """A partition whose jobs may last an hour."""
    people.cluster.run_slurm(
        "scontrol", "create", "PartitionName=short", "Nodes=node-[1-4]", "MaxTime=60", "State=UP"
    )
    yield "short"
    people.clean_up()
    people.cluster.run_slurm("scontrol", "delete", "PartitionName=short")


def test_a_pod_with_too_long_a_time_limit_is_told_what_it_is_and_what_it_may_be(
    people: People, short: str
) -> None:
    people.create("long", annotations={"partition": short, "timeout": "7200"})
    words = "its time limit of 2 h is longer than the 1 h that its partition allows"
    described(people, "long", rf"PartitionTimeLimit .* {words} \(PartitionTimeLimit\); .*")
