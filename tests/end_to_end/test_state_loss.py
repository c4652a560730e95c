"""Tests of a slurmctld that comes back without any state: Pods keep running, and Slurm has jobs for the
Pods again."""

from __future__ import annotations

import json
import re

import pytest

from tests.end_to_end.actors import Actors
from tests.end_to_end.state_loss import lose_all_state, open_partition, waits_pinned
from tests.end_to_end.test_audit import audit, metrics
from tests.eventually import eventually
from wellknown.allocation import Allocation
from wellknown.names import DEVICE_PROBLEM

pytestmark = pytest.mark.real


def test_pod_with_new_cores_stays_and_pod_with_a_new_gpu_is_evicted(actors: Actors) -> None:
    """After the loss, slurmctld gives each job the first free cores and devices. On node-2, a deleted
    Pod had the first GPU. On node-3, a deleted Pod had the first core."""
    for node in ("node-1", "node-2", "node-3"):
        has_an_agent(actors, node)
    there = {"same": "node-1", "first": "node-2", "gpu": "node-2", "before": "node-3", "cores": "node-3"}
    gpus = {"same", "first", "gpu"}
    for name, node in there.items():
        actors.create(name, gpus=int(name in gpus), annotations={"required-nodes": node})
        actors.bound(name)
    stood = {name: granted(actors, name) for name in there}
    assert [stood[name].gres for name in ("first", "gpu")] == [gpu(0), gpu(1)]
    assert [stood[name].cores for name in ("before", "cores")] == ["0", "1"]
    uids = {name: uid_of(actors, name) for name in there}
    for name in ("first", "before"):
        actors.delete(name)
        actors.gone(name)
    lose_all_state(actors)

    told = actors.event("gpu", "SlurmDevicesChanged")
    assert told.endswith("has gpu 0 now, and the Pod runs on gpu 1")
    actors.gone("gpu", 60)
    eventually(lambda: granted(actors, "cores").cores == "0", "its cores on the Pod", 60)
    eventually(lambda: actors.scontrol("same")["JobState"] == "RUNNING", "its job runs again", 60)
    assert granted(actors, "same") == stood["same"]
    assert [uid_of(actors, name) for name in ("same", "cores")] == [uids["same"], uids["cores"]]
    actors.create("next", gpus=4, annotations={"required-nodes": "node-2"})
    assert actors.bound("next") == "node-2"


def has_an_agent(actors: Actors, node: str) -> None:
    """Writes the condition of a node agent."""
    condition = {"type": DEVICE_PROBLEM, "status": "False", "reason": "DevicesUsable"}
    patch = json.dumps({"status": {"conditions": [condition]}})
    actors.cluster.kubectl("patch", "node", node, "--subresource", "status", "-p", patch)


def gpu(number: int) -> str:
    return f"gpu:h100:1(IDX:{number})"


def uid_of(actors: Actors, name: str) -> str:
    return str((actors.see(name) or {})["metadata"]["uid"])


def granted(actors: Actors, name: str) -> Allocation:
    allocation = Allocation.parse((actors.see(name) or {})["metadata"]["annotations"])
    assert allocation is not None
    return allocation


def jobs_lost(actors: Actors) -> float:
    (told,) = re.findall(r"^slurm_extender_jobs_lost_total (\S+)$", metrics(actors), re.MULTILINE)
    return float(told)


def test_pods_run_on_and_get_their_nodes_back_before_native_jobs(closed: Actors) -> None:
    actors, cluster = closed, closed.cluster
    names = [f"big-{number}" for number in range(4)]
    for name in names:
        actors.create(name, cpu="8")
    nodes = {name: actors.bound(name) for name in names}
    actors.create("next", cpu="8")
    actors.queued("next")
    uids = {name: pod["metadata"]["uid"] for name, pod in actors.pods().items()}

    lost = jobs_lost(actors)
    lose_all_state(actors)
    native = cluster.run_slurm(
        "sbatch", "-n8", "-N1", "--mem=100", "--parsable", "--wrap", "sleep 60", user="alice"
    ).stdout.strip()
    eventually(lambda: all(waits_pinned(actors, n, nodes[n]) for n in names), "asked for again", 60)
    assert jobs_lost(actors) - lost == 4  # the jobs of the running Pods
    cluster.kill("extender")
    cluster.start("extender")
    eventually(lambda: "slurm_extender_pods_without_job 4.0" in metrics(actors), "counted anew", 40)
    told = [(kind, pod) for kind, pod, _ in audit(actors, "--settle", "1")[1]]
    assert sorted(told) == [("JobWaits", f"default/{actors.full(name)}") for name in names]
    open_partition(actors)

    def runs_where_its_pod_is(name: str) -> bool:
        job = actors.job_of(name)
        return job is not None and (job.state, job.node) == ("RUNNING", nodes[name])

    eventually(lambda: all(map(runs_where_its_pod_is, names)), "all in Slurm's books", 60)
    actors.queued("next")
    assert cluster.run_slurm("squeue", "-h", "-j", native, "-o", "%T").stdout.strip() == "PENDING"
    assert {name: pod["metadata"]["uid"] for name, pod in actors.pods().items()} == uids
    cluster.run_slurm("scancel", native)
    actors.scancel(names[0])  # the extender still watches the jobs
    actors.gone(names[0], 60)
    actors.bound("next", 60)
