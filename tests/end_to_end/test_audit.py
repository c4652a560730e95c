"""Tests of the audit on real differences between both systems: the audit reports each difference, and
the leader corrects differences in the extender's own Pods and jobs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually
from wellknown.job_key import JobIdRange, PlaceholderKey

pytestmark = pytest.mark.real

Result = TypeVar("Result")
Difference = tuple[str, str | None, int | None]
GATE_OPENS = '[{"op": "remove", "path": "/spec/schedulingGates"}]'


def slurm(actors: Actors, ask: Callable[[SlurmRest], Awaitable[Result]]) -> Result:
    async def use() -> Result:
        client = SlurmRest(actors.cluster.slurmrestd_url, actors.cluster.token_file)
        try:
            return await ask(client)
        finally:
            await client.aclose()

    return asyncio.run(use())


def submit(actors: Actors, job_id: int, admin_comment: str = "") -> int:
    """Submits a held job of one CPU by hand, and returns the id."""
    spec = JobSpec(f"by-hand-{job_id}", 1, 10, admin_comment=admin_comment, priority=0)
    return slurm(actors, lambda client: client.submit(spec, job_id))


def audit(actors: Actors, *options: str) -> tuple[int, dict[Difference, dict[str, Any]]]:
    """Runs the audit command. Returns the exit status and the findings."""
    environment = {**os.environ, **actors.cluster.extender_environment}
    command = [sys.executable, "-m", "extender", "audit", "--output", "json", *options]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {(each["kind"], each["pod"], each["job"]): each for each in found}


def metrics(actors: Actors) -> str:
    return fetch(f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics").text


def counted(actors: Actors, kind: str) -> bool:
    return f'slurm_extender_audit_findings{{kind="{kind}"}} 1.0' in metrics(actors)


def identity(actors: Actors) -> str:
    told = actors.cluster.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    return told.stdout


def bind_by_hand(actors: Actors, name: str, node: str) -> None:
    """Removes the scheduling gate of a Pod, and binds the Pod. The Pod gets no annotations of an
    allocation."""
    actors.cluster.kubectl("patch", "pod", actors.full(name), "--type=json", "-p", GATE_OPENS)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": actors.full(name)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    actors.api.post(f"/pods/{actors.full(name)}/binding", json=binding).raise_for_status()


def test_audit_finds_no_differences_in_a_busy_cluster(actors: Actors) -> None:
    for number in range(40):
        actors.create(f"p-{number}", cpu="1")
    for number in range(0, 20, 2):
        actors.delete(f"p-{number}")
    eventually(lambda: audit(actors) == (0, {}), "nothing found", 60)  # usually by the first audit


def test_audit_reports_differences_and_the_leader_corrects_its_own(quiet: Actors) -> None:
    actors, cluster = quiet, quiet.cluster
    cluster.start("extender")
    ids, uid = JobIdRange(), identity(actors)
    nodes = {}
    for name in ("cancelled", "left", "freed", "twofold"):
        actors.create(name, cpu="8")
        nodes[name] = actors.bound(name)
    jobs = {name: actors.job_of(name) for name in nodes}
    held_by = {name: job.id for name, job in jobs.items() if job is not None}
    actors.create("astray", cpu="8", annotations={"required-nodes": nodes["freed"]})
    actors.create("gated", cpu="8", annotations={"required-nodes": nodes["cancelled"]})
    waiting = {name: actors.queued(name).id for name in ("astray", "gated")}
    for name in waiting:
        eventually(lambda: actors.condition(name), f"{name} told, and its job's id written")  # noqa: B023
    cluster.stop("extender")

    gone = PlaceholderKey(uid, "default", "gone", "no-such-uid", 1)
    twofold = actors.see("twofold") or {}
    second = PlaceholderKey(uid, "default", actors.full("twofold"), twofold["metadata"]["uid"], 1, 3)
    orphan = submit(actors, gone.job_id(ids), str(gone))
    double = submit(actors, second.job_id(ids), str(second))
    foreign = submit(actors, ids.first)
    cluster.run_slurm("scancel", str(held_by["cancelled"]), str(held_by["freed"]))
    bind_by_hand(actors, "astray", nodes["left"])
    drain = (f"nodename={nodes['twofold']}", "state=drain", "reason=slurm-extender: a test")
    cluster.run_slurm("scontrol", "update", *drain)
    try:
        eventually(lambda: run_by_now(actors) >= set(waiting.values()), "those that waited run", 40)
        status, found = audit(actors, "--settle", "2")
        assert status == 1
        default = {name: f"default/{actors.full(name)}" for name in (*nodes, *waiting)}
        assert found.keys() == {
            ("OrphanJob", "default/gone", orphan),
            ("TwoJobs", default["twofold"], double),
            ("ForeignKey", None, foreign),
            ("PodWithoutJob", default["cancelled"], held_by["cancelled"]),
            ("PodWithoutJob", default["freed"], held_by["freed"]),
            ("WrongNode", default["astray"], waiting["astray"]),
            ("StuckGate", default["gated"], waiting["gated"]),
            ("StuckDrain", None, None),
        }
        assert all(each["cause"] and each["fix"] for each in found.values())
        assert found["WrongNode", default["astray"], waiting["astray"]]["node"] == nodes["left"]
        assert found["StuckDrain", None, None]["node"] == nodes["twofold"]
        mended_by_the_leader(actors, foreign)
    finally:
        cluster.run_slurm("scontrol", "update", f"nodename={nodes['twofold']}", "state=undrain")
        cluster.run_slurm("scancel", str(foreign))


def run_by_now(actors: Actors) -> set[int]:
    return {job.id for job in actors.squeue().values() if job.state == "RUNNING"}


def mended_by_the_leader(actors: Actors, foreign: int) -> None:
    """Asserts that a new leader corrects the differences that exist at its start, and corrects later
    differences in the next audits."""
    cluster = actors.cluster
    cluster.start("extender", env={"SLURM_EXTENDER_AUDIT_INTERVAL_S": "2"})
    for name in ("cancelled", "freed"):
        actors.gone(name)
    late = PlaceholderKey(identity(actors), "default", "late", "no-such-uid-either", 1)
    orphan = submit(actors, late.job_id(JobIdRange()), str(late))
    eventually(lambda: counted(actors, "ForeignKey"), "counted", 40)

    def live() -> set[int]:
        return {job.id for job in actors.squeue().values()}

    eventually(lambda: orphan not in live(), "the orphan is ended", 40)
    assert foreign in live()
    assert actors.node_of("left")
    assert actors.node_of("twofold")
    drained = actors.cluster.run_slurm("sinfo", "-h", "-R", "-o", "%E").stdout
    assert "slurm-extender" not in drained
    log = (cluster.logs / "extender.log").read_text()
    assert log.count('"kind":"ForeignKey"') == 1
