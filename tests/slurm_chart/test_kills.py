"""Tests that kill the chart's slurmctld repeatedly (SIGKILL), while native jobs and Pods start, run and
end. Running jobs and Pods continue, each job runs once, and sacct has all jobs.

A kill may make Slurm forget its actions of the last FORGETS_S seconds. docs/tasks/slurm-chart.md
describes what then happens to jobs, and these tests check this description.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES, DEFAULT_RELEASE
from tests.chaos.anomalies import anomalies
from tests.chaos.history import read_jobs, read_pod
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually, eventually_not
from tests.meanwhile import meanwhile
from tests.slurm_chart.controller import Controller, Sidecar
from tests.slurm_chart.figures import record
from tests.slurm_chart.native_jobs import FORGETS_S, NativeJobs, Submitted, forgotten, met_by
from wellknown.names import JOB_ID

NODES, CPUS = 4, 16
LONG, FEW, KILLS = 6, 4, 20
PAUSE_S = (5.0, 9.0)
"""Shortest and longest pause between two kills. After several kills, a kubelet would wait longer
(CrashLoopBackOff)."""
CALM_S, CALM_EVERY = 20.0, 5
"""Before every fifth kill, the pause is CALM_S, so that some jobs start and end far from any kill."""
RUNS_FOR = "local.slurm-extender.io/run-for"
EVICTED = "evicted"
ENDED = {"Succeeded", EVICTED}


@pytest.fixture
def controller(request: pytest.FixtureRequest) -> Iterator[Controller]:
    release = str(request.param)
    with Controller.up(release, nodes=NODES, cpus_per_node=CPUS, gate=True) as made:
        made.restart()
        yield made


class Pods:
    """Long Pods, and short Pods that end by themselves."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.long: dict[str, Manifest] = {}
        self.short: list[str] = []

    def begin(self) -> None:
        """Creates the long Pods, and waits until they run."""
        names = [f"long-{number}" for number in range(LONG)]
        for name in names:
            self._actors.create(name)
        for name in names:
            self._actors.bound(name)
            eventually(partial(self._runs, name), "it runs")
            self.long[name] = self.see(name)

    def _runs(self, name: str) -> bool:
        return bool(self.see(name)["status"].get("phase") == "Running")

    def see(self, name: str) -> Manifest:
        """Returns an existing Pod."""
        seen = self._actors.see(name)
        assert seen is not None, f"{name} is gone"
        return seen

    @contextmanager
    def coming_and_going(self) -> Iterator[None]:
        with meanwhile(self._come, 1.0):
            yield

    def phases(self) -> dict[str, str]:
        """Returns the phase of each short Pod, by name. For a deleted Pod, returns EVICTED if an Event
        says that the Pod's job was cancelled, otherwise ""."""
        pods = self._actors.pods()
        there = {name: pods.get(self._actors.full(name)) for name in self.short}
        return {
            name: pod["status"]["phase"] if pod else self._end_of(name) for name, pod in there.items()
        }

    def evicted(self) -> list[str]:
        """Waits until all short Pods have ended. Returns the names of the evicted Pods."""
        eventually(lambda: set(self.phases().values()) <= ENDED, "short Pods have ended", 60)
        return [name for name, phase in self.phases().items() if phase == EVICTED]

    def _end_of(self, name: str) -> str:
        return EVICTED if "SlurmJobCancelled" in self._actors.events(name) else ""

    def _come(self) -> None:
        name = f"short-{len(self.short)}"
        self._actors.create(name, own_annotations={RUNS_FOR: "2"})
        self.short.append(name)


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("controller", [DEFAULT_RELEASE], indirect=True)
def test_running_jobs_and_pods_survive_a_few_kills_of_slurmctld(
    controller: Controller, tmp_path: Path
) -> None:
    kill_under_load(controller, tmp_path, FEW)


@pytest.mark.install
@pytest.mark.timeout(600)
@pytest.mark.parametrize("controller", list(DEBIAN_SUITES), indirect=True)
def test_running_jobs_and_pods_survive_twenty_kills_of_slurmctld(
    controller: Controller, tmp_path: Path
) -> None:
    record(f"kills_{controller.cluster.spec.release}", kill_under_load(controller, tmp_path, KILLS))


def kill_under_load(controller: Controller, folder: Path, kills: int) -> dict[str, object]:
    """Kills slurmctld `kills` times while jobs and Pods come and go, and checks the result. Returns the
    measurements."""
    actors, seed = Actors(controller.cluster), int(os.environ.get("KILLS_SEED", "0"))
    pods, native = Pods(actors), NativeJobs(controller.cluster, seed)
    pods.begin()
    long = [native.submit() for _ in range(LONG)]
    eventually(lambda: all(native.queue().get(name) == "RUNNING" for name in long), "they run")
    time.sleep(FORGETS_S)  # until slurmctld has saved the long jobs
    pauses = random.Random(seed)
    with controller.kubelet(), Sidecar.beside(controller, folder) as sidecar:
        with native.coming_and_going(), pods.coming_and_going():
            for number in range(kills):
                time.sleep(CALM_S if number % CALM_EVERY == 1 else pauses.uniform(*PAUSE_S))
                if number == kills // 2:
                    sidecar.want(sidecar.conf.replace("KillWait=40", "KillWait=41"))
                controller.kill()
        eventually(sidecar.applied, "the configuration that came meanwhile", 60)
        native.settle(long)
        evicted = pods.evicted()
        # If slurmctld 24.11 has forgotten the start of a placeholder, slurmd may make slurmctld cancel
        # the placeholder, and the extender then evicts the Pod.
        assert len(evicted) <= (kills // 5 if controller.cluster.spec.release == "24.11" else 0), evicted
        found = judge(controller, native, long)
        pods_ran_on(actors, pods)
    actors.close()
    assert "fatal:" not in controller.said()
    return {
        "kills": kills,
        "unserved_s_max": max(controller.unserved_s),
        "stood_still_s_max": round(native.longest_pause_s(), 1),
        "long_jobs": LONG,
        "long_pods": LONG,
        "short_pods": len(pods.short),
        "short_pods_evicted": len(evicted),
        **found,
    }


def judge(controller: Controller, native: NativeJobs, long: list[str]) -> dict[str, int]:
    """Checks the jobs against the description on the page. Returns the number of jobs for each effect of
    the kills."""
    jobs, killed = native.read(), controller.killed_at
    assert {native.queue().get(name) for name in long} == {"RUNNING"}
    assert {len(job.runs) for job in jobs if job.name in long} == {1}
    short = [job for job in jobs if job.name not in long]
    again = [job for job in short if len(job.runs) > 1]
    stale = [job for job in short if job.name in native.stale]
    lost = [job for job in short if not any(run.ended for run in job.runs) and job not in stale]
    assert [job for job in lost if not forgotten(killed, job.at)] == [], killed
    assert [job for job in (*again, *stale) if not met_by(killed, job)] == [], killed
    kept = [job for job in short if job not in (*lost, *stale)]
    open_ends = in_the_books(native, kept, long, killed)
    return {
        "short_jobs": len(short),
        "jobs_lost": len(lost),
        "jobs_run_again": len(again),
        "jobs_stale": len(stale),
        "jobs_without_end_in_sacct": open_ends,
        "nodes_drained": native.drained,
        "sbatch_gave_up": native.unanswered,
    }


def in_the_books(native: NativeJobs, kept: list[Submitted], long: list[str], killed: list[float]) -> int:
    """Returns how many jobs had no end in sacct before the test ended the runaway jobs, as a person
    would do."""

    def wrong() -> list[Submitted]:
        books = native.books()
        return [job for job in kept if "COMPLETED" not in books[job.name]]

    eventually_not(lambda: [job for job in wrong() if not met_by(killed, job)], "sacct has them", 60)
    open_ends = wrong()
    native.end_runaway_jobs()
    eventually_not(wrong, "runaway jobs are ended", 60)
    assert all("RUNNING" in native.books()[name] for name in long)
    return len(open_ends)


def pods_ran_on(actors: Actors, pods: Pods) -> None:
    """Checks that each long Pod still runs on its Node with its job, and that no condition announces an
    eviction of the Pod."""
    for name, before in pods.long.items():
        now = pods.see(name)
        for field in ("uid", "deletionTimestamp"):
            assert now["metadata"].get(field) == before["metadata"].get(field), name
        assert now["metadata"]["annotations"][JOB_ID] == before["metadata"]["annotations"][JOB_ID]
        assert now["spec"]["nodeName"] == before["spec"]["nodeName"]
        assert now["status"]["phase"] == "Running"
        assert "DisruptionTarget" not in {each["type"] for each in now["status"]["conditions"]}
    eventually_not(lambda: differences(actors), "both systems agree", 60)


def differences(actors: Actors) -> list[str]:
    try:
        shown = actors.cluster.run_slurm("scontrol", "-o", "show", "jobs").stdout
    except ClusterError as failed:
        return [str(failed)]
    seen = [read_pod(manifest) for manifest in actors.pods().values()]
    nodes = dict.fromkeys(actors.cluster.spec.node_names, CPUS)
    return [each.words for each in anomalies(seen, read_jobs(shown), nodes)]
