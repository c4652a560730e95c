"""Tests of two Kubernetes clusters on one Slurm: each extender leaves the jobs of the other cluster
alone, and each gate considers only Pods of the same cluster."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from extender.audit.compare import FindingKind
from extender.audit.reader import Reader
from extender.execution.dispatcher import Dispatcher
from extender.execution.startup import recover
from extender.hooks.route import router
from extender.node_sync.lingering_check import LingeringCheck
from extender.node_sync.overlaps import Overlaps
from extender.node_sync.prolog_gate import Gate
from extender.node_view.lingering_notes import LingeringNotes
from extender.node_view.slurm_nodes import SlurmNodes
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod
from extender.record.config import PlacementConfig
from extender.record.events import ClusterObserved, Event, OrphanFound, Recovered
from extender.routing import application
from extender.unmanaged.adoption import adoptable
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import Job, JobSpec
from slurm_client.tokens import StaticToken
from tests.builders import TRANSLATION, kube_node, pod, view
from tests.deploy_slurm.test_gate_script import SCRIPT
from tests.eventually import until
from wellknown.job_key import JobIdRange, PlaceholderKey
from wellknown.names import ATTEMPT, JOB_ID, NODE

MIDDLE = 50_000_000
PODS = 50


class Slurm(InMemorySlurm):
    """Slurm for both clusters. Records the reads of single jobs."""

    def __init__(self) -> None:
        super().__init__(
            [node(name, cpus=64, memory_mb=100_000) for name in ("a1", "b1", "login")],
            [partition("main", ["a1", "b1", "login"], default=True)],
            tick_s=0.01,
        )
        self.read: list[int] = []

    async def job(self, job_id: int) -> Job | None:
        self.read.append(job_id)
        return await super().job(job_id)


class Cluster:
    """A cluster with one Node and a new leader. The name of the Node begins with the cluster's name."""

    def __init__(self, slurm: Slurm, name: str, ids: JobIdRange) -> None:
        self.slurm, self.name = slurm, name
        self.rules = replace(PlacementConfig(), cluster=name, ids=ids)
        self.view = replace(view(kube_node(f"{name}1")), cluster=name)
        self.ledger = Ledger(self.rules)
        self.heard: list[Event] = []
        self.pods: list[Pod] = []
        self.kubernetes = InMemoryKubernetes()

    def feed(self, event: Event) -> None:
        self.heard.append(event)
        self.ledger.apply(event, 0.0)

    async def feed_all(self, events: Any) -> None:
        for event in events:
            self.feed(event)

    async def place(self, count: int) -> Sequence[int]:
        """Places `count` Pods on the cluster's Node, and returns the ids of the jobs."""
        jobs = []
        for number in range(count):
            uid = f"{self.name}-{number}"
            key = PlaceholderKey(self.name, "default", f"p{number}", uid, 1)
            spec = JobSpec(
                f"default/p{number}", 1, 1024, required_nodes=(f"{self.name}1",), admin_comment=str(key)
            )
            jobs.append(await self.slurm.submit(spec, key.job_id(self.rules.ids)))
            self.pods.append(pod(name=f"p{number}", uid=uid))
        return jobs

    async def begin_to_lead(self) -> None:
        self.feed(ClusterObserved(self.view))
        await recover(
            self.pods,
            self.slurm,
            self.kubernetes,
            self.ledger.rules,
            cast(Dispatcher, self),
            adoptable=lambda manifest: adoptable(manifest, TRANSLATION) is not None,
        )

    async def audit(self) -> Sequence[FindingKind]:
        reader = Reader(self.slurm, SlurmNodes(self.slurm), self.kubernetes, self.rules, TRANSLATION)
        known = self.ledger.watched_jobs()
        return [finding.kind for finding in await reader.look(self.pods, self.view, known)]

    def gate(self) -> Gate:
        overlaps = Overlaps(self.slurm, lambda: self.view, lambda *_: None, self.rules.ids)
        lingering = LingeringCheck(self.slurm, lambda: self.view, LingeringNotes())
        return Gate(
            *(self.kubernetes, self.slurm, TRANSLATION, lambda: self.view, lambda: self.ledger),
            drop,
            overlaps=overlaps,
            lingering=lingering,
        )


def drop(_job_id: int) -> None:
    """Ignores a pushed job."""


Clusters = tuple[Cluster, Cluster]


def clusters(*, apart: bool) -> Clusters:
    slurm = Slurm()
    parts = (JobIdRange(end=MIDDLE), JobIdRange(MIDDLE)) if apart else (JobIdRange(), JobIdRange())
    return Cluster(slurm, "a", parts[0]), Cluster(slurm, "b", parts[1])


@pytest.mark.parametrize("apart", [True, False])
async def test_new_leader_leaves_jobs_of_the_other_cluster_alone(apart: bool) -> None:
    one, other = clusters(apart=apart)
    await one.place(2)
    theirs = await other.place(PODS)
    await one.begin_to_lead()
    recovered = [event for event in one.heard if isinstance(event, Recovered)]
    assert [len(event.jobs) for event in recovered] == [1, 1]
    assert not any(isinstance(event, OrphanFound) for event in one.heard)
    states = await one.slurm.states(theirs)
    assert not any(state.ended for state in states.values())


async def test_jobs_of_the_other_cluster_are_not_read_with_separate_ids() -> None:
    """Neither a new leader nor the audit reads any of the other cluster's 50 jobs."""
    one, other = clusters(apart=True)
    ours, theirs = await one.place(2), await other.place(PODS)
    await one.begin_to_lead()
    assert FindingKind.OTHER_CLUSTER not in await one.audit()
    assert set(one.slurm.read) == set(ours)
    one.slurm.read.clear()
    await other.begin_to_lead()
    assert FindingKind.OTHER_CLUSTER not in await other.audit()
    assert set(one.slurm.read) == set(theirs)


async def runs(slurm: Slurm, job_id: int) -> bool:
    job = await slurm.job(job_id)
    return job is not None and job.state.running


async def has_started(server: uvicorn.Server) -> bool:
    return server.started


@asynccontextmanager
async def serving(*each: Cluster) -> AsyncIterator[str]:
    """Serves the hooks of the clusters on loopback, and yields the URLs."""
    servers, tasks, urls = [], [], []
    for cluster in each:
        served = application(router(StaticToken("secret"), drop, cluster.gate()))
        server = uvicorn.Server(uvicorn.Config(served, port=0, log_level="error"))
        tasks.append(asyncio.ensure_future(server.serve()))
        await until(lambda server=server: has_started(server), within_s=15)  # type: ignore[misc]
        port = server.servers[0].sockets[0].getsockname()[1]
        servers.append(server)
        urls.append(f"http://127.0.0.1:{port}")
    try:
        yield " ".join(urls)
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)


class Prologs:
    """Prologs of Slurm's nodes. On each node, squeue shows an ended placeholder."""

    def __init__(self, folder: Path, urls: str) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "token").write_text("secret\n")
        (folder / "gate.conf").write_text(
            f'SLURM_EXTENDER_HOOKS_URLS="{urls}"\nSLURM_EXTENDER_HOOKS_TOKEN_FILE={folder}/token\n'
            "SLURM_EXTENDER_GATE_S=0\n"
        )
        (folder / "squeue").write_text("#!/bin/sh\necho 40000000 CANCELLED\n")
        (folder / "squeue").chmod(0o755)

    async def let_through(self, on: str, job: int = 7) -> bool:
        environment = {
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "SLURM_EXTENDER_HOOK_CONF": f"{self._folder}/gate.conf",
            "SLURM_JOB_ID": str(job),
            "SLURMD_NODENAME": on,
        }
        prolog = await asyncio.create_subprocess_exec(SCRIPT, env=environment)
        return await prolog.wait() == 0


async def test_gate_of_a_cluster_allows_jobs_that_meet_none_of_its_pods(tmp_path: Path) -> None:
    """A Pod of cluster b has lost the job, and still runs on b1. No Pod is on a1, or on the login
    node."""
    one, other = clusters(apart=True)
    (lost,), (ours,) = await other.place(1), await one.place(1)
    await until(lambda: runs(other.slurm, lost), within_s=15)
    notes = {ATTEMPT: "1", JOB_ID: str(lost), NODE: "b1"}
    other.pods = [pod(name="p0", uid="b-0", node="b1", gates=(), annotations=notes)]
    for each in (one, other):
        await each.begin_to_lead()
    other.slurm.admin_cancel(lost)
    async with serving(one, other) as urls:
        prologs = Prologs(tmp_path / "both", urls)
        asked = [("a1", 7), ("login", 7), ("a1", ours), ("b1", 7), ("b1", ours)]
        through = await asyncio.gather(*(prologs.let_through(*each) for each in asked))
    assert through == [True, True, True, False, False]
    async with serving(one) as urls:  # the hooks of cluster b are down
        prologs = Prologs(tmp_path / "one", f"{urls} http://127.0.0.1:1")
        through = await asyncio.gather(*(prologs.let_through(on) for on in ("a1", "login", "b1")))
    assert through == [True, False, False]
