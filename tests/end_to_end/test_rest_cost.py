"""Test of the cost of requests to Slurm. The cost grows with the waiting Pods, and not with the native
jobs."""

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
ARRAY = 1000  # within Slurm's default MaxArraySize
WAITING = 20
WINDOW_S = 10.0  # in this time, the extender reads each waiting job's reason once
BY_THE_CLOCK = ("GET conf", "GET partitions", "GET nodes")
"""Calls at fixed times. In a short window, the number of the calls may differ by 1."""
ALL_JOBS = "GET jobs/state"
"""The audit's only call about all jobs. The answer grows with the number of jobs."""

BYTES_A_JOB, BYTES_A_SECOND = 90, 2000
"""Upper limits of the answer to `ALL_JOBS`: bytes for each job, and average bytes in a second. With many
jobs, the audit calls less often."""


@dataclass(frozen=True)
class Asked:
    """Numbers of calls to Slurm, and of bytes in both directions, by the kind of call."""

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
        """Returns the number of all calls except calls at fixed times, and the bytes of these calls."""
        aside = (*BY_THE_CLOCK, ALL_JOBS)
        return (
            sum(count for call, count in self.calls.items() if call not in aside),
            sum(count for call, count in self.bytes.items() if call not in aside),
        )


def asked_in_a_while(actors: Actors) -> Asked:
    before = Asked.so_far(actors)
    time.sleep(WINDOW_S)  # the length of the window, not a wait for an event
    return Asked.so_far(actors).since(before)


def one_round(actors: Actors) -> tuple[int, int]:
    """Returns the number of jobs in Slurm, and the bytes of the answer about all jobs."""
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
    """Creates `NATIVE` native jobs during the block, each with a record in slurmctld. The tasks of an
    array share one record until scontrol changes the tasks."""
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
    assert jobs > NATIVE  # native jobs and placeholders
    assert answer / jobs < BYTES_A_JOB
    # A call for the audit, and in the first two minutes perhaps another call for late jobs.
    assert beside.bytes[ALL_JOBS] <= max(2.2 * answer, BYTES_A_SECOND * WINDOW_S)
    for now, then in zip(beside.follows_the_pods(), alone.follows_the_pods(), strict=True):
        assert 0 < now <= 1.2 * then
    for call, size in beside.bytes_a_call().items():
        if call != ALL_JOBS:
            assert size <= 1.2 * alone.bytes_a_call().get(call, size), call
