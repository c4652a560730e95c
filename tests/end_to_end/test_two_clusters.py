"""Tests of two Kubernetes clusters on one Slurm, each with an extender and separate Nodes. Pods of both
clusters have the same names."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, QueuedJob
from tests.end_to_end.test_audit import audit
from tests.end_to_end.test_gate import KILL_WAIT, SLOW, Native, Watched, overlap, place, pod_on
from tests.eventually import eventually
from wellknown.job_key import JobIdRange

pytestmark = pytest.mark.real

NODES = (("node-1", "node-2"), ("node-3", "node-4"))
MIDDLE = 50_000_000
PROMPT_S = 4.0
KEY = "slurm-extender/"
RANGES = {
    "the same ids": (JobIdRange(), JobIdRange()),
    "ids apart": (JobIdRange(end=MIDDLE), JobIdRange(MIDDLE)),
}


class Side(Actors):
    """Actors of one cluster. In Slurm's queue, the actors see native jobs and the cluster's own
    placeholders."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        uid = ("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
        self._key = f"{KEY}{cluster.kubectl(*uid).stdout}/"
        self._ids = JobIdRange()

    def has(self, ids: JobIdRange) -> None:
        """Restarts the cluster's extender with the range of job ids, unless the range is in use
        already."""
        if ids != self._ids:
            self._ids = ids
            self.dies()
            self.begins()

    def dies(self) -> None:
        """Kills the extender of the cluster."""
        self.cluster.kill("extender")

    def begins(self) -> None:
        """Starts the extender of the cluster."""
        settings = {"JOB_ID_FIRST": self._ids.first, "JOB_ID_END": self._ids.end}
        environment = {f"SLURM_EXTENDER_{name}": str(value) for name, value in settings.items()}
        self.cluster.start("extender", env=environment)

    def named_as(self, other: Side) -> None:
        """Gives Pods the same names as in the other cluster."""
        self.round = other.round

    def jobs(self) -> list[QueuedJob]:
        seen = super().jobs()  # before the keys: a later job would have no key
        shown = self.cluster.run_slurm("squeue", "-h", "-O", "JobID:20,admin_comment:200").stdout
        keys = {int(line[:20]): line[20:].strip() for line in shown.splitlines()}
        placeholders = {job_id for job_id, key in keys.items() if key.startswith(KEY)}
        others = {job_id for job_id in placeholders if not keys[job_id].startswith(self._key)}
        return [job for job in seen if job.id in keys and job.id not in others]

    def state_of(self, name: str) -> str:
        """Returns the state of the Pod's job, or "" if the Pod has no job."""
        job = self.job_of(name)
        return job.state if job else ""


Both = tuple[Side, Side]


@pytest.fixture(scope="module")
def pair() -> Iterator[Both]:
    """Starts both clusters. Slurm belongs to the first cluster."""
    spec = ClusterSpec(
        nodes=4,
        gpus_per_node=0,
        kubernetes_nodes=NODES[0],
        gate=True,
        kill_wait=KILL_WAIT,
        extender_settings=(("AUDIT_INTERVAL_S", "2"),),
    )
    with ExitStack() as stack:
        folders = [
            stack.enter_context(tempfile.TemporaryDirectory(prefix="twin-")) for _ in ("first", "second")
        ]
        first = stack.enter_context(Cluster.up(spec, Path(folders[0])))
        beside = replace(spec, kubernetes_nodes=NODES[1], slurm_of=folders[0])
        sides = Side(first), Side(stack.enter_context(Cluster.up(beside, Path(folders[1]))))
        yield sides
        for side in sides:
            side.close()


@pytest.fixture(scope="module", params=list(RANGES))
def numbered(request: pytest.FixtureRequest, pair: Both) -> Both:
    for side, ids in zip(pair, RANGES[request.param], strict=True):
        side.has(ids)
    return pair


@pytest.fixture
def both(numbered: Both) -> Iterator[Both]:
    numbered[0].begin()
    numbered[1].named_as(numbered[0])
    yield numbered
    for side in numbered:
        side.clean_up()


with_the_same_ids = pytest.mark.parametrize("numbered", ["the same ids"], indirect=True)
with_ids_apart = pytest.mark.parametrize("numbered", ["ids apart"], indirect=True)


def test_pods_of_both_clusters_share_a_queue_and_use_their_own_nodes(both: Both) -> None:
    everything = ("sbatch", "-J", "native", "-N4", "--exclusive", "-o", "/dev/null")
    both[0].cluster.run_slurm(*everything, "--wrap", "sleep 600", user="alice")
    eventually(lambda: both[0].squeue()["native"].state == "RUNNING", "every node is the native job's")
    for side in both:
        side.create("p", cpu="8")
    jobs = [side.queued("p") for side in both]
    assert jobs[0].name == jobs[1].name
    assert jobs[0].id != jobs[1].id
    both[0].cluster.run_slurm("scancel", "-u", "alice")
    for side, nodes in zip(both, NODES, strict=True):
        node = side.bound("p")
        assert node in nodes
        job = side.job_of("p")
        assert job is not None
        assert (job.state, job.node) == ("RUNNING", node)


def test_ended_pods_and_jobs_of_one_cluster_end_nothing_in_the_other(both: Both) -> None:
    """Jobs and Pods have the same names in both clusters."""
    one, other = both
    for side in both:
        for name in ("deleted", "cancelled"):
            side.create(name)
            side.bound(name)
    one.delete("deleted")
    other.cluster.run_slurm("scancel", str(other.squeue()[other.job_name("cancelled")].id))
    one.gone("deleted")
    other.gone("cancelled")
    eventually(lambda: not one.state_of("deleted"), "its job has ended")
    for side, name in ((one, "cancelled"), (other, "deleted")):
        assert side.state_of(name) == "RUNNING"
        seen = side.see(name)
        assert seen is not None
        assert "deletionTimestamp" not in seen["metadata"]


@with_the_same_ids
def test_restarted_extender_ends_only_the_orphan_jobs_of_its_cluster(both: Both) -> None:
    """Pods of both clusters are deleted while both extenders are down. The other extender starts
    last."""
    one, other = both
    for side in both:
        for name in ("stays", "goes"):
            side.create(name, cpu="8")
            side.bound(name)
        side.create("waits", cpu="8")
        side.queued("waits")
    for side in both:
        side.dies()
        side.delete("goes")
        side.gone("goes")
    one.begins()
    eventually(lambda: not one.state_of("goes"), "the orphan is ended")
    one.bound("waits")
    states = [other.state_of(name) for name in ("stays", "goes", "waits")]
    other.begins()
    assert states == ["RUNNING", "RUNNING", "PENDING"]
    other.bound("waits")
    assert not other.state_of("goes")
    assert {side.state_of(name) for side in both for name in ("stays", "waits")} == {"RUNNING"}


@with_the_same_ids
def test_audit_lists_jobs_of_the_other_cluster_without_an_error(both: Both) -> None:
    for side in both:
        side.create("p")
        side.bound("p")
    with ThreadPoolExecutor(2) as pool:
        audits = list(pool.map(audit, both))
    for other, (status, found) in zip(reversed(both), audits, strict=True):
        job = other.job_of("p")
        assert job is not None
        assert (status, set(found)) == (0, {("OtherCluster", f"default/{other.full('p')}", job.id)})
    for side in both:
        told = eventually(lambda: side.problem("job ids of other clusters"), "told")  # noqa: B023 - at once
        assert "have ids in this cluster's range (33554432 to 67043327)" in told


@with_ids_apart
def test_native_job_waits_for_a_leaving_pod_only_on_the_pods_node(both: Both) -> None:
    """The extender of the other cluster answers that the node is not in its cluster. The native job
    still waits, even while the Pod's own extender is dead. Jobs on nodes of the other cluster start at
    once."""
    one, other = both
    node = NODES[0][0]
    place(one, node, does=SLOW)
    with closing(Watched(one)) as watched:
        native = Native(one, node).queued()
        cancelled = time.time()
        one.scancel(pod_on(node))
        native.waits_in_prolog()
        assert Native(other, NODES[1][0]).starts() - cancelled < PROMPT_S
        one.dies()
        died = time.time()
        assert Native(other, NODES[1][1]).starts() - died < PROMPT_S
        other.create("q")
        other.bound("q")
        assert native.started() is None
        one.begins()
        assert overlap(native, watched, pod_on(node), cancelled) == 0
