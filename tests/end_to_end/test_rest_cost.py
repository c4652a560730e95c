"""What Slurm is asked costs by our Pods that wait, and not by how many jobs others have in Slurm."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurm_client.rest.client import SlurmRest
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.alone]

NATIVE = 5000
ARRAY = 1000  # Slurm's own MaxArraySize
WAITING = 20
WINDOW_S = 10.0  # in which each job that waits is asked for its reason once
BY_THE_CLOCK = ("GET conf", "GET partitions", "GET nodes")
"""Asked now and then, whatever waits: one time more or less in so short a window is chance."""
ALL_JOBS = "GET jobs/state"
"""The audit's one question about all jobs, which is as long as there are jobs."""

BYTES_A_JOB, BYTES_A_SECOND = 90, 2000
"""What that costs, and may cost on average: with many jobs it is asked less often."""


@dataclass(frozen=True)
class Asked:
    """How often Slurm was asked what, and the bytes of that both ways."""

    calls: Mapping[str, float]
    bytes: Mapping[str, float]

    @classmethod
    def so_far(cls, actors: Actors) -> Asked:
        url = f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics"
        tally: dict[str, defaultdict[str, float]] = {
            f"slurm_extender_slurmrestd_{what}_total": defaultdict(float) for what in ("calls", "bytes")
        }
        for family in text_string_to_metric_families(fetch(url).text):
            for sample in family.samples:
                if sample.name in tally:
                    tally[sample.name][sample.labels["call"]] += sample.value
        return cls(*tally.values())

    def since(self, before: Asked) -> Asked:
        return Asked(
            *(
                {call: count - then.get(call, 0.0) for call, count in now.items()}
                for now, then in ((self.calls, before.calls), (self.bytes, before.bytes))
            )
        )

    def bytes_a_call(self) -> dict[str, float]:
        return {call: self.bytes[call] / count for call, count in self.calls.items() if count}

    def follows_the_pods(self) -> tuple[float, float]:
        """Calls and bytes of all that is not asked by the clock alone."""
        aside = (*BY_THE_CLOCK, ALL_JOBS)
        return (
            sum(count for call, count in self.calls.items() if call not in aside),
            sum(count for call, count in self.bytes.items() if call not in aside),
        )


def asked_in_a_while(actors: Actors) -> Asked:
    before = Asked.so_far(actors)
    time.sleep(WINDOW_S)  # the window that is measured: nothing is waited for
    return Asked.so_far(actors).since(before)


def one_round(actors: Actors) -> tuple[int, int]:
    """How many jobs Slurm has, and how many bytes its answer about all of them is."""
    heard: list[int] = []

    async def ask() -> int:
        slurm = SlurmRest(
            actors.cluster.slurmrestd_url,
            actors.cluster.token_file,
            heard=lambda _call, _sent, received: heard.append(received),
        )
        try:
            return (await slurm.all_states()).entries
        finally:
            await slurm.aclose()

    return asyncio.run(ask()), heard[-1]


@contextmanager
def native_jobs(actors: Actors) -> Iterator[None]:
    """So many records in slurmctld: an array is one until its tasks are spoken to one by one."""
    run = actors.cluster.run_slurm
    for _ in range(NATIVE // ARRAY):
        array = ("--parsable", "--hold", f"--array=0-{ARRAY - 1}", "--chdir=/tmp")
        number = run("sbatch", *array, "--wrap=sleep 1", user="alice").stdout.strip()
        run("scontrol", "update", f"jobid={number}_[0-{ARRAY - 2}]", "comment=native")
    try:
        yield
    finally:
        run("scancel", "-u", "alice")
        eventually(lambda: not run("squeue", "-h", "-u", "alice").stdout, "no native jobs left", 60)


def test_requests_to_slurm_do_not_grow_with_the_native_jobs(quiet: Actors) -> None:
    actors = quiet
    actors.cluster.start("extender", env={"SLURM_EXTENDER_AUDIT_INTERVAL_S": "2"})
    for number in range(4):
        actors.create(f"big-{number}", cpu="8")
    for number in range(4):
        actors.bound(f"big-{number}")
    names = [f"waits-{number}" for number in range(WAITING)]
    for name in names:
        actors.create(name, cpu="8")
    eventually(lambda: all(actors.condition(name) for name in names), "all told why they wait", 60)
    alone = asked_in_a_while(actors)
    with native_jobs(actors):
        jobs, answer = one_round(actors)
        beside = asked_in_a_while(actors)
    actors.cluster.stop("extender")
    print(alone, beside, (jobs, answer), sep="\n")  # noqa: T201 -- shown where it fails
    assert jobs > NATIVE  # our own besides
    assert answer / jobs < BYTES_A_JOB
    # One for the audit, and in the first two minutes perhaps one for jobs that come late.
    assert beside.bytes[ALL_JOBS] <= max(2.2 * answer, BYTES_A_SECOND * WINDOW_S)
    for now, then in zip(beside.follows_the_pods(), alone.follows_the_pods(), strict=True):
        assert 0 < now <= 1.2 * then
    for call, size in beside.bytes_a_call().items():
        if call != ALL_JOBS:
            assert size <= 1.2 * alone.bytes_a_call().get(call, size), call
